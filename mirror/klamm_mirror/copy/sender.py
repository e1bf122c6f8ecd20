"""Sends batches to the target's leaders, as `klamm_kafka.client.idempotent` does.

A batch that the target refuses stops its partition. `run` raises errors that concern all partitions and that a repetition
cannot cure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.client.idempotent import TOO_LARGE, IdempotentSender
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_mirror.clients import ProducerSettings
from klamm_mirror.copy import copy_identity
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.splitting import apart
from klamm_mirror.origins import Origin, Producers
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Batch
from klamm_mirror.stops import Kind, Stop
from klamm_plugins.errors import ConnectError

_BAD: Final = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
_REFUSES_US: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})

LOOK_S: Final = 10.0
"""Seconds between two looks at the ids of copies to which nothing is written."""

OnAck = Callable[[MirrorPartition, Batch, int], None]
"""Called with partition, batch, and the target's offset of its first record (-1: unknown)."""


class Sender(IdempotentSender[MirrorPartition, Batch]):
    """A sender. `cluster` is a client of the target that nobody else uses. `provenance` marks its producers."""

    def __init__(
        self, cluster: Cluster, partitions: Sequence[MirrorPartition], on_ack: OnAck, settings: ProducerSettings,
        provenance: Provenance | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            cluster,
            (),
            in_flight=settings.in_flight,
            timeout_ms=settings.timeout_ms,
            request_bytes=settings.request_bytes,
        )
        self._partitions = partitions
        for partition in partitions:
            partition.busy = self.outboxes
        self._provenance = provenance
        self._producers = Producers()
        for partition in partitions if provenance is not None else ():
            partition.producers = self._producers
        self.room = asyncio.Event()
        """Set when something was acknowledged."""
        self._on_ack = on_ack
        self._look_at = 0.0

    def every_outbox(self) -> Sequence[MirrorPartition]:
        return self._partitions

    def learned(self, answer: MetadataResponse) -> None:
        self._look_at = time.monotonic() + LOOK_S
        copy_identity.identify(self._partitions, answer)

    def look_again(self) -> None:
        """Asks for the copies' ids again when it is time."""
        self.stale = self.stale or time.monotonic() >= self._look_at

    async def prepare(self) -> None:
        self.look_again()
        for origin in list(self._producers.wanted):
            self._producers.known[origin] = await self._marked_producer(origin)
            del self._producers.wanted[origin]

    async def new_producer(self, outbox: MirrorPartition | None = None) -> tuple[int, int]:
        return await self._marked_producer(None if outbox is None else outbox.origin)

    async def _marked_producer(self, origin: Origin | None) -> tuple[int, int]:
        """Returns a new producer whose mark all in-sync replicas have: no batch may be there before."""
        producer = await super().new_producer()
        if self._provenance is not None:
            await self._provenance.mark(producer[0], origin)
        return producer

    def delivered(self, outbox: MirrorPartition, parcel: Batch, offset: int) -> None:
        copy_identity.acknowledged(outbox, offset)
        outbox.acked(parcel, offset, time.time_ns() // 1_000_000)
        self._on_ack(outbox, parcel, offset)

    async def refused(
        self, outbox: MirrorPartition, parcel: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        """Splits the batch if the target may take the parts, else stops the partition at it. The others go on, unless the
        target refuses us altogether.
        """
        if error.code in _REFUSES_US:
            raise ConnectError(f"The target cluster cannot be written to: {error}")
        if outbox.split(parcel, self._parts(outbox, parcel, error, answer)):
            return
        now_ms = time.time_ns() // 1_000_000
        outbox.refused(parcel, time.monotonic(), Stop(
            kind=Kind.REFUSED, start=parcel.first, end=parcel.next_offset, since_ms=now_ms,
            why=_explain(outbox, parcel, error, answer), passing=error.code not in TOO_LARGE | _BAD,
        ))  # fmt: skip

    def _parts(
        self, outbox: MirrorPartition, batch: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> Sequence[Batch]:
        if error.code in TOO_LARGE:
            return outbox.too_large(batch)
        return apart(batch, {e.batch_index for e in answer.record_errors})

    def unusable(self, error: ClientError) -> ConnectError:
        return ConnectError(f"The target cluster cannot be written to: {error}")

    def answered(self) -> None:
        self.room.set()


def _explain(
    partition: MirrorPartition, batch: Batch, error: BrokerError, answer: PartitionProduceResponse
) -> str:
    if error.code in TOO_LARGE:
        return (
            f"a record (offset {batch.first}) makes a batch of {len(batch.data)} bytes, which is more than the target accepts "
            f"for {partition.remote}: raise max.message.bytes of that topic (or message.max.bytes of the target's brokers)"
        )
    text = f"the target refuses offsets {batch.first} to {batch.last} for {partition.remote}: {error}"
    said = [e.batch_index_error_message for e in answer.record_errors[:1]] + [answer.error_message]
    return text + next((f": {s}" for s in said if s), "")
