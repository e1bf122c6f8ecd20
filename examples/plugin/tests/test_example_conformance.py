"""Both connectors in Klamm's conformance suites: on a real broker and worker, with kills."""

import sqlite3
from contextlib import closing

import pytest
from klamm_example.datagen import DatagenSourceConnector, make_order
from klamm_example.sqlite_sink import SqliteSinkConnector

from klamm.testing.conformance import SinkCase, SinkSuite, SourceCase, SourceSuite


class TestDatagenSource(SourceSuite):
    @pytest.fixture
    def source(self, klamm_topic):
        numbers = iter(range(1_000_000))
        return SourceCase(
            connector=DatagenSourceConnector,
            topic=klamm_topic,
            props={"topic": klamm_topic, "rate": "1000"},
            produce=lambda count: [make_order(0, 0, next(numbers))["id"] for _ in range(count)],
            shown=lambda order: order["id"],
            endless=True,
            bad=[{"rate": "-1"}, {"count": "many"}],
        )


class TestSqliteSink(SinkSuite):
    @pytest.fixture
    def sink(self, tmp_path):
        path = tmp_path / "out.db"

        def written():
            if not path.exists():
                return []
            with closing(sqlite3.connect(path, timeout=10)) as db:
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchall():
                    return []
                return [value for (value,) in db.execute("SELECT value FROM records ORDER BY rowid")]

        return SinkCase(
            connector=SqliteSinkConnector,
            props={"database": str(path)},
            written=written,
            once=True,
            bad=[{"table": "no table"}, {"database": ""}],
        )
