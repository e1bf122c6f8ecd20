"""XA transactions between XA PREPARE and their decision: their rows become records when they are committed.

The rows of prepared transactions are in memory until then; offsets name the place where each begins (`position.Held`),
so a restarted task reads them again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from klamm_connectors.mysql.position import Held, Position
from klamm_connectors.mysql.progress import Progress
from klamm_connectors.mysql.row_records import Rows

_DECISION: Final = re.compile(
    r"\s*XA\s+(COMMIT|ROLLBACK)\s+(X'.*?',X'.*?',\d+)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_BEGIN: Final = re.compile(r"\s*XA\s+(?:START|BEGIN)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of a prepared transaction."""

    xid: str
    commit: bool


def decision_of(statement: str) -> Decision | None:
    """Returns the decision that a statement of the binlog makes; None for other statements."""
    found = _DECISION.fullmatch(statement)
    return Decision(found[2].lower(), found[1].upper() == "COMMIT") if found is not None else None


def begins_prepared(statement: str) -> bool:
    return _BEGIN.match(statement) is not None


class PreparedTransactions:
    """The prepared transactions of one stream. For one thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows: dict[str, list[Rows]] = {}
        self._collected: list[Rows] | None = None
        self._before: Position = progress.position

    @property
    def collecting(self) -> bool:
        """True between the begin of an XA transaction and its XA PREPARE."""
        return self._collected is not None

    def begin(self) -> None:
        """Begins to collect rows."""
        self._collected = []
        self._before = self._progress.position

    def add(self, rows: Rows) -> None:
        assert self._collected is not None, "begun before"
        self._collected.append(rows)

    def collected(self) -> list[Rows]:
        """Returns the collected rows, of a transaction that is committed at once."""
        found, self._collected = self._collected or [], None
        return found

    def prepare(self, xid: str, log_pos: int, ts_sec: int) -> None:
        """Holds the collected rows until the decision, and moves the position behind the XA PREPARE."""
        rows, progress = self.collected(), self._progress
        known = any(held.xid == xid for held in progress.position.held)
        if not progress.past and not known:
            before = self._before
            progress.position = progress.position.holding(Held(xid, before.done, before.file, before.pos))
            known = True
        if known:
            self._rows[xid] = rows
        progress.complete(log_pos, ts_sec)

    def rows_of(self, xid: str) -> list[Rows] | None:
        """Returns the rows of a held transaction; None for one that was never held."""
        return self._rows.get(xid)

    def forget(self, xid: str) -> None:
        """Notes that the transaction is decided and its records are made."""
        self._rows.pop(xid, None)
        self._progress.position = self._progress.position.without(xid)
