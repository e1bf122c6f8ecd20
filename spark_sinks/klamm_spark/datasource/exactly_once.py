"""Exactly once into topics: the rules for a batch's task that may have run before. Pure.

Every task (slot) of a batch writes its records in one Kafka transaction. The transaction also commits an
offset, the batch number plus one, to a group with the name of the transactional id,
`<prefix>-<application>-<slot>`. The offset's metadata is the `Marker`, which says what was written. Three
facts make a record appear once for readers of committed records:
- Records and marker become visible together, or neither does.
- A task reads its marker after it has taken over its transactional id. The former owner (a task of a killed
  driver, a worker that was given up, a second attempt) can then neither write nor commit.
- A batch that runs again reads the same offsets, so a slot whose marker exists has nothing to write.

The application is the query's id, which its checkpoint keeps: another checkpoint is another application.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klamm_base.errors import KlammError

PREFIX: Final = "klamm-spark"


class NotReproducibleError(KlammError):
    """A batch that ran again produced other records than those already in the topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One task of one batch: application (query id or txnAppId), version (batch number or txnVersion), slot (task)."""

    prefix: str
    application: str
    version: int
    slot: int
    run: str = ""

    @property
    def name(self) -> str:
        """The transactional id, and the name of the group that keeps the marker."""
        return f"{group_prefix(self.prefix, self.application)}{self.slot}"

    def __str__(self) -> str:
        return f"task {self.slot} of batch {self.version} of {self.application}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A slot's last committed transaction. `writer` names the producer, `run` the run of the query."""

    version: int
    rows: int
    size: int
    writer: str = ""
    run: str = ""

    @property
    def offset(self) -> int:
        """The offset to commit: like any committed offset, it is the next one."""
        return self.version + 1

    def metadata(self) -> str:
        return json.dumps(
            {"rows": self.rows, "bytes": self.size, "writer": self.writer, "run": self.run},
            separators=(",", ":"),
        )


def group_prefix(prefix: str, application: str) -> str:
    """Returns the common beginning of the names of all slots."""
    return f"{prefix}-{application}-"


def read_marker(offset: int, metadata: str | None) -> Marker | None:
    """Reads the marker from a committed offset; None where nothing is committed. Raises NotReproducibleError for a
    marker that is not ours.
    """
    if offset < 0:
        return None
    try:
        data = json.loads(metadata or "")
        return Marker(
            version=offset - 1,
            rows=int(data["rows"]),
            size=int(data["bytes"]),
            writer=str(data["writer"]),
            run=str(data["run"]),
        )
    except (ValueError, KeyError, TypeError):
        raise NotReproducibleError(
            f"offset {offset} was committed by somebody else (its metadata is {metadata!r}): groups of this name are "
            "the writer's own; use another transactionalIdPrefix or delete the group"
        ) from None


def is_written(marker: Marker | None, turn: Turn) -> bool:
    """Returns True when the slot's records of this batch are in the topics already."""
    return marker is not None and marker.version >= turn.version


def check_same(marker: Marker, turn: Turn, rows: int, size: int) -> None:
    """Checks that a slot would write the same as it has written. Raises NotReproducibleError."""
    if marker.version == turn.version and (marker.rows, marker.size) != (rows, size):
        raise NotReproducibleError(
            f"{turn} wrote {marker.rows} records of {marker.size} bytes before it was cut off, now it gives {rows} of "
            f"{size}: the query was changed, or it gives something else each time (random values, the time of day, an "
            "input that changes); exactly-once needs the same records. Change it back, or begin anew with another checkpoint"
        )


def check_slots(markers: Iterable[tuple[int, Marker]], version: int, slots: int) -> None:
    """Checks, after a batch, that no earlier attempt had more tasks than this one. Raises NotReproducibleError."""
    beyond = sorted(slot for slot, m in markers if slot >= slots and m.version == version)
    if beyond:
        raise NotReproducibleError(
            f"batch {version} ran before with at least {beyond[-1] + 1} tasks, now with {slots}: what task {beyond[0]} wrote "
            "is in the topics twice; the number of partitions must stay the same while a batch is run again"
        )
