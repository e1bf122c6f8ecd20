"""Rows of neighbouring row events in one batch: small transactions cost a batch for each table and operation, not for each event.

Rows are joined in the order of the binlog, and only neighbours: no record changes its place among the others. Each keeps its own
offset and `source`. Pure: no I/O, time is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_connectors.mysql.events import Origin, TableEvents
from klamm_connectors.mysql.position import Position
from klamm_plugins.batch import SourceBatch, SourceBatches
from klamm_plugins.records import SourceRecord

_MANY: Final = 4  # rows, from which on a batch costs less than its records

Place = tuple[Position, int]
"""A position within a row event, and the number of the row: the position behind it has the next number."""


@dataclass(slots=True)
class JoinedRows:
    """Converted rows of one table and operation, each of which becomes one record."""

    events: TableEvents
    op: str
    before: list[Sequence[Any]] | None
    after: list[Sequence[Any]] | None
    origins: list[tuple[Origin, int]]
    """The origin of each event, with the number of its rows."""
    places: list[Place]

    def __len__(self) -> int:
        return len(self.places)

    def takes(self, other: JoinedRows) -> bool:
        """Returns True when the rows of another event can follow these in one batch."""
        return self.events is other.events and self.op == other.op

    def join(self, other: JoinedRows) -> None:
        """Puts the rows of another event behind these."""
        for mine, theirs in ((self.before, other.before), (self.after, other.after)):
            if mine is not None and theirs is not None:
                _extend(mine, theirs)
        self.origins += other.origins
        self.places += other.places

    def made(self, partition: dict[str, Any], now_ns: int) -> SourceBatch | list[SourceRecord]:
        """Returns the records."""
        if len(self) < _MANY:
            return self._one_by_one(partition, now_ns)
        numbers = [number for _, number in self.places]
        return self.events.batch(
            self.op, self.before, self.after, self.origins, partition, self.places, offset_at, numbers, now_ns
        )

    def _one_by_one(self, partition: dict[str, Any], now_ns: int) -> list[SourceRecord]:
        origins = [origin for origin, count in self.origins for _ in range(count)]
        found: list[SourceRecord] = []
        for i, (origin, place) in enumerate(zip(origins, self.places, strict=True)):
            before, after = (
                None if image is None else [column[i] for column in image]
                for image in (self.before, self.after)
            )
            found += self.events.records(
                self.op, before, after, origin, partition, offset_at(place), place[1], now_ns
            )
        return found


class Joined:
    """Records and joined rows, in order."""

    def __init__(self, parts: Sequence[Made] = ()) -> None:
        self._parts: list[Sequence[SourceRecord] | JoinedRows] = []
        self._count = 0
        for part in parts:
            self.add(part)

    def __len__(self) -> int:
        return self._count

    def add(self, part: Made) -> None:
        """Puts more behind the others."""
        if isinstance(part, Joined):
            for one in part._parts:  # noqa: SLF001  of its own kind
                self.add(one)
            return
        if not part:
            return
        self._count += len(part)
        last = self._parts[-1] if self._parts else None
        if isinstance(part, JoinedRows) and isinstance(last, JoinedRows) and last.takes(part):
            last.join(part)
        else:
            self._parts.append(part)

    def made(self, partition: dict[str, Any], now_ns: int) -> SourceBatches:
        """Returns the records."""
        return SourceBatches(
            part.made(partition, now_ns) if isinstance(part, JoinedRows) else part for part in self._parts
        )


Made = Sequence[SourceRecord] | JoinedRows | Joined
"""The records of a row event or of a transaction."""


def offset_at(place: Place) -> dict[str, Any]:
    """Returns the offset behind a row."""
    position, number = place
    return position.inside(position.event, number + 1, position.ts_sec).to_offset()


def _extend(mine: list[Sequence[Any]], theirs: list[Sequence[Any]]) -> None:
    for i, column in enumerate(theirs):
        known = mine[i]
        if not isinstance(known, list):
            known = mine[i] = list(known)
        known.extend(column)
