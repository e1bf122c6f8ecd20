"""The task of the SQL sink: one transaction per batch, committed before the offsets, or with them
(`exactly.once`).

When the database refuses a record, its batch is written again in halves, each behind a savepoint, until the
bad record is alone. The bad record goes to the dead letter topic; without one the batch is rolled back and
the task fails.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

import sqlalchemy as sa

from klamm_connectors.sql.config import Settings, parse
from klamm_connectors.sql.drivers import missing_driver, unknown_database
from klamm_connectors.sql.positions import Moved, Positions
from klamm_connectors.sql.rows import Change, RowMaker, widest
from klamm_connectors.sql.tables import Target
from klamm_connectors.sql.urls import masked, to_sqlalchemy
from klamm_plugins.connector import Reported, SinkTask
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition

log = logging.getLogger(__name__)

_UNKNOWN_ZONE: Final = 1298
_PASSING: Final = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927, 1969, 2002, 2003, 2006, 2013, 2014, 2055, 3024})  # fmt: skip
"""MySQL's codes of temporary errors: connection lost, deadlock, lock timeout, server stopping."""
_DENIED: Final = frozenset({1044, 1045, 1049, 1142, 1143, 1698})
_SQLSTATES: Final = ("08", "40", "53", "57")  # PostgreSQL: connection, rollback, resources, operator
_SQLITE_WAIT_S: Final = 5
# How often in a row another task may have been faster. Two tasks that alternate for longer are a bug.
_MOVED_MAX: Final = 5
_KEPT_S: Final = 30.0


class SqlSinkTask(SinkTask):
    """A task that buffers nothing between two calls of `put`: records of a finished `put` are committed in the
    database.
    """

    def __init__(self) -> None:
        self._engine: sa.Engine | None = None
        self._positions: Positions | None = None
        self._tries = 0

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = settings = parse(props)
        self._where = masked(settings.url)
        self._rows = RowMaker(settings.rows)
        self._engine = make_engine(settings)
        self._target = Target(self._engine, settings)
        if settings.positions_table is not None:
            self._positions = Positions(self._engine, settings.positions_table, props.get("name", ""))
            try:
                self._positions.create()
            except (sa.exc.SQLAlchemyError, OSError) as e:
                raise self._judged(e) from e

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """With `exactly.once`, seeks to the database's offsets; the group's offsets are only for display."""
        if self._positions is None:
            return
        try:
            self.context.offset(self._positions.open(partitions))
        except (sa.exc.SQLAlchemyError, OSError) as e:
            raise self._judged(e) from e

    def close(self, partitions: Collection[TopicPartition]) -> None:
        if self._positions is not None:
            self._positions.close(partitions)

    def put(self, records: list[SinkRecord]) -> None:
        if not records:
            return
        try:
            if self._positions is None:
                self._put(records)
            else:
                self._put_once(records, self._positions)
        except (sa.exc.SQLAlchemyError, OSError) as e:
            self._target.forget()
            raise self._judged(e) from e
        self._tries = 0

    def _put(self, records: list[SinkRecord]) -> None:
        bad: list[tuple[SinkRecord, DataError]] = []
        with self._transaction(self._changes(records, bad)) as (connection, there):
            for name, of_table in there.items():
                self._write_table(connection, name, of_table, bad)
        self._report(bad)

    def _put_once(self, records: list[SinkRecord], positions: Positions) -> None:
        """Writes rows and positions in one transaction. Bad records reach the dead letter topic before its commit."""
        if self._tries:  # the last one may have been committed although its answer was lost
            positions.learn_again()
        for _ in range(_MOVED_MAX):
            fresh = positions.fresh(records)
            if not fresh:
                return
            bad: list[tuple[SinkRecord, DataError]] = []
            try:
                with self._transaction(self._changes(fresh, bad)) as (connection, there):
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

    def _report(self, bad: list[tuple[SinkRecord, DataError]]) -> list[Reported]:
        reporter = self.context.errant_record_reporter
        if not bad:
            return []
        assert reporter is not None, "without one the first bad record ends the batch"
        return [reporter.report(record, error) for record, error in bad]

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _changes(
        self, records: list[SinkRecord], bad: list[tuple[SinkRecord, DataError]]
    ) -> dict[str, list[Change]]:
        """Returns changes by table, in the order of the records."""
        found: dict[str, list[Change]] = {}
        names: dict[str, str] = {}
        for record in records:
            name = names.get(record.topic)
            if name is None:
                name = names[record.topic] = self._table_name(record.topic)
            try:
                change = self._rows.change(record)
            except DataError as e:
                self._set_aside(record, e, bad)
                continue
            found.setdefault(name, []).append(change)
        return found

    def _table_name(self, topic: str) -> str:
        template = self._settings.table_name
        name = template.replace("${topic}", topic).replace("${table}", topic.rsplit(".", 1)[-1])
        if "%(" in name:
            raise ConfigError(
                f"table.name.format={template}: {name!r} cannot be a table", key="table.name.format"
            )
        return name

    def _set_aside(
        self, record: SinkRecord, error: DataError, bad: list[tuple[SinkRecord, DataError]]
    ) -> None:
        if self.context.errant_record_reporter is None:
            raise error
        bad.append((record, error))

    @contextmanager
    def _transaction(
        self, changes: dict[str, list[Change]]
    ) -> Iterator[tuple[sa.Connection, dict[str, list[Change]]]]:
        """Opens a transaction and yields it with the changes whose tables exist.

        Tables are created before it begins: in MySQL, a change of a table would commit it.
        """
        assert self._engine is not None, "put comes after start"
        there = {name: of_table for name, of_table in changes.items() if self._ensure(name, of_table)}
        with self._engine.begin() as connection:
            yield connection, there

    def _ensure(self, name: str, changes: list[Change]) -> bool:
        layouts = [c for c in dict.fromkeys(c.layout for c in changes) if not c.deletes]
        return self._target.ensure(name, widest(layouts), layouts[0].key if layouts else ())

    def _write_table(
        self,
        connection: sa.Connection,
        name: str,
        changes: list[Change],
        bad: list[tuple[SinkRecord, DataError]],
    ) -> None:
        """Writes all changes. After an error of their data, halves them until each bad record is alone."""
        savepoint = connection.begin_nested()
        try:
            for statement, rows in self._statements(name, changes):
                connection.exec_driver_sql(statement, rows)
        except (sa.exc.SQLAlchemyError, ValueError, TypeError, OverflowError) as e:
            if isinstance(e, sa.exc.SQLAlchemyError) and not _is_bad_data(e):
                raise
            savepoint.rollback()
            if len(changes) == 1:
                record = changes[0].record
                where = f"record {record.topic}-{record.partition}@{record.offset}"
                self._set_aside(record, DataError(f"{where}: table {name} refuses it: {_text(e)}"), bad)
                return
            half = len(changes) // 2
            self._write_table(connection, name, changes[:half], bad)
            self._write_table(connection, name, changes[half:], bad)
            return
        savepoint.commit()

    def _statements(self, name: str, changes: list[Change]) -> Iterator[tuple[str, list[Any]]]:
        """Yields runs of changes that share a statement, in order, cut to batch.size."""
        size, target = self._settings.batch_size, self._target
        for statement, run in groupby(changes, lambda c: target.statement(name, c.layout)):
            rows = statement.rows(c.values for c in run)
            for i in range(0, len(rows), size):
                yield statement.sql, rows[i : i + size]

    def _judged(self, error: Exception) -> ConnectError:
        """Translates an error into the runtime's. Uses only the driver's own words, which hold no password."""
        code, text = _code(error), f"{self._where}: {_text(error)}"
        if isinstance(error, sa.exc.SQLAlchemyError) and not _is_passing(error):
            if code in _DENIED:
                raise ConfigError(text, key="connection.user") from error
            return ConnectError(text)
        self._tries += 1
        if self._tries > self._settings.max_retries:
            return ConnectError(f"{text} (given up after {self._tries} tries, see max.retries)")
        self.context.timeout(self._settings.retry_backoff_ms)
        return RetriableError(text)


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
        raise ConnectError(f"{where}: offsets cannot be changed: {_text(e)}") from e
    finally:
        engine.dispose()


def make_engine(settings: Settings) -> sa.Engine:
    shown = masked(settings.url)
    try:
        url = sa.make_url(to_sqlalchemy(settings.url))
        if settings.user:
            url = url.set(username=settings.user)
        if settings.password is not None:
            url = url.set(password=settings.password.value)
        is_sqlite = url.get_backend_name() == "sqlite"
        more: dict[str, Any] = {}
        arguments: dict[str, Any] = {"timeout": _SQLITE_WAIT_S} if is_sqlite else {}
        if url.get_driver_name() == "pymysql":
            arguments = {"connect_timeout": 30, "read_timeout": 300, "write_timeout": 300}
            url = url.update_query_dict({"charset": "utf8mb4"})
            more["paramstyle"] = "format"
        engine = sa.create_engine(
            url, connect_args=arguments, pool_pre_ping=not is_sqlite, hide_parameters=True, **more
        )
    except sa.exc.NoSuchModuleError:
        raise unknown_database(settings.url) from None
    except ModuleNotFoundError as e:
        raise missing_driver(settings.url, e.name) from None
    except (sa.exc.ArgumentError, ValueError, TypeError):
        raise ConfigError(
            f"connection.url={shown} is no address of a database", key="connection.url"
        ) from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _sqlite_connected)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    elif engine.dialect.name in {"mysql", "mariadb"}:
        sa.event.listen(engine, "connect", _mysql_connected(settings.timezone))
    return engine


def _sqlite_connected(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy begins transactions, and savepoints work
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()


def _mysql_connected(zone: str) -> Callable[[Any, Any], None]:
    def connected(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            # A value that does not fit is an error instead of being cut off. Backslashes and quotes stay as the driver
            # expects.
            cursor.execute(
                "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES')"
            )
            try:  # so that a TIMESTAMP column takes a moment as the moment that it is
                cursor.execute("SET SESSION time_zone = %s", ("+00:00" if zone == "UTC" else zone,))
            except Exception as e:
                if not e.args or e.args[0] != _UNKNOWN_ZONE:
                    raise
                log.warning(
                    "the server does not know db.timezone=%s (mysql_tzinfo_to_sql makes it known): what goes to TIMESTAMP "
                    "columns is read in the session's own zone",
                    zone,
                )

    return connected


def _code(error: BaseException) -> Any:
    original = getattr(error, "orig", None)
    return original.args[0] if original is not None and original.args else None


def _text(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    args = original.args
    return str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(original)


def _is_passing(error: BaseException) -> bool:
    original = getattr(error, "orig", None)
    if getattr(error, "connection_invalidated", False):
        return True
    if isinstance(error, sa.exc.InterfaceError) and not isinstance(original, sqlite3.Error):
        return True  # SQLite says so of a value that it does not know
    if isinstance(original, sqlite3.OperationalError):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}  # fmt: skip
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return _code(error) in _PASSING or (isinstance(state, str) and state.startswith(_SQLSTATES))


def _is_bad_data(error: BaseException) -> bool:
    """Returns True when a single record may be to blame, so that halving its batch makes sense."""
    if _is_passing(error) or not isinstance(error, sa.exc.StatementError):
        return False
    if isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError)):
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return True  # a value that SQLAlchemy itself could not bind
    return _code(error) in {1264, 1265, 1292, 1366, 1406, 1048, 1062, 1364, 3140, 4025} or isinstance(
        error.orig, (OverflowError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
    )
