"""Rules about committed offsets, at-least-once delivery and consume-transform-produce."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from support.history.events import CommittedRead, Outcome, Place
from support.history.index import Index

_Key = tuple[str, str, int]


class _Attempts:
    """Everything that may have moved one committed offset: (invoked, completed, offset, acknowledged)."""

    def __init__(self, index: Index) -> None:
        self.by_key: dict[_Key, list[tuple[int, int, int, bool]]] = defaultdict(list)
        for c in index.history.commits:
            if c.outcome is not Outcome.FAILED:
                entry = c.invoked, c.completed, c.offset, c.outcome is Outcome.OK
                self.by_key[c.group, c.topic, c.partition].append(entry)
        for t in index.history.transactions:
            if t.outcome is not Outcome.FAILED:
                for key, offset in t.offsets.items():
                    self.by_key[key].append((t.invoked, t.completed, offset, t.outcome is Outcome.OK))


def _reads(index: Index) -> dict[_Key, list[CommittedRead]]:
    reads: dict[_Key, list[CommittedRead]] = defaultdict(list)
    for read in index.history.committed_reads:
        reads[read.group, read.topic, read.partition].append(read)
    return reads


def rewound(index: Index) -> Iterator[str]:
    """Finds a committed offset that is smaller than one that was acknowledged, or seen, before it was asked for."""
    attempts = _Attempts(index).by_key
    for key, reads in _reads(index).items():
        facts = [(done, offset, "acknowledged") for _, done, offset, ok in attempts[key] if ok]
        facts += [(r.completed, r.offset, "read") for r in reads]
        facts.sort(key=lambda fact: fact[0])
        highest, how, position = -1, "", 0
        for read in sorted(reads, key=lambda r: r.invoked):
            while position < len(facts) and facts[position][0] < read.invoked:
                if facts[position][1] > highest:
                    _, highest, how = facts[position]
                position += 1
            if read.offset < highest:
                yield f"group {key[0]} has {read.offset} for {key[1]}-{key[2]}, {highest} was {how} before"


def made_up(index: Index) -> Iterator[str]:
    """Finds a committed offset that nobody committed, or only a transaction that was aborted."""
    attempts = _Attempts(index).by_key
    for key, reads in _reads(index).items():
        first: dict[int, int] = {}
        for invoked, _, offset, _ in attempts[key]:
            first[offset] = min(invoked, first.get(offset, invoked))
        for read in reads:
            if read.offset >= 0 and first.get(read.offset, read.completed) >= read.completed:
                yield f"group {key[0]} has {read.offset} for {key[1]}-{key[2]}, which nobody has committed"


def skipped(index: Index) -> Iterator[str]:
    """Records before a committed offset that no member of the group was given (at least once means: all were)."""
    given: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for d in index.history.deliveries:
        given[d.group, (d.topic, d.partition)].add(d.offset)
    highest: dict[tuple[str, Place], int] = {}
    groups = {d.group for d in index.history.deliveries}
    for c in index.history.commits:
        if c.outcome is Outcome.OK and c.group in groups:
            where = c.group, (c.topic, c.partition)
            highest[where] = max(c.offset, highest.get(where, 0))
    for (group, place), end in highest.items():
        log = index.history.logs.get(place)
        if log is None or log.compacted:
            continue
        missing = [o for o in index.records[place] if o < end and o not in given[group, place]]
        if missing:
            yield f"group {group} committed {end} in {place[0]}-{place[1]} and was never given {min(missing)} ({len(missing)} in all)"


def not_exactly_once(index: Index) -> Iterator[str]:
    """Consume-transform-produce: each record before the group's offset has one visible result, others have none."""
    final = {key: max(reads, key=lambda r: r.completed).offset for key, reads in _reads(index).items()}
    for flow in index.history.flows:
        results = Counter[bytes]()
        for place, records in index.records.items():
            for record in records.values() if place[0] == flow.sink else ():
                if record.value is not None and index.fates[place][record.offset].visible:
                    results[flow.origin(record.value)] += 1
        for place, records in index.records.items():
            if place[0] != flow.source:
                continue
            end = final.get((flow.group, *place), -1)
            for record in records.values():
                due = int(index.fates[place][record.offset].visible and record.offset < end)
                count = results.pop(record.value or b"", 0)
                if count != due:
                    yield f"{place[0]}-{place[1]}@{record.offset} ({record.value!r}) has {count} results in {flow.sink}, the group is at {end}"
        for value in results:
            yield f"{flow.sink} has a result of {value!r}, which is not in {flow.source}"
