"""A source's position in the binlog: arithmetic of GTIDs, and the committed offsets. Pure: no I/O.

A position has two parts. The first is what was read completely: a GTID state or set, and the file with the
byte after the last transaction. The second is the place inside the transaction under way: its GTID, the row
event, and the row after the last one that was returned. A restarted task asks the server for everything
after the first part and skips the second. Row events are counted whether or not their tables are captured,
so the count does not depend on the filters.

XA transactions that were prepared and not yet decided are held: the offset has the place where each begins, and a
restarted task reads from the first of them, leaving out what was returned. `incremental` is the state of an
incremental snapshot; `sweep` says which topics must still get tombstones after a repeated snapshot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from klamm_plugins.errors import ConnectError

SERVER = "server"


@dataclass(frozen=True, slots=True)
class Held:
    """The place before an XA transaction that was prepared and is neither committed nor rolled back."""

    xid: str
    done: str | None
    file: str
    pos: int


@dataclass(slots=True)
class Position:
    """A position. `done` holds the completed GTIDs; `gtid`, `event` and `row` are empty or 0 between transactions.

    Nobody changes one. The class is not frozen, and what is called for every transaction names all parts: both save microseconds.
    """

    done: str | None = None
    file: str = ""
    pos: int = 0
    gtid: str = ""
    event: int = 0
    row: int = 0
    snapshot: bool = False
    ts_sec: int = field(default=0, compare=False)
    held: tuple[Held, ...] = ()
    incremental: str = ""
    sweep: str = ""

    def to_offset(self) -> dict[str, Any]:
        """Returns the offset to commit, under Debezium's names where they mean the same."""
        found: dict[str, Any] = {"file": self.file, "pos": self.pos}
        if self.done is not None:
            found["gtids"] = self.done
        if self.event or self.row:
            found |= {"gtid": self.gtid, "event": self.event, "row": self.row}
        if self.snapshot:
            found["snapshot"] = True
        if self.ts_sec:
            found["ts_sec"] = self.ts_sec
        if self.held:
            found["xa"] = json.dumps([[h.xid, h.done, h.file, h.pos] for h in self.held])
        if self.incremental:
            found["incremental"] = self.incremental
        if self.sweep:
            found["sweep"] = self.sweep
        return found

    @classmethod
    def from_offset(cls, offset: Mapping[str, Any]) -> Position:
        """Reads a committed offset. Raises ConnectError for an offset that no such task has written."""
        done = offset.get("gtids")
        if done is not None and not isinstance(done, str):
            raise ConnectError(f"offset {dict(offset)}: gtids must be a text")
        # Debezium counts all events of a transaction and stores no `gtid` with them. Read the transaction from its begin.
        inside = offset if "gtid" in offset else {}
        try:
            found = cls(
                done=done,
                file=str(offset["file"]),
                pos=int(offset["pos"]),
                gtid=str(offset.get("gtid", "")),
                event=int(inside.get("event", 0)),
                row=int(inside.get("row", 0)),
                snapshot=bool(offset.get("snapshot", False)),
                ts_sec=int(offset.get("ts_sec", 0)),
                held=tuple(Held(*entry) for entry in json.loads(offset.get("xa", "[]"))),
                incremental=str(offset.get("incremental", "")),
                sweep=str(offset.get("sweep", "")),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise ConnectError(
                f"offset {dict(offset)} was not written by this connector: file and pos are needed ({e})"
            ) from e
        if found.pos < 0 or found.event < 0 or found.row < 0:
            raise ConnectError(f"offset {dict(offset)}: pos, event and row cannot be negative")
        return found

    def begin(self, gtid: str) -> Position:
        """Returns the position at the beginning of a transaction."""
        return Position(
            self.done, self.file, self.pos, gtid, 0, 0, self.snapshot, self.ts_sec, self.held, self.incremental, self.sweep
        )  # fmt: skip

    def inside(self, event: int, row: int, ts_sec: int) -> Position:
        """Returns the position behind some rows of a row event."""
        return Position(
            self.done, self.file, self.pos, self.gtid, event, row, self.snapshot, ts_sec, self.held, self.incremental, self.sweep
        )  # fmt: skip

    def complete(self, done: str | None, file: str, pos: int, ts_sec: int) -> Position:
        """Returns the position after the transaction under way (or an event outside of any), which ends before `pos`.

        `done` has its GTID.
        """
        return Position(done, file, pos, "", 0, 0, False, ts_sec, self.held, self.incremental, self.sweep)

    @property
    def first(self) -> Position:
        """The place to open the binlog at: before the first held transaction, if there is one."""
        if not self.held:
            return self
        return replace(self, done=self.held[0].done, file=self.held[0].file, pos=self.held[0].pos)

    def holding(self, held: Held) -> Position:
        """Returns the position with one more transaction held."""
        return replace(self, held=(*self.held, held))

    def without(self, xid: str) -> Position:
        """Returns the position with a transaction that is decided."""
        return replace(self, held=tuple(h for h in self.held if h.xid != xid))

    def has(self, gtid: str) -> bool:
        """Returns True when the transaction was read completely."""
        if not self.done:
            return False
        if ":" in gtid:
            source, _, number = gtid.partition(":")
            ranges = parse_gtid_set(self.done).get(source.lower(), [])
            return any(first <= int(number) <= last for first, last in ranges)
        domain, _, sequence = gtid.split("-")
        states = (part.strip().split("-") for part in self.done.split(","))
        return any(s[0] == domain and int(sequence) <= int(s[2]) for s in states)


class Gtids:
    """Adds transactions to states. One that follows the last of its source costs no more than putting the text together."""

    def __init__(self) -> None:
        self._state: str | None = None
        self._source, self._last = "", 0
        self._head, self._tail = "", ""  # of the state, around its GTID (MariaDB) or the number (MySQL)

    def add(self, done: str, gtid: str) -> str:
        """Returns what `add_gtid` does."""
        source, colon, number = gtid.rpartition(":")
        if not colon:
            source = gtid.partition("-")[0]
        if done != self._state or source != self._source or (colon and int(number) != self._last + 1):
            return self._added(done, gtid, source, number if colon else "")
        if colon:
            self._last += 1
        self._state = f"{self._head}{number}{self._tail}"
        return self._state

    def _added(self, done: str, gtid: str, source: str, number: str) -> str:
        """Adds the slow way, and remembers the parts around what the next transaction changes."""
        text = add_gtid(done, gtid)
        parts = text.split(",")
        place = next(
            i for i, part in enumerate(parts) if re.match(rf"{re.escape(source)}[:-]", part, re.IGNORECASE)
        )
        part = parts[place]
        first = ""
        if number:
            known, colon, last = part.rpartition(":")
            begin, _, end = last.partition("-")
            if (end or begin) != number:
                self._state = None  # it filled a gap
                return text
            first, self._last = f"{known}{colon}{begin}-", int(number)
        self._state, self._source = text, source
        self._head = "".join(f"{p}," for p in parts[:place]) + first
        self._tail = "".join(f",{p}" for p in parts[place + 1 :])
        return text


def add_gtid(done: str, gtid: str) -> str:
    """Adds a transaction to a state: MariaDB's `domain-server-sequence` or MySQL's `uuid:number`."""
    return _add_mysql(done, gtid) if ":" in gtid else _add_mariadb(done, gtid)


def _add_mariadb(done: str, gtid: str) -> str:
    last = {part.split("-")[0]: part for part in (p.strip() for p in done.split(",")) if part}
    last[gtid.split("-", maxsplit=1)[0]] = gtid
    return ",".join(last[domain] for domain in sorted(last, key=int))


def parse_gtid_set(text: str) -> dict[str, list[tuple[int, int]]]:
    """Parses MySQL's set into intervals (both ends included) by server uuid, sorted and merged."""
    found: dict[str, list[tuple[int, int]]] = {}
    for part in (p.strip() for p in text.replace("\n", "").split(",")):
        if not part:
            continue
        source, *ranges = part.split(":")
        for item in ranges:
            first, _, last = item.partition("-")
            found.setdefault(source.lower(), []).append((int(first), int(last or first)))
    return {source: _merged(intervals) for source, intervals in found.items()}


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _add_mysql(done: str, gtid: str) -> str:
    source, _, number = gtid.partition(":")
    sets = parse_gtid_set(done)
    sets[source.lower()] = _merged([*sets.get(source.lower(), []), (int(number), int(number))])
    return format_gtid_set(sets)


def format_gtid_set(sets: Mapping[str, list[tuple[int, int]]]) -> str:
    """Returns the set as MySQL writes it, sources in order."""
    return ",".join(
        ":".join([s, *(str(a) if a == b else f"{a}-{b}" for a, b in sets[s])]) for s in sorted(sets)
    )
