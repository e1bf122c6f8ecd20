"""Records from the binlog, event by event: the source's task after the snapshot."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Final

from klamm_connectors.mysql import server, statements
from klamm_connectors.mysql.binlog import BinlogReader
from klamm_connectors.mysql.binlog_events import (
    CommitEvent,
    Event,
    GtidEvent,
    LoadEvent,
    OtherEvent,
    PreparedEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    TableMapEvent,
)
from klamm_connectors.mysql.catalog import Catalog
from klamm_connectors.mysql.config import Settings
from klamm_connectors.mysql.ddl import touched, truncated
from klamm_connectors.mysql.events import Origin
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.joined import Joined, Made
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.prepared import (
    Decision,
    PreparedTransactions,
    begins_prepared,
    decision_of,
)
from klamm_connectors.mysql.progress import Progress
from klamm_connectors.mysql.row_records import RowRecords, Rows, Watcher
from klamm_connectors.mysql.schema_changes import SchemaChanges
from klamm_connectors.mysql.transactions import TransactionCount
from klamm_plugins.batch import SourceBatches
from klamm_plugins.connector import StopSignal
from klamm_plugins.errors import ConfigError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

_BATCH_S: Final = 0.5  # no call collects for longer
_INCIDENT: Final = 26
_PARTIAL: Final = 39
_SETTINGS: Final = {
    40: "binlog_transaction_compression", 165: "log_bin_compress", 166: "log_bin_compress", 167: "log_bin_compress",
    168: "log_bin_compress", 169: "log_bin_compress", 170: "log_bin_compress", 171: "log_bin_compress",
}  # fmt: skip
"""Event types with compressed contents, each with the server setting that causes them."""
_TAGGED_GTID: Final = 42


class Changes:
    """One stream of the binlog from `position` on. After an exception, close it and make another."""

    def __init__(
        self,
        reader: BinlogReader,
        catalog: Catalog,
        progress: Progress,
        partition: dict[str, Any],
        settings: Settings,
        *,
        failures: Failures,
        watcher: Watcher,
        schema_changes: SchemaChanges | None,
    ) -> None:
        self._reader = reader
        self._capture = settings.capture
        self._catalog = catalog
        self._progress = progress
        self._partition = partition
        self._reading = settings.reading
        self._skipped = settings.events.skipped
        self._watcher = watcher
        self._rows = RowRecords(progress, partition, self._skipped, failures, watcher)
        self._schema_changes = schema_changes
        self._transaction_topic = settings.events.transaction_topic if settings.events.transactions else None
        self._prepared = PreparedTransactions(progress)
        self._left_out = False  # the transaction under way, by gtid.source.includes or excludes
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

    def batch(self, stopping: StopSignal) -> SourceBatches:
        """Returns the next records. An error after some records is raised by the next call, with `position` after them and
        before the event that it is about.
        """
        if self._error is not None:
            raise self._error
        records = Joined()
        self._note_state()
        end = time.monotonic() + _BATCH_S
        while len(records) < self._reading.batch_size and not stopping.is_set():
            before = self._progress.position
            try:
                event = self._reader.next(0 if records else self._reading.wait_s)
                if event is None:
                    break
                self._take(event, records)
            except Exception as e:
                if not records:
                    raise
                self._error = e
                self._progress.position = before
                break
            if time.monotonic() > end:
                break
        return records.made(self._partition, time.time_ns())

    def _note_state(self) -> None:
        """Puts the state of an incremental snapshot, which signals from elsewhere may have begun, into the position."""
        if self._watcher.state != self._progress.position.incremental:
            self._progress.position = replace(self._progress.position, incremental=self._watcher.state)

    def _take(self, event: Event, records: Joined) -> None:
        match event:
            case RowsEvent():
                records.add(self._take_rows(event))
            case GtidEvent():
                records.add(self._begin(event))
            case CommitEvent():
                records.add(self._complete(event))
            case TableMapEvent():
                self._catalog.see(event)
            case LoadEvent():
                self._check_statement(event.text, event.database)
            case QueryEvent():
                records.add(self._take_query(event))
            case PreparedEvent():
                records.add(self._take_prepared(event))
            case RotateEvent():
                self._progress.file = event.file
                self._catalog.forget_ids()
            case OtherEvent():
                _check_type(event.type)

    def _take_rows(self, event: RowsEvent) -> Made:
        captured = self._catalog.of(event.table_id)
        if captured is None or self._left_out:
            if not self._prepared.collecting:
                self._progress.rows()
            return []
        rows = Rows(event, captured)
        if self._prepared.collecting:
            self._prepared.add(rows)
            return []
        return self._rows.of(rows)

    # Transactions

    def _begin(self, event: GtidEvent) -> list[SourceRecord]:
        self._progress.begin(event.gtid, in_transaction=event.in_transaction, committed_us=event.committed_us)
        self._left_out = not self._capture.reads(event.gtid)
        if event.prepared:
            self._prepared.begin()
        return self._begun(event)

    def _begun(self, event: Event) -> list[SourceRecord]:
        """Counts the records of a transaction that has begun. Returns the record that says so, unless it was sent before."""
        progress = self._progress
        if self._transaction_topic is None or progress.past or self._rows.count is not None:
            return []
        if not progress.in_transaction or self._prepared.collecting:
            return []
        name = progress.position.gtid or f"file={progress.file},pos={event.log_pos}"
        self._rows.count = count = TransactionCount(name)
        if progress.resuming:
            return []
        offset = progress.position.to_offset()
        ts_ms = progress.time_ns(event.timestamp) // 1_000_000
        return [count.begin(self._transaction_topic, self._partition, offset, ts_ms)]

    def _complete(self, event: Event) -> list[SourceRecord]:
        self._progress.complete(event.log_pos, event.timestamp)
        return self._ended(event)

    def _ended(self, event: Event) -> list[SourceRecord]:
        count, self._rows.count = self._rows.count, None
        if count is None or self._transaction_topic is None:
            return []
        offset = self._progress.position.to_offset()
        ts_ms = self._progress.time_ns(event.timestamp) // 1_000_000
        return [count.end(self._transaction_topic, self._partition, offset, ts_ms)]

    def _take_prepared(self, event: PreparedEvent) -> Made:
        if event.one_phase:
            return Joined([self._release(event, self._prepared.collected()), self._complete(event)])
        self._prepared.prepare(event.xid, event.log_pos, event.timestamp)
        return []

    def _decide(self, decision: Decision, event: Event) -> Made:
        """Takes the end of a prepared transaction. Its rows become records now, if it is committed."""
        progress = self._progress
        if not progress.gtids:
            progress.begin("", in_transaction=False, log_pos=event.log_pos)
        if progress.past or not decision.commit:
            return []
        rows = self._prepared.rows_of(decision.xid)
        if rows is None:
            log.warning(
                "XA COMMIT %s: the transaction was prepared before the place where this connector began, and its rows are in "
                "no topic; a snapshot of its tables brings them", decision.xid,
            )  # fmt: skip
        return self._release(event, rows or [])

    def _release(self, event: Any, rows: list[Rows]) -> Made:
        self._progress.in_transaction = True
        records = Joined([self._begun(event)])
        for one in rows:
            records.add(self._rows.of(one))
        self._progress.in_transaction = False
        return records

    # Statements

    def _take_query(self, event: QueryEvent) -> Made:
        query, database = event.text, event.database
        self._check_statement(query, database)
        decision = decision_of(query)
        records = Joined([self._decide(decision, event)] if decision is not None else [])
        past, was_inside = self._progress.past, self._progress.in_transaction
        self._progress.query(query, event.log_pos, event.timestamp)
        if decision is not None and not past:
            self._prepared.forget(decision.xid)
        if begins_prepared(query):
            self._prepared.begin()
        if self._progress.in_transaction:
            records.add(self._begun(event))
            return records
        records.add(self._ended(event))
        if not past and not was_inside and decision is None:
            records.add(self._changed(query, database, event))
        return records

    def _changed(self, query: str, database: str, event: Event) -> list[SourceRecord]:
        """Returns the records of a statement that changes a table's structure, or empties it."""
        self._watcher.restructured(touched(query, database))
        progress, now = self._progress, time.time_ns()
        offset = progress.position.to_offset()
        place = (progress.time_ns(event.timestamp), event.server_id, None, progress.file, event.log_pos)
        records = []
        if self._schema_changes is not None:
            records = self._schema_changes.records(
                query, database, Origin(*place), self._partition, offset, now
            )
        emptied = truncated(query, database)
        if emptied is not None and "t" not in self._skipped and self._capture.filters.table(*emptied):
            captured = self._catalog.present(*emptied)
            if captured is not None:
                record = captured.events.truncated(Origin(*place), self._partition, offset, now)
                records += [record] if record is not None else []
        return records

    def _check_statement(self, query: str, database: str) -> None:
        word = statements.changing_word(query)
        if word is not None and statements.concerns(query, database, self._capture.filters):
            raise ConfigError(
                f"the binlog has a statement instead of the rows that it changed ({word} in database {database!r}): "
                "a session has set binlog_format away from ROW; its changes are not in the topics"
            )
        if "t" not in self._skipped:
            return
        if statements.is_truncate(query) and statements.concerns(query, database, self._capture.filters):
            log.warning(
                "%s in database %r: a truncated table leaves no events of its rows; without t in skipped.operations there is a "
                "record of the statement", query.strip(), database,
            )  # fmt: skip


def _check_type(event_type: int) -> None:
    """Raises for types of skipped events that hold changes, or that say that changes are missing."""
    if event_type in _SETTINGS:
        raise ConfigError(
            f"the binlog is compressed, which this connector cannot read: set {_SETTINGS[event_type]}=OFF on the server"
        )
    if event_type == _PARTIAL:
        raise ConfigError(
            "the binlog has partial JSON updates: set binlog_row_value_options='' on the server"
        )
    if event_type == _INCIDENT:
        raise server.PositionPurgedError(
            "the server has noted an incident in its binlog: changes are missing"
        )
    if event_type == _TAGGED_GTID:
        raise ConfigError(
            "the binlog has tagged GTIDs, which this connector cannot read: set no tag in gtid_next"
        )
