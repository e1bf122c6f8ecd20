"""Events of the binlog from their bytes. Pure: no I/O.

Only what the source looks at is read: a transaction's events cost a few microseconds each. `EventParser` leaves three kinds to
mysql-replication: descriptions of formats, rotations, and table maps that are new.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm_connectors.mysql.statements import load_statement
from klamm_plugins.errors import DataError

_HEADER: Final = struct.Struct(
    "<xIBIIIH"
)  # a byte that says OK; time, type, server, size, next position, flags
_BODY: Final = _HEADER.size
_CHECKSUM: Final = 4
_SERVER_VERSION: Final = 2 + 50 + 4 + 1  # in front of the lengths in a description of the format
_MARIADB_GTID: Final = struct.Struct("<QIB")
_MYSQL_GTID: Final = struct.Struct("<B16sQ")
_COMMIT_TIMES: Final = 1 + 16 + 8 + 1 + 8 + 8  # of a GTID event, in front of the times of commits
_TIME_BYTES: Final = 7
_TIME_MARK: Final = 1 << 55  # in the time of the commit here: that of the commit at the first server follows
_QUERY: Final = struct.Struct("<IIBHH")
_XID: Final = struct.Struct("<BIII")
_LENGTHS: Final = {252: 2, 253: 3, 254: 8}  # bytes of a packed number after its first byte
_STANDALONE: Final = 1  # flag of MariaDB's GTID event: a statement without a commit
_PREPARED: Final = 64  # flag of MariaDB's GTID event: an XA transaction up to its XA PREPARE

ROTATE: Final = 4
FORMAT_DESCRIPTION: Final = 15
TABLE_MAP: Final = 19
_ROWS: Final = {23: ("c", 8), 24: ("u", 8), 25: ("d", 8), 30: ("c", 10), 31: ("u", 10), 32: ("d", 10)}
"""The event types of rows: the operation, and the bytes in front of what varies. Those of version 2 have 10."""
_SILENT: Final = frozenset({3, TABLE_MAP, 27, 34, 35, 41, 160, 161, 163})
"""Stops, tables that are known, heartbeats, transactions without GTID, lists of GTIDs, annotations, checkpoints: they tell nothing new."""


@dataclass(slots=True)
class Event:
    """An event. Nobody changes one: a frozen class costs a microsecond for each."""

    timestamp: int
    """Epoch seconds."""
    server_id: int
    log_pos: int
    """The position behind the event in its file."""


@dataclass(slots=True)
class GtidEvent(Event):
    """The begin of a transaction, or of a statement that may be one by itself."""

    gtid: str
    in_transaction: bool
    """True where a transaction is known to begin: MariaDB tells it here, MySQL by BEGIN."""
    prepared: bool
    """True for an XA transaction of MariaDB up to its XA PREPARE."""
    committed_us: int
    """The commit at the first server in epoch microseconds; with MySQL before 8.0.1 the event's time; 0 with MariaDB."""


@dataclass(slots=True)
class RowsEvent(Event):
    """Changed rows of one table. `images` are their bytes; `present` are the bitmaps of the columns in them."""

    op: str
    table_id: int
    present: tuple[bytes, ...]
    images: bytes


@dataclass(slots=True)
class CommitEvent(Event):
    """The end of a transaction."""


@dataclass(slots=True)
class QueryEvent(Event):
    """A statement."""

    database: str
    text: str


@dataclass(slots=True)
class LoadEvent(QueryEvent):
    """A LOAD DATA that is logged as a statement."""


@dataclass(slots=True)
class PreparedEvent(Event):
    """An XA PREPARE, or with `one_phase` the commit of an XA transaction that was not prepared."""

    one_phase: bool
    xid: str
    """The transaction's name as decisions in the binlog have it."""


@dataclass(slots=True)
class RotateEvent(Event):
    """The name of the file that follows."""

    file: str


@dataclass(slots=True)
class TableMapEvent(Event):
    """A table that the stream has not described yet under this id. `found` is mysql-replication's description."""

    table_id: int
    body: bytes
    found: Any


@dataclass(slots=True)
class OtherEvent(Event):
    """An event of another type."""

    type: int


class EventParser:
    """Reads the events of one stream. For one thread."""

    def __init__(self) -> None:
        self._checksum = 0
        self._more: dict[
            int, int
        ] = {}  # bytes by which the fixed parts of rows' events are longer than known, by type
        self._maps: dict[int, bytes] = {}
        self._read: dict[int, Callable[[bytes, int, int, int, int], Event]] = {
            2: _query,
            16: _commit,
            18: _load,
            33: _mysql_gtid,
            38: _prepared,
            162: _mariadb_gtid,
            **dict.fromkeys(_ROWS, self._rows),
        }

    def event(self, data: bytes) -> Event | None:
        """Returns the event of a packet that is not foreign; None for one that tells nothing.

        Raises DataError for one that is cut off.
        """
        timestamp, kind, server_id, _, log_pos, _ = _HEADER.unpack_from(data)
        read = self._read.get(kind)
        if read is None:
            return None if kind in _SILENT else OtherEvent(timestamp, server_id, log_pos, kind)
        end = len(data) - self._checksum
        try:
            return read(data, end, timestamp, server_id, log_pos)
        except (struct.error, IndexError) as e:
            raise DataError(f"an event of type {kind} before position {log_pos} is cut off: {e}") from e

    def is_foreign(self, data: bytes) -> bool:
        """Takes note of formats, rotations and table maps. Returns True for those that mysql-replication must read."""
        kind = data[5]
        if kind == TABLE_MAP:
            table_id = int.from_bytes(data[_BODY : _BODY + 6], "little")
            body = self.body(data)
            known = self._maps.get(table_id) == body
            self._maps[table_id] = body
            return not known
        if kind == FORMAT_DESCRIPTION:
            lengths = data[_BODY + _SERVER_VERSION : -1 - _CHECKSUM]
            self._checksum = _CHECKSUM if data[-1 - _CHECKSUM] == 1 else 0
            self._more = {k: lengths[k - 1] - fixed for k, (_, fixed) in _ROWS.items() if k <= len(lengths)}
            return True
        if kind == ROTATE:
            self._maps.clear()  # the next file may use the same ids for other tables
            return True
        return False

    def body(self, data: bytes) -> bytes:
        """Returns what an event has behind its header."""
        return data[_BODY : len(data) - self._checksum]

    def _rows(self, data: bytes, end: int, timestamp: int, server_id: int, log_pos: int) -> RowsEvent:
        kind = data[5]
        op, fixed = _ROWS[kind]
        at = _BODY + fixed + self._more.get(kind, 0)
        if fixed == 10:
            at += int.from_bytes(data[_BODY + 8 : _BODY + 10], "little") - 2
        columns = data[at]
        at += 1
        if columns > 250:
            size = _LENGTHS[columns]
            columns = int.from_bytes(data[at : at + size], "little")
            at += size
        width = (columns + 7) // 8
        first = at + width
        present: tuple[bytes, ...] = (data[at:first],)
        if op == "u":
            at, first = first, first + width
            present += (data[at:first],)
        table_id = int.from_bytes(data[_BODY : _BODY + 6], "little")
        return RowsEvent(timestamp, server_id, log_pos, op, table_id, present, data[first:end])


def _mariadb_gtid(data: bytes, _: int, timestamp: int, server_id: int, log_pos: int) -> GtidEvent:
    sequence, domain, flags = _MARIADB_GTID.unpack_from(data, _BODY)
    gtid = f"{domain}-{server_id}-{sequence}"
    return GtidEvent(timestamp, server_id, log_pos, gtid, not flags & _STANDALONE, bool(flags & _PREPARED), 0)


def _mysql_gtid(data: bytes, end: int, timestamp: int, server_id: int, log_pos: int) -> GtidEvent:
    _, source, number = _MYSQL_GTID.unpack_from(data, _BODY)
    digits = source.hex()
    uuid = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    times = data[_BODY + _COMMIT_TIMES : end]
    committed_us = int.from_bytes(times[:_TIME_BYTES], "little")
    if committed_us & _TIME_MARK:
        committed_us = int.from_bytes(times[_TIME_BYTES : 2 * _TIME_BYTES], "little")
    committed_us = committed_us or timestamp * 1_000_000
    return GtidEvent(timestamp, server_id, log_pos, f"{uuid}:{number}", False, False, committed_us)


def _commit(_: bytes, __: int, timestamp: int, server_id: int, log_pos: int) -> CommitEvent:
    return CommitEvent(timestamp, server_id, log_pos)


def _query(data: bytes, end: int, timestamp: int, server_id: int, log_pos: int) -> QueryEvent:
    _, _, name, _, status = _QUERY.unpack_from(data, _BODY)
    at = _BODY + _QUERY.size + status
    database = data[at : at + name].decode("utf-8", "replace")
    text = data[at + name + 1 : end].decode("utf-8", "backslashreplace")
    return QueryEvent(timestamp, server_id, log_pos, database, text)


def _load(data: bytes, end: int, timestamp: int, server_id: int, log_pos: int) -> LoadEvent:
    return LoadEvent(timestamp, server_id, log_pos, *load_statement(data[_BODY:end]))


def _prepared(data: bytes, _: int, timestamp: int, server_id: int, log_pos: int) -> PreparedEvent:
    one_phase, format_id, first, second = _XID.unpack_from(data, _BODY)
    at = _BODY + _XID.size
    name = data[at : at + first], data[at + first : at + first + second]
    xid = f"x'{name[0].hex()}',x'{name[1].hex()}',{format_id}"
    return PreparedEvent(timestamp, server_id, log_pos, bool(one_phase), xid)


class PacketSplitter:
    """Cuts what a connection receives into packets. `next_number` is the number that the next packet must have."""

    def __init__(self, next_number: int) -> None:
        self._next_number = next_number
        self._pieces: list[bytes] = []  # of a packet that is not complete
        self._missing = 0  # bytes of it
        self._parts: list[bytes] = []  # packets that are one: each of 16 MiB, but for the last

    def packets(self, data: bytes) -> list[bytes]:
        """Takes more bytes and returns the packets that they complete. Raises EOFError for a packet out of turn."""
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data, self._pieces = b"".join(self._pieces), []
        found, at, end = [], 0, len(data)
        while end - at >= 4:
            head = int.from_bytes(data[at : at + 4], "little")
            length = head & 0xFFFFFF
            if end - at - 4 < length:
                break
            if head >> 24 != self._next_number:  # MariaDB sends a 0 when it shuts down
                raise EOFError(
                    f"the server has ended the stream by packet {head >> 24} instead of {self._next_number}"
                )
            self._next_number = self._next_number + 1 & 255
            part = data[at + 4 : at + 4 + length]
            at += 4 + length
            if length == 0xFFFFFF:
                self._parts.append(part)
            elif self._parts:
                found.append(b"".join([*self._parts, part]))
                self._parts = []
            else:
                found.append(part)
        if at < end:
            self._pieces = [data[at:]]
            self._missing = 4 + (head & 0xFFFFFF) - (end - at) if end - at >= 4 else 1
        return found
