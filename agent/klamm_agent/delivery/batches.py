"""Handles and parcels: which blocks of which files the records of a batch are. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm_agent.delivery.encode import halves
from klamm_kafka.wire.batch import read_header

PARCEL_COST: Final = 1_024
"""Bytes that a parcel takes besides its data."""


class Origin(NamedTuple):
    """The block that a batch's records came from."""

    path: str
    inode: tuple[int, int]
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one block: in flight until `left` is 0."""

    topic: str
    origin: Origin
    left: int

    @property
    def done(self) -> bool:
        """A broker, or the spool, has all its records."""
        return not self.left


@dataclass(slots=True)
class Part:
    """So many records of a batch, one after the other in a parcel."""

    batch: Batch
    count: int


@dataclass(slots=True, eq=False)
class Parcel:
    """An encoded record batch on its way. `key` is that of its records, where the partition is chosen later."""

    topic: str
    data: bytearray
    count: int
    parts: list[Part]
    key: bytes | None = None
    sequence: int = -1
    acked: bool = False
    safe: bool = False
    """It counts as delivered: a broker or the disk has it."""
    spooled: int = -1
    """The offset behind it in the spool; -1: it is not there."""
    number: int = 0
    """In the order of encoding."""
    cost: int = field(init=False)

    def __post_init__(self) -> None:
        self.cost = len(self.data) + PARCEL_COST

    def halves(self, level: int | None) -> list[Parcel]:
        """Two parcels with its records; none when it is one record."""
        found = []
        rest = [Part(p.batch, p.count) for p in self.parts]
        for data in halves(self.data, read_header(self.data), level):
            count = read_header(data).record_count
            parcel = Parcel(self.topic, data, count, _cut(rest, count), self.key)
            parcel.spooled, parcel.safe, parcel.number = self.spooled, self.safe, self.number
            found.append(parcel)
        return found


def _cut(parts: list[Part], count: int) -> list[Part]:
    """Takes the parts of the first `count` records."""
    taken = []
    while count:
        part = parts[0]
        here = min(count, part.count)
        taken.append(Part(part.batch, here))
        part.count -= here
        count -= here
        if not part.count:
            parts.pop(0)
    return taken
