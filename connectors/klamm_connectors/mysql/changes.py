"""Records from the binlog, event by event: the source's task after the snapshot."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from pymysqlreplication.event import (
    ExecuteLoadQueryEvent,
    GtidEvent,
    MariadbGtidEvent,
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

from klamm_connectors.mysql import server, statements
from klamm_connectors.mysql.binlog import BinlogReader
from klamm_connectors.mysql.catalog import Captured, Catalog
from klamm_connectors.mysql.config import Settings
from klamm_connectors.mysql.events import Origin
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.progress import Progress
from klamm_plugins.connector import StopSignal
from klamm_plugins.errors import ConfigError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

_BATCH_S: Final = 0.5  # no call collects for longer
_STANDALONE: Final = 1  # flag of MariaDB's GTID event: a statement without a commit
_HEADER: Final = 20  # of an event in its packet: a byte that says OK, and 19 of the event itself
_INCIDENT: Final = 26
_SETTINGS: Final = {
    40: "binlog_transaction_compression", 165: "log_bin_compress", 166: "log_bin_compress", 167: "log_bin_compress",
    168: "log_bin_compress", 169: "log_bin_compress", 170: "log_bin_compress", 171: "log_bin_compress",
}  # fmt: skip
"""Event types with compressed contents, each with the server setting that causes them."""
_TAGGED_GTID: Final = 42


class Changes:
    """One stream of the binlog from `position` on. After an exception, close it and make another."""

    def __init__(  # noqa: PLR0917  made in one place
        self,
        reader: BinlogReader,
        facts: server.ServerFacts,
        filters: Filters,
        catalog: Catalog,
        position: Position,
        partition: dict[str, Any],
        settings: Settings,
    ) -> None:
        self._reader = reader
        self._facts = facts
        self._filters = filters
        self._catalog = catalog
        self._progress = Progress(position, gtids=facts.gtid)
        self._partition = partition
        self._limit = settings.batch_size
        self._wait_s = settings.poll_wait_s
        self._error: Exception | None = None
        catalog.forget_ids()

    @property
    def position(self) -> Position:
        """The position after the last record that `batch` returned."""
        return self._progress.position

    @property
    def file(self) -> str:
        """The binlog file that is being read."""
        return self._progress.file

    def close(self) -> None:
        self._reader.close()

    def batch(self, stopping: StopSignal) -> list[SourceRecord]:
        """Returns the next records. An error after some records is raised by the next call, with `position` after them."""
        if self._error is not None:
            raise self._error
        records: list[SourceRecord] = []
        end = time.monotonic() + _BATCH_S
        while len(records) < self._limit and not stopping.is_set():
            try:
                event = self._reader.next(0 if records else self._wait_s)
                if event is None:
                    break
                self._take(event, records)
            except Exception as e:
                if not records:
                    raise
                self._error = e
                break
            if time.monotonic() > end:
                break
        return records

    def _take(self, event: Any, records: list[SourceRecord]) -> None:
        progress = self._progress
        match event:
            case TableMapEvent():
                self._catalog.see(event)
            case PartialUpdateRowsEvent():
                raise ConfigError(
                    "the binlog has partial JSON updates: set binlog_row_value_options='' on the server"
                )
            case WriteRowsEvent() | UpdateRowsEvent() | DeleteRowsEvent():
                self._take_rows(event, records)
            case MariadbGtidEvent():
                progress.begin(event.gtid, in_transaction=not event.flags & _STANDALONE)
            case GtidEvent():
                progress.begin(event.gtid, in_transaction=False)
            case XidEvent() | XAPrepareEvent():
                progress.complete(event.packet.log_pos, event.timestamp)
            case QueryEvent():
                query = (
                    event.query
                    if isinstance(event.query, str)
                    else bytes(event.query).decode("utf-8", "replace")
                )
                database = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
                self._check_statement(query, database)
                progress.query(query, event.packet.log_pos, event.timestamp)
            case ExecuteLoadQueryEvent():
                database, query = statements.load_statement(_body(event))
                self._check_statement(query, database)
            case RotateEvent():
                progress.file = event.next_binlog
                self._catalog.forget_ids()
            case _:
                _check_type(event.event_type)

    def _check_statement(self, query: str, database: str) -> None:
        word = statements.changing_word(query)
        if word is not None and statements.concerns(query, database, self._filters):
            raise ConfigError(
                f"the binlog has a statement instead of the rows that it changed ({word} in database {database!r}): "
                "a session has set binlog_format away from ROW; its changes are not in the topics"
            )
        if statements.is_truncate(query) and statements.concerns(query, database, self._filters):
            log.warning(
                "%s in database %r: a truncated table leaves no events of its rows", query.strip(), database
            )

    def _take_rows(self, event: Any, records: list[SourceRecord]) -> None:
        first = self._progress.rows()
        captured = self._catalog.of(event.table_id)
        if first is None or captured is None:
            return
        captured.decoder.check_present(event.columns_present_bitmap)
        if isinstance(event, UpdateRowsEvent):
            captured.decoder.check_present(event.columns_present_bitmap2)
        images = captured.decoder.rows(event.packet.read(int(event.event_size) - event.packet.read_bytes))
        records += self._made(event, captured, images, first)

    def _made(
        self, event: Any, captured: Captured, images: list[list[Any]], first: int
    ) -> list[SourceRecord]:
        """Makes records of the event's rows from `first` on. The position moves when all are made, or not at all."""
        progress, events, partition = self._progress, captured.events, self._partition
        now = time.time_ns() // 1_000_000
        origin = Origin(
            event.timestamp * 1000,
            event.packet.server_id,
            progress.position.gtid or None,
            progress.file,
            event.packet.log_pos,
        )
        previous = progress.position.to_offset()
        base = progress.at(1, event.timestamp).to_offset()
        convert, made = events.convert, list[SourceRecord]()
        op = "c" if isinstance(event, WriteRowsEvent) else "d" if isinstance(event, DeleteRowsEvent) else "u"
        step = 2 if op == "u" else 1
        for number in range(first, len(images) // step):
            at = number * step
            before = None if op == "c" else convert(images[at])
            after = None if op == "d" else convert(images[at + step - 1])
            offset = {**base, "row": number + 1}
            found = events.records(op, before, after, origin, partition, offset, number, now)
            for record in found[:-1]:
                record.source_offset = previous  # the row is done with its last record
            made += found
            previous = offset
        progress.position = progress.at(len(images) // step, event.timestamp)
        return made


def _body(event: Any) -> bytes:
    return bytes(event.packet.packet.get_all_data()[_HEADER : _HEADER + int(event.event_size)])


def _check_type(event_type: int) -> None:
    """Raises for types of skipped events that hold changes, or that say that changes are missing."""
    if event_type in _SETTINGS:
        raise ConfigError(
            f"the binlog is compressed, which this connector cannot read: set {_SETTINGS[event_type]}=OFF on the server"
        )
    if event_type == _INCIDENT:
        raise server.PositionPurgedError(
            "the server has noted an incident in its binlog: changes are missing"
        )
    if event_type == _TAGGED_GTID:
        raise ConfigError(
            "the binlog has tagged GTIDs, which this connector cannot read: set no tag in gtid_next"
        )
