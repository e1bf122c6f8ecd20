"""Sends batches to the target's leaders, as `klamm_kafka.client.idempotent` does.

`run` raises errors that a repetition cannot cure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Never

from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.client.idempotent import TOO_LARGE, IdempotentSender
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.clients import ProducerSettings
from klamm_mirror.origins import Origin, Producers
from klamm_mirror.partition import MirrorPartition
from klamm_mirror.provenance import Provenance
from klamm_mirror.raw import Batch
from klamm_plugins.errors import ConnectError, DataError

_BAD: Final = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)

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
            partitions,
            in_flight=settings.in_flight,
            timeout_ms=settings.timeout_ms,
            request_bytes=settings.request_bytes,
        )
        self._provenance = provenance
        self._producers = Producers()
        for partition in partitions if provenance is not None else ():
            partition.producers = self._producers
        self.room = asyncio.Event()
        """Set when something was acknowledged."""
        self._on_ack = on_ack

    async def prepare(self) -> None:
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
        outbox.acked(parcel, offset, time.time_ns() // 1_000_000)
        self._on_ack(outbox, parcel, offset)

    async def refused(
        self, outbox: MirrorPartition, parcel: Batch, error: BrokerError, said: str | None
    ) -> Never:
        raise _explain(outbox, parcel, error, said)

    def unusable(self, error: ClientError) -> ConnectError:
        return ConnectError(f"The target cluster cannot be written to: {error}")

    def answered(self) -> None:
        self.room.set()


def _explain(partition: MirrorPartition, batch: Batch, error: BrokerError, said: str | None) -> ConnectError:
    where = f"{partition}, offsets {batch.first} to {batch.last}"
    if error.code in TOO_LARGE:
        return DataError(
            f"{where}: a batch of {len(batch.data)} bytes is larger than the target accepts for {partition.remote}: "
            f"raise max.message.bytes of that topic (or message.max.bytes of the target's brokers)"
        )
    text = f"{where}: {error}" + (f": {said}" if said else "")
    return DataError(text) if error.code in _BAD else ConnectError(text)
