"""Burrow's rules: the status of a partition from a window of commits, and of a group from its partitions. Pure.

The rules look at how a consumer moves, not at how large its lag is, so nobody has to choose a threshold. A consumer
without lag is never in error. With lag, the first of these that holds decides:

| status | the consumer |
|---|---|
| STOP | has committed nothing for longer than its window spans, and was behind in all recent looks at the log's end |
| REWIND | went back to a smaller offset, and is not yet where it was before |
| OK | had no lag at some commit of the window |
| STALL | commits the same offset again and again |
| WARN | moves on, and its lag has not become smaller at any commit |

Two things differ from Burrow, which alarms between a consumer's first two commits: one commit alone can only be too old, and
nobody has stopped who has committed, or got the next record, within `patience_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from klamm.lag.model import Commit, Status


def partition_status(
    commits: Sequence[Commit],
    ends: Iterable[int],
    lag: int,
    now_ms: int,
    *,
    allowed_lag: int = 0,
    patience_ms: int = 0,
    waits_ms: int | None = None,
) -> Status:
    """Returns the status of a partition with these commits, oldest first, at least one.

    `ends` are the log's ends of recent looks. A lag up to `allowed_lag` counts as none. `waits_ms`: the next record is there for
    so long, where that is known.
    """
    if lag <= allowed_lag:
        return Status.OK
    if (
        stopped(commits, now_ms)
        and now_ms - commits[-1].timestamp > patience_ms
        and (waits_ms is None or waits_ms > patience_ms)
        and not was_at_end(commits, ends)
    ):
        return Status.STOP
    if len(commits) == 1:
        return Status.OK
    if rewound(commits):
        return Status.REWIND
    if any(c.lag is not None and c.lag <= allowed_lag for c in commits):
        return Status.OK
    if stalled(commits):
        return Status.STALL
    return Status.OK if lag_fell(commits) else Status.WARN


def group_status(partitions: Iterable[Status]) -> Status:
    """Returns the worst status of a group's partitions, where everything that is worse than WARN is ERR."""
    return min(max(partitions, default=Status.OK), Status.ERR)


def stopped(commits: Sequence[Commit], now_ms: int) -> bool:
    """Returns whether the last commit is older than the window is long."""
    first, last = commits[0].timestamp, commits[-1].timestamp
    return now_ms - last > last - first


def was_at_end(commits: Sequence[Commit], ends: Iterable[int]) -> bool:
    """Returns whether the log ended where the consumer is now at one of the recent looks."""
    return any(end <= commits[-1].offset for end in ends)


def rewound(commits: Sequence[Commit]) -> bool:
    """Returns whether the consumer was further than it is now: a step back, be it the second, is not made up for yet."""
    return commits[-1].offset < max(c.offset for c in commits)


def stalled(commits: Sequence[Commit]) -> bool:
    """Returns whether all commits are of one offset."""
    return all(c.offset == commits[0].offset for c in commits)


def lag_fell(commits: Sequence[Commit]) -> bool:
    """Returns whether the lag became smaller from some commit to the next. Leaves out those whose lag is not known."""
    known = [c.lag for c in commits if c.lag is not None]
    return any(after < before for before, after in pairwise(known))
