"""Decides what of a former backup still holds for a partition, and from which offset on to read: pure.

A chunk is kept as long as the log can still hold its records: same topic (by its id), nothing cut off by a leader that had less,
and not all deleted by retention.

A compacted log needs more: the former chunks may hold a key that was deleted since. The tombstone behind them says so, but the
cleaner removes it, too, at the earliest `delete.retention.ms` after it was written. A backup that is younger than that meets every tombstone;
after a longer time the log is read anew. So it is when the chunks hold about twice as much as the log: the cleaner removes records, chunks stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.backup.model import Chunk, Partition

CLOCK_MARGIN: Final = 0.9
"""The part of delete.retention.ms that counts: clocks differ, and reading takes time."""


OVERGROWN: Final = 2
"""A compacted log is read anew when its chunks have so many times its bytes."""
OVERGROWN_BYTES: Final = 1 << 20
"""Chunks of less are left alone: brokers compact no segment that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A partition as the cluster has it now. `epoch_end`: the end of the log's part up to the leader epoch that the former
    backup ended with; None where the broker cannot say. `size`: the bytes of a compacted log, None where they are not known.
    """

    start: int
    end: int
    epoch_end: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """Chunks that stay, the offset to read from, and why not all former chunks stay ("" if they do)."""

    kept: tuple[Chunk, ...]
    position: int
    why: str = ""


def plan(former: Partition | None, log: Log, *, same_topic: bool = True, stale: bool = False) -> Increment:
    """Return what to keep and to read. `stale`: the former backup of this compacted topic is too old."""
    if former is None:
        return Increment(kept=(), position=log.start)
    if not same_topic:
        return Increment(kept=(), position=log.start, why="the topic was made anew")
    if stale:
        return Increment(
            kept=(), position=log.start, why="tombstones may be gone: the last backup is older than delete.retention.ms"
        )  # fmt: skip
    held = sum(c.raw_bytes for c in former.chunks)
    if log.size is not None and held > max(OVERGROWN * log.size, OVERGROWN_BYTES):
        return Increment(
            kept=(), position=log.start, why=f"the backup holds {held} bytes of it, the compacted log {log.size}"
        )  # fmt: skip
    cut = min(former.end, log.end if log.epoch_end is None else min(log.end, log.epoch_end))
    kept = tuple(c for c in former.chunks if c.end <= cut and c.end > log.start)
    if cut < former.end:
        position = max(kept[-1].end if kept else log.start, log.start)
        return Increment(kept=kept, position=position, why=f"the log was cut at offset {cut}")
    return Increment(kept=kept, position=max(former.end, log.start))


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Return whether the cleaner compacts a topic. `configs` are the topic's effective ones."""
    return "compact" in configs.get("cleanup.policy", "delete")


def is_stale(configs: Mapping[str, str], *, former_ms: int, now_ms: int) -> bool:
    """Return whether a former backup of a topic may miss tombstones. `configs` are the topic's effective ones."""
    if not is_compacted(configs):
        return False
    kept_ms = int(configs.get("delete.retention.ms", "86400000")) * CLOCK_MARGIN
    return now_ms - former_ms >= kept_ms
