"""The task of the SQL sink: one transaction per batch, committed before the offsets, or with them
(`exactly.once`).

When the database refuses a record, its batch is written again in halves, each behind a savepoint, until the
bad record is alone. The bad record goes to the dead letter topic; without one the batch is rolled back and
the task fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa

from klamm_base.sparing import Sparing
from klamm_connectors.sql.config import Settings, parse
from klamm_connectors.sql.engine import make_engine
from klamm_connectors.sql.errors import Words, is_bad_data, is_denied, is_passing
from klamm_connectors.sql.names import TableName, table_name
from klamm_connectors.sql.positions import Moved, Positions
from klamm_connectors.sql.rows import RowMaker, Rows, halved
from klamm_connectors.sql.settling import Entangled, settled
from klamm_connectors.sql.tables import Target
from klamm_connectors.sql.urls import masked
from klamm_plugins.batch import SinkBatch, batches_of
from klamm_plugins.connector import Reported, SinkTask
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition

log = logging.getLogger(__name__)

# How often in a row another task may have been faster. Two tasks that alternate for longer are a bug.
_MOVED_MAX: Final = 5
_KEPT_S: Final = 30.0
_UNTRIED_S: Final = 600.0
Bad = list[tuple[SinkRecord, DataError]]


class SqlSinkTask(SinkTask):
    """A task that buffers nothing between two calls of `put`: records of a finished `put` are committed in the
    database.
    """

    def __init__(self) -> None:
        self._engine: sa.Engine | None = None
        self._positions: Positions | None = None
        self._tries = 0
        self._attempts = 0
        self._untried = 0
        self._sparing = Sparing(_UNTRIED_S)

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = settings = parse(props)
        self._where = masked(settings.url)
        self._words = Words(trimmed=settings.trimmed)
        self._names: dict[str, TableName] = {}
        self._rows = RowMaker(settings.rows)
        self._engine = make_engine(settings)
        self._target = Target(self._engine, settings)
        if settings.positions_table is not None:
            self._positions = Positions(self._engine, settings.positions_table, props.get("name", ""))
            try:
                self._positions.create()
            except (sa.exc.SQLAlchemyError, OSError) as e:
                raise self._judged(e) from self._words.cause(e)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """With `exactly.once`, seeks to the database's offsets; the group's offsets are only for display."""
        if self._positions is None:
            return
        try:
            self.context.offset(self._positions.open(partitions))
        except (sa.exc.SQLAlchemyError, OSError) as e:
            raise self._judged(e) from self._words.cause(e)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        if self._positions is not None:
            self._positions.close(partitions)

    def put(self, records: list[SinkRecord]) -> None:
        self.put_batches(batches_of(records))

    def put_batches(self, batches: Sequence[SinkBatch]) -> None:
        if not batches:
            return
        try:
            with self._connection() as connection:
                if self._positions is None:
                    self._put(connection, batches)
                else:
                    self._put_once(connection, batches, self._positions)
        except (sa.exc.SQLAlchemyError, OSError) as e:
            self._target.forget()
            raise self._judged(e) from self._words.cause(e)
        self._tries = 0

    def _connection(self) -> sa.Connection:
        """Returns a connection that works. Raises RetriableError for the runtime to try `connection.attempts` times."""
        assert self._engine is not None, "put comes after start"
        try:
            connection = self._engine.connect()
        except sa.exc.DBAPIError as e:
            self._attempts += 1
            if not is_passing(e) or self._attempts >= self._settings.connection_attempts:
                self._attempts = 0
                raise
            self.context.timeout(self._settings.connection_backoff_ms)
            raise RetriableError(
                f"{self._where}: {self._words.of(e)} (attempt {self._attempts} of connection.attempts)"
            ) from self._words.cause(e)
        self._attempts = 0
        return connection

    def _put(self, connection: sa.Connection, batches: Sequence[SinkBatch]) -> None:
        bad: Bad = []
        with self._transaction(connection, self._changes(batches, bad)) as there:
            for name, of_table in there.items():
                self._write_table(connection, name, of_table, bad)
        self._report(bad)

    def _put_once(
        self, connection: sa.Connection, batches: Sequence[SinkBatch], positions: Positions
    ) -> None:
        """Writes rows and positions in one transaction. Bad records reach the dead letter topic before its commit."""
        if self._tries:  # the last one may have been committed although its answer was lost
            positions.learn_again()
        for _ in range(_MOVED_MAX):
            fresh = positions.fresh(batches)
            if not fresh:
                return
            bad: Bad = []
            try:
                with self._transaction(connection, self._changes(fresh, bad)) as there:
                    new = positions.advance(connection, fresh)
                    for name, of_table in there.items():
                        self._write_table(connection, name, of_table, bad)
                    for reported in self._report(bad):
                        reported.wait(_KEPT_S)
            except Moved:
                positions.learn_again()
                continue
            positions.moved(new)
            return
        raise RetriableError("another task writes the records of this one's partitions")

    def _report(self, bad: Bad) -> list[Reported]:
        reporter = self.context.errant_record_reporter
        if not bad:
            return []
        assert reporter is not None, "without one the first bad record ends the batch"
        return [reporter.report(record, error) for record, error in bad]

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _changes(self, batches: Iterable[SinkBatch], bad: Bad) -> dict[TableName, list[Rows]]:
        """Returns rows by table, in the order of the records."""
        by_table: dict[TableName, list[SinkBatch]] = {}
        for batch in batches:
            by_table.setdefault(self._table_of(batch.topic), []).append(batch)

        def refuse(record: SinkRecord, error: DataError) -> None:
            self._set_aside(record, error, bad, error.__cause__)

        return {name: found for name, of in by_table.items() if (found := self._rows.rows(of, refuse))}

    def _table_of(self, topic: str) -> TableName:
        if topic not in self._names:
            self._names[topic] = table_name(self._settings.table_name, topic)
        return self._names[topic]

    def _set_aside(self, record: SinkRecord, error: DataError, bad: Bad, cause: BaseException | None) -> None:
        if self.context.errant_record_reporter is None:
            raise error from self._words.cause(
                cause
            )  # not from what is being handled: its text may have values
        bad.append((record, error))

    @contextmanager
    def _transaction(
        self, connection: sa.Connection, changes: dict[TableName, list[Rows]]
    ) -> Iterator[dict[TableName, list[Rows]]]:
        """Opens a transaction and yields the rows whose tables exist.

        Tables are created before it begins: in MySQL, a change of a table would commit it.
        """
        there = {name: of_table for name, of_table in changes.items() if self._target.ensure(name, of_table)}
        with connection.begin():
            yield there

    def _write_table(
        self, connection: sa.Connection, name: TableName, parts: Sequence[Rows], bad: Bad
    ) -> None:
        """Writes all rows. After an error of their data, halves them until each bad record is alone."""
        savepoint = connection.begin_nested()
        try:
            self._write(connection, name, parts)
        except (sa.exc.SQLAlchemyError, ValueError, TypeError, OverflowError, Entangled) as e:
            if isinstance(e, sa.exc.SQLAlchemyError) and not is_bad_data(e):
                raise
            savepoint.rollback()
            if sum(map(len, parts)) == 1:
                record = parts[0].first()
                said = DataError(f"{record.where}: table {name} refuses it: {self._words.of(e)}")
                self._set_aside(record, said, bad, e)
                return
            known = len(bad)
            for half in halved(parts):
                self._write_table(connection, name, half, bad)
            if len(bad) == known and not isinstance(e, Entangled):
                for rows in parts:
                    self._target.statement(name, rows.layout).refused_together()
            return
        savepoint.commit()

    def _write(self, connection: sa.Connection, name: TableName, parts: Sequence[Rows]) -> None:
        """Writes all rows in as few statements as their order allows. Raises Entangled."""
        absent: Sequence[Rows] = []
        if not self._settings.rows.keeps_order:
            given = _writes(parts)
            parts, absent = settled(parts, apart=self._target.rows_are_apart(name))
            self._note_untried(given - _writes(parts))
        for rows in parts:
            self._send(connection, name, rows)
        if any(self._send(connection, name, rows) > 0 for rows in absent):
            raise Entangled

    def _send(self, connection: sa.Connection, name: TableName, rows: Rows) -> int:
        """Returns how many rows of the table were changed, where the driver tells it."""
        statement, size = self._target.statement(name, rows.layout), self._settings.batch_size
        parts = (rows.part(begin, begin + size) for begin in range(0, len(rows), size))
        before = statement.replaced
        changed = sum(statement.write(connection, part.columns) for part in parts)
        self._note_untried(statement.replaced - before)
        return changed

    def _note_untried(self, count: int) -> None:
        """Counts records that the database was never asked about."""
        self._untried += count
        if count and self._sparing.left_out("untried", time.monotonic()) is not None:
            log.info(
                "%d records were not written so far, because a later record of their key in the same batch replaces or deletes the "
                "row: had the database refused one, nobody would know",
                self._untried,
            )  # fmt: skip

    def _judged(self, error: Exception) -> ConnectError | ConfigError:
        """Translates an error into the runtime's. Uses only the driver's own words, which hold no password."""
        text = f"{self._where}: {self._words.of(error)}"
        if isinstance(error, sa.exc.SQLAlchemyError) and not is_passing(error):
            if is_denied(error):
                return ConfigError(text, key="connection.user")
            return ConnectError(text)
        self._tries += 1
        if self._tries > self._settings.max_retries:
            return ConnectError(f"{text} (given up after {self._tries} tries, see max.retries)")
        self.context.timeout(self._settings.retry_backoff_ms)
        return RetriableError(text)


def _writes(parts: Iterable[Rows]) -> int:
    return sum(len(rows) for rows in parts if not rows.layout.deletes)


def alter_positions(settings: Settings, connector: str, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Sets the offsets that the database keeps for a connector that is stopped."""
    assert settings.positions_table is not None, "with exactly.once"
    engine = make_engine(settings)
    try:
        positions = Positions(engine, settings.positions_table, connector)
        positions.create()
        positions.store(offsets)
    except (sa.exc.SQLAlchemyError, OSError) as e:
        where = masked(settings.url)
        raise ConnectError(f"{where}: offsets cannot be changed: {Words(trimmed=False).of(e)}") from e
    finally:
        engine.dispose()
