"""Completes decided transactions: writes a marker into every partition, then the record that says so.

Only success ends this: a failed write is tried again later, in memory as well as by the next coordinator that loads the
log. So a reader of the decision's record can rely on the markers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.timers import Timers
from klamm_broker.coordinator.transactions import transitions
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.table import TransactionTable
from klamm_broker.coordinator.transactions.transaction import Recorded, Transaction
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""The pause between attempts: a full disk or a loading partition needs no more."""
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerWriter:
    """Writes markers. `coordinator_epoch` returns the epoch of a partition of `__transaction_state`."""

    def __init__(
        self, table: TransactionTable, turn: Turn, timers: Timers, coordinator_epoch: Callable[[int], int]
    ) -> None:
        self._table = table
        self._turn = turn
        self._timers = timers
        self._coordinator_epoch = coordinator_epoch
        self._completions: dict[str, Recorded] = {}
        self._writing: dict[str, Recorded] = {}
        """Of those, the ones whose record is on its way into the log."""

    def begin(self, transaction: Transaction) -> Recorded:
        """Begin to write the markers of a decision in the log. Returns the record that follows when all are written."""
        recorded = transaction.recorded
        completion = transaction.prepare(transitions.complete(recorded, now_ms=self._turn.now.wall_ms))
        transaction.failed_fence = False
        self._completions[transaction.transactional_id] = completion
        transaction.awaiting = set(recorded.partitions)
        self.go_on(transaction)
        return completion

    def clear(self) -> None:
        """Forget everything that is under way."""
        self._completions.clear()
        self._writing.clear()

    def retry(self, transactional_id: str) -> None:
        """Try again after `RETRY_MS`."""
        transaction = self._table.by_id.get(transactional_id)
        if transaction is not None and transactional_id in self._completions:
            self.go_on(transaction)

    def go_on(self, transaction: Transaction) -> None:
        """Write the rest: missing markers, or the last record."""
        if not transaction.awaiting:
            self._complete(transaction)
            return
        recorded = transaction.recorded
        for at in sorted(transaction.awaiting):
            self._turn.write_marker(
                at.topic,
                at.partition,
                producer=(recorded.producer_id, recorded.epoch),
                coordinator_epoch=self._coordinator_epoch(transaction.log_partition),
                committed=recorded.state is TransactionState.PREPARE_COMMIT,
                transaction_version=recorded.client_version,
                then=partial(
                    self._on_marker, transaction, self._completions[transaction.transactional_id], at
                ),
            )

    def _on_marker(
        self, transaction: Transaction, completion: Recorded, at: TopicPartition, error: ErrorCode
    ) -> None:
        if self._completions.get(transaction.transactional_id) is not completion:
            return  # the topic was deleted, or this is a repetition that came too late to matter
        if at not in transaction.awaiting:
            return
        if error in _OVERTAKEN:
            # Another coordinator has ended this transaction there, under a newer epoch: it needs no marker of ours.
            log.warning(
                "%s: no marker for %s-%d is taken any more: %s",
                transaction.transactional_id, at.topic, at.partition, error.name,
            )  # fmt: skip
        elif error in _GONE:
            log.info("%s: %s-%d is deleted, its marker too", transaction.transactional_id, *at)
        elif error is not ErrorCode.NONE:
            log.warning(
                "%s: the marker for %s-%d cannot be written now, it will be tried again: %s",
                transaction.transactional_id, at.topic, at.partition, error.name,
            )  # fmt: skip
            self._try_again(transaction)
            return
        transaction.awaiting.discard(at)
        if not transaction.awaiting:
            self._complete(transaction)

    def _complete(self, transaction: Transaction) -> None:
        name = transaction.transactional_id
        completion = self._completions[name]
        if self._writing.get(name) is completion:
            return  # a marker that failed and was written meanwhile has a retry set
        self._writing[name] = completion

        def done(error: ErrorCode) -> None:
            if self._completions.get(name) is not completion:
                return  # the topic was deleted
            del self._writing[name]
            if error is not ErrorCode.NONE:
                log.warning(
                    "%s: its completion cannot be written now, it will be tried again: %s", name, error.name
                )
                self._try_again(transaction)
                return
            del self._completions[name]

        self._table.write(transaction, completion, done, keep_pending=True)

    def _try_again(self, transaction: Transaction) -> None:
        self._timers.set(("markers", transaction.transactional_id), self._turn.now.mono_ms + RETRY_MS)
