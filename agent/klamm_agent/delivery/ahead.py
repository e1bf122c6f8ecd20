"""The sender's side of the write-ahead log: batches go into it before they go out, and come back from it after a kill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from klamm_agent.delivery.batches import Batch, Claim, Origin, Receipt
from klamm_agent.delivery.wal.book import Logged
from klamm_agent.delivery.wal.entries import Note, Sent
from klamm_agent.delivery.wal.log import WalError, WriteAheadLog


class Ahead:
    """The log as a sender needs it (None: there is none, and after a kill lines may come twice). `say` logs sparingly."""

    def __init__(self, wal: WriteAheadLog | None, say: Callable[[str], None]) -> None:
        self._wal, self._say = wal, say
        self._number = 0 if wal is None else wal.book.next - 1
        self._parts: Counter[int] = Counter()
        """By number of a batch that was halved: how many parts more than one are not delivered."""
        self._resumed: dict[int, dict[tuple[int, int], int]] = {}
        """By number of a batch that came back and is not delivered: the files of its records, and where these begin; (0, 0) stands for streams."""
        self.resumed = self.unproved = 0
        """Records that came back from the log; records that may be in their topics twice."""

    @property
    def is_on(self) -> bool:
        return self._wal is not None

    @property
    def owed(self) -> dict[tuple[int, int], int]:
        """The files of batches that came back from the log and are not delivered, with the positions where these begin."""
        found: dict[tuple[int, int], int] = {}
        for starts in self._resumed.values():
            for inode, start in starts.items():
                found[inode] = min(start, found.get(inode, start))
        return found

    def resume(self, in_spool: set[int]) -> list[Batch]:
        """Returns the batches that the log has, the spool has not and no broker acknowledged, in their order. Raises WalError."""
        batches: list[Batch] = []
        if self._wal is None:
            return batches
        self._wal.spool_has(in_spool)
        self._number = max(self._number, max(in_spool, default=0))
        for logged in sorted(self._wal.book.live.values(), key=_number):
            claims = [
                Claim(Receipt(logged.topic, Origin(path, (dev, inode), start, end), records), records)
                for path, dev, inode, start, end, records in logged.shares
            ]
            batch = Batch(logged.topic, self._wal.read(logged), logged.count, claims, logged.key)
            batch.number, batch.noted = logged.number, logged.sent
            batches.append(batch)
            starts = self._resumed[batch.number] = {}
            for origin in (claim.receipt.origin for claim in claims):
                starts[origin.inode] = min(origin.start, starts.get(origin.inode, origin.start))
            self.resumed += batch.count
        return batches

    @property
    def in_spool(self) -> dict[int, Sent | None]:
        """The batches of the spool that were sent: under which numbers, or None when they are acknowledged."""
        return {} if self._wal is None else self._wal.book.spooled

    def spooled(self, batch: Batch) -> None:
        """Takes note that the spool has a batch."""
        if self._wal is not None:
            self._wal.spooled(batch.number)

    def spool_forgot(self, numbers: set[int]) -> None:
        """Takes note that the spool will not bring these batches again."""
        for number in numbers:
            self.in_spool.pop(number, None)

    def commit(self, batches: Sequence[Batch]) -> bool:
        """Writes batches, all or none; returns whether they may go out. They wait while the log has no room."""
        about: dict[str, Any] = {"batches": []}
        marks = {}
        for batch in batches:
            if not batch.number:
                self._number += 1
                batch.number = self._number
            shares = []
            for claim in batch.claims if self._wal is not None else ():
                path, inode, start, end = claim.receipt.origin
                shares.append([path, *inode, start, end, claim.count])
                if (mark := claim.receipt.mark) is not None:
                    marks[id(mark)] = mark
            key = None if batch.key is None else batch.key.decode("latin-1")
            about["batches"].append([batch.number, batch.topic, key, batch.count, len(batch.data), shares])
        if self._wal is None:
            return True
        for mark in marks.values():  # in the order of reading: a file's last place counts
            mark.note(about)
        try:
            self._wal.commit(about, [batch.data for batch in batches])
        except WalError as e:
            self._say(f"{e}; the agent reads nothing more until brokers have acknowledged what it sent")
            return False
        return True

    def going(self, notes: list[Note]) -> None:
        """Notes under which numbers batches go out, before they do."""
        if self._wal is None:
            return
        try:
            self._wal.sent(notes)
        except WalError as e:
            self._say(
                f"{e}; lines that go out now come twice if the agent is killed before it can be written"
            )

    def doubted(self, records: int) -> None:
        """Counts records that go again, although their topic may have them."""
        self.unproved += records

    def halved(self, batch: Batch, parts: int) -> None:
        self._parts[batch.number] += parts - 1

    def settled(self, batch: Batch) -> None:
        """Takes note that a batch, or a part of it, is delivered or given up."""
        if self._parts[batch.number]:
            self._parts[batch.number] -= 1
            return
        del self._parts[batch.number]
        self._resumed.pop(batch.number, None)
        if self._wal is not None:
            self._wal.acknowledged(batch.number)

    def flush(self) -> None:
        """Writes acknowledgements that nothing else has brought to the log."""
        if self._wal is None:
            return
        try:
            self._wal.flush()
        except WalError as e:
            self._say(str(e))


def _number(logged: Logged) -> int:
    return logged.number
