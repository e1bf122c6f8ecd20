"""The SQL sink: keys, rows and types, upserts and deletes, bad records, lost databases. On SQLite and on MariaDB."""

import json
import sqlite3
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_connectors.sql.config import parse
from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_connectors.sql.errors import is_bad_data
from klamm_connectors.sql.urls import masked, to_sqlalchemy
from klamm_plugins import logical
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.schema import BYTES, INT32, OPTIONAL_STRING, SchemaBuilder, Struct
from klamm_plugins.testing import MemorySinkContext, SinkConformance


class TestSinkConformance(SinkConformance):
    connector = SqlSinkConnector

    def props(self, tmp_path):
        return {
            "connection.url": f"sqlite:///{tmp_path}/x.db",
            "pk.mode": "kafka",
            "auto.create": "true",
            "insert.mode": "upsert",
        }

    def written(self, tmp_path):
        return [r[0] for r in rows(tmp_path / "x.db", "SELECT v FROM t ORDER BY __connect_offset")]

    def _start(self, tmp_path):
        task = super()._start(tmp_path)
        put = task.put

        # The suite's values are strings; a table needs fields.
        def wrapped(records):
            for r in records:
                r.value, r.value_schema = {"v": r.value}, None
            put(records)

        task.put = wrapped
        return task


def rows(path, statement):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


class Reporter:
    def __init__(self):
        self.reported = []

    def report(self, record, error):
        self.reported.append((record.offset, str(error)))


@pytest.fixture
def sink(tmp_path):
    tasks = []

    def start(reporter=None, **more):
        props = {"connection.url": f"sqlite:///{tmp_path}/x.db", "auto.create": "true"}
        props |= {k.replace("__", "."): v for k, v in more.items()}
        context = MemorySinkContext(props)
        context.errant_record_reporter = reporter
        context.assignment = frozenset({TopicPartition("t", 0)})
        task = SqlSinkConnector.task_class()()
        tasks.append(task)
        task.initialize(context)
        task.start(props)
        return task

    yield start
    for task in tasks:
        task.stop()


def record(value, offset=0, key=None, topic="t", schema=None, key_schema=None):
    return SinkRecord(topic, 0, key_schema, key, schema, value, offset)


UPSERT = {"insert__mode": "upsert", "pk__mode": "record_key", "pk__fields": "id"}


def test_maps_without_a_schema_make_and_extend_a_table(sink, tmp_path):
    task = sink(**UPSERT, auto__evolve="true")
    task.put(
        [
            record({"name": "a", "n": 1, "later": None}, 0, 1),
            record({"name": "b", "n": 2, "deep": {"x": [1]}}, 1, 2),
        ]
    )
    task.put([record({"name": "A", "n": 3, "later": 1.5}, 2, 1)])
    assert rows(tmp_path / "x.db", "SELECT id, name, n, deep, later FROM t ORDER BY id") == [
        (1, "A", 3, None, 1.5),
        (2, "b", 2, '{"x":[1]}', None),
    ]


def test_upserts_are_harmless_when_they_come_again_and_deletes_keep_their_place(sink, tmp_path):
    task = sink(**UPSERT, delete__enabled="true")
    batch = [
        record({"v": "one"}, 0, 1),
        record({"v": "two"}, 1, 2),
        record(None, 2, 1),
        record({"v": "one again"}, 3, 1),
        record(None, 4, 2),
    ]
    for _ in range(2):
        task.put(batch)
        assert rows(tmp_path / "x.db", "SELECT id, v FROM t") == [(1, "one again")]


def test_structs_with_logical_types(sink, tmp_path):
    schema = (
        SchemaBuilder.struct("row")
        .field("id", INT32)
        .field("d", logical.decimal_builder(10).build())
        .field("day", logical.date_builder().build())
        .field("at", logical.timestamp_builder().build())
        .field("raw", BYTES)
        .field("note", OPTIONAL_STRING)
        .build()
    )
    value = Struct(
        schema,
        id=1,
        d=Decimal("12345678901234567890.0123456789"),
        day=date(2024, 2, 29),
        at=datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=UTC),
        raw=b"\0\xff",
    )
    sink(insert__mode="upsert", pk__mode="record_value", pk__fields="id", db__timezone="Europe/Vienna").put(
        [record(value, schema=schema)]
    )
    assert rows(tmp_path / "x.db", "SELECT * FROM t") == [
        (1, "12345678901234567890.0123456789", "2024-02-29", "2024-02-29 13:00:00.005000", b"\0\xff", None)
    ]


def test_one_bad_record_is_found_among_good_ones_and_reported(sink, tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT NOT NULL CHECK (v <> 'bad'))")
    connection.close()
    reporter = Reporter()
    task = sink(reporter, **UPSERT)
    batch = [record({"v": "bad" if i in {7, 400} else f"v{i}"}, i, i) for i in range(500)]
    batch[33] = record("no fields", 33, 33)
    batch[34] = record(None, 34, 34)
    task.put(batch)
    assert sorted(o for o, _ in reporter.reported) == [7, 33, 34, 400]
    assert "record t-0@7" in dict(reporter.reported)[7]
    assert rows(tmp_path / "x.db", "SELECT count(*) FROM t") == [(496,)]


def test_without_a_dead_letter_topic_a_bad_record_fails_the_batch_and_nothing_is_written(sink, tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT NOT NULL)")
    connection.close()
    task = sink(**UPSERT)
    with pytest.raises(DataError, match=r"record t-0@1: table t refuses it: NOT NULL"):
        task.put([record({"v": "a"}, 0, 1), record({"v": None}, 1, 2)])
    assert rows(tmp_path / "x.db", "SELECT count(*) FROM t") == [(0,)]


def test_an_error_names_the_record_as_it_was_read(sink, tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE elsewhere (id INTEGER PRIMARY KEY, v TEXT NOT NULL)")
    connection.close()
    reporter = Reporter()
    task, routed = sink(reporter, **UPSERT), []
    for offset, value in enumerate(({"v": None}, "no fields", None)):
        routed.append(record(value, offset, offset).copy())
        routed[-1].topic, routed[-1].partition = "elsewhere", 5
    task.put(routed)
    assert [said[:13] for _, said in sorted(reporter.reported)] == [f"record t-0@{n}:" for n in range(3)]


def test_a_locked_database_is_tried_again_and_not_for_ever(sink, tmp_path, monkeypatch):
    monkeypatch.setattr("klamm_connectors.sql.engine._SQLITE_WAIT_S", 0.05)
    task = sink(**UPSERT, max__retries="1", retry__backoff__ms="7")
    task.put([record({"v": "a"}, 0, 1)])
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(RetriableError, match="locked"):
        task.put([record({"v": "b"}, 1, 1)])
    assert task.context.timeout_ms == 7
    with pytest.raises(ConnectError, match="given up after 2 tries"):
        task.put([record({"v": "b"}, 1, 1)])
    connection.execute("ROLLBACK")
    connection.close()
    task.put([record({"v": "b"}, 1, 1)])
    assert rows(tmp_path / "x.db", "SELECT v FROM t") == [("b",)]


def test_update_mode_and_whitelist_and_names(sink, tmp_path):
    sink(**UPSERT, table__name__format="x_${table}").put(
        [record({"v": "a", "w": 1}, 0, 1, topic="p.shop.orders")]
    )
    sink(
        **(UPSERT | {"insert__mode": "update"}), table__name__format="x_${table}", fields__whitelist="w"
    ).put(
        [
            record({"v": "b", "w": 2}, 0, 1, topic="p.shop.orders"),
            record({"v": "b", "w": 3}, 1, 9, topic="p.shop.orders"),
        ]
    )
    assert rows(tmp_path / "x.db", "SELECT * FROM x_orders") == [("a", 2, 1)]


@pytest.mark.parametrize(
    ("props", "key", "words"),
    [
        ({"delete.enabled": "true"}, "delete.enabled", "record_key"),
        ({"insert.mode": "upsert"}, "pk.mode", "primary key"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields", "three names"),
        ({"connection.url": "nothing"}, "connection.url", "URL"),
        ({"db.timezone": "Mars/Base"}, "db.timezone", "time zone"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(props, key, words):
    errors = {v.name: " ".join(v.errors) for v in SqlSinkConnector.validate(props)}
    assert words in errors[key]


def validated(url):
    said = SqlSinkConnector.validate({"connection.url": url, "topics": "t"})
    return {value.name: value.errors for value in said if value.errors}


def test_what_is_not_installed_is_told_by_validation(monkeypatch):
    assert validated("sqlite:///x.db") == {}
    (said,) = validated("postgresql+pg8000://u:secret@h/db")["connection.url"]
    assert said.endswith("its driver, the Python package pg8000, is not installed: pip install 'pg8000'")
    assert "secret" not in said
    assert "this kind of database is unknown" in validated("nosuch://h/db")["connection.url"][0]
    monkeypatch.setitem(sys.modules, "pymysql", None)
    assert "pip install '.[mysql]'" in validated("mysql://h/db")["connection.url"][0]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert validated("sqlite:///x.db") == {
        "connector.class": [
            "The SQL sink needs the Python package sqlalchemy, which is not installed: in a checkout of Klamm and a virtual environment, pip install '.[sql]'"
        ]
    }


def test_missing_tables_columns_and_drivers_are_sentences(sink, tmp_path):
    with pytest.raises(ConfigError, match=r"table t does not exist; make it, or set auto\.create=true"):
        sink(auto__create="false").put([record({"a": 1})])
    sink().put([record({"a": 1})])
    with pytest.raises(ConfigError, match="table t has no column b; add it"):
        sink().put([record({"a": 1, "b": 2})])
    with pytest.raises(ConfigError, match=r"secretdb:\[hidden\]@"):
        sink(connection__url="oracle9://secretdb:hush@host/x")


def test_passwords_are_not_shown():
    url = "jdbc:mysql://u:hush@host/db?password=hush&x=1"
    assert "hush" not in masked(url)
    (value,) = [v for v in SqlSinkConnector.validate({"connection.url": url}) if v.name == "connection.url"]
    assert "hush" not in str(value)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:oracle:thin:scott/hush@//db:1521/SHOP",
        "jdbc:oracle:oci:scott/hu@hush@db:1521:SHOP",
        "jdbc:sqlserver://db:1433;databaseName=x;user=sa;password={hu;hu}}sh};encrypt=false",
    ],
)
def test_passwords_are_hidden_in_the_forms_of_other_databases(url):
    assert not [part for part in ("hush", "hu@", "hu;", "sh}") if part in masked(url)]
    assert masked(url).count("[hidden]") == 1


def test_a_password_in_braces_is_what_is_between_them():
    import sqlalchemy as sa

    made = sa.make_url(to_sqlalchemy("jdbc:sqlserver://db:1433;databaseName=x;user=sa;password={a;b=}}c}"))
    assert (made.username, made.password, made.database) == ("sa", "a;b=}c", "x")


@pytest.mark.parametrize("url", ["jdbc:sqlserver://db:1433;databaseName=x", "jdbc:oracle:thin:@//db/X"])
def test_upserts_are_refused_at_once_where_they_are_not_known(url):
    props = {"connection.url": url, "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
    with pytest.raises(
        ConfigError, match=r"insert\.mode=upsert is not known for (mssql|oracle), only for mariadb"
    ):
        parse(props)


@pytest.mark.parametrize("code", [1526, 1644, 1690, 1906, 3105, 3819])
def test_refusals_of_a_row_s_values_are_for_the_record_to_blame(code):
    """No partition for it, SIGNAL of a trigger, a generated column out of range, a check."""
    import pymysql
    import sqlalchemy as sa

    found = sa.exc.DBAPIError.instance("x", None, pymysql.err.error_map.get(code, pymysql.err.OperationalError)(code, "m"), pymysql.err.Error)  # fmt: skip
    assert is_bad_data(found)


@given(
    user=st.text("abcXYZ@:/ü%", min_size=1, max_size=8), secret=st.text("abc@:/?#%&=", min_size=1, max_size=8)
)
def test_jdbc_urls_keep_their_login_and_hide_it(user, secret):
    from urllib.parse import urlencode

    import sqlalchemy as sa

    url = f"jdbc:mysql://db:3307/shop?{urlencode({'user': user, 'password': secret, 'useSSL': 'false'})}"
    made = sa.make_url(to_sqlalchemy(url))
    assert (made.username, made.password, made.host, made.port, made.database) == (
        user,
        secret,
        "db",
        3307,
        "shop",
    )
    assert made.query == {"ssl_disabled": "true"}
    assert masked(url).endswith("password=[hidden]&useSSL=false")


@pytest.fixture
def maria(mariadb, mariadb_database):
    tasks = []

    def start(reporter=None, **more):
        props = {
            "connection.url": f"jdbc:mariadb://127.0.0.1:{mariadb.port}/{mariadb_database}?useSSL=false",
            "connection.user": "root",
            "auto.create": "true",
            "auto.evolve": "true",
        }
        props |= {k.replace("__", "."): v for k, v in more.items()}
        context = MemorySinkContext(props)
        context.errant_record_reporter = reporter
        task = SqlSinkConnector.task_class()()
        tasks.append(task)
        task.initialize(context)
        task.start(props)
        task.sql = lambda statement: mariadb.sql(statement, database=mariadb_database)
        return task

    yield start
    for task in tasks:
        task.stop()


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_upserts_deletes_and_keys_that_differ_in_case(maria):
    task = maria(**UPSERT, delete__enabled="true")
    batch = [
        record({"v": i, "text": "ü🎉%s" * 10}, i, key) for i, key in enumerate(["a", "A", "a ", "b", "b"])
    ]
    for _ in range(2):
        task.put([*batch, record(None, 9, "b")])
    assert sorted(task.sql("SELECT id, v FROM t")) == [("A", 1), ("a", 0), ("a ", 2)]
    assert task.sql("SELECT DISTINCT text FROM t") == [("ü🎉%s" * 10,)]


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_refuses_what_does_not_fit_and_the_rest_is_there(maria):
    reporter = Reporter()
    task = maria(reporter, **UPSERT)
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5) NOT NULL, d DECIMAL(4,2))")
    task.put(
        [record({"v": "toolong" if i == 50 else "ok", "d": 1000 if i == 51 else 1}, i, i) for i in range(100)]
    )
    assert sorted(o for o, _ in reporter.reported) == [50, 51]
    assert task.sql("SELECT count(*) FROM t") == [(98,)]


def test_mariadb_lock_timeouts_are_tried_again(maria, mariadb, mariadb_database):
    task = maria(
        **UPSERT,
        connection__url=f"mysql://root@127.0.0.1:{mariadb.port}/{mariadb_database}?init_command=SET%20innodb_lock_wait_timeout%3D1",
    )
    task.put([record({"v": 1}, 0, 1)])
    holder = mariadb.connect(mariadb_database, autocommit=False)
    with holder.cursor() as cursor:
        cursor.execute("SELECT * FROM t FOR UPDATE")
    with pytest.raises(RetriableError, match=r"(?i)lock wait timeout"):
        task.put([record({"v": 2}, 1, 1)])
    holder.rollback()  # answered when its locks are gone
    holder.close()
    task.put([record({"v": 2}, 1, 1)])
    assert task.sql("SELECT v FROM t") == [(2,)]


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_wrong_password_is_a_sentence_without_it(maria):
    task = maria(connection__user="nobody", connection__password="hush-hush")
    with pytest.raises((ConfigError, ConnectError), match="Access denied") as found:
        task.put([record({"v": 1})])
    assert "hush-hush" not in str(found.value)


def test_json_of_nested_values_is_json(sink, tmp_path):
    sink().put([record({"a": [1, {"b": None}]})])
    (text,) = rows(tmp_path / "x.db", "SELECT a FROM t")[0]
    assert json.loads(text) == [1, {"b": None}]


def test_a_delete_makes_no_table_and_a_new_table_has_the_columns_of_all_records(sink, tmp_path):
    task = sink(**UPSERT, delete__enabled="true")
    task.put([record(None, 0, 1)])
    assert rows(tmp_path / "x.db", "SELECT name FROM sqlite_master") == []
    task.put(
        [record(None, 1, 1), record({"a": None}, 2, 1), record({"b": 1}, 3, 2), record({"b": 1.5}, 4, 3)]
    )
    assert rows(tmp_path / "x.db", "SELECT id, b FROM t ORDER BY id") == [(1, None), (2, 1), (3, 1.5)]
    ((made,),) = rows(tmp_path / "x.db", "SELECT sql FROM sqlite_master WHERE type = 'table'")
    assert "b DOUBLE" in made
    with pytest.raises(ConfigError, match="table other does not exist"):
        sink(**UPSERT, delete__enabled="true", auto__create="false").put([record(None, 5, 1, topic="other")])


ODD_NAMES = st.text("ab\"'`;%():.-[]{}\\$? ü", min_size=1, max_size=12)


@settings(deadline=None, max_examples=50)  # every example makes a database
@given(topic=ODD_NAMES, names=st.lists(ODD_NAMES, min_size=1, max_size=4, unique_by=str.lower), mode=st.sampled_from(["insert", "upsert", "update"]))  # fmt: skip
def test_no_name_of_a_topic_or_a_field_gets_out_of_its_quotes(topic, names, mode, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "x.db"
    props = {
        "connection.url": f"sqlite:///{path}",
        "auto.create": "true",
        "insert.mode": mode,
        "pk.mode": "record_key",
        "pk.fields": "_klamm key",
        "delete.enabled": "true",
    }
    task = SqlSinkConnector.task_class()()
    task.initialize(MemorySinkContext(props))
    task.start(props)
    batch = [record(dict.fromkeys(names, "v"), 0, 1, topic=topic), record(None, 1, 2, topic=topic)]
    try:
        if any("%(" in name for name in (topic, *names)):  # which no driver can be given
            with pytest.raises((DataError, ConfigError), match="cannot be"):
                task.put(batch)
            return
        task.put(batch)
    finally:
        task.stop()
    assert rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'") == [(topic,)]
    quoted = topic.replace('"', '""')
    assert [r[1] for r in rows(path, f'PRAGMA table_info("{quoted}")')] == [*names, "_klamm key"]
    found = rows(path, f'SELECT * FROM "{quoted}"')
    assert found == ([] if mode == "update" else [(*("v" for _ in names), 1)])


def test_values_that_sqlite_cannot_hold_are_reported_by_their_record(sink, tmp_path):
    reporter = Reporter()
    task = sink(reporter, **UPSERT, auto__evolve="true")
    task.put([record({"i": 1, "f": 0.5, "s": "a"}, 0, 0)])
    bad = [{"i": 2**70}, {"f": float("nan")}, {"s": "\ud800"}]
    task.put(
        [record({"i": n}, n, n) for n in range(1, 5)] + [record(v, 10 + i, 50) for i, v in enumerate(bad)]
    )
    assert [o for o, _ in reporter.reported] == [10, 11, 12]
    assert rows(tmp_path / "x.db", "SELECT count(*) FROM t") == [(5,)]


def test_a_key_alone_is_a_row(sink, tmp_path):
    for mode in ("upsert", "update", "upsert"):
        sink(insert__mode=mode, pk__mode="record_value").put(
            [record({"a": 1, "b": 2}), record({"a": 1, "b": 3}, 1)]
        )
    assert rows(tmp_path / "x.db", "SELECT * FROM t ORDER BY b") == [(1, 2), (1, 3)]


@pytest.mark.parametrize("secret", ["p/w", "p@w", "p:w?x", "p@/:w"])
def test_passwords_with_any_sign_are_hidden(secret):
    for user in ("u", "u@x"):
        shown = masked(f"mysql://{user}:{secret}@host/db")
        assert shown == f"mysql://{user}:[hidden]@host/db"


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_fractions_are_not_rounded_to_whole_numbers_in_silence(maria):
    reporter = Reporter()
    task = maria(reporter, **UPSERT)
    task.put([record({"n": 1}, 0, 1)])
    task.put([record({"n": 1.5}, 1, 2), record({"n": 2.0}, 2, 3), record({"n": float("inf")}, 3, 4)])
    assert [o for o, _ in reporter.reported] == [1, 3]
    assert "whole number" in reporter.reported[0][1]
    assert task.sql("SELECT id, n FROM t ORDER BY id") == [(1, 1), (3, 2)]


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_tasks_that_make_the_same_table_and_columns_at_once(maria):
    tasks = [maria(**UPSERT) for _ in range(4)]
    for step in range(4):
        barrier, failures = threading.Barrier(4), []

        def put(number, step=step, barrier=barrier, failures=failures):
            barrier.wait()
            try:
                tasks[number].put(
                    [record({f"c{step}{n}": number for n in range(3)}, step, step * 4 + number)]
                )
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
    assert tasks[0].sql("SELECT count(*), count(c30) FROM t") == [(16, 4)]


def test_mariadb_a_moment_is_the_same_in_a_timestamp_column_whatever_the_servers_zone(
    maria, mariadb, mariadb_database
):
    url = f"mysql://root@127.0.0.1:{mariadb.port}/{mariadb_database}?init_command=SET%20time_zone%3D%27%2B05:00%27"
    task = maria(**UPSERT, connection__url=url)
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP(3) NULL)")
    schema = SchemaBuilder.struct("row").field("at", logical.timestamp_builder().build()).build()
    moment = datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=UTC)
    task.put([record(Struct(schema, at=moment), 0, 1, schema=schema)])
    assert task.sql("SELECT UNIX_TIMESTAMP(at) FROM t") == [(Decimal("1709208000.005"),)]


@pytest.mark.usefixtures("mariadb_server")
def test_columns_with_odd_names_are_made_added_and_written(maria, sink, tmp_path):
    for start in (maria, sink):
        task = start(auto__evolve="true", pk__mode="record_key", pk__fields="id")
        task.put([record({"a%b": 1, "c'\":d": 2}, 0, 1)])
        task.put([record({"x%y": 1, "z'\":w": 2, "a%b": 3, "c'\":d": 4}, 1, 2)])
    assert task is not None
    (_, found) = rows(tmp_path / "x.db", 'SELECT id, "a%b", "x%y" FROM t ORDER BY id')
    assert found == (2, 3, 1)


@pytest.mark.usefixtures("mariadb_server")
def test_mariadb_writes_each_record_once_when_two_tasks_have_the_partition(maria):
    options = {"name": "c", "exactly__once": "true", "retry__backoff__ms": "10"}
    tasks = [maria(**options), maria(**options)]
    failed = []
    for task in tasks:
        task.open([TopicPartition("t", 0)])

    def write(task, step):
        for first in range(0, 60, step):
            batch = [record({"n": n}, n) for n in range(first, first + step)]
            while True:
                try:
                    task.put(batch)
                    break
                except RetriableError:  # a deadlock, or the other one was quicker too often
                    continue
                except Exception as e:
                    failed.append(e)
                    return

    threads = [threading.Thread(target=write, args=(t, s)) for t, s in zip(tasks, (3, 5), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = tasks[0].sql("SELECT GROUP_CONCAT(n ORDER BY n) FROM t")
    assert ",".join(map(str, range(60))) in str(found)
