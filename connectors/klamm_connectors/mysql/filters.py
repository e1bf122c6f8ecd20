"""Selects databases, tables and columns by Debezium's lists of regular expressions. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from klamm_plugins.errors import ConfigError

_SYSTEM = frozenset({"mysql", "information_schema", "performance_schema", "sys"})


class Filters:
    """The configured lists. Expressions match whole names, ignoring case: `db`, `db.table`, `db.table.column`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._databases = _patterns(settings, "database.include.list")
        self._not_databases = _patterns(settings, "database.exclude.list")
        self._tables = _patterns(settings, "table.include.list")
        self._not_tables = _patterns(settings, "table.exclude.list")
        self._columns = _patterns(settings, "column.include.list")
        self._not_columns = _patterns(settings, "column.exclude.list")
        self.table = lru_cache(maxsize=None)(self._table)

    def database(self, name: str) -> bool:
        if name.lower() in _SYSTEM or _matches(self._not_databases, name):
            return False
        return not self._databases or _matches(self._databases, name)

    def _table(self, database: str, table: str) -> bool:
        full = f"{database}.{table}"
        if not self.database(database) or _matches(self._not_tables, full):
            return False
        return not self._tables or _matches(self._tables, full)

    def column(self, database: str, table: str, column: str) -> bool:
        full = f"{database}.{table}.{column}"
        return not _matches(self._not_columns, full) and (not self._columns or _matches(self._columns, full))


def _patterns(settings: Mapping[str, Any], key: str) -> list[re.Pattern[str]]:
    return compile_all(key, settings.get(key) or [])


def compile_all(key: str, expressions: Sequence[str]) -> list[re.Pattern[str]]:
    """Compiles the expressions. Raises ConfigError for an invalid one."""
    found = []
    for expression in expressions:
        try:
            found.append(re.compile(expression, re.IGNORECASE))
        except re.error as e:
            raise ConfigError(f"{key}: {expression!r} is not a regular expression: {e}", key=key) from None
    return found


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(p.fullmatch(name) for p in patterns)
