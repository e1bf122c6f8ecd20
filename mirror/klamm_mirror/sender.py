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
from klamm_mirror.partition import MirrorPartition
from klamm_mirror.raw import Batch
from klamm_plugins.errors import ConnectError, DataError

_BAD: Final = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)

OnAck = Callable[[MirrorPartition, Batch, int], None]
"""Called with partition, batch, and the target's offset of its first record (-1: unknown)."""


class Sender(IdempotentSender[MirrorPartition, Batch]):
    """A sender. `cluster` is a client of the target that nobody else uses."""

    def __init__(self, cluster: Cluster, partitions: Sequence[MirrorPartition], on_ack: OnAck) -> None:
        super().__init__(cluster, partitions)
        self.room = asyncio.Event()
        """Set when something was acknowledged."""
        self._on_ack = on_ack

    def delivered(self, outbox: MirrorPartition, parcel: Batch, offset: int) -> None:
        outbox.acked(parcel, time.time_ns() // 1_000_000)
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
