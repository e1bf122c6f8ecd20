"""Changes of transactions by time: open ones are aborted after their time-out, unused ids are forgotten."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.transactions import records, transitions
from klamm_broker.coordinator.transactions.ending import Ending
from klamm_broker.coordinator.transactions.model import EndResult, TransactionConfig
from klamm_broker.coordinator.transactions.state import AT_REST, TransactionState
from klamm_broker.coordinator.transactions.table import TransactionTable
from klamm_broker.coordinator.transactions.transaction import TWO_PHASE_TIMEOUT_MS, Transaction
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_TOMBSTONES_PER_APPEND: Final = 500
"""This many transactional ids of 1,000 bytes fit half a MiB, which any segment holds."""


class Expiry:
    """The periodic checks, at the intervals of the properties. Deadlines are wall-clock times of the records, as in Kafka."""

    def __init__(
        self, config: TransactionConfig, table: TransactionTable, turn: Turn, ending: Ending
    ) -> None:
        self._config = config
        self._table = table
        self._turn = turn
        self._ending = ending

    def abort_timed_out(self) -> None:
        """Abort every transaction that is open for longer than its time-out, and fence its producer."""
        now_ms = self._turn.now.wall_ms
        for transaction in list(self._table.ongoing.values()):
            recorded = transaction.recorded
            if transaction.pending is not None or recorded.timeout_ms == TWO_PHASE_TIMEOUT_MS:
                continue
            if recorded.start_ms + recorded.timeout_ms < now_ms:
                self._ending.abort(transaction, partial(self._aborted, transaction))

    def _aborted(self, transaction: Transaction, result: EndResult) -> None:
        name = transaction.transactional_id
        if result.error is ErrorCode.NONE:
            log.info("%s: its transaction was open for longer than its time-out and is aborted", name)
        else:
            log.warning(
                "%s: its transaction has timed out and cannot be aborted: %s", name, result.error.name
            )

    def forget_unused(self) -> None:
        """Write tombstones for the ids that nobody has used for transactional.id.expiration.ms."""
        last_ms = self._turn.now.wall_ms - self._config.id_expiration_ms
        unused: dict[int, list[Transaction]] = {}
        for transaction in self._table.by_id.values():
            recorded = transaction.recorded
            if transaction.pending is None and recorded.state in AT_REST and recorded.updated_ms <= last_ms:
                unused.setdefault(transaction.log_partition, []).append(transaction)
        for partition, transactions in unused.items():
            for i in range(0, len(transactions), _TOMBSTONES_PER_APPEND):
                self._forget(partition, transactions[i : i + _TOMBSTONES_PER_APPEND])

    def _forget(self, partition: int, transactions: Sequence[Transaction]) -> None:
        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                log.warning("%d unused transactional ids stay: %s", len(transactions), error.name)
            for transaction in transactions:
                transaction.give_up()
                if (
                    error is ErrorCode.NONE
                    and self._table.by_id.get(transaction.transactional_id) is transaction
                ):
                    self._table.remove(transaction)

        for transaction in transactions:
            transaction.prepare(transitions.die(transaction.recorded))
            assert transaction.pending is TransactionState.DEAD
        self._turn.append(partition, [records.tombstone(t.transactional_id) for t in transactions], then)
