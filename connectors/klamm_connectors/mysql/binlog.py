"""The binlog as a stream of events, read in a thread of its own.

mysql-replication connects, and reads formats and new table maps; `binlog_events` reads all others out of what the connection
receives, many at a time. The library's own reconnect is switched off: it would start again where the stream was first opened and
repeat everything. After an error the task starts a new `BinlogReader` at the position that it has reached.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import pymysql
import pymysqlreplication.binlogstream as library
from pymysql.connections import Connection, MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication import event as library_events
from pymysqlreplication import row_event as library_rows

from klamm_connectors.mysql import server
from klamm_connectors.mysql.binlog_events import (
    Event,
    EventParser,
    PacketSplitter,
    RotateEvent,
    TableMapEvent,
)
from klamm_connectors.mysql.position import Position
from klamm_plugins.errors import ConnectError

library.MYSQL_EXPECTED_ERROR_CODES = ()

_HEARTBEAT_S: Final = 5  # the server speaks at least this often, so that a dead connection is known as one
_SILENCE_S: Final = 30
_RECEIVED: Final = 1 << 16  # bytes of one call
_DUMPS: Final = frozenset({0x12, 0x1E})  # the commands that ask for the binlog


class EventConnection(Connection):  # type: ignore[misc]  # PyMySQL has no types
    """A connection that hands events over once the binlog was asked for, and returns the packets that the library must read."""

    hand_over: Callable[[list[Event]], None] | None = None
    """Gets the events in front of each wait for more. It is set when the connection is made."""

    _parser: EventParser | None = None
    _splitter: PacketSplitter
    _packets: Iterator[bytes]
    _events: list[Event]

    def _write_bytes(self, data: bytes) -> None:
        super()._write_bytes(data)
        if self.hand_over is not None and data[4] in _DUMPS:
            self._parser = EventParser()
            self._splitter = PacketSplitter(1)
            self._packets, self._events = iter(()), []

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        parser = self._parser
        if parser is None:
            return super()._read_packet(packet_type)
        while True:
            for data in self._packets:
                if data[0] != 0 or parser.is_foreign(data):
                    packet = packet_type(data, self.encoding)
                    packet.check_error()
                    return packet
                event = parser.event(data)
                if event is not None:
                    self._events.append(event)
            self.flush()
            self._packets = iter(self._splitter.packets(self._received()))

    def flush(self) -> None:
        """Hands over the events so far."""
        if self._parser is not None and self._events and self.hand_over is not None:
            self.hand_over(self._events)
            self._events = []

    def take(self, event: Any) -> None:
        """Takes what the library has read in its place among the other events: a rotation or a table map."""
        assert self._parser is not None, "it came by this stream"
        packet = event.packet
        head = (event.timestamp, packet.server_id, packet.log_pos)
        if isinstance(event, library_rows.TableMapEvent):
            body = self._parser.body(packet.packet.get_all_data())
            self._events.append(TableMapEvent(*head, event.table_id, body, event))
        else:
            self._events.append(RotateEvent(*head, event.next_binlog))

    def _received(self) -> bytes:
        data: bytes = self._rfile.read1(_RECEIVED)
        if not data:
            raise EOFError("the server has closed the connection")
        return data


class _Waiting:
    """At most `size` events between the reader's thread and the task's."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self.closed = False
        """True when no more events come."""

    def __len__(self) -> int:
        return len(self._events)

    def put(self, events: list[Event]) -> None:
        """Adds events as there is room. Events after the end are dropped."""
        at = 0
        with self._changed:
            while at < len(events) and not self.closed:
                room = self.size - len(self._events)
                if room > 0:
                    self._events += events[at : at + room]
                    at += room
                    self._changed.notify_all()
                else:
                    self._changed.wait()

    def take(self, timeout_s: float) -> list[Event]:
        """Returns all events; none when none came in time, or when none are left after the end."""
        with self._changed:
            if not self._events and not self.closed and timeout_s > 0:
                self._changed.wait(timeout_s)
            found, self._events = self._events, []
            self._changed.notify_all()
            return found

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()


class BinlogReader:
    """The events after `position`. `next` raises the translated error that ended the stream."""

    def __init__(self, source: server.Server, facts: server.ServerFacts, server_id: int, position: Position, queue_size: int) -> None:  # fmt: skip
        self._where = f"binlog of {source.address}"
        self._connections: list[Any] = []
        self._waiting = _Waiting(queue_size)
        self._taken: deque[Event] = deque()
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
            only_events=(library_events.RotateEvent, library_rows.TableMapEvent),
            pymysql_wrapper=self._connect,
            enable_logging=False,
            **start,
        )
        self._thread = threading.Thread(target=self._read, name="binlog", daemon=True)
        self._thread.start()

    def next(self, timeout_s: float) -> Event | None:
        """Returns the next event; None when none arrived in time. Raises ConnectError or ConfigError."""
        if not self._taken:
            self._taken.extend(self._waiting.take(timeout_s))
        if self._taken:
            return self._taken.popleft()
        if not self._waiting.closed:
            return None
        if self._error is None:
            raise server.translated(EOFError("the server ended the stream"), self._where)
        raise server.translated(self._error, self._where) from self._error

    @property
    def waiting(self) -> int:
        """The number of events that were read and not taken."""
        return len(self._taken) + len(self._waiting)

    def close(self) -> None:
        """Ends the thread and the connections."""
        self._closing.set()
        self._waiting.close()
        while self._thread.is_alive():
            for connection in list(self._connections):
                with contextlib.suppress(OSError, AttributeError):
                    connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001  closing alone does not wake its reader
            self._thread.join(0.02)
        for connection in self._connections:
            with contextlib.suppress(pymysql.err.Error, OSError):
                connection._force_close()  # noqa: SLF001  a goodbye would fail on a socket that is shut down

    def _connect(self, **arguments: Any) -> EventConnection:
        if self._closing.is_set():
            raise ConnectError(f"{self._where}: closed")
        if "db" in arguments:  # the name that PyMySQL does not want any more
            arguments["database"] = arguments.pop("db")
        connection = EventConnection(**arguments)
        connection.hand_over = self._waiting.put
        self._connections.append(connection)
        return connection

    def _read(self) -> None:
        try:
            while not self._closing.is_set():
                event = self._stream.fetchone()
                if event is None:
                    break
                connection: EventConnection = self._stream._stream_connection  # noqa: SLF001  it has no name for others
                connection.take(event)
        except Exception as e:
            self._error = e
        for connection in self._connections:
            connection.flush()
        self._waiting.close()
