"""A partition's state of its producers: sequence numbers, epochs, open transactions.

The state is derived: replaying the log restores it, and a snapshot only shortens the replay. `check` decides on a
batch before it is written, `update` takes note of it afterwards, so a failed write leaves no trace. No I/O,
no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm_broker.log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)

BATCHES_KEPT: Final = 5  # as many requests as an idempotent producer may have in flight
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
_MAX_SEQUENCE: Final = 2**31 - 1
_MAX_EPOCH: Final = 2**15 - 1
EPOCH_BUMP_FROM: Final = (
    2  # the transaction version from which on a marker has an epoch above its transaction's
)
_SEQUENCES: Final = 2**31


class BatchMetadata(NamedTuple):
    """One batch that a producer wrote. `offset_delta` = last offset - first offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction whose marker has been appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer: its epoch, its last batches (oldest first) and its open transaction."""

    __slots__ = (
        "batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp", "producer_id"
    )  # fmt: skip

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        batches: Iterable[BatchMetadata] = (),
        *,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches = list(batches)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerEntry) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def continues(self, epoch: int, sequence: int) -> bool:
        """Decides whether a batch comes right behind the last one, in the same epoch and in no transaction."""
        batches = self.batches
        return (
            epoch == self.epoch >= 0
            and self.current_txn_first_offset is None
            and bool(batches)
            and sequence == batches[-1].last_sequence + 1
        )

    def add(self, batch: BatchMetadata) -> None:
        self.batches.append(batch)
        if len(self.batches) > BATCHES_KEPT:
            del self.batches[0]


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_ongoing", "entries")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # producer id -> first offset of its open transaction
        for entry in entries:
            self.entries[entry.producer_id] = entry
            if entry.current_txn_first_offset is not None:
                self._ongoing[entry.producer_id] = entry.current_txn_first_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._ongoing.values()) if self._ongoing else None  # asked for by every fetch

    def copy(self) -> ProducerState:
        """Returns an independent copy, against which several batches of one append are checked."""
        return ProducerState(
            ProducerEntry(
                e.producer_id,
                e.epoch,
                e.batches,
                coordinator_epoch=e.coordinator_epoch,
                last_timestamp=e.last_timestamp,
                current_txn_first_offset=e.current_txn_first_offset,
            )
            for e in self.entries.values()
        )

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Decides whether this producer has an open transaction here."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset is not None

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        transactional: bool = False,
        from_zero: bool = False,
        where: str,
    ) -> BatchMetadata | None:
        """Accept a client's data batch (None), or return the earlier batch that it repeats.

        Raises InvalidProducerEpoch, OutOfOrderSequence, and InvalidTxnState for a batch outside of an open transaction.
        An unknown producer (its records were deleted, or its state expired) may start with any sequence
        number, as in Kafka, unless it starts `from_zero`.
        """
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch == NO_EPOCH:
            if from_zero and base_sequence != 0:
                raise OutOfOrderSequence(
                    f"Invalid sequence number for producer {producer_id} in {where}: {base_sequence} (incoming); "
                    "0 is expected of a producer that is not known"
                )
            return None
        if epoch == entry.epoch:
            last = entry.last_sequence
            if base_sequence == last + 1 or (base_sequence == 0 and last == _MAX_SEQUENCE):
                self._check_transaction(entry, where, transactional=transactional)
                return None
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                    return batch
            raise OutOfOrderSequence(
                f"Out of order sequence number for producer {producer_id} in {where}: "
                f"{base_sequence} (incoming), {last} (last one written)"
            )
        self._check_epoch(entry, epoch, where)
        if base_sequence != 0:
            raise OutOfOrderSequence(
                f"Invalid sequence number for the new epoch {epoch} of producer {producer_id} in {where}: "
                f"{base_sequence} (incoming), {entry.epoch} (current epoch); a new epoch starts with 0"
            )
        self._check_transaction(entry, where, transactional=transactional)
        return None

    @staticmethod
    def _check_transaction(entry: ProducerEntry, where: str, *, transactional: bool) -> None:
        if entry.current_txn_first_offset is not None and not transactional:
            raise InvalidTxnState(
                f"Expected transactional write from producer {entry.producer_id} in {where}: its transaction is open"
            )

    def check_epoch(self, producer_id: int, epoch: int, *, where: str) -> None:
        """Raises InvalidProducerEpoch for a coordinator's batch whose producer has been replaced by a newer one."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            self._check_epoch(entry, epoch, where)

    @staticmethod
    def _check_epoch(entry: ProducerEntry, epoch: int, where: str) -> None:
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {entry.producer_id} in {where} is {epoch}, "
                f"which is smaller than the last seen epoch {entry.epoch}"
            )

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        transaction_version: int = 0,
        where: str,
    ) -> None:
        """Refuse the transaction marker of an old producer epoch or of a replaced coordinator.

        From transaction version 2 on a marker has a larger epoch than the records that it ends (KIP-890, KIP-1228). A marker
        with the same epoch is late, and would end the next transaction, unless there is nothing to end.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        self._check_epoch(entry, epoch, where)
        if (
            transaction_version >= EPOCH_BUMP_FROM
            and epoch == entry.epoch
            and entry.current_txn_first_offset is not None
            and epoch != _MAX_EPOCH
        ):
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} in {where} is {epoch}, which is not above the epoch of its open "
                f"transaction: the marker (transaction version {transaction_version}) is late"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Invalid coordinator epoch for producer {producer_id} in {where}: {coordinator_epoch} "
                f"(marker), {entry.coordinator_epoch} (last one written)"
            )

    def update(
        self, producer_id: int, epoch: int, batch: BatchMetadata, *, transactional: bool, timestamp: int
    ) -> None:
        """Take note of a data batch that is in the log."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.batches.clear()
            entry.epoch = epoch
        entry.add(batch)
        entry.last_timestamp = timestamp
        if transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = batch.first_offset
            self._ongoing[producer_id] = batch.first_offset

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        offset: int,
        aborted: bool,
        coordinator_epoch: int,
        timestamp: int,
    ) -> CompletedTxn | None:
        """Note a transaction marker at `offset`. Returns the transaction that it completes (None, if it had no records)."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.batches.clear()
            entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        first = entry.current_txn_first_offset
        entry.current_txn_first_offset = None
        self._ongoing.pop(producer_id, None)
        return None if first is None else CompletedTxn(producer_id, first, offset, aborted)

    def note_epoch(self, producer_id: int, epoch: int, *, timestamp: int) -> None:
        """Note a control batch without its marker: only the epoch is left of it."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch < epoch:
            entry.batches.clear()
            entry.epoch = epoch
        entry.last_timestamp = max(entry.last_timestamp, timestamp)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for `expiration_ms` and have no open transaction. Returns how many."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)
