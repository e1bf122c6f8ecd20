"""States of a transaction, and which may follow which.

Theory of operation: everything is a step from one state to the next, and a step counts when its record is in the log.
While a record is being written the state that it leads to is pending, and nobody else may begin a step. Two states
are never written: `DEAD` is that of an id whose tombstone is on its way; `PREPARE_EPOCH_FENCE`, between the fencing of a
producer and the abort of what it left open, is one step with that abort here; where a record has it, it is aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The numbers are those in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As DescribeTransactions and ListTransactions say it."""
        return self.name.replace("_", " ").title().replace(" ", "")


_S = TransactionState

FROM: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From EMPTY and COMPLETE_* because a client of transaction version 2 need not know whether it had begun one.
    _S.PREPARE_ABORT: frozenset(
        {_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}
    ),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""Each state, and those from which it may be entered."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""Decided, markers under way."""
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: a new one may begin, and the id may expire."""
BY_TITLE: Final[Mapping[str, TransactionState]] = {state.title: state for state in TransactionState}
