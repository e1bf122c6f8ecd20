"""Finds what a configuration names and the server does not have: a mask that matches no column hides nothing. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from klamm_connectors.mysql.keys.capture import Capture
from klamm_connectors.mysql.keys.snapshots import OVERRIDES

_NAMES: Final = {
    "database": "DATABASE",
    "table": "DATABASE.TABLE",
    "column": "DATABASE.TABLE.COLUMN",
}
"""The forms of whole names."""


def expressions(capture: Capture) -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Yields keys with what they name (a key of `_NAMES`) and their expressions."""
    yield from capture.filters.expressions
    for rule in capture.rules.rules:
        yield from ((rule.name, "column", expression) for expression in rule.columns)
    yield from (("message.key.columns", "column", expression) for expression in capture.keys.columns)


def unmatched(capture: Capture, tables: Iterable[str], columns: Iterable[tuple[str, str, str]]) -> list[str]:
    """Returns a sentence for each expression that matches none of the server's `columns` (database, table, column), and
    for each of the `tables` with a statement of their own that is not there.
    """
    there = {"column": {".".join(names) for names in columns}}
    there["table"] = {name.rpartition(".")[0] for name in there["column"]}
    there["database"] = {name.partition(".")[0] for name in there["table"]}
    found = (
        f"{key}: {expression.pattern!r} matches no {kind} that there is now; it must match the whole name, {_NAMES[kind]}"
        for key, kind, expression in expressions(capture)
        if not any(map(expression.fullmatch, there[kind]))
    )
    absent = (
        f"{OVERRIDES}: there is no table {table} now, so its statement is not used"
        for table in tables
        if table not in there["table"]
    )
    return list(chain(found, absent))
