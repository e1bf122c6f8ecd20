"""The task of the MySQL source: a snapshot of the tables, then the binlog from there.

`_position` is always the end of the records that were returned. After a broken connection a new reader
begins there. After a crash the next task begins at the committed offset, which is the position of some
record. The server then sends the transaction again, and the task skips row by row what was already
returned.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pymysql

from klamm_connectors.mysql import server
from klamm_connectors.mysql.binlog import BinlogReader
from klamm_connectors.mysql.catalog import Catalog
from klamm_connectors.mysql.changes import Changes
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.config import parse
from klamm_connectors.mysql.events import Shape
from klamm_connectors.mysql.heartbeat import Heartbeat
from klamm_connectors.mysql.initial import SnapshotRecords
from klamm_connectors.mysql.position import SERVER, Position
from klamm_connectors.mysql.snapshot import Snapshot, position_now
from klamm_plugins.connector import SourceTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

_LAG_S: Final = 5.0


class MySqlSourceTask(SourceTask):
    """A task with one server, one reader and one order of events."""

    def __init__(self) -> None:
        self._partition: dict[str, Any] = {}
        self._position: Position | None = None
        self._snapshot: SnapshotRecords | None = None
        self._changes: Changes | None = None
        self._control: Any = None
        self._facts: server.ServerFacts | None = None
        self._ready = self._snapshot_taken = self._idle = False
        self._lag: tuple[float, int | None] = (0.0, None)

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = settings = parse(props)
        self._partition = {SERVER: settings.topic_prefix}
        self._shape = Shape(
            settings.topic_prefix,
            rows_only=settings.rows_only,
            plain_keys=settings.plain_keys,
            tombstones=settings.tombstones,
            modes=settings.modes,
        )
        self._server = server.Server(settings)
        self._heartbeat = Heartbeat(
            settings.heartbeat_prefix, settings.topic_prefix, settings.heartbeat_interval_ms
        )
        self._catalog = Catalog(settings.filters, self._shape, self._describe)
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
        except (ConnectError, ConfigError):
            self._disconnect()
            raise
        self._beat(records)
        return records or None

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

    def _disconnect(self) -> None:
        """Drops all connections; the next poll opens new ones. A snapshot under way starts again."""
        if self._changes is not None:
            self._changes.close()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._control is not None:
            with contextlib.suppress(pymysql.err.Error, OSError):
                self._control.close()
        self._changes = self._snapshot = self._control = None
        self._ready = False

    def _prepare(self) -> None:
        """Decides between snapshot and binlog, and opens what is needed."""
        self._control = self._server.connect(autocommit=True)
        self._facts = facts = self._server.facts(self._control)
        self._shape = replace(self._shape, connector="mariadb" if facts.is_mariadb else "mysql")
        self._catalog = Catalog(self._settings.filters, self._shape, self._describe)
        mode = self._settings.snapshot_mode
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
            snapshot = Snapshot(
                self._server,
                facts,
                self._settings.filters,
                self._settings.snapshot_fetch_size,
                lock=self._settings.snapshot_lock,
            )
            log.info(
                "MySQL at %s: snapshot of %d tables at %s", self._server.address, len(snapshot.tables), snapshot.position
            )  # fmt: skip
            self._snapshot = SnapshotRecords(snapshot, self._catalog, facts.server_id, self._partition)
        elif mode == "initial_only":
            self._idle = True
        self._ready = True

    def _purged(self, error: Exception) -> None:
        if self._settings.snapshot_mode != "when_needed":
            raise ConfigError(
                f"{error}. The binlog no longer holds the position {self._position and self._position.to_offset()}: set "
                "snapshot.mode=when_needed to read the tables again, or reset the connector's offsets (DELETE "
                "/connectors/NAME/offsets), and keep binlogs for longer (binlog_expire_logs_seconds)",
                key="snapshot.mode",
            ) from error
        log.warning("%s: reading the tables again (snapshot.mode=when_needed)", error)
        self._position = None

    def _snapshot_batch(self, snapshot: SnapshotRecords) -> list[SourceRecord]:
        records = snapshot.batch()
        if snapshot.done:
            self._snapshot, self._snapshot_taken = None, True
            self._position = snapshot.position
            self._idle = self._settings.snapshot_mode == "initial_only"
        return records

    def _binlog_batch(self) -> list[SourceRecord]:
        assert self._position is not None, "a snapshot or an offset came first"
        if self._changes is None:
            assert self._facts is not None, "asked when connecting"
            s = self._settings
            reader = BinlogReader(self._server, self._facts, s.server_id, self._position, s.queue_size)
            self._changes = Changes(
                reader, self._facts, s.filters, self._catalog, self._position, self._partition, s
            )
        records = self._changes.batch(self.context.stopping)
        self._position = self._changes.position
        return records

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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
