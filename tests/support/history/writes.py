"""Rules about records: acknowledged ones are there, once, in order, and where they were said to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from support.history.events import Outcome, Place, Write
from support.history.index import Index

SHOWN_MAX: Final = 48


def lost(index: Index) -> Iterator[str]:
    """Finds an acknowledged record that is not in its log, or not where the acknowledgement said."""
    for write in index.history.writes:
        if not index.must_be_there(write):
            continue
        log = index.history.logs.get(write.place)
        if log is None:
            if write.topic not in index.may_be_gone:
                yield f"{_name(write)}: partition {write.topic}-{write.partition} is gone"
        elif log.compacted:
            continue  # `compacted_away` looks at these
        elif write.offset < 0:
            if not index.found(write) and log.start == 0:
                yield f"{_name(write)} is not in {write.topic}-{write.partition}"
        elif write.offset >= log.start:
            record = index.records[write.place].get(write.offset)
            if record is None or record.value != write.value:
                there = "nothing" if record is None else shown(record.value)
                yield f"{_name(write)} was acknowledged at {write.topic}-{write.partition}@{write.offset}, there is {there}"


def compacted_away(index: Index) -> Iterator[str]:
    """Finds, in a compacted log, an acknowledged record that is not there, and no later one of its key is, either."""
    last: dict[tuple[Place, bytes], int] = {}
    for place, log in index.history.logs.items():
        for record in index.records[place].values() if log.compacted else ():
            if record.key is not None:
                last[place, record.key] = max(record.offset, last.get((place, record.key), -1))
    tombstones: dict[tuple[Place, bytes], int] = {}  # the cleaner removes them in the end
    for write in index.history.writes:
        if write.value is None and write.key is not None and write.outcome is not Outcome.FAILED:
            told = write.offset if write.offset >= 0 else 1 << 62
            tombstones[write.place, write.key] = max(told, tombstones.get((write.place, write.key), -1))
    for write in index.history.writes:
        log = index.history.logs.get(write.place)
        if log is None or not log.compacted or write.key is None or write.outcome is not Outcome.OK:
            continue
        if write.offset < log.start:
            continue
        found = last.get((write.place, write.key), -1)
        if max(found, tombstones.get((write.place, write.key), -1)) < write.offset:
            yield f"{_name(write)} was acknowledged at {write.topic}-{write.partition}@{write.offset}; the last of its key {write.key!r} is at {found}"
        record = index.records[write.place].get(write.offset)
        if record is not None and (record.key, record.value) != (write.key, write.value):
            yield f"{write.topic}-{write.partition}@{write.offset} holds {shown(record.value)} instead of {_name(write)}"


def duplicated(index: Index) -> Iterator[str]:
    """Finds a record of an idempotent session that is in its log more than once."""
    for write in index.history.writes:
        if write.idempotent:
            offsets = index.found(write)
            if len(offsets) > 1:
                yield f"{_name(write)} is in {write.topic}-{write.partition} at {offsets}"


def reordered(index: Index) -> Iterator[str]:
    """Finds records of an idempotent session in a partition in another order than they were produced."""
    last: dict[tuple[str, Place], tuple[int, int]] = {}
    for write in sorted(index.history.writes, key=lambda w: (w.session, w.number)):
        offsets = index.found(write)
        if not write.idempotent or not offsets:
            continue
        where = write.session, write.place
        number, offset = last.get(where, (-1, -1))
        if offsets[0] < offset:
            yield f"{_name(write)} is at {write.topic}-{write.partition}@{offsets[0]}, number {number} before it at {offset}"
        last[where] = write.number, max(offset, offsets[0])


def invented(index: Index) -> Iterator[str]:
    """Finds a record that nobody wrote, or that its writer was told is not stored."""
    known: dict[Place, dict[bytes | None, Outcome]] = defaultdict(dict)
    for write in index.history.writes:
        known[write.place][write.value] = write.outcome
    for place, records in index.records.items():
        for record in records.values() if place in known else ():
            outcome = known[place].get(record.value)
            if outcome is None or outcome is Outcome.FAILED:
                said = "nobody wrote it" if outcome is None else "its producer was told it is not stored"
                yield f"{place[0]}-{place[1]}@{record.offset} holds {shown(record.value)}: {said}"


def reused(index: Index) -> Iterator[str]:
    """Finds a position in a log at which two different records were seen."""
    history = index.history
    seen: dict[Place, dict[int, tuple[bytes | None, str]]] = {
        place: {o: (r.value, "the log") for o, r in records.items()}
        for place, records in index.records.items()
    }

    def conflict(place: Place, offset: int, value: bytes | None, who: str) -> Iterator[str]:
        before = seen.setdefault(place, {}).setdefault(offset, (value, who))
        if before[0] != value:
            yield f"{place[0]}-{place[1]}@{offset} is {shown(value)} for {who} and {shown(before[0])} for {before[1]}"

    for write in history.writes:
        if write.outcome is Outcome.OK and write.offset >= 0:
            yield from conflict(write.place, write.offset, write.value, f"producer {write.session}")
    for scan in history.scans:
        for offset, value in scan.records:
            yield from conflict(scan.place, offset, value, f"reader {scan.reader}")
    for d in history.deliveries:
        yield from conflict((d.topic, d.partition), d.offset, d.value, f"group {d.group}")
    for place, log in history.logs.items():
        for record in log.records:
            if record.control and record.offset in seen[place]:
                value, who = seen[place][record.offset]
                yield f"{place[0]}-{place[1]}@{record.offset} is a marker now and was {shown(value)} for {who}"


def sequences(index: Index) -> Iterator[str]:
    """Sequence numbers of a producer's epoch in a log that is not compacted: each follows the one before."""
    for place, log in index.history.logs.items():
        following: dict[tuple[int, int], int] = {}
        for record in log.records if not log.compacted else ():
            if record.sequence < 0 or record.control:
                continue
            producer = record.producer_id, record.producer_epoch
            expected = following.get(producer)
            if expected is None and log.start == 0 and record.sequence != 0:
                expected = 0
            if expected is not None and record.sequence != expected:
                yield f"{place[0]}-{place[1]}@{record.offset}: producer {producer} has sequence {record.sequence} after {expected - 1}"
            following[producer] = (record.sequence + 1) & 0x7FFFFFFF


def holes(index: Index) -> Iterator[str]:
    """Finds an offset between start and end of a log that is not compacted, without a record."""
    for place, log in index.history.logs.items():
        if log.compacted:
            continue
        expected = log.start
        for record in log.records:
            if record.offset != expected:
                yield f"{place[0]}-{place[1]} goes from {expected - 1} to {record.offset}"
            expected = record.offset + 1
        if expected != log.end:
            yield f"{place[0]}-{place[1]} ends at {log.end}, its last record is at {expected - 1}"


def _name(write: Write) -> str:
    return f"record {write.number} of {write.session} ({shown(write.value)})"


def shown(value: bytes | None) -> str:
    """Returns a value as a message has room for it."""
    return repr(value if value is None or len(value) <= SHOWN_MAX else value[:30] + b"..." + value[-10:])
