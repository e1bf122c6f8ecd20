"""Connectors of servers in the conformance suite, where the server is to be had."""

from __future__ import annotations

import uuid

import pytest
from support.elasticsearch import call

from klamm.testing.conformance import SinkCase, SinkSuite, SourceCase, SourceSuite
from klamm.testing.topics import make_topic
from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
from klamm_connectors.mysql.connector import MySqlSourceConnector


@pytest.mark.usefixtures("mariadb_server")
class TestMySqlSource(SourceSuite):
    @pytest.fixture
    def source(self, mariadb, mariadb_database, klamm_bootstrap):
        prefix = f"c{uuid.uuid4().hex[:8]}"
        topic = make_topic(klamm_bootstrap, name=f"{prefix}.{mariadb_database}.t")
        mariadb.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)", database=mariadb_database)
        made = []

        def produce(count):
            first = len(made) + 1
            numbers = list(range(first, first + count))
            made.extend(numbers)
            rows = ",".join(f"({n})" for n in numbers)
            mariadb.sql(f"INSERT INTO t (id) VALUES {rows}", database=mariadb_database)
            return numbers

        def change_schema():
            mariadb.sql("ALTER TABLE t ADD COLUMN note TEXT", database=mariadb_database)

        return SourceCase(
            connector=MySqlSourceConnector,
            topic=topic,
            props={
                "name": prefix,
                "database.hostname": "127.0.0.1",
                "database.port": str(mariadb.port),
                "database.user": "root",
                "database.server.id": str(uuid.uuid4().int % 1_000_000 + 100_000),
                "topic.prefix": prefix,
                "table.include.list": f"{mariadb_database}\\.t",
                "event.format": "row",
                "poll.interval.ms": "50",
            },
            produce=produce,
            shown=lambda row: row["id"],
            exact=False,  # a snapshot that breaks off begins anew
            change_schema=change_schema,
            bad=[{"database.port": "none"}, {"event.format": "no such form"}],
        )


@pytest.mark.usefixtures("elasticsearch")
@pytest.mark.timeout(300)  # the node may start with the first test
class TestElasticsearchSink(SinkSuite):
    @pytest.fixture
    def sink(self, elasticsearch_server):
        run = uuid.uuid4().hex

        def written():
            indices = "test-*,unit-*"
            call(elasticsearch_server, "POST", f"{indices}/_refresh?ignore_unavailable=true")
            query = {
                "size": 10_000,
                "query": {"match": {"run": run}},
                "sort": [{"id": {"unmapped_type": "long"}}],
            }
            status, found = call(
                elasticsearch_server, "POST", f"{indices}/_search?ignore_unavailable=true", query
            )
            return [hit["_source"]["id"] for hit in found["hits"]["hits"]] if status == 200 else []

        return SinkCase(
            connector=ElasticsearchSinkConnector,
            props={
                "connection.url": elasticsearch_server.url,
                "key.ignore": "true",
                "schema.ignore": "true",
                "behavior.on.null.values": "ignore",
            },
            written=written,
            make=lambda number: (None, {"id": number, "run": run}),
            make_changed=lambda number: (None, {"id": number, "run": run, "note": f"note {number}"}),
            shown=lambda number: number,
            ordered=False,
            once=True,
            bad=[{"batch.size": "0"}, {"behavior.on.malformed.documents": "pray"}],
        )
