"""Sends a task's batches in the open transaction of its producer.

Batches that failed go again with their sequence numbers, as long as the transaction lives. Anything that a repetition
in the same transaction cannot cure ends it (TransactionFailed): the task begins anew at the committed offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from klamm_kafka.client import BrokerError, ClientError, Connection, ProducerFenced, TransactionFailed
from klamm_kafka.client.outbox import Gate
from klamm_kafka.client.transaction import ENDED
from klamm_kafka.client.transactional import PRODUCE_VERSION, TransactionalProducer
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.sender import Sender
from klamm_mirror.provenance.config import ORIGIN
from klamm_mirror.raw import Batch
from klamm_plugins.errors import ConnectError


class TransactionalSender(Sender):
    """A sender with one producer, which is initialized already."""

    PRODUCE_VERSION = PRODUCE_VERSION

    def __init__(self, *common: Any, producer: TransactionalProducer) -> None:
        super().__init__(*common)
        self.transactional_id: str = producer.id
        self._marked = -1
        self._transactional = producer
        self.gate = Gate()
        for partition in self.every_outbox():
            partition.transactional, partition.gate = True, self.gate

    def open_gate(self) -> None:
        """Goes on sending after the end of a transaction."""
        self.gate.closed = False
        self.wake.set()

    async def new_producer(self, outbox: MirrorPartition | None = None) -> tuple[int, int]:
        """Returns the producer, which stays. `MirrorPartition.move` continues its sequence numbers."""
        producer = self._transactional.transaction.producer
        if self._provenance is not None and self._marked != producer[0]:
            await self._provenance.mark_lasting(producer[0], self.transactional_id)
            self._marked = producer[0]
        return producer

    async def prepare(self) -> None:
        """Raises ConnectError for records of a third cluster: they would need a producer, and a transaction, of their own."""
        for origin in self._producers.wanted:
            raise ConnectError(
                f"Records that first were at cluster {origin and origin.alias} come by this flow. Exactly once keeps records of "
                "the flow's source alone from going round: bring the others by a flow of their own "
                f"({ORIGIN.format(origin and origin.alias)} leaves them out here), or leave exactly once off for this flow"
            )

    async def before_sending(
        self, connection: Connection, outboxes: Sequence[MirrorPartition]
    ) -> dict[MirrorPartition, BrokerError]:
        by_place = {(o.remote, o.partition): o for o in outboxes}
        refused = await self._transactional.add_known(by_place)
        return {by_place[place]: error for place, error in refused.items()}

    async def forgotten(self, outbox: MirrorPartition, error: BrokerError) -> Never:
        raise self._transactional.transaction.failed(str(error))

    async def refused(
        self, outbox: MirrorPartition, parcel: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        if error.code in ENDED:
            raise self._transactional.transaction.failed(str(error))
        await super().refused(outbox, parcel, error, answer)

    def unusable(self, error: ClientError) -> Any:
        if isinstance(error, TransactionFailed | ProducerFenced):
            return error
        return super().unusable(error)
