"""Sends a task's batches in the open transaction of its producer.

Batches that failed go again with their sequence numbers, as long as the transaction lives. Anything that a repetition
in the same transaction cannot cure ends it (TransactionFailed): the task begins anew at the committed offsets. A
partition that could hold up the end of the transaction does not join it, see `admission`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, Never

from klamm_kafka.client import BrokerError, ClientError, Connection, ProducerFenced, TransactionFailed
from klamm_kafka.client.outbox import Gate
from klamm_kafka.client.transaction import ENDED
from klamm_kafka.client.transactional import PRODUCE_VERSION, TransactionalProducer
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_mirror.copy.admission import MIN_ISR, Admission
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.sender import Sender
from klamm_mirror.provenance.config import ORIGIN
from klamm_mirror.raw import Batch
from klamm_mirror.topics import topic_admin
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

ASK_S: Final = 0.5
"""Seconds between two questions about replicas, where the first had no answer."""


class TransactionalSender(Sender):
    """A sender with one producer, which is initialized already."""

    PRODUCE_VERSION = PRODUCE_VERSION

    def __init__(self, *common: Any, producer: TransactionalProducer) -> None:
        super().__init__(*common)
        self.transactional_id: str = producer.id
        self._marked = -1
        self._transactional = producer
        self._admission = Admission()
        self._unsure: list[MirrorPartition] = []
        """Partitions that wait for news of their replicas."""
        self._ask_at = 0.0
        self._undescribed: set[str] = set()
        """Topics whose setting we may not read."""
        self.gate = Gate()
        for partition in self.every_outbox():
            partition.transactional, partition.gate = True, self.gate

    def takes_part(self, partition: MirrorPartition) -> bool:
        """Decides whether the open transaction has the partition."""
        return (partition.remote, partition.partition) in self._transactional.transaction.partitions

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
        self.look_again()
        for origin in self._producers.wanted:
            raise ConnectError(
                f"Records that first were at cluster {origin and origin.alias} come by this flow. Exactly once keeps records of "
                "the flow's source alone from going round: bring the others by a flow of their own "
                f"({ORIGIN.format(origin and origin.alias)} leaves them out here), or leave exactly once off for this flow"
            )
        if self._unsure and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + ASK_S
            await self._ask_for_replicas(self._unsure)

    async def _ask_for_replicas(self, partitions: Sequence[MirrorPartition]) -> None:
        if not self._admission.has_metadata(time.monotonic()):
            await self._find_leaders()
        topics = self._admission.topics_to_ask(partitions, time.monotonic())
        if not topics:
            return
        try:
            found = await topic_admin.settings(self._cluster, topics, {MIN_ISR})
        except ClientError as e:
            if not e.retriable:
                raise self.unusable(e) from None
            log.info("%s of topics is not known: %s", MIN_ISR, e)
            return
        told = {
            topic: int(s.value) for topic, own in found.items() for s in own if s.value and s.name == MIN_ISR
        }
        refused = set(topics) - set(told) - self._undescribed
        if refused:
            log.warning(
                "%s of %s may not be read: a partition with fewer replicas in sync would hold up the others",
                MIN_ISR, ", ".join(sorted(refused)[:10]),
            )  # fmt: skip
            self._undescribed |= refused
        self._admission.configured(dict.fromkeys(topics, 1) | told, time.monotonic())

    def learned(self, answer: MetadataResponse) -> None:
        super().learned(answer)
        self._admission.learned(answer, time.monotonic())

    def _send_ready(self) -> bool:
        self._unsure = []
        any_sent = super()._send_ready()
        return any_sent or bool(self._unsure and time.monotonic() >= self._ask_at)

    def _take(self, outboxes: list[MirrorPartition], now: float) -> list[tuple[MirrorPartition, Batch]]:
        return super()._take([o for o in outboxes if self._may_send(o, now)], now)

    def _may_send(self, outbox: MirrorPartition, now: float) -> bool:
        """Decides whether the partition is in the transaction, or may join it now."""
        if self.takes_part(outbox):
            return True
        if self.gate.closed or now < max(outbox.joins_at, outbox.writing.until):
            return False
        if not self._admission.knows(outbox, now):
            self._unsure.append(outbox)
            return False
        lack = self._admission.lack(outbox)
        if lack is not None:
            if outbox.writing.why is None:
                log.warning("%s waits: %s", outbox, lack)
            outbox.writing.failed(now, lack)
        return lack is None

    def failed(self, outbox: MirrorPartition, error: ClientError) -> None:
        if isinstance(error, BrokerError) and error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
            outbox.scarce = True
        super().failed(outbox, error)

    def delivered(self, outbox: MirrorPartition, parcel: Batch, offset: int) -> None:
        outbox.scarce = False
        self._admission.acked(outbox, time.monotonic())
        super().delivered(outbox, parcel, offset)

    async def before_sending(
        self, connection: Connection, outboxes: Sequence[MirrorPartition]
    ) -> dict[MirrorPartition, BrokerError]:
        # The connection is there: a leader that is away would hold up the transaction.
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
