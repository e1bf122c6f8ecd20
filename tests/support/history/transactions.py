"""Rules about transactions: wholly visible or not at all, as their producer was told, and never left open."""

from __future__ import annotations

from collections.abc import Iterator

from support.history.events import Outcome
from support.history.index import Fate, Index


def dirty(index: Index) -> Iterator[str]:
    """Finds a read_committed reader that was shown a record of an aborted or open transaction, or a marker."""
    aborted = {
        (w.place, w.value)
        for t in index.history.transactions
        if t.outcome is Outcome.FAILED
        for w in index.writes_of[t.name]
    }
    for scan in index.history.scans:
        known = index.fates.get(scan.place, {})
        for offset, value in scan.records if scan.committed else ():
            fate = known.get(offset)
            if (fate is not None and not fate.visible) or (scan.place, value) in aborted:
                said = fate.value if fate is not None and not fate.visible else "aborted"
                yield f"{scan.reader} was shown {value!r} at {scan.topic}-{scan.partition}@{offset}, which is {said}"


def hidden(index: Index) -> Iterator[str]:
    """Finds a record that a reader should have been shown, in a stretch that it has read."""
    for scan in index.history.scans:
        log = index.history.logs.get(scan.place)
        if log is None or log.compacted:
            continue
        shown = {offset for offset, _ in scan.records}
        for offset, fate in index.fates[scan.place].items():
            if (
                scan.start <= offset < scan.end
                and offset not in shown
                and (fate.visible or not scan.committed)
            ):
                yield f"{scan.reader} read {scan.topic}-{scan.partition} from {scan.start} to {scan.end} and was not shown {offset} ({fate.value})"


def backwards(index: Index) -> Iterator[str]:
    """Finds a reader that was shown a record twice, or in another order than the log's."""
    for scan in index.history.scans:
        last = -1
        for offset, _ in scan.records:
            if offset <= last:
                yield f"{scan.reader} was shown {scan.topic}-{scan.partition}@{offset} after {last}"
            last = offset


def partial(index: Index) -> Iterator[str]:
    """Finds a transaction of which a part is committed: some of its records, or some of its partitions."""
    for transaction in index.history.transactions:
        by_fate: dict[Fate | None, list[str]] = {}
        for write in index.writes_of[transaction.name]:
            log = index.history.logs.get(write.place)
            if log is None or log.compacted:
                continue
            offsets = index.found(write)
            fate = index.fates[write.place][offsets[0]] if offsets else None
            by_fate.setdefault(fate, []).append(f"{write.topic}-{write.partition} {write.value!r}")
        if Fate.COMMITTED in by_fate and len(by_fate) > 1:
            others = {
                f.value if f else "missing": w[0] for f, w in by_fate.items() if f is not Fate.COMMITTED
            }
            yield f"of {transaction.name} {by_fate[Fate.COMMITTED][0]} is committed, but {others}"


def contradicted(index: Index) -> Iterator[str]:
    """Finds a transaction whose producer was told otherwise than what the logs say."""
    for transaction in index.history.transactions:
        if transaction.outcome is Outcome.UNKNOWN:
            continue
        wrong = (Fate.ABORTED, Fate.OPEN) if transaction.outcome is Outcome.OK else (Fate.COMMITTED,)
        for write in index.writes_of[transaction.name]:
            for offset in index.found(write):
                fate = index.fates[write.place][offset]
                if fate in wrong:
                    told = "committed" if transaction.outcome is Outcome.OK else "aborted"
                    yield f"{transaction.name} was {told}, {write.topic}-{write.partition}@{offset} is {fate.value}"


def hanging(index: Index) -> Iterator[str]:
    """Finds a transaction that is still open when all producers are done: it holds back every read_committed reader."""
    for place, log in index.history.logs.items():
        if log.stable < log.end:
            yield f"{place[0]}-{place[1]}: last stable offset {log.stable}, end {log.end}"
        elif any(fate is Fate.OPEN for fate in index.fates[place].values()):
            first = min(o for o, fate in index.fates[place].items() if fate is Fate.OPEN)
            yield f"{place[0]}-{place[1]}@{first} has no marker behind it, and the last stable offset is {log.stable}"
