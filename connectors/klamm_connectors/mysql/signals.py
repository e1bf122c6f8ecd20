"""Signals: requests to a running connector, in Debezium's words. Pure: no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm_connectors.mysql.filters import compile_name
from klamm_plugins.errors import DataError

WATERMARK = "snapshot-window-"
"""Types of the connector's own rows in the table of signals begin so."""
_FIELDS = ("data-collections", "type", "additional-conditions", "surrogate-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables that a signal names: expressions for database.table, conditions by expression, a key to read by."""

    expressions: tuple[re.Pattern[str], ...] = ()
    conditions: tuple[tuple[re.Pattern[str], str], ...] = ()
    key: str | None = None

    def has(self, table: str) -> bool:
        return any(e.fullmatch(table) for e in self.expressions)

    def condition(self, table: str) -> str | None:
        """Returns what the rows of a table must meet; None for all rows."""
        return next((text for e, text in self.conditions if e.fullmatch(table)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Read tables: beside the binlog (incremental), or while it waits (blocking)."""

    tables: Tables
    blocking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop reading tables; without tables: all."""

    tables: Tables


@dataclass(frozen=True, slots=True)
class Pause:
    """Read no chunk until `Resume`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after `Pause`."""


@dataclass(frozen=True, slots=True)
class Log:
    """Write a message to the log."""

    message: str


Signal = Execute | Stop | Pause | Resume | Log


def parse(type: str, data: str | None) -> Signal:
    """Returns the signal. Raises DataError for one that this connector does not know."""
    fields = _fields(data)
    match type:
        case "execute-snapshot":
            tables = _tables(fields)
            if not tables.expressions:
                raise DataError(
                    "execute-snapshot: data-collections is missing or empty; name tables, as database.table"
                )
            return Execute(tables=tables, blocking=_is_blocking(fields))
        case "stop-snapshot":
            return Stop(tables=_tables(fields))
        case "pause-snapshot":
            return Pause()
        case "resume-snapshot":
            return Resume()
        case "log":
            return Log(str(fields.get("message", "")))
    raise DataError(
        f"there is no signal {type!r} here: use execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log"
    )


def _fields(data: str | None) -> Mapping[str, Any]:
    if not data or not data.strip():
        return {}
    try:
        found = json.loads(data)
    except ValueError as e:
        raise DataError(f"data is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise DataError("data is no JSON object")
    return found


def _is_blocking(fields: Mapping[str, Any]) -> bool:
    kind = str(fields.get("type", "incremental")).lower()
    if kind not in {"incremental", "blocking"}:
        raise DataError(f"execute-snapshot: type is {kind!r}; it can be incremental or blocking")
    return kind == "blocking"


def _tables(fields: Mapping[str, Any]) -> Tables:
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        raise DataError(f"{unknown[0]} is no field of data; there are {', '.join(_FIELDS)}")
    return Tables(
        expressions=tuple(_expression(one) for one in _list(fields, "data-collections")),
        conditions=tuple(_condition(one) for one in _list(fields, "additional-conditions")),
        key=fields.get("surrogate-key") or None,
    )


def _condition(one: Any) -> tuple[re.Pattern[str], str]:
    if not isinstance(one, dict) or one.keys() != {"data-collection", "filter"}:
        raise DataError(
            f"additional-conditions: {one!r} does not have data-collection and filter, and nothing else"
        )
    return _expression(one["data-collection"]), str(one["filter"])


def _list(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = fields.get(name) or []
    if not isinstance(found, list):
        raise DataError(f"{name} is no list")
    return found


def _expression(text: Any) -> re.Pattern[str]:
    try:
        return compile_name(str(text).strip().replace("`", ""))
    except re.error as e:
        raise DataError(f"{text!r} is not a regular expression: {e}") from None
