"""Compares one partition: reads both sides to the ends that they had at the beginning, and lets the aligner decide.

The comparison can be stored at any moment (`stored`) and go on from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.verify.align import Aligner, Side
from klamm_mirror.verify.reader import CannotCompareError, LogReader, TimestampsDifferError
from klamm_mirror.verify.rows import AFTER_GAP, BEGINS_LATER, Row
from klamm_mirror.verify.tally import Tally

LOOK_S: Final = 0.2
RESUMED_HISTORY: Final = 100_000
"""Offsets that are read again after a resumption, to know records that the target has twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One partition to compare. `remote` is the topic's name at the target.

    `marks` are source offsets whose places at the target are wanted. `later`: the flow may have begun to copy later
    than at the source's first record. `appended_at`: the target offset at which the flow appended the topic to records of
    a former one, or to what was left of its copy.
    """

    topic: str
    partition: int
    remote: str
    compacted: bool = False
    later: bool = False
    appended_at: int = 0
    marks: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result for one partition."""

    tally: Tally
    places: dict[int, int] = field(default_factory=dict)
    first_offset: int = 0
    """The first source offset that was compared."""
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ends:
    """The ends of both logs at the beginning. `target` 0: it is not known which of its records the source has."""

    source: int
    target: int


class PartitionComparison:
    """Compares one partition. `patience_s` is how long the target may stand still before the rest counts as behind.

    `said` is called often with the share that is done, from 0 to 1.
    """

    def __init__(
        self, work: Work, source: Cluster, target: Cluster, *, patience_s: float, said: Callable[[float], None]
    ) -> None:  # fmt: skip
        self.work = work
        self._clusters = source, target
        self._patience_s = patience_s
        self._said = said
        self._timestamps = True
        self._notes: list[str] = []
        self._first = 0
        self._aligner = self._new_aligner()

    async def run(self, stored: Mapping[str, Any] | None = None) -> Outcome:
        """Compares; continues what was stored. Raises CannotCompareError."""
        if stored is not None:
            self._timestamps = bool(stored["timestamps"])
        try:
            return await self._run(stored)
        except TimestampsDifferError:
            self._timestamps = False
            return await self._run(None)

    def stored(self) -> dict[str, Any]:
        """Returns the state so far, as JSON."""
        aligner = self._aligner
        return {
            "timestamps": self._timestamps,
            "first": self._first,
            "source": aligner.source_next,
            "target": aligner.target_next,
            "tally": aligner.tally.as_json(),
            "places": {str(mark): place for mark, place in aligner.places.items()},
            "lacking": aligner.pending_json(),
            "notes": self._notes,
        }

    def _new_aligner(self) -> Aligner:
        return Aligner(compacted=self.work.compacted, marks=self.work.marks)

    async def _run(self, stored: Mapping[str, Any] | None) -> Outcome:
        self._aligner, self._notes = self._new_aligner(), []
        source, target = self._reader(Side.SOURCE), self._reader(Side.TARGET)
        ends = await self._ends(source, target)
        if stored is not None and stored["source"] >= 0:
            await self._continue(stored, source, target)
        else:
            await self._begin(source, target)
        await self._align(source, target, ends)
        if any(self._aligner.lacking.values()):  # later records may explain what is pending
            ends.source = await source.offset(LATEST, committed=True)
            await self._align(source, target, ends)
        self._aligner.close(target_end=ends.target)
        self._note_purged(source, target)
        return Outcome(
            tally=self._aligner.tally, first_offset=self._first, notes=self._notes,
            places={m: max(p, self.work.appended_at) for m, p in self._aligner.places.items()},
        )  # fmt: skip

    def _reader(self, side: Side) -> LogReader:
        target = side is Side.TARGET
        return LogReader(
            self._clusters[target], self.work.remote if target else self.work.topic, self.work.partition,
            target=target, stable_keys=self.work.compacted, timestamps=self._timestamps,
        )  # fmt: skip

    # ---- where to begin and to end

    async def _ends(self, source: LogReader, target: LogReader) -> Ends:
        """Asks the target first: all that it has by then comes from records that the source has by now."""
        target_end = await target.offset(LATEST, committed=True)
        source_end = await source.offset(LATEST, committed=True)
        if source_end < await source.offset(LATEST):
            self._notes.append(f"compared up to an open transaction at source offset {source_end}")
            target_end = 0
        return Ends(source_end, target_end)

    async def _begin(self, source: LogReader, target: LogReader) -> None:
        first = await source.offset(EARLIEST), await self._pass_former(target)
        source.begin(first[0], AFTER_GAP if first[0] else 0)
        purged = bool(first[1]) and first[1] != self.work.appended_at
        later = self.work.later and not self.work.appended_at
        target.begin(first[1], AFTER_GAP if purged else BEGINS_LATER if later else 0)
        self._first = first[0]
        ours = await source.read() if first[0] else []
        theirs = await target.read() if purged or later else []
        if ours and (place := await self._from_time_of(ours, target)) > first[1]:
            self._notes.append(f"target offsets {first[1]} to {place - 1} are older than the source's log")
            target.begin(place)
            theirs = []
        elif theirs and (place := await self._from_time_of(theirs, source)) > first[0]:
            self._notes.append(f"source offsets {first[0]} to {place - 1} are older than the target's log")
            source.begin(place)
            self._first, ours = place, []
        self._aligner.target_purged = purged and target.end == first[1]
        self._aligner.source += ours
        self._aligner.target += theirs

    async def _pass_former(self, target: LogReader) -> int:
        """Returns the target's first offset; that at which the topic was appended, if it is in the log and later."""
        first, at = await target.offset(EARLIEST), self.work.appended_at
        if not first < at <= await target.offset(LATEST):
            return first
        self._notes.append(
            f"target offsets {first} to {at - 1} were there when the topic was appended, by the gap ledger"
        )
        return at

    async def _from_time_of(self, rows: list[Row], other: LogReader) -> int:
        """Returns the other log's first offset with a timestamp from that of these rows on; -1: not known.

        No equal record can lie before it.
        """
        time_ms = min(row.content[0] for row in rows)
        return await other.offset(time_ms) if self._timestamps and time_ms > 0 else -1

    async def _continue(self, stored: Mapping[str, Any], source: LogReader, target: LogReader) -> None:
        """Takes the stored state, and reads the last records before it once more for the history."""
        self._aligner.tally = Tally.of_json(stored["tally"])
        self._aligner.places = {int(mark): place for mark, place in stored["places"].items()}
        self._aligner.resume(stored["lacking"])
        self._first, self._notes = stored["first"], list(stored["notes"])
        place = stored["source"]
        self._aligner.source_next, self._aligner.target_next = place, stored["target"]
        target.begin(max(stored["target"], self.work.appended_at))
        source.begin(max(place - RESUMED_HISTORY, await source.offset(EARLIEST)))
        while source.position < place:
            rows = await source.read()
            if not rows and source.position >= source.end:
                break
            self._aligner.history.add(row for row in rows if row.offset < place)
            self._aligner.source += [row for row in rows if row.offset >= place]

    # ---- the loop

    async def _align(self, source: LogReader, target: LogReader, ends: Ends) -> None:
        """Reads and compares up to the ends, or until the target has stood still for too long."""
        aligner, moved_at = self._aligner, time.monotonic()
        start, gave_up, lost = source.position, False, False
        while True:
            at_end = lost or source.position >= ends.source
            nothing_left = at_end and not aligner.source and target.position >= ends.target
            side = aligner.step(source_ended=at_end, target_ended=gave_up or nothing_left)
            if side is None:
                return
            reader = source if side is Side.SOURCE else target
            before = reader.position
            rows = await reader.read()
            if side is Side.SOURCE:
                aligner.source += [row for row in rows if row.offset < ends.source]
                lost = not rows and source.end < ends.source and source.position >= source.end
            else:
                aligner.target += rows
            if reader.position > before:
                moved_at = time.monotonic()
            elif side is Side.TARGET:
                gave_up = time.monotonic() - moved_at >= self._patience_s
                await asyncio.sleep(LOOK_S)
            self._said(min(1.0, (source.position - start) / max(ends.source - start, 1)))
            if lost:
                raise CannotCompareError(f"{source} ended at {ends.source} and ends at {source.end} now")

    def _note_purged(self, *readers: LogReader) -> None:
        for reader in readers:
            self._notes += [
                f"{reader}: offsets {a} to {b - 1} were deleted meanwhile" for a, b in reader.purged
            ]
        tally = self._aligner.tally
        if self.work.compacted and (tally.compacted_at_source or tally.compacted_at_target):
            self._notes.append("compacted: compared what both sides still have")
        if not self._timestamps:
            self._notes.append("timestamps are not compared: the target's brokers set them (LogAppendTime)")
