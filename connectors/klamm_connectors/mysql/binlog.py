"""The binlog as a stream of events, read in a thread of its own.

mysql-replication connects and reads packets and table maps; `rows` decodes rows. The library's own
reconnect is switched off: it would start again where the stream was first opened and repeat everything.
After an error the task starts a new `BinlogReader` at the position that it has reached.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from typing import Any, Final

import pymysql
import pymysqlreplication.binlogstream as library
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    ExecuteLoadQueryEvent,
    GtidEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from klamm_connectors.mysql import server
from klamm_connectors.mysql.position import Position
from klamm_plugins.errors import ConnectError

library.MYSQL_EXPECTED_ERROR_CODES = ()

EVENTS: Final = (
    RotateEvent, TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent, XidEvent,
    QueryEvent, GtidEvent, MariadbGtidEvent, XAPrepareEvent, ExecuteLoadQueryEvent,
    NotImplementedEvent,
)  # fmt: skip

_HEARTBEAT_S: Final = 5  # the server speaks at least this often, so that a dead connection is known as one
_SILENCE_S: Final = 30
_END: Final = object()


class BinlogReader:
    """The events after `position`. `next` raises the translated error that ended the stream."""

    def __init__(self, source: server.Server, facts: server.ServerFacts, server_id: int, position: Position, queue_size: int) -> None:  # fmt: skip
        self._where = f"binlog of {source.address}"
        self._connections: list[Any] = []
        self._events: queue.Queue[Any] = queue.Queue(maxsize=queue_size)
        self._error: BaseException | None = None
        self._closing = threading.Event()
        start: dict[str, Any] = {"auto_position": position.done, "is_mariadb": facts.is_mariadb}
        if position.done is None:
            start = {"log_file": position.file, "log_pos": position.pos, "resume_stream": True}
        self._stream = BinLogStreamReader(
            source.arguments() | {"read_timeout": _SILENCE_S},
            server_id,
            blocking=True,
            slave_heartbeat=_HEARTBEAT_S,
            only_events=EVENTS,
            filter_non_implemented_events=False,
            pymysql_wrapper=self._connect,
            enable_logging=False,
            **start,
        )
        self._thread = threading.Thread(target=self._read, name="binlog", daemon=True)
        self._thread.start()

    def next(self, timeout_s: float) -> Any | None:
        """Returns the next event; None when none arrived in time. Raises ConnectError or ConfigError."""
        try:
            event = self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait()
        except queue.Empty:
            return None
        if event is _END:
            self._events.put(_END)
            if self._error is None:
                raise server.translated(EOFError("the server ended the stream"), self._where)
            raise server.translated(self._error, self._where) from self._error
        return event

    @property
    def waiting(self) -> int:
        """The number of events that were read and not taken."""
        return self._events.qsize()

    def close(self) -> None:
        """Ends the thread and the connections."""
        self._closing.set()
        for connection in list(self._connections):
            with contextlib.suppress(OSError, AttributeError):
                connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001  closing alone does not wake its reader
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._events.get_nowait()
            self._thread.join(0.02)
        for connection in self._connections:
            with contextlib.suppress(pymysql.err.Error, OSError):
                connection._force_close()  # noqa: SLF001  a goodbye would fail on a socket that is shut down

    def _connect(self, **arguments: Any) -> Any:
        if self._closing.is_set():
            raise ConnectError(f"{self._where}: closed")
        if "db" in arguments:  # the name that PyMySQL does not want any more
            arguments["database"] = arguments.pop("db")
        connection = pymysql.connect(**arguments)
        self._connections.append(connection)
        return connection

    def _read(self) -> None:
        try:
            while not self._closing.is_set():
                event = self._stream.fetchone()
                if event is None:
                    break
                self._put(event)
        except Exception as e:
            self._error = e
        self._put(_END)

    def _put(self, event: Any) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put(event, timeout=0.5)
                return
