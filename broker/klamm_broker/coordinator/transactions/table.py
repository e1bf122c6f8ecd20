"""All transactional ids, and the writing of their steps into the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.transactions import records
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.transaction import Recorded, Transaction
from klamm_kafka.wire.errors import ErrorCode

_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors that a producer is told when a record could not be written: it knows nothing of partitions and their leaders."""


class TransactionTable:
    """The table. `ongoing` are the transactions in the state ONGOING, which are checked for time-outs.

    `transaction_version` is the broker's feature level.
    """

    def __init__(self, turn: Turn, transaction_version: Callable[[], int]) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.ongoing: dict[str, Transaction] = {}
        self.transaction_version = transaction_version
        self._turn = turn

    def put(self, transaction: Transaction) -> None:
        self.by_id[transaction.transactional_id] = transaction
        self._note(transaction)

    def remove(self, transaction: Transaction) -> None:
        del self.by_id[transaction.transactional_id]
        self.ongoing.pop(transaction.transactional_id, None)

    def clear(self) -> None:
        self.by_id.clear()
        self.ongoing.clear()

    def write(
        self,
        transaction: Transaction,
        prepared: Recorded,
        done: Callable[[ErrorCode], None],
        *,
        keep_pending: bool = False,
    ) -> None:
        """Write the record of a step that `prepare` returned; the step counts once that is done.

        `done` gets the outcome as a producer is told it. With `keep_pending` a step that could not be written stays
        pending, because it will be tried again.
        """

        def then(error: ErrorCode) -> None:
            if self.by_id.get(transaction.transactional_id) is not transaction:
                done(ErrorCode.NOT_COORDINATOR)  # the topic was deleted meanwhile
                return
            if error is ErrorCode.NONE:
                transaction.complete(prepared)
                self._note(transaction)
            elif not keep_pending:
                transaction.give_up()
            done(_TOLD.get(error, error))

        record = records.encode(
            transaction.transactional_id, prepared, transaction_version=self.transaction_version()
        )
        self._turn.append(transaction.log_partition, [record], then)

    def _note(self, transaction: Transaction) -> None:
        if transaction.recorded.state is TransactionState.ONGOING:
            self.ongoing[transaction.transactional_id] = transaction
        else:
            self.ongoing.pop(transaction.transactional_id, None)
