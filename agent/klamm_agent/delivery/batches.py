"""Record batches on their way, and the accounts that lead from their records back to blocks. Pure.

A `Receipt` is what the agent waits for: it is done when all records of one block are delivered. The `Claim`s of a batch say
how many of its records each receipt waits for. A `Share` is a claim as the spool keeps it: it names the block and no receipt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from klamm_agent.delivery.encode import halves
from klamm_agent.delivery.wal.entries import Sent
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.batch import read_header

BATCH_COST: Final = 1_024
"""Bytes that a batch takes in memory besides its data."""


class Origin(NamedTuple):
    """The block that records came from: a byte range of a file, or a range of a stream's events (inode (0, 0))."""

    path: str
    inode: tuple[int, int]
    start: int
    end: int


class Share(NamedTuple):
    """A count of a batch's records that came from one block."""

    origin: Origin
    records: int


class Mark(Protocol):
    """The place behind a block, for the write-ahead log."""

    def note(self, about: dict[str, Any]) -> None:
        """Writes the place into what an entry says."""


@dataclass(slots=True, eq=False)
class Receipt:
    """A count of one block's records that are not delivered yet."""

    topic: str
    origin: Origin
    left: int
    mark: Mark | None = None

    @property
    def done(self) -> bool:
        """True when a broker, or the spool, has all records."""
        return not self.left


@dataclass(slots=True)
class Claim:
    """A count of a batch's records, one after the other, that one receipt waits for."""

    receipt: Receipt
    count: int


@dataclass(slots=True, eq=False)
class Batch:
    """An encoded record batch on its way. `key` is the key of its records while the partition is not chosen."""

    topic: str
    data: bytearray
    count: int
    claims: list[Claim]
    key: bytes | None = None
    sequence: int = -1
    acked: bool = False
    safe: bool = False
    """A broker or the disk has the batch: it counts as delivered."""
    spooled: int = -1
    """The offset behind it in the spool; -1: the spool does not have it."""
    number: int = 0
    """Its place in the order of encoding, over all lives of an agent that has a write-ahead log."""
    noted: Sent | None = None
    """The numbers under which the write-ahead log has it."""
    part: int = 0
    """0: a whole batch; 1: the first part of one that was halved; 2: a later part. The log has the whole, and its numbers begin with
    those of the first part.
    """
    cost: int = field(init=False)

    def __post_init__(self) -> None:
        self.cost = len(self.data) + BATCH_COST

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record."""
        return (self.sequence + self.count - 1) % SEQUENCES

    def halves(self, level: int | None) -> list[Batch]:
        """Returns two batches with its records, or none when it has one record."""
        found: list[Batch] = []
        rest = [Claim(p.receipt, p.count) for p in self.claims]
        for data in halves(self.data, read_header(self.data), level):
            count = read_header(data).record_count
            batch = Batch(self.topic, data, count, _cut(rest, count), self.key)
            batch.spooled, batch.safe, batch.number = self.spooled, self.safe, self.number
            batch.noted, batch.part = self.noted, 2 if found else max(1, self.part)
            found.append(batch)
        return found


def _cut(claims: list[Claim], count: int) -> list[Claim]:
    """Takes the claims on the first `count` records out of `claims`."""
    taken = []
    while count:
        claim = claims[0]
        here = min(count, claim.count)
        taken.append(Claim(claim.receipt, here))
        claim.count -= here
        count -= here
        if not claim.count:
            claims.pop(0)
    return taken
