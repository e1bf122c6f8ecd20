"""A sink that keeps every record as a row of an SQLite table, once, whatever happens.

A row's primary key is the record's topic, partition and offset, so a record that is delivered again (after a
crash, say) replaces itself. Rows are committed in `flush`, which the runtime calls before it commits offsets.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, invalid, non_empty
from klamm_example.release import release
from klamm_plugins.connector import SinkConnector, SinkTask
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.text import text_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BUSY_TIMEOUT_S = 2.0


def _table_name(name: str, value: Any) -> None:
    if not _NAME.fullmatch(value or ""):
        raise invalid(name, value, "Letters, digits and underscores, not beginning with a digit")


def _config() -> ConfigDef:
    return (
        ConfigDef()
        .define(
            "database",
            Type.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            documentation="Path of the SQLite file; it is made when it is missing.",
        )
        .define(
            "table",
            Type.STRING,
            "records",
            validator=_table_name,
            importance=Importance.MEDIUM,
            documentation="The table that takes the rows; it is made when it is missing.",
        )
    )


class SqliteSinkConnector(SinkConnector):
    """Tasks that share one database file."""

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return release()

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    @classmethod
    def task_class(cls) -> type[SqliteSinkTask]:
        return SqliteSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        _config().parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props) for _ in range(max_tasks)]


class SqliteSinkTask(SinkTask):
    """Opens a transaction with the first `put` and commits it in `flush`."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._insert = ""

    def start(self, props: Mapping[str, str]) -> None:
        settings = _config().parse(props)
        table = settings["table"]  # checked by its validator: it is safe in a statement
        self._insert = f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
        try:
            self._db = sqlite3.connect(settings["database"], timeout=_BUSY_TIMEOUT_S)
            self._db.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (topic TEXT, partition INTEGER, position INTEGER, "
                "timestamp INTEGER, key TEXT, value TEXT, PRIMARY KEY (topic, partition, position))"
            )
        except sqlite3.Error as e:
            raise ConnectError(f"database {settings['database']}: {e}") from e

    def put(self, records: list[SinkRecord]) -> None:
        assert self._db is not None, "started"
        rows = [_row(r) for r in records]
        try:
            self._db.executemany(self._insert, rows)
        except sqlite3.OperationalError as e:
            self._db.rollback()
            raise RetriableError(f"database is busy: {e}") from e

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert self._db is not None, "started"
        self._db.commit()

    def stop(self) -> None:
        """What was put and not flushed is given up: it will be delivered again."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _row(record: SinkRecord) -> tuple[Any, ...]:
    try:
        key, value = _text(record.key), _text(record.value)
    except DataError as e:
        raise DataError(f"record {record.topic_partition}@{record.offset}: {e}") from e
    return (record.topic, record.partition, record.offset, record.timestamp, key, value)


def _text(value: Any) -> str | None:
    return None if value is None else text_of(value)
