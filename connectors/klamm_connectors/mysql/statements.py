"""Recognizes statements that change rows without listing them. A row binlog must not hold any. Pure: no I/O."""

from __future__ import annotations

import re
from typing import Final

from klamm_connectors.mysql.filters import Filters

_COMMENT: Final = re.compile(r"/\*(?!M?!).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)
_CHANGES: Final = re.compile(
    r"[\s(]*(?:/\*M?!\d*\s*)?(?:SET\s+STATEMENT\b.*?\bFOR\s+)?(INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b",
    re.IGNORECASE | re.DOTALL,
)
_CREATES: Final = re.compile(
    r"\s*(CREATE)\s+(?:OR\s+REPLACE\s+)?TABLE\b.*\bSELECT\b", re.IGNORECASE | re.DOTALL
)
_TRUNCATE: Final = re.compile(r"\s*TRUNCATE\b", re.IGNORECASE)
NAME: Final = r"(?:`((?:[^`]|``)+)`|([\w$]+))"
_QUALIFIED: Final = re.compile(rf"{NAME}\s*\.\s*{NAME}")
_LOAD_HEADER: Final = 13 + 13  # of an EXECUTE_LOAD_QUERY event: that of a query, that of a loaded file


def without_comments(statement: str) -> str:
    return _COMMENT.sub(" ", statement)


def changing_word(statement: str) -> str | None:
    """Returns INSERT, UPDATE and so on when the statement itself changes rows; None for DDL and the rest."""
    found = _CHANGES.match(without_comments(statement))
    if found is None:
        found = _CREATES.match(_TEXT.sub("''", without_comments(statement)))
    return found[1].upper() if found is not None else None


def is_truncate(statement: str) -> bool:
    return _TRUNCATE.match(without_comments(statement)) is not None


def concerns(statement: str, database: str, filters: Filters) -> bool:
    """Returns True when a statement that was run in `database` may touch a captured table, there or by its full name."""
    if not database or filters.database(database):
        return True
    return any(
        filters.table((a or b).replace("``", "`"), (c or d).replace("``", "`"))
        for a, b, c, d in _QUALIFIED.findall(_TEXT.sub("''", statement))
    )


def load_statement(body: bytes) -> tuple[str, str]:
    """Returns database and text of a LOAD DATA that was logged as a statement, from the event's body."""
    name_end = _LOAD_HEADER + int.from_bytes(body[11:13], "little") + body[8]
    database = body[name_end - body[8] : name_end]
    return database.decode("utf-8", "replace"), body[name_end + 1 :].decode("utf-8", "replace")
