"""Starts the SQL sink's task on a real database, and makes records for it."""

from __future__ import annotations

from typing import Any

from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.testing import MemorySinkContext

UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}


class Reporter:
    """Keeps what is reported: offset and text of the error."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, str]] = []

    def report(self, record: SinkRecord, error: BaseException) -> None:
        self.reported.append((record.offset, str(error)))

    @property
    def offsets(self) -> list[int]:
        return sorted(offset for offset, _ in self.reported)


class Sinks:
    """Tasks that write to one database. `sql` asks the database itself."""

    def __init__(self, props: dict[str, str], sql: Any) -> None:
        self.sql = sql
        self.props = {"auto.create": "true", "auto.evolve": "true", **props}
        self._tasks: list[Any] = []

    def start(self, reporter: Reporter | None = None, props: dict[str, str] | None = None) -> Any:
        given = self.props | (props or {})
        context = MemorySinkContext(given)
        context.errant_record_reporter = reporter  # type: ignore[assignment]
        context.assignment = frozenset({TopicPartition("t", 0)})
        task = SqlSinkConnector.task_class()()
        self._tasks.append(task)
        task.initialize(context)
        task.start(given)
        return task

    def put(self, *values: Any, reporter: Reporter | None = None, **props: str) -> Any:
        """Write these values, keyed by their numbers, as a task of its own with upserts."""
        given = UPSERT | {name.replace("__", "."): value for name, value in props.items()}
        task = self.start(reporter, given)
        task.put([record(value, i, i) for i, value in enumerate(values)])
        return task

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()


def record(
    value: Any, offset: int = 0, key: Any = None, topic: str = "t", schema: Any = None, key_schema: Any = None
) -> SinkRecord:
    return SinkRecord(topic, 0, key_schema, key, schema, value, offset)
