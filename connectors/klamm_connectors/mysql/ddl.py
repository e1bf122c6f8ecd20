"""Finds the tables whose structure a statement changes. Pure: no I/O.

Statements come from the binlog, so the server has accepted them. What changes no structure of a table (views, users,
routines) concerns none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from klamm_connectors.mysql.statements import NAME, without_comments

_TABLE: Final = rf"(?:{NAME}\s*\.\s*)?{NAME}"
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_CREATE: Final = re.compile(
    rf"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_TABLE}", _FLAGS
)
_ALTER: Final = re.compile(
    rf"\s*ALTER\s+(?:ONLINE\s+|OFFLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}(.*)", _FLAGS
)
_INDEX: Final = re.compile(rf"\s*(?:CREATE|DROP)\s[^(]*?\bINDEX\b.*?\sON\s+{_TABLE}", _FLAGS)
_DROP: Final = re.compile(r"\s*DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", _FLAGS)
_RENAME: Final = re.compile(r"\s*RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", _FLAGS)
_RENAMED: Final = re.compile(rf"\bRENAME\s+(?:TO\s+|AS\s+)?(?!COLUMN\b|INDEX\b|KEY\b){_TABLE}", _FLAGS)
_TRUNCATE: Final = re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", _FLAGS)
_DATABASE: Final = re.compile(
    rf"\s*(?:CREATE|DROP|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:DATABASE|SCHEMA)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{NAME}",
    _FLAGS,
)
_NAMES: Final = re.compile(_TABLE)


@dataclass(frozen=True, slots=True)
class Affected:
    """A table that is created (`CREATE`), changed (`ALTER`) or gone (`DROP`). Without a table: a database itself."""

    type: str
    database: str
    table: str | None = None


def affected(statement: str, database: str) -> list[Affected]:
    """Returns what a statement that was run in `database` changes, in its order."""
    text = without_comments(statement)
    if (found := _CREATE.match(text)) is not None:
        return [_affected("CREATE", found.groups()[:4], database)]
    if (found := _ALTER.match(text)) is not None:
        renamed = _RENAMED.search(found[5])
        return [_affected("ALTER", (renamed or found).groups()[:4], database)]
    if (found := _DROP.match(text)) is not None:
        return [_affected("DROP", m.groups(), database) for m in _listed(found[1])]
    if (found := _RENAME.match(text)) is not None:
        pairs = (re.split(r"\bTO\b", part, maxsplit=1, flags=re.IGNORECASE) for part in found[1].split(","))
        return [_affected("ALTER", m.groups(), database) for pair in pairs for m in _listed(pair[-1])]
    if (found := _INDEX.match(text)) is not None:
        return [_affected("ALTER", found.groups()[:4], database)]
    if (found := _DATABASE.match(text)) is not None:
        return [Affected("DATABASE", _name(found[1], found[2]))]
    return []


def touched(statement: str, database: str) -> list[Affected]:
    """Returns what a statement empties, drops, renames or changes: a renamed table under both names."""
    text = without_comments(statement)
    if (found := _TRUNCATE.match(text)) is not None:
        return [_affected("TRUNCATE", found.groups()[:4], database)]
    if (found := _RENAME.match(text)) is not None:
        names = _listed(re.sub(r"\bTO\b", ",", found[1], flags=re.IGNORECASE))
        return [_affected("ALTER", m.groups(), database) for m in names]
    if (found := _ALTER.match(text)) is not None:
        return [_affected("ALTER", found.groups()[:4], database), *affected(statement, database)]
    return affected(statement, database)


def truncated(statement: str, database: str) -> tuple[str, str] | None:
    """Returns database and name of the table that a TRUNCATE empties; None for other statements."""
    found = _TRUNCATE.match(without_comments(statement))
    if found is None:
        return None
    one = _affected("TRUNCATE", found.groups()[:4], database)
    return one.database, one.table or ""


def _listed(text: str) -> list[re.Match[str]]:
    """Returns the names of a list, without the words that may follow it."""
    return [m for part in text.split(",") if (m := _NAMES.match(part.strip())) is not None]


def _affected(type: str, parts: tuple[str | None, ...], database: str) -> Affected:
    schema, table = _name(parts[0], parts[1]), _name(parts[2], parts[3])
    return Affected(type, schema or database, table)


def _name(quoted: str | None, bare: str | None) -> str:
    return quoted.replace("``", "`") if quoted is not None else bare or ""
