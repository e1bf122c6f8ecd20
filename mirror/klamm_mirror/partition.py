"""One partition on its way from source to target: what is fetched, sent and acknowledged. Pure: time is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client.outbox import Outbox
from klamm_mirror.raw import Batch
from klamm_mirror.sensors import PartitionSensors
from klamm_mirror.stops import Stop

BUFFER_BYTES: Final = 8 << 20
"""A partition with more bytes than this on its way is not fetched further."""


@dataclass(slots=True, eq=False, kw_only=True)
class MirrorPartition(Outbox[Batch]):
    """A partition's progress.

    `position` is the next source offset to fetch (-1: ask for it). `done` is the offset after the last
    acknowledged record without a gap before it (-1: none yet). `stopped` says why the partition is no longer
    fetched.
    """

    topic: str
    position: int = -1
    done: int = -1
    high_watermark: int = -1
    records: int = 0
    bytes: int = 0
    purged: int = 0
    """The number of offsets that the source had deleted before they were read."""
    latency_ms: int | None = None
    stopped: Stop | None = None
    reading: Backoff = field(default_factory=Backoff)
    buffered: int = 0
    sensors: PartitionSensors = field(default_factory=PartitionSensors)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def lag(self) -> int | None:
        """Records of the source that the target has not acknowledged; None: not known yet."""
        if self.high_watermark < 0 or self.done < 0:
            return None
        return max(self.high_watermark - self.done, 0)

    @property
    def full(self) -> bool:
        return self.buffered >= BUFFER_BYTES

    def begin(self, offset: int) -> None:
        """Sets the offset to fetch from."""
        self.position = self.done = offset

    def add(self, batches: Sequence[Batch], next_offset: int) -> None:
        """Takes fetched batches. `next_offset` may lie after the last batch, because control records have no batch here."""
        self.put(batches)
        self.buffered += sum(len(b.data) for b in batches)
        self.position = next_offset
        last = self._unsent[-1] if self._unsent else self._unacked[-1] if self._unacked else None
        if last is None:
            self.done = next_offset
        else:
            last.next_offset = next_offset

    def acked(self, batch: Batch, now_ms: int) -> None:
        """Notes that the target has the batch."""
        self.records += batch.count
        self.bytes += len(batch.data)
        self.buffered -= len(batch.data)
        self.latency_ms = max(now_ms - batch.max_timestamp, 0)
        self.sensors.acked(batch, now_ms)
        for done in self.delivered(batch):
            self.done = done.next_offset
