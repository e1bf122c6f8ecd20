"""The task of the MySQL source: a snapshot of the tables, then the binlog from there.

`_position` is always where the records that were given out end. After a broken connection a new reader begins there;
after a crash the next task begins at the committed offset, which is the position of some record: the server sends the
transaction again, and what is already out is skipped, row by row.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pymysql
from pymysqlreplication.event import (
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

from klamm_connectors.mysql import server
from klamm_connectors.mysql.binlog import BinlogReader
from klamm_connectors.mysql.catalog import Captured, Catalog
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.config import parse
from klamm_connectors.mysql.events import Origin, Shape
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.heartbeat import Heartbeat
from klamm_connectors.mysql.position import SERVER, Position
from klamm_connectors.mysql.snapshot import Snapshot, position_now
from klamm_connectors.mysql.values import Modes
from klamm_plugins.connector import SourceTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

_BATCH_S: Final = 0.5  # no call of poll collects for longer
_LAG_S: Final = 5.0
_STANDALONE: Final = 1  # flag of MariaDB's GTID event: a statement without a commit
_CHANGES: Final = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE)
_TRUNCATE: Final = re.compile(r"\s*TRUNCATE\b", re.IGNORECASE)
_COMPRESSED: Final = {40: "binlog_transaction_compression", 165: "log_bin_compress", 166: "log_bin_compress", 167: "log_bin_compress", 168: "log_bin_compress", 169: "log_bin_compress", 170: "log_bin_compress", 171: "log_bin_compress"}  # fmt: skip


class MySqlSourceTask(SourceTask):
    """One server, one reader, one order of events."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._partition: dict[str, Any] = {}
        self._position: Position | None = None
        self._snapshot: Snapshot | None = None
        self._held: SourceRecord | None = None
        self._reader: BinlogReader | None = None
        self._control: Any = None
        self._facts: server.ServerFacts | None = None
        self._ready = self._snapshot_taken = self._idle = False
        self._skip = (0, 0)
        self._resume: Position | None = None
        self._file, self._in_transaction = "", False
        self._lag: tuple[float, int | None] = (0.0, None)

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = s = parse(props)
        self._partition = {SERVER: s["topic.prefix"]}
        modes = Modes(
            s["decimal.handling.mode"], s["bigint.unsigned.handling.mode"], s["time.precision.mode"], s["binary.handling.mode"]
        )  # fmt: skip
        self._filters = Filters(s)
        self._shape = Shape(
            s["topic.prefix"],
            rows_only=s["event.format"] == "row",
            plain_keys=s["key.format"] == "value",
            tombstones=s["tombstones.on.delete"],
            modes=modes,
        )
        self._server = server.Server(s)
        self._heartbeat = Heartbeat(
            s["heartbeat.topics.prefix"], s["topic.prefix"], s["heartbeat.interval.ms"]
        )
        self._catalog = Catalog(self._filters, self._shape, self._describe)
        offset = self.context.offset(self._partition)
        if offset is not None:
            self._position = Position.from_offset(offset)
            log.info("MySQL at %s: going on at %s", self._server.address, offset)

    def poll(self) -> list[SourceRecord] | None:
        try:
            if not self._ready:
                self._prepare()
            if self._snapshot is not None:
                records = self._snapshot_batch(self._snapshot)
            elif self._idle:
                self.context.stopping.wait(0.5)
                return None
            else:
                records = self._binlog_batch()
        except server.PositionPurgedError as e:
            self._disconnect()
            self._purged(e)
            return None
        except (pymysql.err.MySQLError, OSError) as e:
            self._disconnect()
            raise server.translated(e, f"MySQL at {self._server.address}") from e
        except ConnectError:
            self._disconnect()
            raise
        self._beat(records)
        return records or None

    def lag(self) -> int | None:
        """Bytes of the binlog between what was given out and its end; asked for every few seconds."""
        now = time.monotonic()
        if (
            now - self._lag[0] >= _LAG_S
            and self._ready
            and self._snapshot is None
            and self._position is not None
        ):
            try:
                self._lag = now, self._bytes_behind(self._position)
            except (pymysql.err.MySQLError, OSError, ConnectError):
                self._lag = now, None
        return self._lag[1]

    def stop(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        """Drop all connections; the next poll makes new ones. A snapshot that is under way begins anew."""
        if self._reader is not None:
            self._reader.close()
        if self._snapshot is not None:
            self._snapshot.close()
            self._held = None
        if self._control is not None:
            with contextlib.suppress(pymysql.err.Error, OSError):
                self._control.close()
        self._reader = self._snapshot = self._control = None
        self._ready = False

    def _prepare(self) -> None:
        """Decide between snapshot and binlog, and open what is needed."""
        self._control = self._server.connect(autocommit=True)
        self._facts = facts = self._server.facts(self._control)
        self._shape = replace(self._shape, connector="mariadb" if facts.is_mariadb else "mysql")
        self._catalog = Catalog(self._filters, self._shape, self._describe)
        mode = self._settings["snapshot.mode"]
        if mode in {"no_data", "schema_only", "never"}:
            if self._position is None or self._position.snapshot:
                self._position = position_now(self._server, facts)
                log.info(
                    "MySQL at %s: beginning at the end of the binlog, %s",
                    self._server.address,
                    self._position,
                )
        elif (
            self._position is None
            or self._position.snapshot
            or (mode == "always" and not self._snapshot_taken)
        ):
            lock = self._settings["snapshot.locking.mode"] == "minimal"
            self._snapshot = Snapshot(
                self._server, facts, self._filters, self._settings["snapshot.fetch.size"], lock=lock
            )
            log.info(
                "MySQL at %s: snapshot of %d tables at %s", self._server.address, len(self._snapshot.tables), self._snapshot.position
            )  # fmt: skip
        elif mode == "initial_only":
            self._idle = True
        self._ready = True

    def _purged(self, error: Exception) -> None:
        if self._settings["snapshot.mode"] != "when_needed":
            raise ConfigError(
                f"{error}. The binlog no longer holds the position {self._position and self._position.to_offset()}: set "
                "snapshot.mode=when_needed to read the tables again, or reset the connector's offsets (DELETE "
                "/connectors/NAME/offsets), and keep binlogs for longer (binlog_expire_logs_seconds)",
                key="snapshot.mode",
            ) from error
        log.warning("%s: reading the tables again (snapshot.mode=when_needed)", error)
        self._position = None

    # Snapshot

    def _snapshot_batch(self, snapshot: Snapshot) -> list[SourceRecord]:
        """Rows of the next chunk. The last one waits: if it is the very last, its offset ends the snapshot."""
        chunk = snapshot.next_chunk()
        now = _now_ms()
        if chunk is None:
            return self._end_snapshot(snapshot)
        offset = replace(snapshot.position, snapshot=True).to_offset()
        events = self._snapshot_table(chunk.table).events
        position = snapshot.position
        assert self._facts is not None, "asked before the snapshot began"
        origin = Origin(now, self._facts.server_id, None, position.file, position.pos, "true")
        found = [self._held] if self._held is not None else []
        for row in chunk.rows:
            found += events.records("r", None, events.convert(row), origin, self._partition, offset, 0, now)
        self._held = found.pop()
        return found

    def _snapshot_table(self, table: Table) -> Captured:
        if self._snapshot_of is None or self._snapshot_of[0] is not table:
            self._snapshot_of = table, self._catalog.of_table(table)
        return self._snapshot_of[1]

    _snapshot_of: tuple[Table, Captured] | None = None

    def _end_snapshot(self, snapshot: Snapshot) -> list[SourceRecord]:
        log.info("MySQL at %s: snapshot done, %d rows", self._server.address, snapshot.rows)
        snapshot.close()
        self._snapshot, self._snapshot_taken = None, True
        self._position = snapshot.position
        self._idle = self._settings["snapshot.mode"] == "initial_only"
        held, self._held = self._held, None
        if held is None:
            return []
        held.source_offset = snapshot.position.to_offset()
        return [held]

    # Binlog

    def _binlog_batch(self) -> list[SourceRecord]:
        if self._reader is None:
            self._open_reader()
        reader = self._reader
        assert reader is not None, "just opened"
        records: list[SourceRecord] = []
        limit, end = self._settings["max.batch.size"], time.monotonic() + _BATCH_S
        wait = self._settings["poll.interval.ms"] / 1000
        while len(records) < limit and not self.context.stopping.is_set():
            event = self._next(reader, 0 if records else wait, records)
            if event is None:
                break
            self._take(event, records)
            if time.monotonic() > end:
                break
        return records

    def _next(self, reader: BinlogReader, wait_s: float, records: list[SourceRecord]) -> Any | None:
        try:
            return reader.next(wait_s)
        except (ConnectError, ConfigError):
            if records:
                return None  # first what was read before; the reader says it again
            raise

    def _open_reader(self) -> None:
        assert self._position is not None, "a snapshot or an offset came first"
        assert self._facts is not None, "asked when connecting"
        s = self._settings
        self._resume = self._position
        self._file, self._in_transaction, self._skip = self._position.file, False, (0, 0)
        self._catalog.forget_ids()
        self._reader = BinlogReader(
            self._server, self._facts, s["database.server.id"], self._position, s["max.queue.size"]
        )

    def _take(self, event: Any, records: list[SourceRecord]) -> None:
        assert self._position is not None, "set before the reader was opened"
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
                self._begin(event.gtid, in_transaction=not event.flags & _STANDALONE)
            case GtidEvent():
                self._begin(event.gtid, in_transaction=False)
            case XidEvent() | XAPrepareEvent():
                self._complete(event)
            case QueryEvent():
                self._take_query(event)
            case RotateEvent():
                self._file = event.next_binlog
                self._catalog.forget_ids()
            case _ if event.event_type in _COMPRESSED:
                raise ConfigError(
                    f"the binlog is compressed, which this connector cannot read: set {_COMPRESSED[event.event_type]}=OFF "
                    "on the server"
                )
            case _:
                pass

    def _begin(self, gtid: str, *, in_transaction: bool) -> None:
        assert self._position is not None, "set before the reader was opened"
        resume, self._resume, self._skip = self._resume, None, (0, 0)
        self._in_transaction = in_transaction
        if resume is not None and resume.event:
            if not gtid or resume.gtid == gtid:
                self._skip = (resume.event, resume.row)
            else:
                log.warning("the transaction %s comes where %s was expected", gtid, resume.gtid)
        self._position = self._position.begin(gtid)
        self._events = 0

    _events = 0  # row events of the transaction so far

    def _complete(self, event: Any) -> None:
        assert self._position is not None, "set before the reader was opened"
        self._position = self._position.complete(self._file, event.packet.log_pos, event.timestamp)
        self._in_transaction = False
        self._skip, self._events = (0, 0), 0

    def _take_query(self, event: Any) -> None:
        query = event.query if isinstance(event.query, str) else bytes(event.query).decode("utf-8", "replace")
        word = query.strip().rstrip(";").upper()
        if word == "BEGIN":
            if self._facts is not None and not self._facts.gtid:
                self._begin("", in_transaction=True)
            self._in_transaction = True
        elif word in {"COMMIT", "ROLLBACK"}:
            self._complete(event)
        else:
            self._check_statement(query, event)
            if not self._in_transaction:
                self._complete(event)

    def _check_statement(self, query: str, event: Any) -> None:
        database = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
        if database and not self._filters.database(database):
            return
        if _CHANGES.match(query):
            raise ConfigError(
                f"the binlog has a statement instead of the rows that it changed ({query.split(maxsplit=1)[0].upper()} in database "
                f"{database!r}): a session has set binlog_format away from ROW; its changes are not in the topics"
            )
        if _TRUNCATE.match(query):
            log.warning(
                "%s in database %r: a truncated table leaves no events of its rows", query.strip(), database
            )

    def _take_rows(self, event: Any, records: list[SourceRecord]) -> None:
        assert self._position is not None, "set before the reader was opened"
        self._events += 1
        done_event, done_row = self._skip
        if self._events < done_event:
            return
        captured = self._catalog.of(event.table_id)
        if captured is None:
            return
        captured.decoder.check_present(event.columns_present_bitmap)
        if isinstance(event, UpdateRowsEvent):
            captured.decoder.check_present(event.columns_present_bitmap2)
        images = captured.decoder.rows(event.packet.read(int(event.event_size) - event.packet.read_bytes))
        first = done_row if self._events == done_event else 0
        self._add(event, captured, images, first, records)

    def _add(
        self, event: Any, captured: Captured, images: list[list[Any]], first: int, records: list[SourceRecord]
    ) -> None:
        position, facts = self._position, self._facts
        assert position is not None, "set before the reader was opened"
        assert facts is not None, "asked when connecting"
        events, partition, now = captured.events, self._partition, _now_ms()
        origin = Origin(
            event.timestamp * 1000,
            event.packet.server_id,
            position.gtid or None,
            self._file,
            event.packet.log_pos,
        )
        previous = position.to_offset()
        base = replace(position, event=self._events, row=1, ts_sec=event.timestamp).to_offset()
        convert = events.convert
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
            records += found
            previous = offset
        self._position = replace(
            position, event=self._events, row=len(images) // step, ts_sec=event.timestamp
        )

    # Beside the data

    def _beat(self, records: list[SourceRecord]) -> None:
        if self._snapshot is None and self._position is not None and not self._idle:
            beat = self._heartbeat.due(
                time.monotonic(), _now_ms(), self._partition, self._position.to_offset()
            )
            if beat is not None:
                records.append(beat)

    def _describe(self, database: str, name: str) -> Table | None:
        return server.describe(self._asking(), database, name)

    def _asking(self) -> Any:
        """The connection for questions, made again when it was lost meanwhile."""
        if self._control is not None:
            try:
                self._control.ping()
            except (pymysql.err.Error, OSError):
                self._control = None
        if self._control is None:
            self._control = self._server.connect(autocommit=True)
        return self._control

    def _bytes_behind(self, position: Position) -> int:
        connection = self._asking()
        file, pos, _ = server.end_of_binlog(connection)
        at = position.pos if position.file == (self._file or file) else 4
        current = self._file or position.file
        if file == current:
            return max(pos - at, 0)
        sizes = {str(r[0]): int(r[1]) for r in server.run(connection, "SHOW BINARY LOGS")}
        return pos - at + sum(size for name, size in sizes.items() if current <= name < file)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
