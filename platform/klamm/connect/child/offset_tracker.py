"""Which source offsets may be committed: the contiguous acknowledged prefix of each source partition. Pure.

Records of one poll that share a source partition make up runs; a run is one entry here however many records
it has, and its delivery callback counts it down. Invariant: an offset is committable only when every
record submitted before it for the same source partition, and all of its own run, is acknowledged. A run that
fails is never counted down, so nothing behind it is ever committed.
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
    """Some consecutive records of one source partition. `pending` counts those not yet acknowledged."""

    __slots__ = ("offset", "pending")

    def __init__(self, offset: Offset, pending: int) -> None:
        self.offset = offset
        self.pending = pending


@dataclass(frozen=True, slots=True)
class Committable:
    """The offset that a source partition may be committed at."""

    partition: Partition
    offset: Offset


@dataclass(slots=True)
class _Line:
    """One source partition: its runs in order, and how far it is."""

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
    """See the module. Not thread-safe: one thread submits, counts down and commits."""

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}

    def submit(self, partition: Partition, offset: Offset, count: int) -> Run:
        """Register `count` records, about to be sent, the last of which has `offset`.

        Count the returned run's `pending` down by one for each acknowledgement. `count` may be 0 (all were
        filtered out): the offset then advances with what is before it.
        """
        key = orjson.dumps(partition, option=orjson.OPT_SORT_KEYS)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(copy(partition))
        line.advance()  # keeps the queue short between commits
        # A copy, as of the partition: a task that goes on counting in its dict must not move what is committed.
        run = Run(copy(offset), count)
        line.runs.append(run)
        return run

    def committable(self) -> list[Committable]:
        """The offsets that have advanced since they were last `committed`."""
        found = []
        for line in self._lines.values():
            line.advance()
            if line.reached is not None and line.reached is not line.committed:
                found.append(line.reached)
        return found

    def committed(self, offsets: list[Committable]) -> None:
        """These, from `committable`, are stored. Those that could not be are simply not named: they, or
        what has been reached since, come again.
        """
        stored = {id(offset) for offset in offsets}
        for key, line in list(self._lines.items()):
            if line.reached is not None and id(line.reached) in stored:
                line.committed = line.reached
            if not line.runs and line.reached is line.committed:
                del self._lines[key]  # a source may have partitions without end (files that come and go)

    @property
    def pending(self) -> int:
        """Records submitted and not acknowledged."""
        return sum(run.pending for line in self._lines.values() for run in line.runs)
