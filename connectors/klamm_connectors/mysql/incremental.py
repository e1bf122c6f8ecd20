"""Incremental snapshots: chunks of tables between watermarks, while the binlog is read (DBLog, Debezium's DDD-3).

For each chunk the connector writes a row into the table of signals, reads the chunk, and writes a second row. Both rows
come back in the binlog. Rows of the chunk whose keys change between them are older than these changes, so they are
dropped; the others become records at the second row. The table of signals orders the chunk among the changes without any
lock. `state` is all that a restarted task needs: it goes into each offset.

For the task's thread. Statements run through the connection that `step` gets.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from klamm_connectors.mysql import server, signals
from klamm_connectors.mysql.catalog import Captured
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.ddl import Affected
from klamm_connectors.mysql.events import Origin
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.names import quoted
from klamm_connectors.mysql.plan import Plan, Reading
from klamm_connectors.mysql.table_reader import can_page, key_of, last_key, read_chunk
from klamm_connectors.mysql.values import comparable
from klamm_plugins.errors import DataError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

TablesOf = Callable[[signals.Tables], list[str]]
"""Returns the names (database.table) of the captured tables that a signal names."""
Present = Callable[[str, str], Captured | None]


@dataclass(slots=True)
class Window:
    """One chunk between its watermarks."""

    reading: Reading
    captured: Captured
    key: tuple[str, ...]
    rows: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)
    last: list[Any] | None = None
    ends_table: bool = False
    name: str = field(default_factory=lambda: str(uuid.uuid4()))
    is_open: bool = False


class Incremental:
    """The incremental snapshots of one task. It is the `Watcher` of the stream."""

    def __init__(
        self,
        state: str,
        *,
        signal_table: str | None,
        by_table: bool,
        chunk_size: int,
        tables_of: TablesOf,
        present: Present,
        failures: Failures,
        partition: dict[str, Any],
    ) -> None:
        self._plan = Plan.from_text(state)
        self._signal_table = signal_table
        self._by_table = by_table
        self._chunk_size = chunk_size
        self._tables_of = tables_of
        self._present = present
        self._failures = failures
        self._partition = partition
        self._window: Window | None = None

    @property
    def state(self) -> str:
        """The state for the offset; empty when there is nothing to do."""
        return self._plan.to_text()

    @property
    def is_due(self) -> bool:
        """True when `step` has something to read."""
        return self._window is None and self._plan.next is not None

    @property
    def blocking(self) -> list[Reading]:
        """The tables of the next blocking snapshot that was asked for."""
        return self._plan.blocking

    @property
    def state_after_blocking(self) -> str:
        """The state once these tables are read."""
        return self._plan.without_blocking().to_text()

    def end_blocking(self) -> None:
        """Notes that these tables are read."""
        self._plan = self._plan.without_blocking()

    # Signals

    @property
    def taken(self) -> int:
        """The offset behind the last signal of the topic, until the consumer group has it."""
        return self._plan.taken

    def took(self, offset: int) -> None:
        """Notes that the topic's signals before `offset` were taken; 0: the consumer group has that offset."""
        self._plan = replace(self._plan, taken=offset)

    def check(self, type: str, data: str | None) -> None:
        """Raises DataError for a signal that can only be left out. For any thread."""
        signal = signals.parse(type, data)
        if isinstance(signal, signals.Execute):
            self._check_watermarks(signal)

    def _check_watermarks(self, signal: signals.Execute) -> None:
        if not signal.blocking and self._signal_table is None:
            raise DataError(
                "incremental snapshots need signal.data.collection: the connector writes its watermarks there"
            )

    def signalled(self, name: str, type: str, data: str | None) -> None:
        """Takes a signal. A signal that nobody understands is logged."""
        try:
            self._take(signals.parse(type, data))
        except DataError as e:
            log.warning("signal %s is left out: %s", name, e)

    def _take(self, signal: signals.Signal) -> None:
        match signal:
            case signals.Execute():
                self._execute(signal)
            case signals.Stop():
                names = set(self._tables_of(signal.tables)) if signal.tables.expressions else None
                self._plan = self._plan.stopped(names)
                if self._window is not None and self._window.reading not in self._plan.readings:
                    self._window = None
            case signals.Pause():
                self._plan = replace(self._plan, paused=True)
            case signals.Resume():
                self._plan = replace(self._plan, paused=False)
            case signals.Log():
                log.info("signal: %s", signal.message)

    def _execute(self, signal: signals.Execute) -> None:
        names = self._tables_of(signal.tables)
        if not names:
            raise DataError("no captured table has one of these names")
        if (unused := signal.tables.unused(names)) is not None:
            raise DataError(
                f"additional-conditions: {unused} is none of the tables to read ({', '.join(names)})"
            )
        self._check_watermarks(signal)
        found = [
            Reading(n, signal.tables.condition(n), signal.tables.key, blocking=signal.blocking) for n in names
        ]
        self._plan = self._plan.with_readings(found)
        log.info(
            "%s snapshot of %s begins", "blocking" if signal.blocking else "incremental", ", ".join(names)
        )

    # The stream's side

    def inserted(self, row: dict[str, Any], origin: Origin) -> list[SourceRecord]:
        """Takes a row of the table of signals. Returns the records of a chunk at its second watermark."""
        if len(row) < 3:
            log.warning(
                "a row of %s is no signal: the table needs the columns id, type and data", self._signal_table
            )
            return []
        name, kind, data = (str(v) if v is not None else "" for v in list(row.values())[:3])
        if not kind.startswith(signals.WATERMARK):
            if self._by_table:
                self.signalled(name, kind, data)
            return []
        window = self._window
        if window is None or not name.startswith(window.name):
            return []  # of a task that ended
        if name == f"{window.name}-open":
            window.is_open = True
            return []
        self._window = None
        return self._emitted(window, origin)

    def changed(self, captured: Captured, images: list[list[Any]]) -> None:
        """Drops the rows of the chunk that change between its watermarks."""
        window = self._window
        if window is None or not window.is_open or captured.full_name != window.captured.full_name:
            return
        for image in images:
            window.rows.pop(_identity(captured.table, window.key, image), None)

    def restructured(self, tables: list[Affected]) -> None:
        """Drops a chunk whose table was emptied, dropped, renamed or changed between its watermarks, to be read again."""
        window = self._window
        if window is None or not window.is_open:
            return
        database, name = window.reading.table.lower().split(".", 1)
        if any(t.database.lower() == database and (t.table or name).lower() == name for t in tables):
            self._window = None

    def begin_again(self) -> None:
        """Drops the chunk whose watermarks are in a binlog that is gone. What is left to read stays so."""
        self._window = None

    def _emitted(self, window: Window, origin: Origin) -> list[SourceRecord]:
        now, events = time.time_ns(), window.captured.events
        origin = replace(origin, snapshot="incremental", transaction=None, ts_ns=now)
        records: list[SourceRecord] = []
        rows, name = list(window.rows.values()), window.captured.full_name
        for values in self._failures.all(events, rows, name):
            if values is not None:
                records += events.records("r", None, values, origin, self._partition, {}, 0, now)
        goes_on = window.reading in self._plan.readings  # else it ended by an error or a signal
        self._plan = self._plan.advanced(window.reading, None if window.ends_table else window.last)
        if window.ends_table and goes_on:
            log.info("incremental snapshot: %s is done", window.captured.full_name)
        return records

    # The table's side

    def step(self, connection: Any) -> None:
        """Reads the next chunk between two watermarks, unless one is on its way."""
        reading = self._plan.next
        if reading is None or self._window is not None:
            return
        window = self._window_of(connection, reading)
        if window is None:
            self._plan = self._plan.without(reading)
            return
        try:
            self._read(connection, window)
        except DataError as e:
            log.warning("incremental snapshots end here: %s", e)
            self._plan = self._plan.stopped(None)
        except pymysql.err.MySQLError as e:
            if e.args[0] not in server.WRONG_STATEMENT:
                raise
            # The table was altered or dropped meanwhile: the next step asks for it again.
            log.warning("incremental snapshot of %s: %s; trying again", reading.table, e.args[-1])

    def _window_of(self, connection: Any, reading: Reading) -> Window | None:
        captured = self._present(*reading.table.split(".", 1))
        if captured is None:
            log.warning("incremental snapshot: %s is left out, for it is no longer there", reading.table)
            return None
        key = _paging_key(connection, captured.table, reading.key)
        if not can_page(replace(captured.table, key=key)):
            log.warning(
                "incremental snapshot: %s is left out, for it %s",
                reading.table,
                _why_not(captured.table, reading.key),
            )
            return None
        if reading.up_to is not None and len(reading.up_to) != len(key):
            log.warning(
                "incremental snapshot: %s is read again from its begin, for its key has changed",
                reading.table,
            )
            again = replace(reading, last=None, up_to=None)
            self._plan, reading = self._plan.replaced(reading, again), again
        return Window(reading, captured, key)

    def _read(self, connection: Any, window: Window) -> None:
        table, reading = window.captured.table, window.reading
        up_to = reading.up_to
        if up_to is None:
            up_to = last_key(connection, table, window.key)
            self._plan, window.reading = self._plan.limited(reading, up_to)
        self._watermark(connection, window, "open")
        rows = self._chunk(connection, table, window) if up_to is not None else []
        window.rows = {_identity(table, window.key, row): row for row in rows}
        window.last = key_of(table, window.key, rows[-1]) if rows else None
        window.ends_table = len(rows) < self._chunk_size
        self._watermark(connection, window, "close")
        self._window = window

    def _chunk(self, connection: Any, table: Table, window: Window) -> list[list[Any]]:
        reading = window.reading
        try:
            return read_chunk(
                connection, table, window.key, self._chunk_size,
                after_row=reading.last, up_to=reading.up_to, condition=reading.condition,
            )  # fmt: skip
        except pymysql.err.MySQLError as e:
            if reading.condition is None or e.args[0] not in server.WRONG_STATEMENT:
                raise
            log.warning("incremental snapshot of %s ends here: %s", reading.table, e.args[-1])
            return []

    def _watermark(self, connection: Any, window: Window, side: str) -> None:
        assert self._signal_table is not None, "signals for incremental snapshots without it are refused"
        database, table = self._signal_table.split(".")
        statement = f"INSERT INTO {quoted(database)}.{quoted(table)} VALUES (%s, %s, %s)"  # noqa: S608  names are quoted
        try:
            server.run(connection, statement, (f"{window.name}-{side}", f"{signals.WATERMARK}{side}", None))
        except pymysql.err.MySQLError as e:
            if e.args[0] in server.PASSING:
                raise
            raise DataError(
                f"signal.data.collection={self._signal_table} takes no watermarks ({e.args[-1]}): it needs the columns id "
                "VARCHAR(64), type VARCHAR(32), data TEXT, and the connector's user INSERT on it"
            ) from e


def _paging_key(connection: Any, table: Table, surrogate: str | None) -> tuple[str, ...]:
    """Returns the columns to read a table by, which no two rows share; none where there are no such columns.

    A column of the user's that rows may share, or that may be NULL, is followed by the primary key.
    """
    if surrogate is None:
        return table.key
    if surrogate not in {column.name for column in table.columns}:
        return ()
    if server.identifies(connection, table, surrogate):
        return (surrogate,)
    return (surrogate, *(name for name in table.key if name != surrogate)) if table.key else ()


def _why_not(table: Table, surrogate: str | None) -> str:
    advice = "or ask for a blocking snapshot"
    if surrogate is None:
        return f"cannot be read in chunks by its key ({', '.join(table.key) or 'none'}); give the signal a surrogate-key, {advice}"
    return (
        f"cannot be read in chunks by surrogate-key={surrogate}: that must be a column of numbers or text, with a unique index and "
        f"NOT NULL, or in a table whose primary key ({', '.join(table.key) or 'none'}) is of numbers or text; name another, {advice}"
    )


def _identity(table: Table, key: Sequence[str], row: Sequence[Any]) -> tuple[Any, ...]:
    """Returns a row's key, equal for rows of the table and images of the binlog."""
    columns = {column.name: column for column in table.columns}
    return tuple(
        comparable(columns[name], value) for name, value in zip(key, key_of(table, key, row), strict=True)
    )
