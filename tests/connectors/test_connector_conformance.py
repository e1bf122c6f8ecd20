"""The built-in connectors join the conformance suite that plugin authors have."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager

import pytest

from klamm.testing.conformance import SinkCase, SinkSuite, SourceCase, SourceSuite
from klamm_connectors.file.sink.connector import FileStreamSinkConnector
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_connectors.logs.connector import LogTailConnector
from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins.schema import INT32, OPTIONAL_STRING, STRING, SchemaBuilder, Struct


class TestFileSource(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path, klamm_topic):
        path, made = tmp_path / "in.txt", []

        def produce(count):
            lines = [f"line {len(made) + i}" for i in range(count)]
            made.extend(lines)
            with path.open("a") as f:
                f.writelines(f"{line}\n" for line in lines)
            return lines

        return SourceCase(
            connector=FileStreamSourceConnector,
            topic=klamm_topic,
            props={"file": str(path), "topic": klamm_topic, "batch.size": "7"},
            produce=produce,
            bad=[{"batch.size": "none"}, {"batch.size": "0"}],
        )


class TestLogTail(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path, klamm_topic):
        path, made = tmp_path / "app.log", []

        def produce(count):
            lines = [f"line {len(made) + i}" for i in range(count)]
            made.extend(lines)
            with path.open("a") as f:
                f.writelines(f"{line}\n" for line in lines)
            return lines

        return SourceCase(
            connector=LogTailConnector,
            topic=klamm_topic,
            props={"paths": f"{tmp_path}/*.log", "topic": klamm_topic, "scan.interval.ms": "50"},
            produce=produce,
            exact=False,
            bad=[
                {"start.position": "middle"},
                {"encoding": "morse"},
                {"paths": "relative/*.log"},
                {"settings": "no TOML"},
                {"settings": "unknown = 1"},
                {"multiline": "cobol"},
                {"fields": "[]", "format": "json"},
            ],
        )


class TestFileSink(SinkSuite):
    @pytest.fixture
    def sink(self, tmp_path):
        path = tmp_path / "out.txt"

        def written():
            text = path.read_text() if path.exists() else ""
            return text[: text.rfind("\n") + 1].splitlines()

        return SinkCase(
            connector=FileStreamSinkConnector,
            props={"file": str(path)},
            written=written,
        )


OLD = SchemaBuilder.struct("row").field("id", INT32).field("name", STRING).build()
NEW = (
    SchemaBuilder.struct("row")
    .field("id", INT32)
    .field("name", STRING)
    .field("note", OPTIONAL_STRING)
    .build()
)


@contextmanager
def locked(path):
    """Locks the database: nobody else can write to it."""
    with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield
        db.execute("COMMIT")


class TestSqlSink(SinkSuite):
    @pytest.fixture
    def sink(self, tmp_path):
        path = tmp_path / "rows.db"

        def written():
            with closing(sqlite3.connect(path, timeout=10)) as db:
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchall():
                    return []
                return [n for (n,) in db.execute("SELECT id FROM rows ORDER BY rowid")]

        return SinkCase(
            connector=SqlSinkConnector,
            props={
                "connection.url": f"sqlite:///{path}",
                "table.name.format": "rows",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "insert.mode": "upsert",
                "auto.create": "true",
                "auto.evolve": "true",
            },
            written=written,
            make=lambda n: (OLD, Struct(OLD, id=n, name=f"name {n}")),
            make_changed=lambda n: (NEW, Struct(NEW, id=n, name=f"name {n}", note="new")),
            shown=lambda n: n,
            once=True,
            outage=lambda: locked(path),
            bad=[{"pk.mode": "everything"}, {"insert.mode": "never"}],
        )
