"""A reader's progress in the binlog, and what it must skip after a start. Pure: no I/O."""

from __future__ import annotations

import logging

from klamm_connectors.mysql.position import Gtids, Position

log = logging.getLogger(__name__)

_BEGINS = ("XA START", "XA BEGIN")


class Progress:
    """Follows the events of one stream that was opened at `position.first`.

    `position` is always the end of the rows that were returned, even while the transaction under way is read
    again. `past` is True while the stream is in a transaction that was read completely before the start.
    """

    def __init__(self, position: Position, *, gtids: bool) -> None:
        self.position = position
        self.file = position.first.file
        self.in_transaction = False
        self.past = False
        self.gtids = gtids
        self._start = position
        self._gtids = Gtids()
        self._committed_us = 0
        self._resume: Position | None = position if position.event else None
        self._skip = (0, 0)
        self._events = 0  # row events of the transaction so far

    @property
    def resuming(self) -> bool:
        """True when rows of the transaction under way were returned before the start."""
        return self._skip != (0, 0)

    def begin(self, gtid: str, *, in_transaction: bool, log_pos: int = 0, committed_us: int = 0) -> None:
        """Notes that a transaction begins, or, not `in_transaction`, a statement that may be a transaction of its own.

        `committed_us` is the time of its commit in epoch microseconds; 0 where the binlog does not have it.
        """
        self.in_transaction = in_transaction
        self._committed_us = committed_us
        self._events, self._skip = 0, (0, 0)
        self.past = bool(self._start.held) and self._was_read(gtid, log_pos)
        if self.past:
            return
        resume, self._resume = self._resume, None
        if resume is not None and resume.gtid == gtid:
            self._skip = (resume.event, resume.row)
            return
        if resume is not None:
            log.warning(
                "the transaction %s comes where %s was expected: it is read from its begin", gtid, resume.gtid
            )
        self.position = self.position.begin(gtid)

    def query(self, statement: str, log_pos: int, ts_sec: int) -> None:
        """Notes a statement as text: a transaction's begin or end, or DDL, which is a transaction by itself."""
        word = statement.strip().rstrip(";").upper()
        if word == "BEGIN" or word.startswith(_BEGINS):
            if not self.gtids:
                self.begin("", in_transaction=True, log_pos=log_pos)
            self.in_transaction = True
        elif word in {"COMMIT", "ROLLBACK"} or not self.in_transaction:
            self.complete(log_pos, ts_sec)

    def complete(self, log_pos: int, ts_sec: int) -> None:
        """Notes that the transaction under way ends before `log_pos`."""
        if not self.past:
            position = self.position
            done = position.done
            if done is not None and position.gtid:
                done = self._gtids.add(done, position.gtid)
            self.position = position.complete(done, self.file, log_pos, ts_sec)
        self.in_transaction = self.past = False
        self._skip, self._events = (0, 0), 0

    def time_ns(self, ts_sec: int) -> int:
        """Returns the time of an event of `ts_sec` for records: that of the transaction's commit, if it is known."""
        return self._committed_us * 1_000 or ts_sec * 1_000_000_000

    def rows(self) -> int | None:
        """Counts a row event of any table. Returns how many of its rows were already returned; None when all were."""
        if self.past:
            return None
        self._events += 1
        event, row = self._skip
        if self._events < event:
            return None
        return row if self._events == event else 0

    def at(self, row: int, ts_sec: int) -> Position:
        """Returns the position after the first `row` rows of the row event under way."""
        return self.position.inside(self._events, row, ts_sec)

    def _was_read(self, gtid: str, log_pos: int) -> bool:
        if gtid:
            return self._start.has(gtid)
        return (self.file, log_pos) <= (self._start.file, self._start.pos)
