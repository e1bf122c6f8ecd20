"""Reads the tables as they were at one position of the binlog, in chunks by primary key.

All chunks come from consistent transactions that begin together, so rows and position fit exactly: changes before
the position are in the rows, later changes are in the binlog. MariaDB tells the position of one snapshot without
any lock; MySQL, and several connections, need a global read lock for a moment. A snapshot that breaks off starts
again, because its transactions are gone.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from klamm_connectors.mysql import server
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.keys.snapshots import Snapshots
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.table_reader import TableReader
from klamm_plugins.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one table: the values of each of `table.columns`."""

    table: Table
    columns: list[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns[0])


class Snapshot:
    """One snapshot. The constructor opens it, `next_chunk` reads it. For one thread, beside the readers' own."""

    def __init__(
        self,
        source: server.Server,
        facts: server.ServerFacts,
        wanted: Callable[[str, str], bool],
        settings: Snapshots,
    ) -> None:
        self._settings = settings
        self._connections = [source.connect() for _ in range(settings.threads)]
        self.rows = 0
        self._chunks: queue.Queue[Chunk | BaseException | None] | None = None
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._reader: TableReader | None = None
        self.failed: str | None = None
        """The table whose rows could not be read."""
        try:
            self.position = self._begin(facts)
            self.tables = self._describe(wanted)  # inside: what is altered before this is in the rows as well
        except BaseException:
            self.close()
            raise
        self._left = list(self.tables)
        self._taking = threading.Lock()

    def close(self) -> None:
        """Ends the readers and their transactions."""
        self._closing.set()
        if self._threads:
            for connection in self._connections:
                with contextlib.suppress(OSError, AttributeError):
                    connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001  closing alone does not wake its reader
            for thread in self._threads:
                thread.join()
        for connection in self._connections:
            with contextlib.suppress(Exception):
                connection.close()

    def next_chunk(self) -> Chunk | None:
        """Returns the next rows, never an empty list; None when all tables are read."""
        if len(self._connections) > 1:
            chunk = self._next_of_threads()
        else:
            self._reader, chunk = self._read(self._connections[0], self._reader)
        if chunk is not None:
            self.rows += len(chunk)
        return chunk

    def _read(self, connection: Any, reader: TableReader | None) -> tuple[TableReader | None, Chunk | None]:
        """Returns the next rows over one connection, and the reader to go on with."""
        while True:
            if reader is None or reader.done:
                table = self._next_table()
                if table is None:
                    return None, None
                statement = self._settings.statements.get(table.full_name)
                reader = TableReader(connection, table, self._settings.fetch_size, statement)
            try:
                chunk = Chunk(reader.table, reader.next())
            except pymysql.err.MySQLError:
                self.failed = reader.table.full_name
                raise
            if len(chunk):
                return reader, chunk

    def _next_table(self) -> Table | None:
        with self._taking:
            return self._left.pop(0) if self._left else None

    # Several connections

    def _next_of_threads(self) -> Chunk | None:
        if self._chunks is None:
            self._chunks = queue.Queue(maxsize=2 * len(self._connections))
            self._threads = [
                threading.Thread(
                    target=self._read_all, args=(c, self._chunks), name=f"snapshot-{i}", daemon=True
                )
                for i, c in enumerate(self._connections)
            ]
            self._reading = len(self._threads)
            for thread in self._threads:
                thread.start()
        while self._reading:
            found = self._chunks.get()
            if isinstance(found, BaseException):
                raise found
            if found is not None:
                return found
            self._reading -= 1
        return None

    def _read_all(self, connection: Any, chunks: queue.Queue[Chunk | BaseException | None]) -> None:
        """Reads table after table, in a thread of its own. Ends with None, or with the error."""
        reader: TableReader | None = None
        try:
            while True:
                reader, chunk = self._read(connection, reader)
                self._put(chunks, chunk)
                if chunk is None:
                    return
        except Exception as e:
            self._put(chunks, e)

    def _put(
        self, chunks: queue.Queue[Chunk | BaseException | None], found: Chunk | BaseException | None
    ) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                chunks.put(found, timeout=0.2)
                return

    # The begin

    def _describe(self, wanted: Callable[[str, str], bool]) -> list[Table]:
        found = []
        connection = self._connections[0]
        for database, name, kind in server.tables(connection):
            if wanted(database, name):
                if kind == "SYSTEM VERSIONED":
                    raise ConfigError(
                        f"{database}.{name} is system-versioned: its history would come as rows of its own; leave it out by "
                        "table.exclude.list or table.include.list",
                        key="table.exclude.list",
                    )
                table = server.describe(connection, database, name)
                if table is not None:
                    found.append(table)
        return found

    def _begin(self, facts: server.ServerFacts) -> Position:
        first = self._connections[0]
        needed = not facts.is_mariadb or len(self._connections) > 1
        lock = needed and self._settings.lock
        if lock:
            server.run(first, "FLUSH TABLES WITH READ LOCK")
        try:
            for connection in self._connections:
                _begin_transaction(connection)
            return _position(first, facts)
        finally:
            if lock:
                server.run(first, "UNLOCK TABLES")


def _begin_transaction(connection: Any) -> None:
    server.run(connection, "SET SESSION wait_timeout = 86400")  # a full pipeline may stand still for long
    server.run(connection, "SET SESSION net_write_timeout = 86400")
    server.run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    server.run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")


def _position(connection: Any, facts: server.ServerFacts) -> Position:
    """Returns the position of the transaction that has just begun."""
    if not facts.is_mariadb:
        file, pos, executed = server.end_of_binlog(connection)
        return Position(executed if facts.gtid else None, file, pos)
    status = dict(server.run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    found = {str(k).lower(): v for k, v in status.items()}
    file, pos = str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])
    return Position(server.mariadb_gtid(connection, file, pos), file, pos)


def position_now(source: server.Server, facts: server.ServerFacts) -> Position:
    """Returns the end of the binlog, for a start without a snapshot."""
    connection = source.connect()
    try:
        file, pos, executed = server.end_of_binlog(connection)
        if facts.is_mariadb:
            return Position(server.mariadb_gtid(connection, file, pos), file, pos)
        return Position(executed if facts.gtid else None, file, pos)
    finally:
        connection.close()
