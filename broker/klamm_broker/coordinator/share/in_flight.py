"""Records in flight: batches as they were delivered first, each divided into runs of records with the same fate.

A batch that was delivered as a whole stays one run, and is handled and told as one. It is `tracked` once its records can
differ: then runs are cut where a request begins and ends, and joined again where neighbours are alike.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from klamm_broker.coordinator.share.model import TERMINAL, State, StateBatch


@dataclass(slots=True, eq=False)
class Transition:
    """A change of records that is being written; it is completed with its outcome."""

    changes: list[StateBatch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pending:
    """The state before a change that is being written, in case that fails."""

    transition: Transition
    state: State
    member_id: str


@dataclass(slots=True, eq=False)
class Run:
    """Neighbouring records of a batch, from `first` to `last` inclusive, with the same fate.

    `deadline_ms` is when the lock of an acquired run ends. A run with a `pending` change has its new state already.
    """

    first: int
    last: int
    state: State
    count: int
    member_id: str = ""
    deadline_ms: int = 0
    pending: Pending | None = None

    @property
    def is_free(self) -> bool:
        return self.state is State.AVAILABLE and self.pending is None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        self.state, self.member_id, self.deadline_ms = State.ACQUIRED, member_id, deadline_ms
        self.count += 1

    def archive(self) -> None:
        """End it for good, even if a change of it is being written."""
        self.state, self.member_id, self.deadline_ms, self.pending = State.ARCHIVED, "", 0, None

    def released(self, limit: int) -> State:
        """Returns the state after a delivery that was not acknowledged."""
        return State.ARCHIVED if self.count >= limit else State.AVAILABLE

    def overlap(self, first: int, last: int) -> int:
        """Returns how many of these records are in it."""
        return max(0, min(self.last, last) - max(self.first, first) + 1)

    def is_like(self, other: Run) -> bool:
        """Decides whether both have the same fate."""
        return (self.state, self.count, self.member_id, self.deadline_ms, self.pending) == (
            other.state, other.count, other.member_id, other.deadline_ms, other.pending,
        )  # fmt: skip


class Batch:
    """Records that were delivered first together."""

    __slots__ = ("first", "last", "runs", "tracked")

    def __init__(self, run: Run, *, tracked: bool = False) -> None:
        self.first, self.last = run.first, run.last
        self.runs = [run]
        self.tracked = tracked

    def within(self, first: int, last: int) -> bool:
        return first <= self.first and self.last <= last

    def holds(self, offset: int) -> bool:
        """Decides whether it reaches from before `offset` over it."""
        return self.first < offset <= self.last

    def runs_in(self, first: int, last: int) -> list[Run]:
        """Returns the runs that have any of these records, uncut."""
        return [run for run in self.runs if run.first <= last and run.last >= first]

    def cut(self, first: int, last: int) -> list[Run]:
        """Returns runs that together are exactly the records from `first` to `last`, as far as they are in it."""
        self.tracked = True
        runs: list[Run] = []
        for run in self.runs:
            for at in (first, last + 1):
                if run.first < at <= run.last:
                    runs.append(replace(run, last=at - 1))
                    run = replace(run, first=at)  # noqa: PLW2901  # the rest is cut further
            runs.append(run)
        self.runs = runs
        return self.runs_in(first, last)

    def join(self) -> None:
        """Join neighbouring runs that are alike again."""
        runs: list[Run] = []
        for run in self.runs:
            if runs and runs[-1].is_like(run):
                runs[-1].last = run.last
            else:
                runs.append(run)
        self.runs = runs


class Batches:
    """The batches of a share partition, by offset. They do not overlap."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[Batch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def last(self) -> int:
        """The last offset. There must be a batch."""
        return self._batches[-1].last

    def add(self, batch: Batch) -> None:
        at = bisect_left(self._firsts, batch.first)
        self._firsts.insert(at, batch.first)
        self._batches.insert(at, batch)

    def clear(self) -> None:
        self._firsts, self._batches = [], []

    def floor(self, offset: int) -> Batch | None:
        """Returns the last batch that begins at `offset` or before."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at - 1] if at else None

    def beginning_in(self, first: int, last: int) -> list[Batch]:
        """Returns the batches that begin at one of these offsets."""
        return self._batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def from_floor(self, first: int, last: int) -> list[Batch]:
        """Returns the batch that begins at `first` or before, and those that begin after it, up to `last`."""
        at = bisect_right(self._firsts, first)
        return self._batches[max(at - 1, 0) : bisect_right(self._firsts, last)]

    def after(self, offset: int) -> Batch:
        """Returns the first batch that begins behind `offset`; there must be one."""
        return self._batches[bisect_right(self._firsts, offset)]

    def drop_before(self, first: int) -> None:
        """Forget the batches that begin before `first`."""
        at = bisect_left(self._firsts, first)
        del self._firsts[:at], self._batches[:at]
