"""Questions to the server beside the binlog: connections, settings, positions, table definitions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.cursors import DictCursor

from klamm_connectors.mysql import tls
from klamm_connectors.mysql.columns import Table, from_information_schema
from klamm_connectors.mysql.keys.connection import Connection
from klamm_plugins.errors import ConfigError, ConnectError, RetriableError

log = logging.getLogger(__name__)

PASSING: Final = frozenset({
    1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1412, 1637, 1927, 1969, 2002, 2003,
    2006, 2013, 2014, 2055, 3024,
})  # fmt: skip
"""Connection lost or refused, server stopping, too many connections, deadlock, lock timeout, killed, table
changed.
"""
_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
_NO_TLS: Final = 2026  # or another error of TLS
WRONG_STATEMENT: Final = frozenset({1054, 1064, 1146, 1305})
"""An unknown column, a wrong syntax, an unknown table, an unknown function."""
_BINLOG_READ: Final = frozenset({1236, 1945})


class PositionPurgedError(ConnectError):
    """The server no longer has (or never had) the requested binlog position."""


def translated(error: BaseException, where: str) -> ConnectError:
    """Translates an error of PyMySQL or of a socket into the runtime's. `where` begins its sentence."""
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, ConfigError):
        raise error
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if isinstance(error, pymysql.err.MySQLError):
        if code in _BINLOG_READ:
            return _binlog_error(text, where)
        if code in _DENIED:
            raise ConfigError(f"{where}: {text}", key="database.user") from error
        if code == _NO_TLS and "support" in text:
            raise ConfigError(
                f"{where}: {text}: set database.ssl.mode=preferred or disabled, or give the server a certificate",
                key="database.ssl.mode",
            ) from error
        if code in PASSING or (isinstance(error, pymysql.err.InterfaceError)):
            return RetriableError(f"{where}: {text or 'the connection is closed'}")
        return ConnectError(f"{where}: {text}")
    if isinstance(error, (OSError, EOFError)):
        return RetriableError(f"{where}: {error}")
    return ConnectError(f"{where}: {type(error).__name__}: {error}")


def _binlog_error(text: str, where: str) -> ConnectError:
    lowered = text.lower()
    if "same server_uuid/server_id" in lowered or "same server_id" in lowered or "same server-id" in lowered:
        raise ConfigError(
            f"{where}: another replica or connector reads with the same server id; set database.server.id to a number "
            f"of its own ({text})",
            key="database.server.id",
        )
    if any(
        word in lowered
        for word in ("purged", "could not find", "not in the master", "gtid", "log file", "position")
    ):
        return PositionPurgedError(f"{where}: {text}")
    return RetriableError(f"{where}: {text}")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server settings that the source depends on."""

    is_mariadb: bool
    version: str
    server_id: int
    full_metadata: bool
    gtid: bool
    """True when positions are GTIDs: always with MariaDB, with MySQL when gtid_mode is ON."""


class Server:
    """Makes connections from the task's settings."""

    def __init__(self, settings: Connection) -> None:
        self._settings = settings
        self.address = f"{settings.host}:{settings.port}"

    def arguments(self) -> dict[str, Any]:
        """Returns PyMySQL's arguments. They hold the password, so they are never logged."""
        s = self._settings
        return {
            "host": s.host,
            "port": s.port,
            "user": s.user,
            "password": s.password.value if s.password is not None else "",
            "connect_timeout": s.timeout_s,
            "charset": "utf8mb4",
        } | tls.arguments(s.tls)

    def connect(self, **more: Any) -> Any:
        """Opens a connection in UTC. Raises translated errors."""
        try:
            # A server that accepts and says nothing would else hold the task for ever.
            connection = pymysql.connect(**self.arguments(), read_timeout=self._settings.timeout_s, **more)
            connection._read_timeout = None  # noqa: SLF001  a query may take as long as it needs; PyMySQL has no setter
            run(connection, "SET SESSION time_zone = '+00:00'")
        except (pymysql.err.MySQLError, OSError) as e:
            raise translated(e, f"MySQL at {self.address}") from e
        return connection

    def facts(self, connection: Any) -> ServerFacts:
        """Checks that the server writes a usable binlog. Raises ConfigError, which says what to set."""
        found = variables(connection, "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "server_id", "gtid_mode")  # fmt: skip
        if found.get("log_bin", "OFF").upper() not in {"ON", "1"}:
            raise ConfigError(
                f"MySQL at {self.address} writes no binlog: start it with log_bin (and binlog_format=ROW)"
            )
        if found.get("binlog_format", "ROW").upper() != "ROW":
            raise ConfigError(
                f"MySQL at {self.address} has binlog_format={found['binlog_format']}: rows are in the binlog only with "
                "binlog_format=ROW"
            )
        if found.get("binlog_row_image", "FULL").upper() not in {"FULL", "FULL_NODUP"}:
            raise ConfigError(
                f"MySQL at {self.address} has binlog_row_image={found['binlog_row_image']}: events lack columns; set "
                "binlog_row_image=FULL"
            )
        if found.get("binlog_row_image", "FULL").upper() == "FULL_NODUP":
            raise ConfigError(
                f"MySQL at {self.address} has binlog_row_image=FULL_NODUP: set binlog_row_image=FULL"
            )
        server_id = int(found.get("server_id", 0))
        if server_id == self._settings.server_id:
            raise ConfigError(
                f"database.server.id={server_id} is that of the server at {self.address} itself: choose another",
                key="database.server.id",
            )
        version = str(connection.get_server_info())
        is_mariadb = "mariadb" in version.lower()
        full = found.get("binlog_row_metadata", "").upper() == "FULL"
        if not full:
            log.warning(
                "MySQL at %s has binlog_row_metadata=%s: names of columns are taken from information_schema as they are "
                "now, so changes of a table between its events cannot be followed; set binlog_row_metadata=FULL",
                self.address,
                found.get("binlog_row_metadata", "(too old to have it)"),
            )
        gtid = is_mariadb or found.get("gtid_mode", "OFF").upper() == "ON"
        return ServerFacts(is_mariadb, version, server_id, full, gtid)


def run(connection: Any, statement: str, args: Sequence[Any] | None = None) -> list[Any]:
    """Runs a statement and returns its rows as tuples."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement, args)
        return list(cursor.fetchall())


_CODES: Final = (
    "SELECT h AS code FROM ({0}) a",
    "SELECT CONCAT(a.h, b.h) AS code FROM ({0}) a CROSS JOIN ({0}) b WHERE a.h >= '80' AND b.h >= '30'",
    "SELECT CONCAT('8F', a.h, b.h) AS code FROM ({0}) a CROSS JOIN ({0}) b WHERE a.h >= '80' AND b.h >= '80'",
)
"""Numbers that may be characters of one, two and three bytes. Of three bytes are only some of EUC for Japanese."""


def characters(connection: Any, charset: str) -> dict[bytes, str]:
    """Returns how the server reads each character of a character set. Raises ConnectError for a set that it does not have."""
    known = run(connection, "SHOW CHARACTER SET WHERE Charset = %s", (charset,))
    if not known or not charset.isalnum():
        raise ConnectError(f"the character set {charset} is in the binlog, and the server does not know it")
    numbers = " UNION ALL ".join(f"SELECT '{byte:02X}' AS h" for byte in range(256))
    raw = f"CONVERT(UNHEX(code) USING {charset})"
    found: dict[bytes, str] = {}
    for size, codes in enumerate(_CODES[: int(known[0][3])], 1):
        statement = f"SELECT code, CONVERT({raw} USING utf8mb4) FROM ({codes.format(numbers)}) c WHERE HEX({raw}) = code"  # noqa: S608  a name that the server has
        for code, text in run(connection, statement):
            one = bytes.fromhex(code)
            if size == 1 or one[:1] not in found:  # otherwise it is two characters
                found[one] = text
    return found


def variables(connection: Any, *names: str) -> dict[str, str]:
    """Returns global variables, without those that the server does not have."""
    marks = ",".join(["%s"] * len(names))
    rows = run(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", names)
    return {str(name).lower(): str(value) for name, value in rows}


def end_of_binlog(connection: Any) -> tuple[str, int, str]:
    """Returns file, byte and (MySQL) executed GTID set at the end of the binlog."""
    try:
        rows = run(connection, "SHOW MASTER STATUS")
    except pymysql.err.MySQLError:
        rows = run(connection, "SHOW BINARY LOG STATUS")  # its name since MySQL 8.4
    if not rows:
        raise ConfigError("the server reports no binlog position: is log_bin on?")
    row = rows[0]
    return str(row[0]), int(row[1]), str(row[4]).replace("\n", "") if len(row) > 4 else ""


def mariadb_gtid(connection: Any, file: str, pos: int) -> str:
    """Returns the GTID state at a place in MariaDB's binlog."""
    return str(run(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, pos))[0][0] or "")


_COLUMNS = (
    "SELECT column_name AS column_name, data_type AS data_type, column_type AS column_type, is_nullable AS is_nullable,"
    " numeric_precision AS numeric_precision, numeric_scale AS numeric_scale, datetime_precision AS datetime_precision,"
    " character_set_name AS character_set_name, character_maximum_length AS character_maximum_length"
    " FROM information_schema.columns WHERE table_schema=%s AND table_name=%s ORDER BY ordinal_position"
)
_UNIQUE = (
    "SELECT 1 FROM information_schema.statistics WHERE table_schema=%s AND table_name=%s"
    " GROUP BY index_name HAVING COUNT(*)=1 AND MAX(non_unique)=0 AND MAX(nullable)<>'YES' AND MAX(column_name)=%s"
)
_KEY = (
    "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema=%s AND table_name=%s"
    " AND constraint_name='PRIMARY' ORDER BY ordinal_position"
)


def describe(connection: Any, database: str, name: str) -> Table | None:
    """Returns the present table; None when there is none."""
    with contextlib.closing(connection.cursor(DictCursor)) as cursor:
        cursor.execute(_COLUMNS, (database, name))
        columns = tuple(from_information_schema(row) for row in cursor.fetchall())
    if not columns:
        return None
    return Table(database, name, columns, primary_key(connection, database, name))


def primary_key(connection: Any, database: str, name: str) -> tuple[str, ...]:
    """Returns the columns of a table's primary key, in the key's order."""
    return tuple(str(row[0]) for row in run(connection, _KEY, (database, name)))


def identifies(connection: Any, table: Table, column: str) -> bool:
    """Returns True when each row has a value of its own in a column: it has a unique index and no NULL."""
    return bool(run(connection, _UNIQUE, (table.database, table.name, column)))


def tables(connection: Any) -> list[tuple[str, str, str]]:
    """Returns database, name and kind (BASE TABLE, SYSTEM VERSIONED) of all tables, sorted, without views and
    sequences.
    """
    rows = run(
        connection,
        "SELECT table_schema, table_name, table_type FROM information_schema.tables"
        " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1, 2",
    )
    return [(str(a), str(b), str(c)) for a, b, c in rows]


def columns(connection: Any) -> list[tuple[str, str, str]]:
    """Returns database, table and name of all columns."""
    rows = run(connection, "SELECT table_schema, table_name, column_name FROM information_schema.columns")
    return [(str(a), str(b), str(c)) for a, b, c in rows]
