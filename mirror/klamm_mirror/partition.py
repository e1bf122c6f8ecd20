"""One partition on its way from source to target: what is fetched, sent, acknowledged. Pure: time is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client.outbox import Outbox
from klamm_mirror.raw import Batch
from klamm_mirror.sensors import PartitionSensors

BUFFER_BYTES: Final = 8 << 20
"""A partition with more than this on its way is not fetched further."""


@dataclass(slots=True, eq=False, kw_only=True)
class MirrorPartition(Outbox[Batch]):
    """`position` is the next source offset to fetch (-1: to be asked for), `done` the one behind all that is
    acknowledged (-1: none yet). `stopped` says why it is not fetched any more.
    """

    topic: str
    position: int = -1
    done: int = -1
    high_watermark: int = -1
    records: int = 0
    bytes: int = 0
    purged: int = 0
    """Offsets that the source had deleted before they were read."""
    latency_ms: int | None = None
    stopped: str | None = None
    reading: Backoff = field(default_factory=Backoff)
    buffered: int = 0
    sensors: PartitionSensors = field(default_factory=PartitionSensors)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def lag(self) -> int | None:
        """Records of the source that are not acknowledged at the target; None: not known yet."""
        if self.high_watermark < 0 or self.done < 0:
            return None
        return max(self.high_watermark - self.done, 0)

    @property
    def full(self) -> bool:
        return self.buffered >= BUFFER_BYTES

    def begin(self, offset: int) -> None:
        """Where to fetch from."""
        self.position = self.done = offset

    def add(self, batches: Sequence[Batch], next_offset: int) -> None:
        """Take what was fetched; `next_offset` may lie behind the last batch (control records have no batch)."""
        self.put(batches)
        self.buffered += sum(len(b.data) for b in batches)
        self.position = next_offset
        last = self._unsent[-1] if self._unsent else self._unacked[-1] if self._unacked else None
        if last is None:
            self.done = next_offset
        else:
            last.next_offset = next_offset

    def acked(self, batch: Batch, now_ms: int) -> None:
        """The target has it."""
        self.records += batch.count
        self.bytes += len(batch.data)
        self.buffered -= len(batch.data)
        self.latency_ms = max(now_ms - batch.max_timestamp, 0)
        self.sensors.acked(batch, now_ms)
        for done in self.delivered(batch):
            self.done = done.next_offset
