"""Finds what may not have happened in what the load left behind. Pure: lists in, violations out.

Rules:
- `lost`: a line or number that a source had is not in its topic, or what is in the topic has not come to the sink.
- `twice`: with exactly-once sources, a line or number is in the topic more than once, or out of order.
- `zombie`: with exactly-once sources, a record of an old life of a task stands behind one of a newer life.
- `overlap`: two lives of one task ran at the same time.
- `idle`: a task that should have run left no trace for too long after the group had settled (told by the round).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

RULES = ("lost", "twice", "zombie", "overlap", "idle")


@dataclass(frozen=True)
class Violation:
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@dataclass(frozen=True)
class Number:
    """A record of a counting task, in the order of its topic."""

    run: str
    n: int


def judge_numbers(task: str, found: Sequence[Number], *, exactly_once: bool) -> list[Violation]:
    """Judges one task's topic. At least once: after a restart it goes on no later than where it was."""
    out, seen_runs, next_n = [], [], 0
    for number in found:
        if number.run not in seen_runs:
            seen_runs.append(number.run)
        elif exactly_once and number.run != seen_runs[-1]:
            out.append(Violation("zombie", f"task {task}: {number} after {seen_runs[-1]}"))
        if number.n > next_n:
            out.append(Violation("lost", f"task {task}: {next_n} to {number.n - 1} before {number}"))
        if exactly_once and number.n < next_n:
            out.append(Violation("twice", f"task {task}: {number} where {next_n} is expected"))
        next_n = max(next_n, number.n + 1)
    return out


def judge_lines(
    name: str, written: Sequence[str], found: Sequence[str], *, exactly_once: bool
) -> list[Violation]:
    """Judges the lines of one file against its topic (one partition)."""
    if exactly_once:
        if list(found) == list(written):
            return []
        at = next((i for i, (a, b) in enumerate(zip(written, found, strict=False)) if a != b), None)
        at = min(len(written), len(found)) if at is None else at
        rule = "lost" if set(written) - set(found) else "twice"
        return [Violation(rule, f"{name}: {len(written)} lines, {len(found)} found, differ at {at}")]
    lost = sorted(set(written) - set(found))
    return [Violation("lost", f"{name}: {len(lost)} lines, the first {lost[0]!r}")] if lost else []


def judge_delivery(topics: Mapping[str, int], delivered: Iterable[tuple[str, int]]) -> list[Violation]:
    """Judges whether every offset below the end of each topic (one partition) has come to the sink.

    `topics`: name to the offsets that hold records, as a count of distinct ones read by a consumer;
    `delivered`: (topic, offset) as the sink wrote them.
    """
    got: dict[str, set[int]] = defaultdict(set)
    for topic, offset in delivered:
        got[topic].add(offset)
    return [
        Violation("lost", f"{topic}: {count - len(got[topic])} of {count} records did not reach the sink")
        for topic, count in topics.items()
        if len(got[topic]) < count
    ]


def judge_tenure(
    trace: Iterable[tuple[str, str, int]], excused: Sequence[tuple[int, int]] = (), slack_ms: int = 0
) -> list[Violation]:
    """Judges `trace`, rows of (task, run, ms): a life ends before the next one of its task begins.

    `excused`: (from, to) in ms in which whole process trees stood still and may have run on for `slack_ms`:
    nobody can end a process that stands still with all who watch over it.
    """
    lives: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for task, run, ms in trace:
        first, last = lives[task].get(run, (ms, ms))
        lives[task][run] = (min(first, ms), max(last, ms))
    out = []
    for task, runs in lives.items():
        ordered = sorted(runs.items(), key=lambda item: item[1])
        before, end = ordered[0][0], ordered[0][1][1]
        for run, (began, last) in ordered[1:]:
            if end >= began and not any(a <= end <= b + slack_ms for a, b in excused):
                out.append(Violation("overlap", f"task {task}: {before} ran {end - began} ms into {run}"))
            if last > end:
                before, end = run, last
    return out
