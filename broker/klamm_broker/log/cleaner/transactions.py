"""Follows the transactions in a log while the cleaner reads it from its start.

It tells whether a batch belongs to an aborted transaction (then its records go), and whether a marker has become useless,
as its transaction has left no batch. Aborted transactions with a batch that was seen keep their markers, and go into
the index of the new segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from struct import Struct, error
from typing import Final

from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.batch import BatchHeader
from klamm_kafka.wire.errors import InvalidRecord

_CONTROL_KEY: Final = Struct(">hh")  # version, type
_ABORT: Final = 0
_COMMIT: Final = 1


class CleanedTransactions:
    """The open and aborted transactions at the present position. It must hear of every batch, in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_pending", "retained")

    def __init__(self) -> None:
        self._pending: list[
            tuple[int, AbortedTxn]
        ] = []  # a heap by first offset, of transactions that were not reached yet
        self._aborted: dict[
            int, tuple[AbortedTxn, list[bool]]
        ] = {}  # by producer id, with whether a batch was seen
        self._committed: set[int] = set()
        self.retained: list[AbortedTxn] = []
        """Aborted transactions whose markers were passed and stay; whoever writes the index empties it."""

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions with records in the part that is read next. One may be added several times."""
        for transaction in transactions:
            heappush(self._pending, (transaction.first_offset, transaction))

    def on_data(self, header: BatchHeader) -> bool:
        """Decides whether this batch's records belong to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        found[1][0] = True
        return True

    def on_control(self, header: BatchHeader, key: bytes | None) -> bool:
        """Decides whether this marker has become useless. `key` is its record's; None for a batch without records.

        Raises InvalidRecord for a key that cannot be read.
        """
        self._reach(header.last_offset)
        if key is None:
            return True
        try:
            _, kind = _CONTROL_KEY.unpack_from(key)
        except error as e:
            raise InvalidRecord(f"control record at offset {header.base_offset}: {e}") from None
        if kind == _ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is None or not found[1][0]:
                return True
            self.retained.append(found[0])
            return False
        if kind == _COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.discard(header.producer_id)
        return False

    def _reach(self, offset: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= offset:
            transaction = heappop(pending)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, [False]))
