"""The source offsets that may be committed: the contiguous acknowledged prefix of each source partition.
Pure.

The records of one poll with the same source partition form a run. A run is one entry here however many
records it has, and its delivery callback counts it down. Invariant: an offset is committable only when every
record submitted before it for the same source partition, and all of its own run, is acknowledged. A failed
run is never counted down, so nothing after it is ever committed.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import orjson

Offset = dict[str, Any]
Partition = dict[str, Any]


class Run:
    """Consecutive records of one source partition. `pending` counts those not yet acknowledged."""

    __slots__ = ("offset", "pending")

    def __init__(self, offset: Offset, pending: int) -> None:
        self.offset = offset
        self.pending = pending


@dataclass(frozen=True, slots=True)
class Committable:
    """The offset that may be committed for a source partition."""

    partition: Partition
    offset: Offset


@dataclass(slots=True)
class _Line:
    """One source partition: its runs in order, and its progress."""

    partition: Partition
    runs: deque[Run] = field(default_factory=deque)
    reached: Committable | None = None
    committed: Committable | None = None

    def advance(self) -> None:
        last = None
        while self.runs and self.runs[0].pending == 0:
            last = self.runs.popleft()
        if last is not None:
            self.reached = Committable(self.partition, last.offset)


class OffsetTracker:
    """The runs of all source partitions. Not thread-safe: one thread submits, counts down and commits."""

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}

    def submit(self, partition: Partition, offset: Offset, count: int) -> Run:
        """Registers `count` records that are about to be sent; the last of them has `offset`.

        The caller counts the returned run's `pending` down by one for each acknowledgement. `count` may be 0
        (all were filtered out): the offset then advances with the runs before it.
        """
        key = orjson.dumps(partition, option=orjson.OPT_SORT_KEYS)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(copy(partition))
        line.advance()  # keeps the queue short between commits
        # A copy, like the partition's: a task that goes on counting in its dict must not change the committed
        # offset.
        run = Run(copy(offset), count)
        line.runs.append(run)
        return run

    def committable(self) -> list[Committable]:
        """Returns the offsets that have advanced since they were last `committed`."""
        found = []
        for line in self._lines.values():
            line.advance()
            if line.reached is not None and line.reached is not line.committed:
                found.append(line.reached)
        return found

    def committed(self, offsets: list[Committable]) -> None:
        """Records that these offsets from `committable` are stored.

        Offsets that could not be stored are left out of `offsets`; `committable` returns them, or later ones,
        again.
        """
        stored = {id(offset) for offset in offsets}
        for key, line in list(self._lines.items()):
            if line.reached is not None and id(line.reached) in stored:
                line.committed = line.reached
            if not line.runs and line.reached is line.committed:
                del self._lines[key]  # a source may have partitions without end (files that come and go)

    @property
    def pending(self) -> int:
        """The number of records submitted and not acknowledged."""
        return sum(run.pending for line in self._lines.values() for run in line.runs)
