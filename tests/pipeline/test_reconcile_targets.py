"""Targets of a reconciliation: topics, tables of any database, Parquet files as Spark commits them."""

from __future__ import annotations

import json
import sqlite3
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.klamm import klamm

from klamm.reconcile import files, tables, targets
from klamm.reconcile.topics import topic_documents
from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError, KlammError


def row_id(row):
    return targets.field_id("event.id")(row), True


def text_id(text):
    found = files.identifier("rid=([0-9]+)").search(text)
    return found[1].decode() if found else ""


def ids_of(bootstrap: str, topic: str) -> dict[str, str]:
    found = topic_documents({"bootstrap.servers": bootstrap}, topic, row_id, text_id)
    return {d.key: d.id for d in found}


@pytest.mark.usefixtures("processes")
def test_a_topic_is_read_to_where_committed_records_ended(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic("t", 2, 1), NewTopic("none", 1, 1)]).values():
            made.result(60)
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        plain.produce("t", b'{"event": {"id": 1}}', partition=0)
        plain.produce("t", b"a line rid=2", partition=0)
        plain.produce("t", b'{"message": "a line rid=3"}', partition=1)
        plain.produce("t", None, b"key", partition=1)
        assert plain.flush(60) == 0
        writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "w"})
        writer.init_transactions(60)
        for number, end in ((4, writer.commit_transaction), (5, writer.abort_transaction)):
            writer.begin_transaction()
            writer.produce("t", b"rid=%d" % number, partition=0)
            assert writer.flush(60) == 0
            end(60)
        writer.begin_transaction()  # stays open: what follows is not committed, and is not waited for
        writer.produce("t", b"rid=6", partition=0)
        assert writer.flush(60) == 0
        plain.produce("t", b"rid=7", partition=0)
        assert plain.flush(60) == 0
        assert ids_of(broker.bootstrap, "t") == {"t-0-0": "1", "t-0-1": "2", "t-1-0": "3", "t-0-2": "4"}
        assert ids_of(broker.bootstrap, "none") == {}
        writer.abort_transaction(60)
        until = time.monotonic() + 60
        while ids_of(broker.bootstrap, "t").get("t-0-7") != "7":  # the marker comes a moment after the answer
            assert time.monotonic() < until, ids_of(broker.bootstrap, "t")
            time.sleep(0.05)
        with pytest.raises(KlammError, match="topic nothere cannot be read"):
            ids_of(broker.bootstrap, "nothere")

        (tmp_path / "a.log").write_text("".join(f"x rid={n}\n" for n in (1, 2, 3, 4, 7, 8)))
        words = ["reconcile", "--source", str(tmp_path / "a.log"), "--id-regex", "rid=([0-9]+)", "--id-field"]
        command = [*words, "event.id", "--topic", "t", "-b", broker.bootstrap, "--settle", "0", "-o", "json"]
        result = klamm(*command)
        assert result.returncode == 1, result.stderr
        found = json.loads(result.stdout)
        assert [m["id"] for m in found["listed"]["missing"]] == ["8"]
        assert (found["documents"], found["duplicates"], found["unexpected"]) == (5, 0, 0)


def test_rows_of_a_database_by_url(tmp_path):
    path = tmp_path / "d.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE events (a INT, b INT, id TEXT, PRIMARY KEY (a, b))")
        connection.executemany("INSERT INTO events VALUES (?, 1, ?)", [(n, f"i{n}") for n in range(12_000)])
    connection.close()
    rows = dict(tables.sql_rows(f"sqlite:///{path}", "events", ["id"]))
    assert len(rows) == 12_000
    assert rows["events/17-1"] == {"id": "i17"}
    with pytest.raises(KlammError, match="there is no table others"):
        list(tables.sql_rows(f"sqlite:///{path}", "others", ["id"]))
    with pytest.raises(ConfigError, match="table events has no column event_id"):
        list(tables.sql_rows(f"sqlite:///{path}", "events", ["event_id"]))
    for url in ("nonsense", "nothing://x/y"):
        with pytest.raises(ConfigError, match="--sql"):
            list(tables.sql_rows(url, "events", ["id"]))


def parquet(path, ids):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"event": [{"id": i} for i in ids], "n": [1] * len(ids)}), path)


def test_parquet_files_of_a_folder(tmp_path):
    parquet(tmp_path / "day=1/a.parquet", ["1", "2"])
    parquet(tmp_path / "b.parquet", ["3"])
    parquet(tmp_path / "_temporary/c.parquet", ["4"])
    found = targets.documents(tables.parquet_rows(tmp_path, ["event.id"]), targets.field_id("event.id"))
    assert {d.id: d.key for d in found} == {
        "1": f"{tmp_path}/day=1/a.parquet:0",
        "2": f"{tmp_path}/day=1/a.parquet:1",
        "3": f"{tmp_path}/b.parquet:0",
    }
    with pytest.raises(KlammError, match="has no column id"):
        list(tables.parquet_rows(tmp_path, ["id"]))
    with pytest.raises(KlammError, match="no such folder"):
        list(tables.parquet_rows(tmp_path / "none", ["id"]))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(KlammError, match=r"b\.parquet cannot be read"):
        list(tables.parquet_rows(tmp_path, ["event.id"]))


def test_of_a_streams_parquet_files_those_count_that_spark_has_committed(tmp_path):
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(name: str, action: str = "add") -> str:
        parquet(tmp_path / name, [name[0]])
        return json.dumps({"path": (tmp_path / name).as_uri(), "size": 1, "action": action})

    (log / "0").write_text(f"v1\n{entry('a.parquet')}")
    (log / "1.compact").write_text(f"v1\n{entry('a.parquet')}\n{entry('b b.parquet')}")
    (log / "2").write_text("v1")
    (log / "3").write_text(f"v1\n{entry('c.parquet')}\n{entry('a.parquet', 'delete')}")
    parquet(tmp_path / "killed.parquet", ["k"])
    found = targets.documents(tables.parquet_rows(tmp_path, ["event.id"]), targets.field_id("event.id"))
    assert [d.id for d in found] == ["b", "c"]
    (log / "4").write_text("v9\n")
    with pytest.raises(KlammError, match="a version of Spark's log that is not known: 'v9'"):
        list(tables.parquet_rows(tmp_path, ["event.id"]))
