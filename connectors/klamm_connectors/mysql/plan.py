"""The tables that snapshots on request still have to read, and the signals taken: the state that offsets carry. Pure: no I/O."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from klamm_connectors.mysql.names import quoted


@dataclass(frozen=True, slots=True)
class Reading:
    """One table to read: after the key `last`, up to the key `up_to`, by its primary key or by the column `key`."""

    table: str
    condition: str | None = None
    key: str | None = None
    last: list[Any] | None = None
    up_to: list[Any] | None = None
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The tables to read, in order, and what was taken of the topic of signals."""

    readings: tuple[Reading, ...] = ()
    paused: bool = False
    taken: int = 0
    """The offset behind the last signal of the topic; 0 once the consumer group has it."""

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """Reads the state of an offset."""
        if not text:
            return cls()
        found = json.loads(text)
        readings = [
            Reading(
                table=one["table"],
                condition=one.get("condition"),
                key=one.get("key"),
                last=_decoded(one.get("last")),
                up_to=_decoded(one.get("up_to")),
                blocking=one.get("blocking", False),
            )
            for one in found.get("readings", ())
        ]
        return cls(tuple(readings), found.get("paused", False), found.get("taken", 0))

    def to_text(self) -> str:
        """Returns the state for an offset; empty when there is nothing to read or to remember."""
        readings = [
            {
                name: value
                for name, value in (
                    ("table", r.table), ("condition", r.condition), ("key", r.key), ("last", _encoded(r.last)),
                    ("up_to", _encoded(r.up_to)), ("blocking", r.blocking),
                )
                if value
            }
            for r in self.readings
        ]  # fmt: skip
        state = {"readings": readings, "paused": self.paused and bool(readings), "taken": self.taken}
        found = {name: value for name, value in state.items() if value}
        return json.dumps(found) if found else ""

    @property
    def next(self) -> Reading | None:
        """The table to read the next chunk of; None when there is none, or when reading is paused."""
        if self.paused:
            return None
        return next((r for r in self.readings if not r.blocking), None)

    def with_readings(self, more: list[Reading]) -> Plan:
        """Returns the plan with more tables at its end, but for those that wait there with the same condition and key.

        A table that is under way is read again.
        """
        return replace(self, readings=(*self.readings, *(r for r in more if r not in self.readings)))

    def without(self, reading: Reading) -> Plan:
        """Returns the plan without one table."""
        return replace(self, readings=tuple(r for r in self.readings if r != reading))

    @property
    def blocking(self) -> list[Reading]:
        """The tables of the next blocking snapshot: each once, others of the same table wait for another."""
        first: dict[str, Reading] = {}
        for reading in self.readings:
            if reading.blocking:
                first.setdefault(reading.table, reading)
        return list(first.values())

    def without_blocking(self) -> Plan:
        """Returns the plan without the next blocking snapshot."""
        done = self.blocking
        return replace(self, readings=tuple(r for r in self.readings if r not in done))

    def stopped(self, tables: set[str] | None) -> Plan:
        """Returns the plan without these tables' incremental snapshots; None stands for all tables."""
        return replace(
            self,
            readings=tuple(
                r for r in self.readings if r.blocking or (tables is not None and r.table not in tables)
            ),
        )

    def replaced(self, reading: Reading, by: Reading) -> Plan:
        """Returns the plan with another entry for a table."""
        return replace(self, readings=tuple(by if r == reading else r for r in self.readings))

    def limited(self, reading: Reading, up_to: list[Any] | None) -> tuple[Plan, Reading]:
        """Returns the plan with a table's last key, and the table's entry in it."""
        limited = replace(reading, up_to=up_to)
        return self.replaced(reading, limited), limited

    def advanced(self, reading: Reading, last: list[Any] | None) -> Plan:
        """Returns the plan after a chunk that ended with the key `last`; None: it was the table's last."""
        if last is None:
            return self.without(reading)
        return self.replaced(reading, replace(reading, last=last))


def _encoded(key: list[Any] | None) -> list[Any] | None:
    """Returns a key's values as JSON: numbers and texts as they are, others named by their type."""
    if key is None:
        return None
    return [
        {"bytes": base64.b64encode(v).decode()}
        if isinstance(v, bytes)
        else {"decimal": str(v)}
        if isinstance(v, Decimal)
        else v
        for v in key
    ]


def _decoded(key: list[Any] | None) -> list[Any] | None:
    if key is None:
        return None
    return [
        v
        if not isinstance(v, dict)
        else base64.b64decode(v["bytes"])
        if "bytes" in v
        else Decimal(v["decimal"])
        for v in key
    ]


def statement_of(reading: Reading) -> str:
    """Returns the statement of a blocking snapshot: Debezium has whole ones there; a mere condition is understood, too."""
    condition = (reading.condition or "").strip().rstrip(";")
    if re.match(r"\(*\s*(SELECT|WITH)\b", condition, re.IGNORECASE):
        return condition
    database, name = reading.table.split(".", 1)
    return f"SELECT * FROM {quoted(database)}.{quoted(name)} WHERE {condition}"  # noqa: S608  the user's own words
