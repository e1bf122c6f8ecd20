"""The MySQL source on a real MariaDB: snapshot and binlog alike, resuming at any record, DDL, what is refused."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from support.broker import wait_until
from support.mariadb import MariaDB, require
from support.mysql_source import Source

from klamm_connectors.mysql.connector import MySqlSourceConnector
from klamm_plugins.errors import ConfigError, ConnectError, RetriableError
from klamm_plugins.testing import SourceConformance

pytestmark = pytest.mark.usefixtures("mariadb_server")

ALL_TYPES = """CREATE TABLE types (
    id INT PRIMARY KEY, u UUID, i6 INET6, i4 INET4, g GEOMETRY, t TIME(6), t0 TIME NOT NULL, b BIT(12), b1 BIT(1),
    e ENUM('a','b''c'), s SET('x','y'), f FLOAT, d DOUBLE, bin BINARY(16), vb VARBINARY(300), j JSON, y YEAR,
    dt DATETIME(3), dt0 DATETIME NOT NULL, da DATE, bl LONGBLOB, c CHAR(3) CHARACTER SET latin1, tx TEXT,
    de DECIMAL(38,10), d5 DECIMAL(5,0), bu BIGINT UNSIGNED, ti TINYINT, tu TINYINT UNSIGNED, m MEDIUMINT,
    mu MEDIUMINT UNSIGNED, iu INT UNSIGNED, bi BIGINT, ts TIMESTAMP(6) NULL, ts0 TIMESTAMP NULL,
    u16 VARCHAR(10) CHARACTER SET utf16, k CHAR(5) CHARACTER SET cp932)"""
TYPES_ROW = """(%s, '550e8400-e29b-41d4-a716-446655440000', '2001:db8::ff00', '10.0.0.1', POINT(1, 2), '-838:59:58.123456',
    '838:59:59', b'100000000001', b'1', 'b''c', 'x,y', 16777215.1, 1e300, 'ab', REPEAT('z', 300), '{"a": [1, null]}',
    2155, '2024-02-29 23:59:59.987', '0000-00-00', '1000-01-01', UNHEX('00FF'), 'é', 'ü🎉',
    -1234567890123456789012345678.0123456789, -99999, 9223372036854775807, -128, 255, -8388608, 16777215, 4294967295,
    -9223372036854775808, '2038-01-19 03:14:07.999999', '1970-01-01 00:00:01', 'añ🎉', 'アイ')"""


class TestConformance(SourceConformance):
    connector = MySqlSourceConnector

    @pytest.fixture(autouse=True)
    def server(self, mariadb, mariadb_database):
        self._mariadb, self._database = mariadb, mariadb_database
        mariadb.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)", database=mariadb_database)

    def props(self, tmp_path):
        return {
            "name": "x",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._mariadb.port),
            "database.user": "root",
            "topic.prefix": "p",
            "table.include.list": f"{self._database}\\.t",
            "event.format": "row",
        }

    def produce(self, tmp_path, count):
        for _ in range(count):
            self._mariadb.sql("INSERT INTO t VALUES ()", database=self._database)

    def test_goes_on_after_any_committed_record(self, tmp_path):
        """A snapshot begins anew until its last record; the binlog goes on exactly (tested below)."""
        self.produce(tmp_path, 10)
        whole = self.resumed(tmp_path, None, 10)
        for index, expected in ((0, whole), (8, whole), (9, [])):
            again = self.resumed(tmp_path, whole[index], len(expected))
            assert [r.value for r in again] == [r.value for r in expected]

    def resumed(self, tmp_path, committed, count):
        task = Source(self._mariadb, self._database, committed, event__format="row")
        try:
            return task.read(count) if count else task.task.poll() or []
        finally:
            task.task.stop()


def test_every_type_is_the_same_from_snapshot_and_binlog(source, connect):
    source.sql(ALL_TYPES)
    with connect.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode=''")
        cursor.execute(f"INSERT INTO types VALUES {TYPES_ROW}", (1,))
        cursor.execute("INSERT INTO types (id) VALUES (2)")
    connect.commit()
    task = source()
    old = task.read(2)
    with connect.cursor() as cursor:
        cursor.execute("UPDATE types SET id = id + 2 ORDER BY id")
    connect.commit()
    new = [r for r in task.read(6) if r.value is not None and r.value["op"] == "c"]
    for was, now in zip(old, new, strict=True):
        was.value.validate()
        now.value.validate()
        assert was.value_schema == now.value_schema
        assert was.key_schema == now.key_schema
        assert was.value["after"].to_dict() | {"id": 0} == now.value["after"].to_dict() | {"id": 0}
    row = new[0].value["after"]
    assert row["t"] == -(838 * 3600 + 59 * 60 + 58) * 10**6 - 123456
    assert row["de"] == Decimal("-1234567890123456789012345678.0123456789")
    assert (row["f"], row["bin"], row["u"]) == (
        16777215.0,
        b"ab" + bytes(14),
        "550e8400-e29b-41d4-a716-446655440000",
    )
    assert (row["i6"], row["e"], row["s"], row["k"], row["u16"]) == (
        "2001:db8::ff00",
        "b'c",
        "x,y",
        "アイ",
        "añ🎉",
    )
    assert (row["ts"], row["dt0"]) == ("2038-01-19T03:14:07.999999Z", 0)


def test_goes_on_exactly_after_any_record_also_inside_a_transaction(source, connect):
    source.sql("CREATE TABLE a (id INT PRIMARY KEY, v LONGTEXT)")
    source.sql("CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    source.sql("CREATE TABLE left_out (id INT PRIMARY KEY)")
    settings = {"event__format": "row", "table__exclude__list": r".*\.left_out", "max__batch__size": "10"}
    first = source(**settings, snapshot__mode="no_data")
    first.task.poll()
    for number in range(3):
        with connect.cursor() as cursor:
            cursor.execute("INSERT INTO left_out VALUES (%s)", (number,))
            # In the second transaction all rows are one event, which becomes a batch in columns.
            text = "x" * (30 if number == 1 else 3000)
            cursor.executemany("INSERT INTO a VALUES (%s, %s)", [(number * 20 + i, text) for i in range(20)])
            cursor.execute("UPDATE a SET id = id + 1000 WHERE id = %s", (number * 20 + 3,))
            cursor.execute("INSERT INTO b VALUES (%s, 1)", (number,))
            cursor.execute("DELETE FROM b WHERE id = %s", (number,))
        connect.commit()
    total = 3 * (20 + 2 + 1 + 1)
    everything = first.read(total)
    first.task.stop()
    content = [(r.topic, r.key["id"], r.value and r.value.to_dict()) for r in everything]
    for index in (0, 1, 12, 19, 20, 21, 22, 23, 24, 40, 47, 70):
        again = source(everything[index], **settings)
        rest = [
            (r.topic, r.key["id"], r.value and r.value.to_dict())
            for r in again.read(_left(everything, index))
        ]
        again.task.stop()
        assert rest == content[len(content) - len(rest) :], index


def _left(records, index):
    """Records after `index`; one that shares a row with the next comes again with it."""
    offsets = [r.source_offset for r in records]
    while index > 0 and offsets[index - 1] == offsets[index]:
        index -= 1
    return len(records) - index - 1


def test_columns_that_come_and_go_between_events(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    task = source(event__format="row")
    task.task.poll()
    source.sql("INSERT INTO t VALUES (1, 2)")
    source.sql("ALTER TABLE t DROP COLUMN a, ADD COLUMN b VARCHAR(9) DEFAULT 'new' FIRST")
    source.sql("INSERT INTO t (id) VALUES (2)")
    source.sql("ALTER TABLE t RENAME COLUMN b TO c")
    source.sql("UPDATE t SET c = 'x' WHERE id = 2")
    assert [r.value.to_dict() for r in task.read(3)] == [
        {"id": 1, "a": 2},
        {"b": "new", "id": 2},
        {"c": "x", "id": 2},
    ]


def test_snapshots_page_by_any_key_and_without_one(source):
    source.sql("CREATE TABLE k2 (a INT, b VARCHAR(5), PRIMARY KEY (b, a))")
    source.sql("CREATE TABLE none (a INT)")
    source.sql("CREATE TABLE floats (a DOUBLE PRIMARY KEY)")
    for name, columns in (("k2", "seq % 7, seq"), ("none", "seq"), ("floats", "seq / 3")):
        source.sql(f"INSERT INTO {name} SELECT {columns} FROM seq_1_to_25")
    found = source(event__format="row", snapshot__fetch__size="4").read(75)
    by_topic = {
        name: [tuple(r.value.values) for r in found if r.topic.endswith(f".{name}")]
        for name in ("k2", "none", "floats")
    }
    assert sorted(by_topic["k2"]) == sorted((n % 7, str(n)) for n in range(1, 26))
    assert sorted(by_topic["none"]) == [(n,) for n in range(1, 26)]
    assert len(set(by_topic["floats"])) == 25
    assert ["snapshot" in r.source_offset for r in found] == [True] * 74 + [False]


def test_nothing_is_lost_or_doubled_while_others_write_during_the_snapshot(source, mariadb):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t SELECT seq FROM seq_1_to_2000")
    done = threading.Event()
    written = []

    def write():
        number, connection = 2000, mariadb.connect(source.database)
        with connection.cursor() as cursor:
            while not done.is_set():
                number += 1
                cursor.execute("INSERT INTO t VALUES (%s)", (number,))
                written.append(number)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            task, found = source(event__format="row", snapshot__fetch__size="100"), []
            while len(found) < 2300:
                assert not writer.done() or done.is_set(), writer.exception()
                found += task.task.poll() or []
                if len(written) > 1000:
                    done.set()
        finally:
            done.set()
        writer.result()
    found += task.read(len(written) + 2000 - len(found))
    assert [r.key["id"] for r in found] == list(range(1, 2001 + len(written)))


def test_lag_heartbeats_and_a_position_that_moves(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    task = source(table__include__list=r".*\.t", heartbeat__interval__ms="1")
    deadline, seen = time.monotonic() + 60, set()

    def heartbeats_of(positions: int) -> None:
        while len(seen) < positions:
            assert time.monotonic() < deadline, seen
            seen.update(r.source_offset["gtids"] for r in task.task.poll() or [])

    # The first position is seen before there is a second one: the stream may read past both at once.
    heartbeats_of(1)
    source.sql("INSERT INTO other VALUES (1)")
    heartbeats_of(2)
    assert task.task.lag() == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"database__user": "nobody", "database__password": "hush"}, "Access denied"),
        ({"database__server__id": "1"}, r"database\.server\.id=1 is that of the server"),
    ],
)
def test_what_cannot_work_fails_with_a_sentence(source, settings, words):
    with pytest.raises(ConfigError, match=words) as found:
        source(**settings).task.poll()
    assert "hush" not in str(found.value)


def test_a_server_that_is_not_there_is_tried_again(source):
    task = source(database__port="1", database__hostname="127.0.0.1")
    with pytest.raises(RetriableError, match=r"MySQL at 127\.0\.0\.1:1"):
        task.task.poll()


@pytest.mark.parametrize(
    ("database", "statement"),
    [
        (None, "INSERT INTO t VALUES (2)"),
        (None, "/* by the app */ INSERT INTO t VALUES (2)"),
        ("test", "INSERT INTO {}.t VALUES (2)"),
        (None, "LOAD DATA LOCAL INFILE '{}/rows.csv' INTO TABLE t"),
    ],
)
def test_a_statement_in_the_binlog_instead_of_rows_is_no_silent_gap(
    source, mariadb, tmp_path, database, statement
):
    (tmp_path / "rows.csv").write_text("2\n")
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(event__format="row")
    task.task.poll()
    connection = mariadb.connect(source.database)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("SET SESSION binlog_format='STATEMENT'")
        if database is not None:
            cursor.execute(f"CREATE DATABASE {source.database}_other")
            cursor.execute(f"USE {source.database}_other")
        cursor.execute(statement.format(tmp_path if "LOAD" in statement else source.database))
        if database is not None:
            cursor.execute(f"DROP DATABASE {source.database}_other")
    connection.close()
    assert [r.key["id"] for r in task.read(1)] == [1]
    with pytest.raises(ConfigError, match="statement instead of the rows"):
        task.read(1)


def test_records_before_a_failure_are_given_out_and_not_skipped(source, connect, monkeypatch):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("CREATE TABLE u (id INT PRIMARY KEY, u UUID)")  # asked about: the binlog does not know UUIDs
    task = source(event__format="row")
    task.task.poll()
    task.task.poll()
    reader, describe = task.task._changes._reader, task.task._catalog._describe
    failures = [RetriableError("the connection is lost")]

    def failing(*args):
        if failures:
            raise failures.pop()
        return describe(*args)

    with connect.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("INSERT INTO u VALUES (2, NULL)")
        cursor.execute("INSERT INTO t VALUES (3)")
    connect.commit()
    deadline = time.monotonic() + 60
    while reader.waiting < 7:  # GTID, three times rows, two tables, XID: all in one batch
        assert time.monotonic() < deadline
        time.sleep(0.02)
    monkeypatch.setattr(task.task._catalog, "_describe", failing)
    assert [r.key["id"] for r in task.read(3)] == [1, 2, 3]
    assert not failures


def test_a_zero_date_as_a_key_is_no_end_of_the_table(source, connect):
    source.sql("CREATE TABLE t (d DATE PRIMARY KEY)")
    with connect.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode=''")
        cursor.execute("INSERT INTO t VALUES ('0000-00-00'), ('2020-01-01'), ('2020-01-02')")
    connect.commit()
    assert len(source(snapshot__fetch__size="1").read(3)) == 3


def test_members_of_an_enum_in_another_character_set(source):
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a','é'), s SET('ü','') CHARACTER SET latin1) CHARACTER SET latin1"
    )
    source.sql("INSERT INTO t VALUES (1, 'é', 'ü')")
    task = source(event__format="row")
    (old,) = task.read(1)
    source.sql("INSERT INTO t VALUES (2, 'é', 'ü')")
    (new,) = task.read(1)
    assert [(r.value["e"], r.value["s"]) for r in (old, new)] == [("é", "ü")] * 2
    assert old.value_schema == new.value_schema
    source.sql("INSERT INTO t VALUES (3, 'é', 'ü')")
    source.sql("ALTER TABLE t DROP COLUMN e")
    task.task.stop()
    with pytest.raises(ConnectError, match="no longer what it was then"):
        source(new, event__format="row").read(1)


def test_a_table_with_its_history_is_refused_by_name(source):
    source.sql("CREATE TABLE past (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(ConfigError, match=r"past is system-versioned.*table\.exclude\.list"):
        source().task.poll()
    source(table__exclude__list=r".*\.past").task.poll()


def purged(server):
    """Returns whether one binlog is left: one that a connection still reads, which may be closed already, is kept."""
    server.sql("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
    return len(server.sql("SHOW BINARY LOGS")) == 1


def test_a_killed_server_a_purged_binlog_and_a_log_that_is_off():
    require()
    with MariaDB() as server:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.sql("INSERT INTO d.t VALUES (1)")
        task = Source(server, "d", event__format="row")
        (first,) = task.read(1)
        server.sql("INSERT INTO d.t VALUES (2)")
        (second,) = task.read(1)
        server.kill()
        until = time.monotonic() + 60
        with pytest.raises(RetriableError):  # noqa: PT012  which poll meets the broken connection is open
            while time.monotonic() < until:
                task.task.poll()
        server.start()
        server.sql("INSERT INTO d.t VALUES (3)")
        assert [r.key["id"] for r in task.read(1)] == [3]
        task.task.stop()
        server.sql("FLUSH BINARY LOGS")
        server.sql("INSERT INTO d.t VALUES (4)")
        server.sql("FLUSH BINARY LOGS")
        wait_until(lambda: purged(server), "the old binlogs to be gone")
        task = Source(server, "d", second, event__format="row")
        with pytest.raises(ConfigError, match=r"no longer holds the position .*when_needed"):
            task.read(1)
        task.task.stop()
        task = Source(server, "d", first, event__format="row", snapshot__mode="when_needed")
        assert [r.key["id"] for r in task.read(4)] == [1, 2, 3, 4]
        task.task.stop()
    with MariaDB("--skip-log-bin") as server, pytest.raises(ConfigError, match="writes no binlog"):
        Source(server, "d").task.poll()


def test_without_full_metadata_names_come_from_the_database_and_a_changed_table_is_refused():
    require()
    with MariaDB("--binlog-row-metadata=NO_LOG") as server:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE TABLE d.t (id INT UNSIGNED PRIMARY KEY, e ENUM('x','y'), v VARCHAR(9), u UUID)")
        task = Source(server, "d", event__format="row")
        task.task.poll()
        server.sql("INSERT INTO d.t VALUES (4294967295, 'y', 'ü', '550e8400-e29b-41d4-a716-446655440000')")
        (record,) = task.read(1)
        assert record.value.to_dict() == {
            "id": 4294967295,
            "e": "y",
            "v": "ü",
            "u": "550e8400-e29b-41d4-a716-446655440000",
        }
        task.task.stop()
        server.sql("INSERT INTO d.t VALUES (1, 'x', 'a', NULL)")
        server.sql("ALTER TABLE d.t DROP COLUMN e")
        again = Source(server, "d", record, event__format="row")
        with pytest.raises(Exception, match="binlog_row_metadata=FULL"):
            again.read(1)
        again.task.stop()
