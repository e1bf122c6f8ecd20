"""Selects databases, tables and columns by Debezium's lists of regular expressions. Pure: no I/O.

The expressions are Java's, because they come in Debezium's JSON. What Python cannot have of them is refused: an expression
that means something else here would show what it should hide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from klamm_plugins.errors import ConfigError
from klamm_plugins.java_regex import compile_java

_SYSTEM: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_PART: Final = re.compile(r"(?:\\.|[^,\\])+\\?", re.DOTALL)

_LISTS = [f"{kind}.{way}.list" for kind in ("database", "table", "column") for way in ("include", "exclude")]


class Filters:
    """The configured lists. Expressions match whole names, ignoring case: `db`, `db.table`, `db.table.column`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._databases = _patterns(settings, "database.include.list")
        self._not_databases = _patterns(settings, "database.exclude.list")
        self._tables = _patterns(settings, "table.include.list")
        self._not_tables = _patterns(settings, "table.exclude.list")
        self._columns = _patterns(settings, "column.include.list")
        self._not_columns = _patterns(settings, "column.exclude.list")
        self.expressions = [
            (key, key.partition(".")[0], expression)
            for key in _LISTS
            for expression in _patterns(settings, key)
        ]
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


def compile_list(key: str, text: str) -> list[re.Pattern[str]]:
    r"""Compiles expressions that commas separate. A comma within an expression is written `\,`, as in Debezium."""
    parts = (part.strip().replace("\\,", ",") for part in _PART.findall(text))
    return [compile_one(key, part) for part in parts if part]


def compile_all(key: str, parts: Sequence[str]) -> list[re.Pattern[str]]:
    """Compiles the expressions of a list that was cut at each comma. Raises ConfigError for an invalid one."""
    return compile_list(key, ",".join(parts))


def compile_one(key: str, expression: str) -> re.Pattern[str]:
    """Compiles an expression. Raises ConfigError for an invalid one."""
    try:
        return compile_name(expression)
    except re.error as e:
        cut = expression.count("{") != expression.count("}")
        hint = r"; a comma within an expression, as in {1,3}, is written \," if cut else ""
        raise ConfigError(f"{key}: {expression!r} is not a regular expression: {e}{hint}", key=key) from None


def compile_name(expression: str) -> re.Pattern[str]:
    """Compiles a Java expression for names of tables and columns, in any case. Raises `re.error`."""
    return compile_java(expression, any_case=True, ascii_only=False)


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(p.fullmatch(name) for p in patterns)
