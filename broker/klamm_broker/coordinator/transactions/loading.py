"""Rebuilds the transactional ids of one partition of `__transaction_state` from its records."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.coordinator.transactions import records
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.transaction import Transaction
from klamm_kafka.wire.errors import ProtocolError

log = logging.getLogger(__name__)


class Loader:
    """Takes the records of one partition in order, then returns its transactions. Only the last record of a key counts."""

    def __init__(self) -> None:
        self._live: dict[bytes, bytes] = {}

    def replay(self, batch: Iterable[KeyValue]) -> None:
        """Take in records; a tombstone forgets its key."""
        for key, value in batch:
            if value is None:
                self._live.pop(key, None)
            else:
                self._live[key] = value

    def transactions(self, partition: int) -> list[Transaction]:
        """Returns the transactions as they were stored. Empties the loader."""
        live, self._live = self._live, {}
        found, foreign = [], 0
        for key, value in live.items():
            try:
                record = records.decode(key, value)
            except ProtocolError as e:
                # The record is lost either way, but the other ids are not.
                log.error("__transaction_state-%d: a record cannot be read: %s", partition, e)  # noqa: TRY400
                continue
            if record is None:
                foreign += 1
                continue
            if record[1].state is TransactionState.DEAD:
                continue  # its tombstone was on its way
            found.append(Transaction(record[0], record[1], log_partition=partition))
        if foreign:
            log.warning(
                "__transaction_state-%d: %d records of an unknown version are left alone, perhaps of a newer broker",
                partition,
                foreign,
            )
        return found


def largest_producer_id(transactions: Iterable[Transaction]) -> int:
    """Returns the largest producer id that these use; -1 for none."""
    return max(
        (max(t.recorded.producer_id, t.recorded.next_producer_id) for t in transactions),
        default=NO_PRODUCER_ID,
    )
