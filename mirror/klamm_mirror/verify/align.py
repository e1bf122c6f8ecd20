"""Aligns a partition's records at the source with those at the target, in their order: pure.

Offsets differ between the clusters, so records are matched by their content: equal ones consume each other. Where the
next two differ, the nearest later pair of equal records is looked for, and everything before it is explained:
repeated by a mirror that was killed, compacted, deleted by retention, aborted; or else missing, extra or different.

A compacted topic may lack any record that has a later one with its key, and any tombstone. Whether there is a later
one shows only later; until then such records are pending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from klamm_mirror.verify.rows import ABORTED, AFTER_GAP, BEGINS_LATER, TOMBSTONE, Content, Row, differing
from klamm_mirror.verify.tally import Tally

REACH_FIRST: Final = 64
REACH_FACTOR: Final = 8
WINDOW: Final = 200_000
"""The records of each side among which an equal pair is looked for."""
HISTORY: Final = 400_000
"""At least so many compared records are remembered, to know a repeated one: more than a mirror sends between two commits."""


class Side(StrEnum):
    """One of the two logs."""

    SOURCE = "source"
    TARGET = "target"


class History:
    """The contents of the records that came last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._now: set[Content] = set()
        self._before: set[Content] = set()

    def __contains__(self, content: object) -> bool:
        return content in self._now or content in self._before

    def add(self, rows: Iterable[Row]) -> None:
        self._now.update(row.content for row in rows)
        if len(self._now) >= self._size:
            self._before, self._now = self._now, set()


class Pending:
    """Records of a compacted topic that one side lacks, by key, until a later record of the key explains them."""

    def __init__(self, found: Sequence[Sequence[int]] = ()) -> None:
        self._by_key: dict[int, list[int]] = {}
        for key, *offsets in found:
            self._by_key[key] = list(offsets)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, row: Row) -> None:
        self._by_key.setdefault(row.key, []).append(row.offset)

    def explain(self, key: int) -> int:
        """Returns how many records the later one explains."""
        return len(self._by_key.pop(key, ()))

    def offsets(self) -> list[int]:
        """Returns the offsets of all that nothing explained."""
        return sorted(offset for offsets in self._by_key.values() for offset in offsets)

    def as_json(self) -> list[list[int]]:
        return [[key, *offsets] for key, offsets in self._by_key.items()]


class Aligner:
    """Compares one partition. Put rows into `source` and `target`, then call `step`.

    `marks` are source offsets whose place at the target is wanted, in `places`.
    """

    def __init__(
        self,
        *,
        compacted: bool = False,
        marks: Iterable[int] = (),
        tally: Tally | None = None,
        window: int = WINDOW,
        history: int = HISTORY,
    ) -> None:
        self.tally = Tally() if tally is None else tally
        self.source: list[Row] = []
        self.target: list[Row] = []
        self.source_next = self.target_next = -1
        """The offsets after the last decided rows; -1: none is."""
        self.places: dict[int, int] = {}
        self.history = History(history)
        self.lacking: dict[Side, Pending] = {side: Pending() for side in Side}
        """Records that this side lacks."""
        self.target_purged = False
        """The target deleted all that it had: nobody knows any more what the source has more than it had."""
        self._marks = sorted(set(marks))
        self._compacted = compacted
        self._window = window

    def step(self, *, source_ended: bool, target_ended: bool) -> Side | None:
        """Decides what can be decided. Returns the side to read more of; None: everything is decided, or only the
        target's end is left.
        """
        ended = {Side.SOURCE: source_ended, Side.TARGET: target_ended}
        while True:
            self._take_equal()
            if not self.target and target_ended:
                self._count_behind()
            for side, rows in ((Side.SOURCE, self.source), (Side.TARGET, self.target)):
                if not rows and not ended[side]:
                    return side
            if not self.source or not self.target:
                return None
            pair, short = self._look(ended)
            if pair is not None:
                self._explain(*pair)
            elif short is not None:
                return short
            elif source_ended and target_ended:
                return None
            else:
                self._drop_older()

    def close(self, *, target_end: int) -> None:
        """Judges what is left when both logs are read: the source to its end, the target at least to `target_end`."""
        ours, theirs = list(self.source), [row for row in self.target if row.offset < target_end]
        at = self.target_next
        self.source, self.target = [], self.target[len(theirs) :]
        self._cover(ours, theirs)
        self._settle(theirs)
        behind = [row for row in ours if not self._explained_at_source(row)]
        more = [row for row in theirs if not self._explained_at_target(row)]
        changed, behind, more = _paired(behind, more, in_order=not self._compacted)
        self._judge(changed, [], more, at)
        self._settle(ours)
        self._note_behind(behind)
        for offset in self.lacking[Side.TARGET].offsets():
            self.tally.missing += 1
            self.tally.note(offset, None, "missing")
        for offset in self.lacking[Side.SOURCE].offsets():
            self.tally.extra += 1
            self.tally.note(None, offset, "extra")
        self.places |= dict.fromkeys(self._marks, max(self.target_next, 0))
        self._marks = []

    # ---- the end

    def _count_behind(self) -> None:
        """Decides the source's rows where the target has no more."""
        ours, self.source = self.source, []
        self._cover(ours, [])
        self._settle(ours)
        there = AFTER_GAP if self.target_purged and self.target_next < 0 else 0
        self._note_behind([row for row in ours if not self._explained_at_source(row, there)])

    def _note_behind(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.tally.behind += 1
            self.tally.note(row.offset, None, "behind")

    # ---- equal records

    def _take_equal(self) -> None:
        ours, theirs = self.source, self.target
        count = min(len(ours), len(theirs))
        if not count:
            return
        a, b = [row.content for row in ours[:count]], [row.content for row in theirs[:count]]
        if a != b:
            count = next(i for i in range(count) if a[i] != b[i])
        if count:
            self._match(ours[:count], theirs[:count])
            del ours[:count], theirs[:count]

    def _match(self, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
        aborted = sum(1 for row in ours if row.flags & ABORTED)
        self.tally.same += len(ours) - aborted
        self.tally.aborted_copied += aborted
        self._find_places(ours, theirs)
        self._cover(ours, theirs)
        self._settle([*ours, *theirs])

    def _find_places(self, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
        done = bisect_left(self._marks, ours[-1].offset + 1)
        if not done:
            return
        offsets = [row.offset for row in ours]
        for mark in self._marks[:done]:
            self.places[mark] = theirs[bisect_left(offsets, mark)].offset
        del self._marks[:done]

    def _cover(self, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
        """Counts rows as read: in ranges and in the history."""
        self.tally.cover(ours, theirs)
        self.history.add(ours)
        if ours:
            self.source_next = ours[-1].offset + 1
        if theirs:
            self.target_next = theirs[-1].offset + 1

    def _settle(self, rows: Sequence[Row]) -> None:
        """Explains pending records by these later ones."""
        if not (self.lacking[Side.SOURCE] or self.lacking[Side.TARGET]):
            return
        for row in rows:
            self.tally.compacted_at_source += self.lacking[Side.SOURCE].explain(row.key)
            self.tally.compacted_at_target += self.lacking[Side.TARGET].explain(row.key)

    # ---- records that differ

    def _look(self, ended: dict[Side, bool]) -> tuple[tuple[int, int] | None, Side | None]:
        """Returns the nearest equal pair, or the side of which more must be read to find it."""
        reach = REACH_FIRST
        while True:
            pair = nearest(self.source[:reach], self.target[:reach])
            if pair is not None:
                return pair, None
            for side, rows in ((Side.TARGET, self.target), (Side.SOURCE, self.source)):
                if len(rows) < reach and not ended[side]:
                    return None, side
            if reach >= self._window or reach >= max(len(self.source), len(self.target)):
                return None, None
            reach = min(reach * REACH_FACTOR, self._window)

    def _drop_older(self) -> None:
        """Gives up to find an equal pair: explains the side that began earlier or has older records, or both sides."""
        begins = AFTER_GAP | BEGINS_LATER
        ours_begin, theirs_begin = (bool(rows[0].flags & begins) for rows in (self.source, self.target))
        ours, theirs = (_times(rows[: self._window]) for rows in (self.source, self.target))
        count = min(len(self.source), len(self.target), self._window)
        if (ours_begin and not theirs_begin) or theirs[1] < ours[0]:
            self._explain(0, count)
        elif (theirs_begin and not ours_begin) or ours[1] < theirs[0]:
            self._explain(count, 0)
        else:
            self._explain(count, count)

    def _explain(self, ours: int, theirs: int) -> None:
        """Explains the first rows of both sides, which have no equals."""
        missing, extra = self.source[:ours], self.target[:theirs]
        here, there = _flags(self.source[: ours + 1]), _flags(self.target[: theirs + 1])
        del self.source[:ours], self.target[:theirs]
        at = self.target_next
        lost = [row for row in missing if not self._explained_at_source(row, there)]
        more = [row for row in extra if not self._explained_at_target(row, here)]
        self._cover(missing, extra)
        self._settle([*missing, *extra])
        changed, lost, more = _paired(lost, more, in_order=not self._compacted and len(lost) == len(more))
        self._judge(changed, lost, more, at)

    def _judge(
        self, changed: Sequence[tuple[Row, Row]], lost: Sequence[Row], more: Sequence[Row], at: int
    ) -> None:
        for ours, theirs in changed:
            self.tally.different += 1
            self.tally.note(ours.offset, theirs.offset, ", ".join(differing(ours.content, theirs.content)))
        if self._compacted:
            self._wait(lost, Side.TARGET)
            self._wait(more, Side.SOURCE)
            return
        for row in lost:
            self.tally.missing += 1
            self.tally.note(row.offset, max(at, 0), "missing")
        for row in more:
            self._note_extra(row)

    def _wait(self, rows: Sequence[Row], lacking: Side) -> None:
        """Leaves rows of a compacted topic pending, except those that are followed by their key in the rows themselves."""
        waiting = self.lacking[lacking]
        explained = 0
        for row in rows:
            explained += waiting.explain(row.key)
            waiting.add(row)
        if lacking is Side.TARGET:
            self.tally.compacted_at_target += explained
        else:
            self.tally.compacted_at_source += explained

    def _note_extra(self, row: Row) -> None:
        self.tally.extra += 1
        self.tally.note(None, row.offset, "extra")

    def _explained_at_source(self, row: Row, there: int = 0) -> bool:
        """Counts a row that only the source has, if there is a reason. `there`: flags of the target's rows around."""
        if row.flags & ABORTED:
            self.tally.aborted_left_out += 1
        elif there & AFTER_GAP:
            self.tally.purged_at_target += 1
        elif there & BEGINS_LATER:
            self.tally.before_start += 1
        elif self._compacted and row.flags & TOMBSTONE:
            self.tally.compacted_at_target += 1
        else:
            return False
        return True

    def _explained_at_target(self, row: Row, here: int = 0) -> bool:
        """Counts a row that only the target has, if there is a reason. `here`: flags of the source's rows around."""
        if row.content in self.history:
            self.tally.repeated += 1
        elif here & AFTER_GAP:
            self.tally.purged_at_source += 1
        elif self._compacted and row.flags & TOMBSTONE:
            self.tally.compacted_at_source += 1
        else:
            return False
        return True

    # ---- stored

    def pending_json(self) -> dict[str, Any]:
        """Returns what `resume` needs besides offsets and tally."""
        return {str(side): pending.as_json() for side, pending in self.lacking.items()}

    def resume(self, pending: dict[str, Any]) -> None:
        self.lacking = {side: Pending(pending[str(side)]) for side in Side}


def nearest(ours: Sequence[Row], theirs: Sequence[Row]) -> tuple[int, int] | None:
    """Returns the places of the equal pair that is fewest records ahead; None: there is none."""
    first: dict[Content, int] = {}
    for j, row in enumerate(theirs):
        first.setdefault(row.content, j)
    best: tuple[int, int] | None = None
    for i, row in enumerate(ours):
        if best is not None and i >= sum(best):
            break
        j = first.get(row.content, -1)
        if j >= 0 and (best is None or i + j < sum(best)):
            best = i, j
    return best


def _paired(
    ours: Sequence[Row], theirs: Sequence[Row], *, in_order: bool
) -> tuple[list[tuple[Row, Row]], list[Row], list[Row]]:
    """Returns pairs of one record that differs, and the rows without a counterpart.

    A counterpart has the same timestamp and key; with `in_order` the next one that is left counts too.
    """
    waiting: dict[tuple[int, int], list[Row]] = {}
    for row in theirs:
        waiting.setdefault(row.content[:2], []).append(row)
    pairs, alone = [], []
    for row in ours:
        same = waiting.get(row.content[:2])
        if same:
            pairs.append((row, same.pop(0)))
        else:
            alone.append(row)
    taken = {row.offset for _, row in pairs}
    others = [row for row in theirs if row.offset not in taken]
    if in_order:
        count = min(len(alone), len(others))
        pairs = sorted([*pairs, *zip(alone[:count], others[:count], strict=True)], key=lambda p: p[0].offset)
        alone, others = alone[count:], others[count:]
    return pairs, alone, others


def _times(rows: Sequence[Row]) -> tuple[int, int]:
    times = [row.content[0] for row in rows]
    return min(times), max(times)


def _flags(rows: Sequence[Row]) -> int:
    found = 0
    for row in rows:
        found |= row.flags
    return found
