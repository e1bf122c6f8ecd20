"""EndTxn, and every other end of a transaction: by a newer producer, or by time.

With transaction version 2 (KIP-890) the epoch goes up at each end, so that records from before it cannot get into
the next transaction. The epochs of a repeated request then differ from those of a new one, and ids that run out of
epochs are replaced here as well.

    version 2       Abort, repeated   Abort, new     Commit, repeated   Commit, new
    EMPTY           PRODUCER_FENCED   ends           PRODUCER_FENCED    INVALID_TXN_STATE
    COMPLETE_ABORT  NONE              ends           INVALID_TXN_STATE  INVALID_TXN_STATE
    COMPLETE_COMMIT INVALID_TXN_STATE ends           NONE               INVALID_TXN_STATE

"Ends" there is an abort of nothing, which clients send when they do not know whether anything has begun. Below version
2 an EMPTY transaction cannot be ended, and a complete one only in the same way again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID, ProducerIdResult
from klamm_broker.coordinator.transactions import transitions
from klamm_broker.coordinator.transactions.markers import MarkerWriter
from klamm_broker.coordinator.transactions.model import EndRequest, EndResult
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.table import TransactionTable
from klamm_broker.coordinator.transactions.transaction import EPOCH_MAX, Recorded, Transaction
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_S = TransactionState
_PREPARE: Final = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}
_COMPLETE: Final = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}

Done = Callable[[EndResult], None]


class Ending:
    """Requests about one transactional id each, which exists and is loaded."""

    def __init__(
        self,
        table: TransactionTable,
        turn: Turn,
        markers: MarkerWriter,
        new_producer_id: Callable[[], ProducerIdResult],
    ) -> None:
        self._table = table
        self._turn = turn
        self._markers = markers
        self._new_producer_id = new_producer_id

    # Requests of clients

    def end(self, transaction: Transaction, request: EndRequest, done: Done) -> None:
        """Handle an EndTxn."""
        bumps = request.client_version >= transitions.EPOCH_BUMP_FROM
        error = (_check_bumping if bumps else _check)(transaction, request)
        if error is not None:
            if error is ErrorCode.INVALID_TXN_STATE:
                self._log_invalid(transaction, request)
            again = bumps and error is ErrorCode.NONE
            recorded = transaction.recorded
            done(EndResult(error, recorded.producer_id, recorded.epoch) if again else EndResult(error))
            return
        began = transaction.recorded.state is _S.ONGOING
        next_id = NO_PRODUCER_ID
        if bumps and transaction.recorded.epoch_exhausted:
            result = self._new_producer_id()
            if result.error is not ErrorCode.NONE:
                done(EndResult(result.error))
                return
            next_id = result.producer_id
        decided = transitions.decide(
            transaction.recorded,
            _PREPARE[request.committed],
            client_version=request.client_version if bumps else 0,
            next_producer_id=next_id,
            began=began,
            now_ms=self._turn.now.wall_ms,
        )
        self._decide(transaction, decided, done, tell_producer=bumps)

    def _log_invalid(self, transaction: Transaction, request: EndRequest) -> None:
        log.warning(
            "%s is in state %s and cannot be %s",
            transaction.transactional_id,
            transaction.recorded.state.title,
            "committed" if request.committed else "aborted",
        )

    # By the coordinator

    def abort(self, transaction: Transaction, done: Done) -> None:
        """Fence the producer of an open transaction, and abort it. `done` is called when the decision is in the log."""
        version = self._table.transaction_version()
        bumps = version >= transitions.EPOCH_BUMP_FROM
        recorded = transaction.recorded
        next_id = NO_PRODUCER_ID
        if bumps and recorded.epoch_exhausted:
            result = self._new_producer_id()
            if result.error is not ErrorCode.NONE:
                done(EndResult(result.error))
                return
            next_id = result.producer_id
        if not bumps:
            # The epoch goes up in memory first. If the record cannot be written, it must not go up a second time.
            recorded = transaction.recorded = transitions.fence(transaction)
        decided = transitions.decide(
            recorded,
            _S.PREPARE_ABORT,
            client_version=version if bumps else 0,
            next_producer_id=next_id,
            now_ms=self._turn.now.wall_ms,
        )

        def noted(result: EndResult) -> None:
            if result.error is not ErrorCode.NONE and not bumps:
                transaction.failed_fence = True
            done(result)

        self._decide(transaction, decided, noted, tell_producer=False)

    def resume_fence(self, transaction: Transaction) -> None:
        """Abort the open transaction of a producer that was being fenced when the broker stopped, as a record says.

        If that cannot be written now, the transaction is open like any other: its time-out or its next producer ends it.
        """
        transaction.recorded = replace(transaction.recorded, state=_S.ONGOING)
        self.abort(transaction, lambda _: None)

    # Both

    def _decide(
        self, transaction: Transaction, decided: Recorded, done: Done, *, tell_producer: bool
    ) -> None:
        prepared = transaction.prepare(decided)

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                log.warning(
                    "%s: %s could not be written: %s",
                    transaction.transactional_id, decided.state.title, error.name,
                )  # fmt: skip
                done(EndResult(error))
                return
            # A decision in the log will be carried out: the producer need not wait for the markers.
            upcoming = transitions.complete(transaction.recorded, now_ms=self._turn.now.wall_ms)
            done(
                EndResult(error, upcoming.producer_id, upcoming.epoch) if tell_producer else EndResult(error)
            )
            self._markers.begin(transaction)

        self._table.write(transaction, prepared, then)


def _check(transaction: Transaction, request: EndRequest) -> ErrorCode | None:
    """Returns, below version 2, the answer that can be given at once; None for an end that must be written."""
    recorded = transaction.recorded
    if recorded.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if recorded.epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if recorded.state is _S.ONGOING:
        return None
    if recorded.state is _COMPLETE[request.committed]:
        return ErrorCode.NONE
    if recorded.state is _PREPARE[request.committed]:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _check_bumping(transaction: Transaction, request: EndRequest) -> ErrorCode | None:
    """Returns, from version 2 on, the answer by the table in the module's docstring; None for an end that must be written."""
    recorded, epoch = transaction.recorded, request.producer_epoch
    # Only the end of a transaction of version 2 moves the epoch; otherwise the next epoch is a newer producer's.
    moved = recorded.client_version >= transitions.EPOCH_BUMP_FROM
    after_overflow = (
        moved
        and recorded.previous_producer_id == request.producer_id
        and epoch == EPOCH_MAX - 1
        and recorded.epoch == 0
    )
    repeated = after_overflow or (moved and recorded.epoch == epoch + 1)
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if recorded.producer_id != request.producer_id and not after_overflow:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    match recorded.state:
        case _S.PREPARE_COMMIT | _S.PREPARE_ABORT:
            valid = moved and recorded.epoch == epoch + 1
        case _S.COMPLETE_COMMIT | _S.COMPLETE_ABORT:
            valid = repeated or recorded.epoch == epoch
        case _:
            valid = recorded.epoch == epoch
    if not valid:
        return ErrorCode.PRODUCER_FENCED
    if recorded.state is _S.ONGOING:
        return None
    if recorded.state is _PREPARE[request.committed]:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if recorded.state is _COMPLETE[request.committed] and repeated:
        return ErrorCode.NONE
    if request.committed or repeated or recorded.state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT):
        return ErrorCode.INVALID_TXN_STATE
    return None
