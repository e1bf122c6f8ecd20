"""The task of the MySQL source: a snapshot of the tables, then the binlog from there.

`_position` is always the end of the records that were returned. After a broken connection a new reader
begins there. After a crash the next task begins at the committed offset, which is the position of some
record. The server then sends the transaction again, and the task skips row by row what was already
returned.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pymysql

from klamm_base.sparing import Sparing
from klamm_connectors.mysql import server, signals
from klamm_connectors.mysql.binlog import BinlogReader
from klamm_connectors.mysql.catalog import Captured, Catalog
from klamm_connectors.mysql.changes import Changes
from klamm_connectors.mysql.charsets import Charsets
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.config import parse
from klamm_connectors.mysql.ddl import Affected
from klamm_connectors.mysql.events import Origin, topic_name
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.heartbeat import Heartbeat
from klamm_connectors.mysql.incremental import Incremental
from klamm_connectors.mysql.initial import SnapshotRecords
from klamm_connectors.mysql.kafka_signals import SignalTopic
from klamm_connectors.mysql.keys.snapshots import OVERRIDES
from klamm_connectors.mysql.plan import Plan, statement_of
from klamm_connectors.mysql.position import SERVER, Position
from klamm_connectors.mysql.progress import Progress
from klamm_connectors.mysql.schema_changes import SchemaChanges
from klamm_connectors.mysql.signals import Tables
from klamm_connectors.mysql.snapshot import Snapshot, position_now
from klamm_connectors.mysql.structure import create_statement, table_change
from klamm_connectors.mysql.unmatched import expressions, unmatched
from klamm_connectors.mysql.vanished import VanishedRows
from klamm_plugins.batch import SourceBatches
from klamm_plugins.connector import SourceTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import Struct

log = logging.getLogger(__name__)

_LAG_S: Final = 5.0
_TOLD_EVERY_S: Final = 60.0
_PAUSE_S: Final = 0.02


class MySqlSourceTask(SourceTask):
    """A task with one server, one reader and one order of events."""

    def __init__(self) -> None:
        self._partition: dict[str, Any] = {}
        self._position: Position | None = None
        self._snapshot: SnapshotRecords | None = None
        self._changes: Changes | None = None
        self._control: Any = None
        self._facts: server.ServerFacts | None = None
        self._incremental: Incremental | None = None
        self._signal_topic: SignalTopic | None = None
        self._schema_changes: SchemaChanges | None = None
        self._vanished = VanishedRows(None, lambda: None)
        self._repeated = False  # the next snapshot is not the first one
        self._first: list[SourceRecord] = []  # to be returned before all others
        self._ready = self._snapshot_taken = self._idle = self._told_unmatched = False
        self._lag: tuple[float, int | None] = (0.0, None)
        self._told = Sparing(_TOLD_EVERY_S)

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = settings = parse(props)
        self._partition = {SERVER: settings.events.shape.prefix}
        self._shape = settings.events.shape
        self._server = server.Server(settings.connection)
        events = settings.events
        self._heartbeat = Heartbeat(
            events.heartbeat_topic, settings.events.shape.prefix, events.heartbeat_interval_ms
        )
        self._failures = Failures(events.failures, refused_later=events.shape.modes.refused_later)
        self._vanished = VanishedRows(settings.tombstones, lambda: self.context.offset(self._partition))
        self._charsets = Charsets(lambda charset: server.characters(self._asking(), charset))
        self._catalog = self._new_catalog()
        offset = self.context.offset(self._partition)
        if offset is not None:
            self._position = Position.from_offset(offset)
            self._repeated = True
            log.info("MySQL at %s: going on at %s", self._server.address, offset)
        self._incremental = self._new_incremental(self._position.incremental if self._position else "")

    def poll(self) -> SourceBatches | None:
        try:
            if not self._ready:
                self._prepare()
            found = self._next_records()
            if found is None:
                return None
        except server.PositionPurgedError as e:
            self._disconnect()
            self._purged(e)
            return None
        except (pymysql.err.MySQLError, OSError) as e:
            self._give_up_blocking(e)
            refused = self._wrong_statement(e)
            self._disconnect()
            if refused is not None:
                raise refused from e
            raise server.translated(e, f"MySQL at {self._server.address}") from e
        except (ConnectError, ConfigError):
            self._disconnect()
            raise
        records = SourceBatches([found])
        self._beat(records)
        return records or None

    def check_signal(self, type: str, data: Mapping[str, Any]) -> None:
        if self._incremental is None:  # it starts
            signals.parse(type, json.dumps(data))
        else:
            self._incremental.check(type, json.dumps(data))

    def signal(self, name: str, type: str, data: Mapping[str, Any]) -> None:
        """Takes a signal that came by REST."""
        assert self._incremental is not None, "made at the start"
        try:
            self._incremental.signalled(name, type, json.dumps(data))
        except (pymysql.err.MySQLError, OSError, ConnectError) as e:
            log.warning("signal %s is lost, because the server cannot be asked for its tables: %s", name, e)

    def _next_records(self) -> Sequence[SourceRecord] | None:
        """Returns the next records; None when there never will be any."""
        if self._first:
            records, self._first = self._first, []
            return records
        if self._snapshot is not None:
            return self._snapshot_batch(self._snapshot)
        position = self._position
        if position is not None and position.sweep:
            if not self._vanished.step(position):
                self.context.stopping.wait(_PAUSE_S)
                return []
            self._position = replace(position, sweep="")
        if self._idle:
            self.context.stopping.wait(0.5)
            return None
        snapshots = self._incremental
        assert snapshots is not None, "made at the start"
        if self._signal_topic is not None:
            self._signal_topic.take(snapshots)
        if snapshots.blocking:
            self._begin_blocking(snapshots)
            return []
        if snapshots.is_due:
            snapshots.step(self._asking())
        return self._binlog_batch(snapshots)

    def lag(self) -> int | None:
        """Returns the bytes of the binlog between the last returned record and its end. Asks the server every few seconds."""
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
        self._vanished.close()
        if self._signal_topic is not None:
            self._signal_topic.close()
            self._signal_topic = None

    def _disconnect(self) -> None:
        """Drops all connections; the next poll opens new ones. A snapshot under way starts again."""
        self._close_changes()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._control is not None:
            with contextlib.suppress(pymysql.err.Error, OSError):
                self._control.close()
        self._snapshot = self._control = None
        self._first = []
        self._ready = False

    def _close_changes(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def _prepare(self) -> None:
        """Decides between snapshot and binlog, and opens what is needed."""
        self._control = self._server.connect(autocommit=True)
        self._facts = facts = self._server.facts(self._control)
        self._shape = replace(self._shape, connector="mariadb" if facts.is_mariadb else "mysql")
        self._catalog = self._new_catalog()
        if self._settings.events.schema_changes:
            self._schema_changes = SchemaChanges(self._settings.capture.filters, self._shape, self._change_of)
        kafka = self._settings.signals.kafka
        if kafka is not None and self._signal_topic is None:
            signals = self._settings.signals
            self._signal_topic = SignalTopic(
                kafka, signals.connector, signals.poll_interval_s, self._signals_kept
            )
        self._tell_unmatched()
        mode, position = self._settings.snapshots.mode, self._position
        is_new = position is None or position.snapshot
        if mode in {"no_data", "schema_only", "never"}:
            if is_new:
                self._begin_now(facts)
        elif is_new or (mode == "always" and not self._snapshot_taken):
            self._begin_snapshot(facts)
        elif mode == "initial_only":
            self._idle = True
        self._ready = True

    def _tell_unmatched(self) -> None:
        """Warns once of what the configuration names and the server does not have."""
        capture, statements = self._settings.capture, self._settings.snapshots.statements
        if not self._told_unmatched and (statements or any(expressions(capture))):
            for said in unmatched(capture, statements, server.columns(self._control)):
                log.warning("%s", said)
        self._told_unmatched = True

    def _begin_now(self, facts: server.ServerFacts) -> None:
        """Begins at the end of the binlog."""
        position = position_now(self._server, facts)
        log.info("MySQL at %s: beginning at the end of the binlog, %s", self._server.address, position)
        if self._schema_changes is not None:
            wanted = self._settings.capture.filters.table
            tables = [(d, n) for d, n, _ in server.tables(self._asking()) if wanted(d, n)]
            origin = Origin(time.time_ns(), facts.server_id, None, position.file, position.pos, "true")
            self._first = self._structures(tables, origin, position)
        self._position = position  # last: what fails before begins again

    def _begin_snapshot(self, facts: server.ServerFacts) -> None:
        wanted = self._settings.capture.filters.table
        snapshot = Snapshot(self._server, facts, wanted, self._settings.snapshots)
        log.info(
            "MySQL at %s: snapshot of %d tables at %s", self._server.address, len(snapshot.tables), snapshot.position
        )  # fmt: skip
        try:
            sweep = self._vanished.before(self._topics_read_whole(snapshot.tables)) if self._repeated else ""
        except BaseException:
            snapshot.close()
            raise
        assert self._incremental is not None, "made at the start"
        self._snapshot = records = SnapshotRecords(
            snapshot, self._catalog, facts.server_id, self._partition, self._failures,
            done=replace(snapshot.position, sweep=sweep, incremental=self._incremental.state),
        )  # fmt: skip
        tables = [(t.database, t.name) for t in snapshot.tables]
        self._first = self._structures(tables, records.origin, records.running)

    def _topics_read_whole(self, tables: list[Table]) -> set[str]:
        """Returns the topics of all tables but those with a statement of the user's, which may leave out rows."""
        whole, partly = set[str](), set[str]()
        for table in tables:
            found = partly if table.full_name in self._settings.snapshots.statements else whole
            found.add(topic_name(self._shape, table.database, table.name))
        return whole - partly

    def _begin_blocking(self, snapshots: Incremental) -> None:
        """Begins a snapshot that a signal has asked for. The binlog waits."""
        assert self._facts is not None, "asked when connecting"
        assert self._position is not None, "the binlog was read before"
        self._close_changes()
        position = replace(self._position, incremental=snapshots.state)
        statements = {r.table: statement_of(r) for r in snapshots.blocking if r.condition is not None}
        names = {r.table for r in snapshots.blocking}
        settings = self._settings.snapshots
        settings = replace(settings, statements={**settings.statements, **statements})
        snapshot = Snapshot(self._server, self._facts, lambda d, n: f"{d}.{n}" in names, settings)
        log.info("MySQL at %s: blocking snapshot of %s", self._server.address, ", ".join(sorted(names)))
        self._snapshot = SnapshotRecords(
            snapshot, self._catalog, self._facts.server_id, self._partition, self._failures,
            running=position, done=replace(position, incremental=snapshots.state_after_blocking),
        )  # fmt: skip

    def _purged(self, error: Exception) -> None:
        if self._settings.snapshots.mode != "when_needed":
            raise ConfigError(
                f"{error}. The binlog no longer holds the position {self._position and self._position.to_offset()}: set "
                "snapshot.mode=when_needed to read the tables again, or reset the connector's offsets (DELETE "
                "/connectors/NAME/offsets), and keep binlogs for longer (binlog_expire_logs_seconds)",
                key="snapshot.mode",
            ) from error
        log.warning("%s: reading the tables again (snapshot.mode=when_needed)", error)
        assert self._incremental is not None, "made at the start"
        self._incremental.begin_again()
        self._position = None

    def _give_up_blocking(self, error: Exception) -> None:
        """Ends a blocking snapshot whose statement is wrong. A restart would not mend it."""
        snapshot, wrong = self._snapshot, error.args[:1] and error.args[0] in server.WRONG_STATEMENT
        if snapshot is not None and snapshot.blocking and wrong and self._incremental is not None:
            log.warning("the blocking snapshot ends here: %s", error.args[-1])
            self._incremental.end_blocking()

    def _wrong_statement(self, error: Exception) -> ConfigError | None:
        """Returns the error of a statement of the configuration's that the server does not understand."""
        snapshot, wrong = self._snapshot, error.args[:1] and error.args[0] in server.WRONG_STATEMENT
        table = None if snapshot is None or snapshot.blocking or not wrong else snapshot.failed
        if table is None or table not in self._settings.snapshots.statements:
            return None
        key = f"{OVERRIDES}.{table}"
        return ConfigError(f"{key}: MySQL at {self._server.address}: {error.args[-1]}", key=key)

    def _snapshot_batch(self, snapshot: SnapshotRecords) -> Sequence[SourceRecord]:
        records = snapshot.batch()
        if records:
            self._vanished.handed_over = True
        if snapshot.done:
            self._snapshot, self._position = None, snapshot.position
            if snapshot.blocking:
                assert self._incremental is not None, "it asked for the snapshot"
                self._incremental.end_blocking()
                return records
            self._snapshot_taken = self._repeated = True
            self._idle = self._settings.snapshots.mode == "initial_only"
        return records

    def _binlog_batch(self, snapshots: Incremental) -> Sequence[SourceRecord]:
        assert self._position is not None, "a snapshot or an offset came first"
        if self._changes is None:
            assert self._facts is not None, "asked when connecting"
            self._changes = Changes(
                self._open_binlog(self._position.first),
                self._catalog,
                Progress(self._position, gtids=self._facts.gtid),
                self._partition,
                self._settings,
                failures=self._failures,
                watcher=snapshots,
                schema_changes=self._schema_changes,
            )
        records = self._changes.batch(self.context.stopping)
        self._position = self._changes.position
        return records

    def _open_binlog(self, position: Position) -> BinlogReader:
        assert self._facts is not None, "asked when connecting"
        sources = self._settings.capture.sources
        if sources is not None and position.done is not None and not self._facts.is_mariadb:
            _, _, executed = server.end_of_binlog(self._asking())
            position = replace(position, done=sources.start(position.done, executed))
        number, size = self._settings.connection.server_id, self._settings.reading.queue_size
        return BinlogReader(self._server, self._facts, number, position, size)

    # Beside the data

    def _beat(self, records: SourceBatches) -> None:
        if self._snapshot is None and self._position is not None and not self._idle:
            beat = self._heartbeat.due(
                time.monotonic(), time.time_ns() // 1_000_000, self._partition, self._position.to_offset()
            )
            if beat is not None:
                records.add([beat])
                self._run_heartbeat_query()

    def _run_heartbeat_query(self) -> None:
        query = self._settings.events.heartbeat_query
        if query is None:
            return
        try:
            server.run(self._asking(), query)
        except (pymysql.err.MySQLError, OSError, ConnectError) as e:
            left_out = self._told.left_out("heartbeat.action.query", time.monotonic())
            if left_out is not None:
                log.warning(
                    "heartbeat.action.query failed (%d times since this was said last), and runs again with the next heartbeat: %s",
                    left_out + 1, e,
                )  # fmt: skip

    def _new_catalog(self) -> Catalog:
        settings = self._settings
        return Catalog(settings.capture, self._shape, self._describe, self._charsets, settings.signals.table)

    def _new_incremental(self, state: str) -> Incremental:
        signals = self._settings.signals
        return Incremental(
            state,
            signal_table=signals.table,
            by_table=signals.by_table,
            chunk_size=signals.chunk_size,
            tables_of=self._tables_of,
            present=self._present,
            failures=self._failures,
            partition=self._partition,
        )

    def _present(self, database: str, name: str) -> Captured | None:
        return self._catalog.present(database, name)  # the catalog changes with the connection

    def _tables_of(self, wanted: Tables) -> list[str]:
        """Returns the captured tables that a signal names."""
        filters = self._settings.capture.filters
        names = ((d, n) for d, n, kind in server.tables(self._asking()) if kind == "BASE TABLE")
        return [f"{d}.{n}" for d, n in names if filters.table(d, n) and wanted.has(f"{d}.{n}")]

    def _signals_kept(self) -> int:
        """Returns the place behind the last signal of the topic that the committed offset knows; 0 for none."""
        offset = self.context.offset(self._partition)
        return Plan.from_text(Position.from_offset(offset).incremental).taken if offset else 0

    def _change_of(self, kind: str, database: str, name: str) -> Struct:
        return table_change(self._asking(), kind, database, name)

    def _structures(
        self, tables: list[tuple[str, str]], origin: Origin, position: Position
    ) -> list[SourceRecord]:
        """Returns the tables' structures for the topic of schema changes, as they are now."""
        changes = self._schema_changes
        if changes is None:
            return []
        offset, now = position.to_offset(), time.time_ns()
        return [
            changes.record(
                create_statement(self._asking(), database, name), database,
                [Affected("CREATE", database, name)], origin, self._partition, offset, now,
            )
            for database, name in tables
        ]  # fmt: skip

    def _describe(self, database: str, name: str) -> Table | None:
        return server.describe(self._asking(), database, name)

    def _asking(self) -> Any:
        """Returns the connection for questions, reopened when it was lost."""
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
        reading = self._changes.file if self._changes is not None else ""
        at = position.pos if position.file == (reading or file) else 4
        current = reading or position.file
        if file == current:
            return max(pos - at, 0)
        sizes = {str(r[0]): int(r[1]) for r in server.run(connection, "SHOW BINARY LOGS")}
        return pos - at + sum(size for name, size in sizes.items() if current <= name < file)
