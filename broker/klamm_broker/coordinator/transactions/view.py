"""The administrators' view of transactions: DescribeTransactions and ListTransactions. It never changes anything."""

from __future__ import annotations

from collections.abc import Iterable

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.regex import compiled
from klamm_broker.coordinator.transactions.model import (
    ListedTransaction,
    ListFilter,
    ListResult,
    TransactionDescription,
)
from klamm_broker.coordinator.transactions.state import BY_TITLE, TransactionState
from klamm_broker.coordinator.transactions.transaction import Transaction
from klamm_kafka.wire.errors import ErrorCode


def describe(transactional_id: str, transaction: Transaction | None) -> TransactionDescription:
    """Describe one transactional id. Returns TRANSACTIONAL_ID_NOT_FOUND for an unknown or expiring one."""
    if transaction is None or transaction.pending is TransactionState.DEAD:
        return TransactionDescription(
            transactional_id=transactional_id, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    recorded = transaction.recorded
    return TransactionDescription(
        transactional_id=transactional_id,
        state=recorded.state.title,
        timeout_ms=recorded.timeout_ms,
        start_ms=recorded.start_ms,
        producer_id=recorded.producer_id,
        producer_epoch=recorded.epoch,
        partitions=sorted(transaction.undecided),
    )


def list_transactions(transactions: Iterable[Transaction], wanted: ListFilter, *, now_ms: int) -> ListResult:
    """Returns the transactions that pass all filters; INVALID_REGULAR_EXPRESSION for a pattern that is none."""
    unknown = [name for name in wanted.states if name not in BY_TITLE]
    states = {BY_TITLE[name] for name in wanted.states if name in BY_TITLE}
    try:
        pattern = compiled(wanted.pattern) if wanted.pattern else None
    except GroupError:
        return ListResult(error=ErrorCode.INVALID_REGULAR_EXPRESSION)

    def passes(transaction: Transaction) -> bool:
        recorded = transaction.recorded
        return (
            transaction.pending is not TransactionState.DEAD
            and (not wanted.producer_ids or recorded.producer_id in wanted.producer_ids)
            and (not wanted.states or recorded.state in states)
            and (wanted.duration_ms < 0 or now_ms - recorded.start_ms > wanted.duration_ms)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
        )

    return ListResult(
        unknown_states=unknown,
        transactions=[
            ListedTransaction(t.transactional_id, t.recorded.producer_id, t.recorded.state.title)
            for t in transactions
            if passes(t)
        ],
    )
