"""A history made searchable: records by offset and by value, and what became of each transactional record."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum

from support.history.events import History, Log, LogRecord, Outcome, Place, Transaction, Write


class Fate(Enum):
    """The fate of a record by its log: PLAIN is outside transactions, OPEN has no marker behind it."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"

    @property
    def visible(self) -> bool:
        return self in (Fate.PLAIN, Fate.COMMITTED)


def fates(log: Log) -> dict[int, Fate]:
    """Returns the fate of every data record by offset, from the markers that follow it."""
    found: dict[int, Fate] = {}
    open_by_producer: dict[int, list[int]] = defaultdict(list)
    for record in log.records:
        if record.control:
            fate = Fate.COMMITTED if record.control == "commit" else Fate.ABORTED
            for offset in open_by_producer.pop(record.producer_id, ()):
                found[offset] = fate
        elif record.transactional:
            open_by_producer[record.producer_id].append(record.offset)
            found[record.offset] = Fate.OPEN
        else:
            found[record.offset] = Fate.PLAIN
    return found


class Index:
    """Made once per check; the rules read it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.records: dict[Place, dict[int, LogRecord]] = {}
        self.offsets_of: dict[Place, dict[bytes, list[int]]] = {}
        self.fates: dict[Place, dict[int, Fate]] = {}
        for place, log in history.logs.items():
            self.records[place] = {r.offset: r for r in log.records if not r.control}
            by_value: dict[bytes, list[int]] = defaultdict(list)
            for record in self.records[place].values():
                if record.value is not None:
                    by_value[record.value].append(record.offset)
            self.offsets_of[place] = by_value
            self.fates[place] = fates(log)
        self.transactions: dict[str, Transaction] = {t.name: t for t in history.transactions}
        self.writes_of: dict[str, list[Write]] = defaultdict(list)
        for write in history.writes:
            if write.transaction is not None:
                self.writes_of[write.transaction].append(write)
        self.may_be_gone = {
            c.topic for c in history.topic_changes if not c.created and c.outcome is not Outcome.FAILED
        }

    def found(self, write: Write) -> list[int]:
        """Returns where a write's value is."""
        if write.value is None:
            return []
        return self.offsets_of.get(write.place, {}).get(write.value, [])

    def must_be_there(self, write: Write) -> bool:
        """Returns whether the client was told that the record is stored: by its own answer or by its transaction's."""
        if write.outcome is Outcome.OK:
            return True
        transaction = self.transactions.get(write.transaction or "")
        return transaction is not None and transaction.outcome is Outcome.OK
