"""Judges the errors of databases: which pass by themselves, and for which a record's data may be to blame."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import sqlalchemy as sa

_PASSING: Final = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927, 1969, 2002, 2003, 2006, 2013, 2014, 2055, 3024})  # fmt: skip
"""MySQL's codes of temporary errors: connection lost, deadlock, lock timeout, server stopping."""
_DENIED: Final = frozenset({1044, 1045, 1049, 1142, 1143, 1698})
_BAD_DATA: Final = frozenset(
    {1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406, 1526, 1644, 1690, 1906, 3105, 3140, 3819, 4025}
)
_PASSING_STATES: Final = ("08", "40", "53", "57")  # PostgreSQL: connection, rollback, resources, operator
_BAD_STATES: Final = ("21", "22", "23", "42804", "42846", "428C9")
"""A row twice, data, constraint, type, cast, a value for a generated column."""


class Words:
    """The texts of errors: the driver's own words, which hold no password. They quote values, unless these are `trimmed`
    (`trim.sensitive.log`).
    """

    def __init__(self, *, trimmed: bool) -> None:
        self.trimmed = trimmed

    def of(self, error: BaseException) -> str:
        original = getattr(error, "orig", None) or error
        if self.trimmed:
            code = _code(error) if isinstance(_code(error), int) else sql_state(error)
            return f"{type(original).__name__}{f' {code}' if code else ''} (its text is left out: trim.sensitive.log)"
        args = original.args
        return str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(original)

    def cause(self, error: BaseException | None) -> BaseException | None:
        """Returns what the error is raised from: logs show it with its text."""
        return None if self.trimmed else error


def is_denied(error: BaseException) -> bool:
    """Returns True when the user may not do this."""
    return _code(error) in _DENIED


def is_passing(error: BaseException) -> bool:
    original = getattr(error, "orig", None)
    if getattr(error, "connection_invalidated", False):
        return True
    if isinstance(error, sa.exc.InterfaceError) and not isinstance(original, sqlite3.Error):
        return True  # SQLite says so of a value that it does not know
    if isinstance(original, sqlite3.OperationalError):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}  # fmt: skip
    state = sql_state(error)
    if state is None and type(original).__module__.startswith("psycopg"):
        return isinstance(error, sa.exc.OperationalError)  # no server was there to name a state
    return _code(error) in _PASSING or (state is not None and state.startswith(_PASSING_STATES))


def is_bad_data(error: BaseException) -> bool:
    """Returns True when a single record may be to blame, so that halving its batch makes sense."""
    if is_passing(error) or not isinstance(error, sa.exc.StatementError):
        return False
    if isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError)):
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return True  # a value that SQLAlchemy itself could not bind
    state = sql_state(error)
    if state is not None and state.startswith(_BAD_STATES):
        return True
    return _code(error) in _BAD_DATA or isinstance(
        error.orig, (OverflowError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
    )


def _code(error: BaseException) -> Any:
    original = getattr(error, "orig", None)
    return original.args[0] if original is not None and original.args else None


def sql_state(error: BaseException) -> str | None:
    """Returns the SQLSTATE of an error, where its driver has one."""
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return state if isinstance(state, str) else None
