"""Debezium's keys on a real MariaDB: each does to snapshot and binlog what it says."""

import hashlib
import time

import pytest

from klamm_connectors.mysql.connector import MySqlSourceConnector
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import ConfigError, DataError

pytestmark = pytest.mark.usefixtures("mariadb_server")


@pytest.fixture
def people(source):
    source.sql("CREATE TABLE people (id INT PRIMARY KEY, ssn VARCHAR(11), note TEXT, n INT)")
    source.sql("INSERT INTO people VALUES (1, '078-05-1120', 'abcdef', 7)")
    return lambda: source.sql("INSERT INTO people VALUES (2, NULL, 'ghijkl', 8)")


def rows(records):
    return [r.value and r.value["after"] and r.value["after"].to_dict() for r in records]


@pytest.mark.parametrize(
    ("key", "value", "first", "second"),
    [
        ("column.mask.with.5.chars", r".*\.people\.ssn", {"ssn": "*****"}, {"ssn": "*****"}),
        ("column.truncate.to.3.chars", r".*\.people\.(note|n)", {"note": "abc"}, {"note": "ghi"}),
        (
            "column.mask.hash.v2.SHA-256.with.salt.s.a.l.t",
            r".*\.SSN",
            {"ssn": hashlib.sha256(b"s.a.l.t078-05-1120").hexdigest()[:11]},
            {"ssn": None},
        ),
    ],
)
def test_columns_are_masked_hashed_and_cut_in_snapshot_and_binlog(source, people, key, value, first, second):
    task = source(**{key: value})
    (old,) = task.read(1)
    people()
    (new,) = task.read(1)
    plain = [
        {"id": 1, "ssn": "078-05-1120", "note": "abcdef", "n": 7},
        {"id": 2, "ssn": None, "note": "ghijkl", "n": 8},
    ]
    assert rows([old, new]) == [plain[0] | first, plain[1] | second]
    assert old.value_schema == new.value_schema
    for record in (old, new):
        record.value.validate()


def test_columns_that_are_left_out_stay_in_the_key(source, people):
    task = source(column__include__list=r".*\.people\.n", message__key__columns=r".*\.people:ssn")
    (old,) = task.read(1)
    people()
    (new,) = task.read(1)
    assert rows([old, new]) == [{"n": 7}, {"n": 8}]
    assert [r.key.to_dict() for r in (old, new)] == [{"ssn": "078-05-1120"}, {"ssn": None}]
    task.task.stop()
    (record,) = source(column__exclude__list=r".*\.people\.(id|ssn)", snapshot__fetch__size="9").read(2)[:1]
    assert (rows([record]), record.key.to_dict()) == ([{"note": "abcdef", "n": 7}], {"id": 1})


def test_skipped_operations_leave_no_records_and_the_position_moves(source, people):
    task = source(skipped__operations="c,u", topic__delimiter="_")
    task.read(1)
    people()
    source.sql("UPDATE people SET n = 9 WHERE id = 2")
    source.sql("DELETE FROM people WHERE id = 2")
    gone, tombstone = task.read(2)
    assert (gone.value["op"], tombstone.value) == ("d", None)
    assert gone.topic == f"p_{source.database}_people"
    task.task.stop()
    assert source(tombstone, skipped__operations="none").task.poll() is None


def test_a_poll_interval_of_any_length_does_not_delay_events(source, people):
    task = source(poll__interval__ms="600000")
    task.read(1)
    begun = time.monotonic()
    task.task.poll()
    people()
    task.read(1)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("settings", "ids"),
    [
        ({"gtid__source__includes": "0-99"}, [2]),
        ({"gtid__source__excludes": "0-99"}, [3]),
        ({"gtid__source__excludes": "0-99", "gtid__source__filter__dml__events": "false"}, [2, 3]),
    ],
)
def test_transactions_of_some_servers(source, connect, people, settings, ids):
    task = source(event__format="row", **settings)
    task.read(1)
    task.task.poll()
    with connect.cursor() as cursor:
        cursor.execute("SET SESSION server_id = 99")
        cursor.execute("INSERT INTO people (id) VALUES (2)")
        connect.commit()
        cursor.execute("SET SESSION server_id = 1")
        cursor.execute("INSERT INTO people (id) VALUES (3)")
        connect.commit()
    assert [r.key["id"] for r in task.read(len(ids))] == ids


BIG = 2**63 + 5


@pytest.fixture
def unsigned(source):
    source.sql("CREATE TABLE u (id INT PRIMARY KEY, b BIGINT UNSIGNED)")
    source.sql(f"INSERT INTO u VALUES (1, 1), (2, {BIG}), (3, 3)")
    return lambda: source.sql(f"INSERT INTO u VALUES (4, 4), (5, {BIG}), (6, 6)")


@pytest.mark.parametrize("mode", ["warn", "skip", "ignore"])
def test_rows_that_do_not_fit_are_left_out_and_named(source, unsigned, caplog, mode):
    task = source(event__format="row", event__processing__failure__handling__mode=mode)
    old = task.read(2)
    unsigned()
    new = task.read(2)
    assert [r.key["id"] for r in old + new] == [1, 3, 4, 6]
    assert f"{BIG} does not fit INT64" in caplog.text
    assert task.task._failures.count == 2
    source.sql("UPDATE u SET b = 7 WHERE id = 5")
    assert [(r.key["id"], r.value["b"]) for r in task.read(1)] == [(5, 7)], "a row that fits again comes"


@pytest.mark.parametrize(
    "settings", [{"event.processing.failure.handling.mode": "skip"}, {"errors.tolerance": "all"}]
)
def test_a_change_is_not_lost_for_the_state_before_it(source, unsigned, settings):
    task = source(**settings)
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    begin = [r for r in task.read(3 if "errors.tolerance" in settings else 2) if r.key["id"] != 2]
    assert [(r.key["id"], r.value["op"]) for r in begin] == [(1, "r"), (3, "r")]
    source.sql("UPDATE u SET b = 9 WHERE id = 2")
    source.sql(f"INSERT INTO u VALUES (7, {BIG}), (8, 8)")
    source.sql("UPDATE u SET id = 70 WHERE id = 7")
    source.sql("UPDATE u SET id = 77, b = 7 WHERE id = 70")
    source.sql("DELETE FROM u WHERE id IN (2, 8)")
    source.sql(f"INSERT INTO u VALUES (9, {BIG})")
    source.sql("DELETE FROM u WHERE id = 9")
    source.sql("INSERT INTO u VALUES (10, 10)")

    def shown(record):
        value = record.value
        if value is None:
            return (record.key["id"], None)
        before, after = value["before"], value["after"]
        return (record.key["id"], value["op"], before and before["b"], after and after["b"])

    found, refused = [], []
    for record in task.read(17 if "errors.tolerance" in settings else 14):
        try:
            converter.from_connect_data("t", record.value_schema, record.value)
        except DataError:
            refused.append(shown(record))
        else:
            found.append(shown(record))
    assert found == [
        (2, "u", None, 9), (8, "c", None, 8), (7, "d", None, None), (7, None),
        (70, "d", None, None), (70, None), (77, "c", None, 7),
        (2, "d", 9, None), (2, None), (8, "d", 8, None), (8, None), (9, "d", None, None), (9, None), (10, "c", None, 10),
    ]  # fmt: skip
    later = [(7, "c", None, BIG), (70, "c", None, BIG), (9, "c", None, BIG)]
    assert refused == (later if "errors.tolerance" in settings else [])


def test_the_last_row_of_a_snapshot_that_does_not_fit_ends_it_all_the_same(source, unsigned):
    source.sql("DELETE FROM u WHERE id = 3")
    task = source(
        event__format="row", event__processing__failure__handling__mode="skip", snapshot__fetch__size="1"
    )
    (only,) = task.read(1)
    assert only.source_offset.get("snapshot") is None


def test_rows_that_do_not_fit_fail_the_task_or_go_to_the_runtimes_dead_letters(source, unsigned):
    with pytest.raises(DataError, match=r"column b: .*handling\.mode=precise.*failure\.handling\.mode=warn"):
        source().read(3)
    found = source(errors__tolerance="all").read(3)
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    converter.from_connect_data("t", found[0].value_schema, found[0].value)
    with pytest.raises(DataError, match=f"{BIG} is out of range"):
        converter.from_connect_data("t", found[1].value_schema, found[1].value)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_snapshot_by_statements_of_ones_own_and_by_several_connections(source, threads):
    for name in "abcde":
        source.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, f FLOAT)")
        source.sql(f"INSERT INTO {name} SELECT seq, seq / 3 FROM seq_1_to_25")
    overrides = "snapshot.select.statement.overrides"
    database = source.database
    settings = {
        overrides: f"{database}.b",
        f"{overrides}.{database}.b": f"SELECT *, 1 AS more FROM {database}.b WHERE id % 5 = 0 ORDER BY f DESC;",
    }
    task = source(event__format="row", snapshot__max__threads=threads, snapshot__fetch__size="4", **settings)
    found = task.read(105)
    by_topic = {n: sorted(r.key["id"] for r in found if r.topic.endswith(f".{n}")) for n in "abcde"}
    assert by_topic["b"] == [5, 10, 15, 20, 25]
    assert all(by_topic[n] == list(range(1, 26)) for n in "acde")
    assert ["snapshot" in r.source_offset for r in found] == [True] * 104 + [False]
    source.sql("INSERT INTO b VALUES (26, 1)")
    assert [r.key["id"] for r in task.read(1)] == [26]


def test_a_snapshot_by_threads_says_its_error_and_can_be_left(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    source.sql("INSERT INTO u SELECT seq FROM seq_1_to_9000")
    key, table = "snapshot.select.statement.overrides", f"{source.database}.t"
    task = source(snapshot__max__threads="2", **{key: table, f"{key}.{table}": "SELECT nothing"})
    with pytest.raises(ConfigError, match=rf"{key}\.{table}: .*nothing"):
        task.read(9001)
    single = source(**{key: table, f"{key}.{table}": "SELECT nothing"})
    with pytest.raises(ConfigError, match=rf"{key}\.{table}: .*nothing"):
        single.read(1)
    task.task.stop()
    left = source(snapshot__max__threads="2", snapshot__fetch__size="1")
    left.task.poll()
    left.task.stop()


def test_a_statement_runs_with_each_heartbeat(source, caplog):
    source.sql("CREATE TABLE beats (id INT AUTO_INCREMENT PRIMARY KEY)")
    task = source(
        event__format="row",
        heartbeat__interval__ms="1",
        heartbeat__action__query=f"INSERT INTO {source.database}.beats VALUES ()",
    )
    deadline, seen = time.monotonic() + 60, []
    while len(seen) < 2:
        assert time.monotonic() < deadline
        seen += [r for r in task.task.poll() or [] if r.topic.endswith(".beats")]
    task.task.stop()
    wrong = source(heartbeat__interval__ms="1", heartbeat__action__query="INSERT INTO nowhere VALUES ()")
    while "heartbeat.action.query failed" not in caplog.text:
        assert time.monotonic() < deadline
        wrong.task.poll()
    for _ in range(5):
        time.sleep(0.002)
        wrong.task.poll()
    assert caplog.text.count("heartbeat.action.query failed") == 1


def test_validate_names_a_key_with_a_variable_part():
    props = {
        "database.hostname": "h",
        "database.user": "u",
        "topic.prefix": "p",
        "column.mask.with.ten.chars": "a",
    }
    errors = {v.name: v.errors for v in MySqlSourceConnector.validate(props)}
    assert "column.mask.with.LENGTH.chars" in errors["column.mask.with.ten.chars"][0]


def test_what_names_nothing_of_the_server_is_told_once(source, people, caplog):
    database = source.database
    key = "snapshot.select.statement.overrides"
    wrong = {
        "column.mask.with.10.chars": f"people.mail,{database}.people.note",
        "column.exclude.list": "people.mail",
        "message.key.columns": f"{database}.people:nocol;{database}.zz:v",
        key: f"{database}.zz",
        f"{key}.{database}.zz": "SELECT 1",
    }
    task = source(**wrong)
    assert task.read(1)
    task.task._disconnect()
    task.task.poll()
    told = [r.message for r in caplog.records if "that there is now" in r.message or "no table" in r.message]
    assert [text.partition(";")[0] for text in told] == [
        "column.exclude.list: 'people.mail' matches no column that there is now",
        "column.mask.with.10.chars: 'people.mail' matches no column that there is now",
        f"message.key.columns: '{database}.people.nocol' matches no column that there is now",
        f"message.key.columns: '{database}.zz.v' matches no column that there is now",
        f"{key}: there is no table {database}.zz now, so its statement is not used",
    ]
    assert "must match the whole name, DATABASE.TABLE.COLUMN" in told[0]
    source(table__include__list="people").task.poll()
    assert "table.include.list: 'people' matches no table that there is now" in caplog.text
