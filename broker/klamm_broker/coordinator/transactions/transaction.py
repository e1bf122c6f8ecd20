"""One transactional id: the content of its last record, and the step that is under way.

Invariant: a coordinator that loads the log would find `recorded`, apart from `last_epoch`, which is not in the
records. It changes only when a record is in the log, from a state that the table allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.coordinator.transactions.state import FROM, PREPARED, TransactionState

NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1
"""The largest epoch. Clients get one less at most, so that each of them can still be fenced."""
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of a transaction with another coordinator (two-phase commit): it never ends by time."""


class IllegalStep(Exception):
    """A step that the table does not allow, or two at a time: a defect of this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The content of a record of `__transaction_state`, and `last_epoch`."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The id before the last step: after an id ran out of epochs, its producer may still use it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that follows when this transaction is complete."""
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump that its producer asked for. It tells a repeated request from a fenced producer."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int
    client_version: int = 0
    """The transaction version that the client speaks: 2 bumps the epoch at each end (KIP-890)."""

    @property
    def epoch_exhausted(self) -> bool:
        return is_exhausted(self.epoch)


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """One transactional id. See the module's docstring."""

    __slots__ = (
        "awaiting", "decided", "failed_fence", "log_partition", "pending", "recorded", "transactional_id"
    )  # fmt: skip

    def __init__(self, transactional_id: str, recorded: Recorded, *, log_partition: int) -> None:
        self.transactional_id = transactional_id
        self.log_partition = log_partition
        """Where in `__transaction_state` its records are."""
        self.recorded = recorded
        self.pending: TransactionState | None = None
        self.failed_fence = False
        """The epoch was raised to fence a producer, and that could not be written: not to be raised once more."""
        self.decided = 0
        """Transactions of this id that were decided since it is known here."""
        self.awaiting: set[TopicPartition] = set()
        """Partitions whose marker is not written yet."""

    def prepare(self, new: Recorded) -> Recorded:
        """Begin a step. Returns the record to write. Raises IllegalStep."""
        if self.pending is not None:
            raise IllegalStep(
                f"{self.transactional_id}: {new.state.name} while {self.pending.name} is pending"
            )
        if self.recorded.state not in FROM[new.state]:
            raise IllegalStep(f"{self.transactional_id}: {new.state.name} after {self.recorded.state.name}")
        if new.state is not TransactionState.DEAD and new.epoch < 0:
            raise IllegalStep(f"{self.transactional_id}: {new.state.name} with epoch {new.epoch}")
        self.pending = new.state
        return replace(new, previous_producer_id=self.recorded.producer_id)

    def complete(self, new: Recorded) -> None:
        """Complete the step whose record is in the log. Raises IllegalStep for another step's record, or an epoch that goes back."""
        old = self.recorded
        if self.pending is not new.state:
            raise IllegalStep(
                f"{self.transactional_id}: {new.state.name} completes, pending is {self.pending}"
            )
        if new.producer_id == old.producer_id and new.epoch < old.epoch:
            raise IllegalStep(f"{self.transactional_id}: epoch {new.epoch} after {old.epoch}")
        self.pending = None
        self.recorded = new
        self.decided += new.state in PREPARED

    def give_up(self) -> None:
        """Give up the step whose record could not be written: nothing has happened."""
        self.pending = None

    @property
    def undecided(self) -> frozenset[TopicPartition] | set[TopicPartition]:
        """The partitions in which the transaction must still be ended."""
        return self.awaiting if self.pending in _COMPLETING else self.recorded.partitions


_COMPLETING: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
