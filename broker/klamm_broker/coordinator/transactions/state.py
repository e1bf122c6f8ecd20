"""The states of a transaction, and the permitted moves between them.

Theory of operation: everything is a step from one state to the next, and a step counts when its record is in the log.
While a record is being written, the state that it leads to is pending, and no other step may begin. Two states are never
written. `DEAD` is the state of an id whose tombstone is on its way. `PREPARE_EPOCH_FENCE` lies between the fencing of a
producer and the abort of its open transaction, which are one step here; if a loaded record has it, the transaction is
aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The states, with their numbers in the records."""

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
        """The name of the state in DescribeTransactions and ListTransactions."""
        return self.name.replace("_", " ").title().replace(" ", "")


_S = TransactionState

FROM: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # EMPTY and COMPLETE_* are here because a client of transaction version 2 may not know whether a transaction had begun.
    _S.PREPARE_ABORT: frozenset(
        {_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}
    ),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""For each state, the states from which it may be entered."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The transaction is decided, and its markers are under way."""
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: a new one may begin, and the id may expire."""
BY_TITLE: Final[Mapping[str, TransactionState]] = {state.title: state for state in TransactionState}
