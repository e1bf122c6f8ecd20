"""The records of a batch: positions, limits, losses and ranges. Pure: the brokers' answers are passed in.

A position is what Spark writes to the checkpoint for our source, as JSON:

    {"partitions": {"orders": {"0": 120, "1": 7}}, "from": {"orders": {"1": 0}}, "lost": 0}

`partitions` are the offsets to read next. `from` says where a partition begins in the batch that ends here when that
is not where the batch before ended: a partition that is new, or one whose next records are gone. Ranges follow from
two positions alone, so a batch that is run again reads exactly the same records. `lost` counts, since the query was
first started, the records that were gone before they were read (only with failOnDataLoss=false).

`parts` ([minPartitions, maxRecordsPerPartition, minRecordsPerPartition]) is how the batch that ends here was made into tasks,
where it was: a task that has written its records (exactly-once) must find the same ones when the batch is run again.

Where a query begins (`"first": true`) is in no checkpoint: Spark asks for it anew when it runs the first batch again, and
by then "latest" is somewhere else. So the end of the first batch has every partition in `from`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from klamm_base.errors import KlammError

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]
Parts = tuple[int | None, int | None, int | None]


class DataLossError(KlammError):
    """Records to read are gone, and failOnDataLoss does not allow that."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a query, see above."""

    next: Offsets
    begins: Offsets = field(default_factory=dict)
    lost: int = 0
    first: bool = False
    parts: Parts = (None, None, None)

    def to_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"partitions": nested(self.next), "lost": self.lost}
        if self.begins:
            answer["from"] = nested(self.begins)
        if self.first:
            answer["first"] = True
        if any(self.parts):
            answer["parts"] = list(self.parts)
        return answer

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Position:
        least, most, together = [*data.get("parts", (None, None)), None][:3]
        return cls(
            flat(data["partitions"]),
            flat(data.get("from", {})),
            int(data.get("lost", 0)),
            first=bool(data.get("first", False)),
            parts=(least, most, together),
        )


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Returns offsets in the JSON form of Spark's Kafka source: topic, partition (as text), offset."""
    answer: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        answer.setdefault(topic, {})[str(partition)] = offset
    return answer


def flat(data: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {(t, int(p)): int(o) for t, partitions in data.items() for p, o in partitions.items()}


def advance(
    start: Position,
    earliest: Offsets,
    latest: Offsets,
    *,
    max_records: int | None = None,
    unsubscribed: Iterable[Partition] = (),
    fail_on_data_loss: bool = True,
) -> Position:
    """Returns the position after the next batch: all records, or about `max_records` of them.

    `earliest` and `latest` are the log's bounds of every partition that is subscribed now. `unsubscribed` are
    partitions of `start` that exist but are no longer asked for. Raises DataLossError.
    """
    begins, lost = _begins(start, earliest, latest, frozenset(unsubscribed))
    if lost and fail_on_data_loss:
        raise DataLossError(
            f"records are gone before they were read: {'; '.join(lost.values())} (they were deleted by "
            "retention, or the topic was deleted or made anew); with failOnDataLoss=false the query goes on with what is there"
        )
    if start.first:
        begins = {p: at for p, at in start.next.items() if p in latest} | begins
    bounds = {p: (begins.get(p, start.next.get(p, earliest[p])), latest[p]) for p in latest}
    ends = limited(bounds, max_records)
    gone = sum(
        max(0, begins[p] - start.next[p]) for p in begins if p in start.next and latest[p] >= start.next[p]
    )
    if ends == dict(start.next) and not gone and not lost and not start.first:
        return start
    return Position(ends, begins, start.lost + gone)


def _begins(
    start: Position, earliest: Offsets, latest: Offsets, unsubscribed: frozenset[Partition]
) -> tuple[dict[Partition, int], dict[Partition, str]]:
    """Returns the partitions that do not begin where the last batch ended, and descriptions of those that lost
    records.
    """
    begins: dict[Partition, int] = {}
    lost: dict[Partition, str] = {}
    for p, low in earliest.items():
        if p not in start.next:
            begins[p] = low
        elif start.next[p] < low or start.next[p] > latest[p]:
            begins[p] = low
            lost[p] = f"{p[0]}-{p[1]} stands at {start.next[p]}, the log has {low} to {latest[p]}"
    for p, at in start.next.items():
        if p not in earliest and p not in unsubscribed:
            lost[p] = f"{p[0]}-{p[1]} stands at {at}, the topic is gone"
    return begins, lost


def limited(bounds: Mapping[Partition, tuple[int, int]], max_records: int | None) -> dict[Partition, int]:
    """Limits the ends to `max_records`, shared out by the size of each partition, with at least one record each turn."""
    total = sum(end - begin for begin, end in bounds.values())
    if max_records is None or total <= max_records:
        return {p: end for p, (_, end) in bounds.items()}
    left, answer = max_records, {}
    for p in sorted(bounds):
        begin, end = bounds[p]
        share = min(left, (end - begin) * max_records // total)
        answer[p] = begin + share
        left -= share
    for p in sorted(bounds, key=lambda p: (answer[p] - bounds[p][1], p)):  # the remainder: where most is left
        take = min(left, bounds[p][1] - answer[p])
        answer[p] += take
        left -= take
        if not left:
            break
    return answer


def up_to(latest: Offsets, target: Offsets) -> dict[Partition, int]:
    """Returns ends as if no record had been added since `target` was noted (availableNow)."""
    return {p: min(end, target[p]) for p, end in latest.items() if p in target}


def ranges(start: Position, end: Position) -> list[Range]:
    """Returns the ranges of the batch between two positions."""
    answer = []
    for p, last in sorted(end.next.items()):
        first = end.begins.get(p, start.next.get(p, 0)) if end != start else last
        if first < last:
            answer.append(Range(*p, first, last))
    return answer


def waiting(start: Position, earliest: Offsets, latest: Offsets) -> int:
    """Returns the number of offsets that the next batch would have without limits."""
    return sum(max(0, end - max(start.next.get(p, 0), earliest[p])) for p, end in latest.items())


def split(whole: list[Range], min_parts: int | None, most: int | None = None) -> list[Range]:
    """Cuts large ranges.

    No range has more than `most` records (maxRecordsPerPartition). There are at least `min_parts` ranges, if
    there are that many records (minPartitions).
    """
    if most is not None:
        whole = [part for r in whole for part in _cut(r, -(-len(r) // most))]
    total = sum(map(len, whole))
    if min_parts is None or len(whole) >= min_parts or not total:
        return whole
    return [part for r in whole for part in _cut(r, min(len(r), max(1, -(-len(r) * min_parts // total))))]


def _cut(whole: Range, parts: int) -> list[Range]:
    cuts = [whole.start + len(whole) * i // parts for i in range(parts + 1)]
    return [replace(whole, start=a, end=b) for a, b in pairwise(cuts)]


def tasks(whole: list[Range], parts: Parts) -> list[list[Range]]:
    """Returns the ranges of each task: cut as `split` says, then small ones together.

    With `parts[2]` (minRecordsPerPartition) there are no more tasks than have so many records on average; every range
    stays whole. Where the number or size of tasks is given (minPartitions, maxRecordsPerPartition), each has one range.
    """
    least, most, together = parts
    cut = split(whole, least, most)
    number = len(cut)
    if least is None and most is None and together is not None:
        number = min(number, -(-sum(map(len, cut)) // together))
    if number == len(cut):
        return [[r] for r in cut]
    answer: list[list[Range]] = [[] for _ in range(number)]
    sizes = [0] * number
    for r in sorted(cut, key=len, reverse=True):  # the largest first, each to the smallest task so far
        smallest = sizes.index(min(sizes))
        answer[smallest].append(r)
        sizes[smallest] += len(r)
    return answer


def lag(position: Position, latest: Offsets) -> dict[str, int]:
    """Returns the number of unread records by topic."""
    answer: dict[str, int] = {}
    for (topic, partition), end in latest.items():
        behind = max(0, end - position.next.get((topic, partition), end))
        answer[topic] = answer.get(topic, 0) + behind
    return answer
