"""Names of tables and columns, as formats, fields and databases write them. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from klamm_connectors.sql.kinds import ColumnType, wider
from klamm_connectors.sql.rows import Rows
from klamm_plugins.errors import ConfigError

FORMAT: Final = "table.name.format"
_PART: Final = re.compile(r"""(?:"[^"]*"|`[^`]*`|\[[^]]*\]|\$\{\w+\}|[^."`\[$]|[\["`$])+""")
_QUOTED: Final = re.compile(r'"([^"]*)"|`([^`]*)`|\[([^]]*)\]')
_ONE_COLUMN: Final[dict[str, Callable[[str], str]]] = {
    "mysql": str.lower,
    "mariadb": str.lower,
    "mssql": str.lower,
    "sqlite": lambda name: (
        name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    ),  # ASCII
}
_LOWER_CASE: Final = frozenset({"postgresql", "oracle"})
"""Dialects that read names without quotes in one case. For SQLAlchemy it is the lower one, also in Oracle."""


class TableName(NamedTuple):
    """A table in a schema (in MySQL: in a database); None is the connection's own."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def table_name(template: str, topic: str) -> TableName:
    """Returns the table of a topic. A dot in the format ends the schema, unless quotes are around it; a dot in the
    topic is a part of the name. Raises ConfigError.

    >>> table_name("app.${topic}", "a.b"), table_name('"app.q"', "a.b")
    (TableName(schema='app', name='a.b'), TableName(schema=None, name='app.q'))
    """
    found = _PART.findall(template)
    parts = [_filled(_QUOTED.sub(lambda m: m[1] or m[2] or m[3] or "", part), topic) for part in found]
    if ".".join(found) != template or len(parts) > 2:
        raise ConfigError(f"{FORMAT}={template} must be table or schema.table", key=FORMAT)
    name = parts[-1] if parts else ""
    if not name or any("%(" in part or "\0" in part for part in parts):
        raise ConfigError(f"{FORMAT}={template}: {name!r} cannot be a table", key=FORMAT)
    return TableName(parts[0] if len(parts) == 2 else None, name)


def _filled(part: str, topic: str) -> str:
    return part.replace("${topic}", topic).replace("${table}", topic.rsplit(".", 1)[-1])


def folding(dialect: str) -> Callable[[str], str]:
    """Returns a function that makes names equal that a database takes for one column."""
    return _ONE_COLUMN.get(dialect, str)


def unquoted(dialect: str) -> Callable[[str], str]:
    """Returns a function for names that are made without quotes: the case in which the database keeps them."""
    return str.lower if dialect in _LOWER_CASE else str


def columns_of(fields: Sequence[str], columns: Collection[str]) -> dict[str, str]:
    """Returns the column of each field that has one: that of its name, else the only free one that differs by case."""
    found = {field: field for field in fields if field in columns}
    free: dict[str, list[str]] = {}
    for column in columns:
        if column not in found:
            free.setdefault(column.lower(), []).append(column)
    for field in fields:
        if field not in found and len(candidates := free.get(field.lower(), [])) == 1:
            found[field] = candidates.pop()
    return found


def new_columns(
    columns: Iterable[str], parts: Iterable[Rows], spelt: Callable[[str], str]
) -> dict[str, ColumnType]:
    """Returns the columns that a table lacks for these rows, each with a type that holds the numbers of all.

    A field of nulls alone needs no column yet.
    """
    known, new = list(columns), dict[str, ColumnType]()
    for rows in parts:
        found = columns_of(rows.layout.columns, known)
        for field in rows.layout.columns:
            kind = rows.types[field]
            if kind is None:
                continue
            column = found.get(field)
            if column is None:
                column = spelt(field)
                known.append(column)
            elif column not in new:
                continue
            new[column] = wider(new.get(column), kind) or kind
    return new
