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
_PLAIN = re.compile(r"[^\\^$*+?{}\[\]|()]+")
"""A name that stands for itself, but for its dots."""
_FIELDS = ("data-collections", "type", "additional-conditions", "surrogate-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables that a signal names: expressions for database.table, conditions by expression, a key to read by."""

    expressions: tuple[re.Pattern[str], ...] = ()
    conditions: tuple[tuple[re.Pattern[str], str], ...] = ()
    key: str | None = None

    def has(self, table: str) -> bool:
        return any(e.fullmatch(table) for e in self.expressions)

    def unused(self, names: Sequence[str]) -> str | None:
        """Returns the table of a condition that is none of these names."""
        return next((e.pattern for e, _ in self.conditions if not any(map(e.fullmatch, names))), None)

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
                    'execute-snapshot: data-collections is missing or empty; name tables, such as ["shop.orders"]'
                )
            _check_conditions(tables)
            return Execute(tables=tables, blocking=_is_blocking(fields))
        case "stop-snapshot":
            return Stop(tables=_tables(fields))
        case "pause-snapshot":
            return Pause()
        case "resume-snapshot":
            return Resume()
        case "log":
            return _log(fields)
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


def _log(fields: Mapping[str, Any]) -> Log:
    message = fields.get("message")
    if not isinstance(message, str) or len(fields) > 1:
        raise DataError(f'log: data is {{"message": "TEXT"}}, and not {", ".join(fields) or "empty"}')
    return Log(message)


def _check_conditions(tables: Tables) -> None:
    """Raises DataError for a condition on a plain name that is no table of the signal: all rows would be read."""
    for expression, _ in tables.conditions:
        name = expression.pattern.replace("\\", "")
        if _PLAIN.fullmatch(name) and not tables.has(name):
            asked = ", ".join(e.pattern for e in tables.expressions)
            raise DataError(
                f"additional-conditions: {expression.pattern} is none of data-collections ({asked}), so all rows would be read"
            )


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
        key=_key(fields),
    )


def _key(fields: Mapping[str, Any]) -> str | None:
    found = fields.get("surrogate-key")
    if found is not None and not isinstance(found, str):
        raise DataError(f"surrogate-key is {found!r}, which is no name of a column")
    return found or None


def _condition(one: Any) -> tuple[re.Pattern[str], str]:
    if not isinstance(one, dict) or one.keys() != {"data-collection", "filter"}:
        raise DataError(
            f"additional-conditions: {one!r} does not have data-collection and filter, and nothing else"
        )
    return _expression(one["data-collection"]), str(one["filter"])


def _list(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = fields.get(name)
    if found is not None and not isinstance(found, list):
        example = (
            '["shop.orders"]'
            if name == "data-collections"
            else '[{"data-collection": "shop.orders", "filter": "id > 5"}]'
        )
        raise DataError(f"{name} is {found!r}, which is no list; write {example}")
    return found or []


def _expression(text: Any) -> re.Pattern[str]:
    if not isinstance(text, str):
        raise DataError(f"{text!r} is no text: a table is named as database.table")
    try:
        return compile_name(text.strip().replace("`", ""))
    except re.error as e:
        raise DataError(f"{text!r} is not a regular expression: {e}") from None
