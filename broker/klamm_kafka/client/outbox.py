"""The batches of one partition of a producer of ours: waiting, sent, acknowledged. Pure: time is passed in.

Batches are sent in order, at most `IN_FLIGHT_MAX` before the first is acknowledged. A broker remembers that many per
producer, so that a batch that is sent again is not written again. After a failure nothing is sent until all answers are
there; then all batches without acknowledgement go again, in order and with their sequence numbers. The first batch
after a start or a failure goes alone: a broker that knows nothing of our producer takes any sequence number from it,
so a second batch could overtake a first one that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from klamm_base.backoff import Backoff
from klamm_kafka.wire.batch import stamp

IN_FLIGHT_MAX: Final = 5
SEQUENCES: Final = 0x80000000
"""Sequence numbers wrap from 2**31-1 to 0."""


class Parcel(Protocol):
    """A record batch, complete except for the part that `stamp` writes, and the number of its records."""

    data: bytearray
    count: int
    sequence: int
    """The sequence number of its first record; -1: not given yet."""
    acked: bool


P = TypeVar("P", bound=Parcel)


@dataclass(slots=True, eq=False)
class Gate:
    """Shared by outboxes. While it is closed, because a transaction ends, no further batch is sent; batches that failed go
    again nevertheless.
    """

    closed: bool = False


OPEN: Final = Gate()
"""The gate of outboxes that are never held up."""


@dataclass(slots=True, eq=False, kw_only=True)
class Outbox(Generic[P]):
    """The batches for one partition of the topic `remote`. `producer` is producer id and epoch."""

    remote: str
    partition: int
    producer: tuple[int, int] = (-1, -1)
    transactional: bool = False
    whole: bool = False
    """True for batches that are complete: they are sent as they are, each after the acknowledgement of the one before."""
    gate: Gate = OPEN
    busy: dict[Any, None] | None = None
    """The outboxes of the sender that have something; this one enters itself."""
    writing: Backoff = field(default_factory=Backoff)
    _unsent: deque[P] = field(default_factory=deque)
    _again: deque[P] = field(default_factory=deque)
    _unacked: deque[P] = field(default_factory=deque)
    _under_way: int = 0
    _failed: bool = False
    _alone: bool = True
    """True while only one batch may be sent at a time: until a batch is acknowledged."""
    _sequence: int = 0

    def __str__(self) -> str:
        return f"{self.remote}-{self.partition}"

    @property
    def idle(self) -> bool:
        """True while no batch waits for an answer."""
        return not self._under_way

    @property
    def all_acked(self) -> bool:
        """True once everything that was sent is acknowledged."""
        return not self._unacked

    @property
    def next_sequence(self) -> int:
        """The sequence number behind what is acknowledged."""
        first = next((p for p in self._unacked if p.sequence >= 0), None)
        return self._sequence if first is None else first.sequence

    @property
    def empty(self) -> bool:
        """True once everything is acknowledged."""
        return not self._unsent and not self._unacked

    @property
    def waiting(self) -> int:
        """The number of batches that are not acknowledged."""
        return len(self._unsent) + len(self._unacked)

    @property
    def pending(self) -> list[P]:
        """Batches that are not acknowledged, in order."""
        return [p for p in (*self._unacked, *self._unsent) if not p.acked]

    def put(self, parcels: Sequence[P]) -> None:
        self._unsent.extend(parcels)
        if self.busy is not None and parcels:
            self.busy[self] = None

    def take(self, now: float) -> P | None:
        """Returns the next batch to send, stamped; None when there is none or its time has not come."""
        if self._failed or now < self.writing.until or (self._alone and self._under_way):
            return None
        if self._again:
            if self._under_way >= IN_FLIGHT_MAX:
                return None
            parcel = self._again.popleft()
        elif (
            self._unsent
            and not self.gate.closed
            and len(self._unacked) < (1 if self.whole else IN_FLIGHT_MAX)
        ):
            parcel = self._unsent.popleft()
            self._unacked.append(parcel)
        else:
            return None
        if parcel.sequence < 0 and not self.whole:
            parcel.sequence = self._sequence
            stamp(parcel.data, *self.producer, self._sequence, transactional=self.transactional)
            self._sequence = (self._sequence + parcel.count) % SEQUENCES
        self._under_way += 1
        return parcel

    def is_only(self, parcel: P) -> bool:
        """Decides whether all batches before this one are acknowledged and no other waits for an answer."""
        return self._under_way == 1 and self._unacked[0] is parcel

    def delivered(self, parcel: P) -> list[P]:
        """Note that a broker has the batch. Returns the batches that are now acknowledged with all before them, in order."""
        self._under_way -= 1
        parcel.acked = True
        if not self._failed:
            self._alone = False
            self.writing.succeeded()
        done = []
        while self._unacked and self._unacked[0].acked:
            done.append(self._unacked.popleft())
        self._settle()
        return done

    def failed(self, now: float, why: str) -> None:
        """Note a missing acknowledgement: the batch goes again, with all that are not acknowledged."""
        self._under_way -= 1
        if not self._failed:
            self.writing.failed(now, why)
        self._failed = self._alone = True
        self._settle()

    def replaced(self, parcel: P, parts: Sequence[P]) -> None:
        """Replace a batch that a broker refused by `parts`, which hold the same records.

        Without parts the records are given up. The broker then accepts nothing behind the hole in the sequence, so the caller
        must call `new_producer` next.
        """
        self._under_way -= 1
        self._failed = self._alone = True
        at, sequence = self._unacked.index(parcel), parcel.sequence
        for part in parts if sequence >= 0 else ():  # else there is a new producer since: `take` stamps them
            part.sequence = sequence
            stamp(part.data, *self.producer, sequence, transactional=self.transactional)
            sequence = (sequence + part.count) % SEQUENCES
        rest = list(self._unacked)
        self._unacked = deque([*rest[:at], *parts, *rest[at + 1 :]])
        self._settle()

    def give_back(self) -> list[P]:
        """Take out all batches that are not acknowledged, in order, for another partition. Nothing may be under way."""
        assert not self._under_way, "answers are due"
        parcels = self.pending
        for parcel in parcels:
            parcel.sequence = -1
        self._unacked.clear()
        self._unsent.clear()
        self._again.clear()
        return parcels

    def new_producer(self, producer: tuple[int, int]) -> None:
        """Begin the sequences anew, as the cluster has forgotten the producer."""
        self.producer, self._sequence, self._alone = producer, 0, True
        for parcel in (*self._unacked, *self._unsent):
            parcel.sequence = -1

    def take_over(self, producer: tuple[int, int], parcels: Sequence[P]) -> None:
        """Goes on where another process stood that had sent `parcels`, under their sequence numbers, and knew of no acknowledgement.

        They go again first. Nothing else may have been put here. The broker tells which of them it has.
        """
        assert not self.waiting, "other batches would be overtaken"
        self.producer, self._alone = producer, True
        for parcel in parcels:
            stamp(parcel.data, *producer, parcel.sequence, transactional=self.transactional)
            self._sequence = (parcel.sequence + parcel.count) % SEQUENCES
        self._unacked.extend(parcels)
        self._again.extend(parcels)

    def change_producer(self, producer: tuple[int, int], sequence: int) -> tuple[tuple[int, int], int]:
        """Go on with another producer, at its next sequence number here. Everything sent must be acknowledged, so that no
        batch overtakes another. Returns the producer so far and its next sequence number.
        """
        assert not self._unacked, "batches of the producer so far are not acknowledged"
        before = self.producer, self._sequence
        self.producer, self._sequence, self._alone = producer, sequence, True
        return before

    def _settle(self) -> None:
        if self._failed and not self._under_way:
            self._failed = False
            self._again = deque(p for p in self._unacked if not p.acked)
