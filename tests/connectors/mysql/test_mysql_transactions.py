"""Events between rows in a real MariaDB's binlog: DDL, bounds of transactions, TRUNCATE, XA."""

import pymysql
import pytest

from klamm_plugins.converters.json import JsonConverter

pytestmark = pytest.mark.usefixtures("mariadb_server")


def valid(records):
    """Checks the records as a converter would, and returns them."""
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    for record in records:
        for schema, value in ((record.key_schema, record.key), (record.value_schema, record.value)):
            converter.from_connect_data(record.topic, schema, value)
    return records


def test_the_topic_of_schema_changes(source):
    source.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, e ENUM('a','b'), d DECIMAL(9,2) NOT NULL)")
    source.sql("CREATE TABLE left_out (id INT)")
    settings = {"include__schema__changes": "true", "table__exclude__list": r".*\.left_out"}
    task = source(**settings)
    source.sql("INSERT INTO t VALUES (1, 'a', 2)")
    created, row = valid(task.read(2))
    assert (created.topic, created.key.to_dict()) == ("p", {"databaseName": source.database})
    assert created.value["source"]["snapshot"] == "true"
    assert created.value["ddl"].startswith("CREATE TABLE `t`")
    (change,) = created.value["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", f'"{source.database}"."t"')
    assert change["table"]["primaryKeyColumnNames"] == ["id"]
    shown = [
        (
            c["name"],
            c["typeName"],
            c["jdbcType"],
            c["length"],
            c["scale"],
            c["optional"],
            c["autoIncremented"],
        )
        for c in change["table"]["columns"]
    ]
    assert shown == [
        ("id", "INT", 4, None, None, False, True),
        ("e", "ENUM", 1, None, None, True, False),
        ("d", "DECIMAL", 3, 9, 2, False, False),
    ]
    assert change["table"]["columns"][1]["enumValues"] == ["'a'", "'b'"]
    assert row.topic.endswith(".t")
    for statement in ("ALTER TABLE t ADD v VARCHAR(7)", "ALTER TABLE left_out ADD x INT", "DROP TABLE t"):
        source.sql(statement)
    altered, dropped = valid(task.read(2))
    assert altered.value["ddl"] == "ALTER TABLE t ADD v VARCHAR(7)"
    assert [c["type"] for r in (altered, dropped) for c in r.value["tableChanges"]] == ["ALTER", "DROP"]
    assert altered.value["source"]["table"] == "t"
    task.task.stop()
    (again,) = source(altered, **settings).read(1)
    assert again.value["ddl"] == dropped.value["ddl"]


def test_a_schema_change_that_meets_a_lost_connection_comes_again(source, monkeypatch):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(include__schema__changes="true", snapshot__mode="no_data")
    task.read(1)  # the table's present structure
    task.task.poll()

    def lost(*_):
        monkeypatch.undo()
        raise pymysql.err.OperationalError(2013, "Lost connection")

    monkeypatch.setattr("klamm_connectors.mysql.task.table_change", lost)
    source.sql("INSERT INTO t VALUES (1)")  # its record comes before the error
    source.sql("ALTER TABLE t ADD COLUMN a INT")
    row, change = task.read(2)
    assert (row.value["op"], change.value["ddl"]) == ("c", "ALTER TABLE t ADD COLUMN a INT")


def test_a_truncated_table_is_a_record_where_it_is_not_skipped(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(skipped__operations="none", snapshot__mode="no_data")
    task.task.poll()
    source.sql("TRUNCATE TABLE t")
    (record,) = valid(task.read(1))
    assert (record.key, record.value["op"], record.value["source"]["table"]) == (None, "t", "t")


META = {"provide__transaction__metadata": "true", "snapshot__mode": "no_data", "max__batch__size": "2"}


def block(record):
    found = record.value["transaction"]
    return (found["id"], found["total_order"], found["data_collection_order"])


def test_the_bounds_of_transactions_and_the_place_of_each_record(source, connect):
    source.sql("CREATE TABLE a (id INT PRIMARY KEY)")
    source.sql("CREATE TABLE b (id INT PRIMARY KEY)")
    task = source(**META)
    task.task.poll()
    with connect.cursor() as cursor:
        cursor.execute("INSERT INTO a VALUES (1), (2)")
        cursor.execute("INSERT INTO b VALUES (1)")
        cursor.execute("UPDATE a SET id = 3 WHERE id = 2")
    connect.commit()
    found = valid(task.read(8))
    begin, end = found[0], found[-1]
    name = begin.key["id"]
    assert {begin.topic, end.topic} == {"p.transaction"}
    assert begin.value.to_dict() | {"ts_ms": 0} == {
        "status": "BEGIN", "id": name, "event_count": None, "data_collections": None, "ts_ms": 0,
    }  # fmt: skip
    database = source.database
    assert end.value.to_dict() | {"ts_ms": 0} == {
        "status": "END",
        "id": name,
        "event_count": 5,
        "data_collections": [
            {"data_collection": f"{database}.a", "event_count": 4},
            {"data_collection": f"{database}.b", "event_count": 1},
        ],
        "ts_ms": 0,
    }
    rows = [r for r in found[1:-1] if r.value is not None]
    assert [block(r) for r in rows] == [(name, 1, 1), (name, 2, 2), (name, 3, 1), (name, 4, 3), (name, 5, 4)]
    assert name == rows[0].value["source"]["gtid"]
    task.task.stop()
    again = source(found[2], **META)
    rest = valid(again.read(5))
    same = dict.fromkeys(("ts_ms", "ts_us", "ts_ns", "source"))
    assert [r.value and r.value.to_dict() | same for r in rest] == [
        r.value and r.value.to_dict() | same for r in found[3:]
    ], "counted on after a restart inside the transaction"


def run(connection, *statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def xa(source, connect):
    """Prepares a transaction that inserts rows."""
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")

    def prepare(name, *ids):
        inserts = [f"INSERT INTO t VALUES ({i})" for i in ids]
        run(connect, f"XA START {name}", *inserts, f"XA END {name}", f"XA PREPARE {name}")

    prepare.decide = lambda statement: run(connect, statement)
    return prepare


def ids(records):
    return [r.key["id"] for r in records]


def test_rows_of_a_prepared_transaction_come_with_its_commit(source, xa):
    task = source(event__format="row")
    task.task.poll()
    xa("'a'", 1, 2)
    source.sql("INSERT INTO t VALUES (10)")
    (between,) = task.read(1)
    xa.decide("XA ROLLBACK 'a'")
    xa("'b','q',7", 3, 4)
    source.sql("INSERT INTO t VALUES (11)")
    (waiting,) = task.read(1)
    xa.decide("XA COMMIT 'b','q',7")
    source.sql("INSERT INTO t VALUES (12)")
    first, second, last = task.read(3)
    assert ids([between, waiting, first, second, last]) == [10, 11, 3, 4, 12]
    assert "xa" in between.source_offset
    assert "xa" in waiting.source_offset
    assert "xa" not in last.source_offset
    task.task.stop()
    for committed, rest in (
        (between, [11, 3, 4, 12]),
        (waiting, [3, 4, 12]),
        (first, [4, 12]),
        (second, [12]),
    ):
        again = source(committed, event__format="row")
        assert ids(again.read(len(rest))) == rest
        again.task.stop()


def test_two_prepared_transactions_are_held_over_restarts(source, mariadb):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(event__format="row")
    task.task.poll()
    one, two = mariadb.connect(source.database), mariadb.connect(source.database)
    run(one, "XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'", "XA PREPARE 'a'")
    source.sql("INSERT INTO t VALUES (10)")
    run(two, "XA START 'b'", "INSERT INTO t VALUES (2)", "XA END 'b'", "XA PREPARE 'b'")
    source.sql("INSERT INTO t VALUES (11)")
    committed = task.read(2)[-1]
    task.task.stop()
    again = source(committed, event__format="row")
    run(one, "XA COMMIT 'a'")
    assert ids(again.read(1)) == [1]
    source.sql("INSERT INTO t VALUES (12)")
    (committed,) = again.read(1)
    again.task.stop()
    run(two, "XA COMMIT 'b'")
    assert ids(source(committed, event__format="row").read(1)) == [2]
    one.close()
    two.close()


def test_a_commit_whose_rows_came_before_the_connector_is_said(source, xa, caplog):
    xa("'a'", 1)
    task = source(event__format="row", snapshot__mode="no_data")
    task.task.poll()
    xa.decide("XA COMMIT 'a'")
    source.sql("INSERT INTO t VALUES (2)")
    assert ids(task.read(1)) == [2]
    assert "was prepared before the place where this connector began" in caplog.text


def test_a_committed_xa_transaction_has_its_bounds(source, xa):
    task = source(**META)
    task.task.poll()
    xa("'a'", 1, 2)
    xa.decide("XA COMMIT 'a'")
    found = valid(task.read(4))
    assert [r.value["status"] for r in (found[0], found[-1])] == ["BEGIN", "END"]
    assert [block(r)[1:] for r in found[1:-1]] == [(1, 1), (2, 2)]
    assert found[-1].value["event_count"] == 2
