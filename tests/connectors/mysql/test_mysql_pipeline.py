"""MariaDB to topics to SQLite and back to MariaDB, through real workers and a broker; with kills in the middle."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import psutil
import pytest
from confluent_kafka import Consumer
from support.broker import broker, new_name  # noqa: F401
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.klamm import klamm
from support.mariadb import MariaDB, require

pytestmark = pytest.mark.usefixtures("mariadb_server")

TABLE = """CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(12,4), at DATETIME(6),
    seen TIMESTAMP(6) NULL, took TIME(6), day DATE, raw VARBINARY(20), big BIGINT, note LONGTEXT)"""
INSERT = """INSERT INTO items SELECT seq, CONCAT('näme ', seq), seq / 7, '2024-01-01 10:00:00' + INTERVAL seq * 1000001 MICROSECOND,
    '2024-01-01 10:00:00' + INTERVAL seq SECOND, SEC_TO_TIME(CAST(seq AS SIGNED) %% 20000 * 100 - 4000), DATE '2020-02-28' + INTERVAL seq DAY,
    UNHEX(LPAD(HEX(seq), 10, '0')), CAST(seq AS SIGNED) * -1000000007, REPEAT('x', seq %% 300) FROM seq_%s_to_%s"""


SIGNAL = '{"data-collections": ["d[.]items"]}'


@pytest.fixture
def worker(broker, tmp_path):  # noqa: F811
    started = WorkerProcess(worker_properties(broker.bootstrap, new_name("group")), tmp_path).wait_ready()
    yield started
    started.end()


def start_pipeline(worker, prefix, server, database, sinks, **more):
    source = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": str(20_000 + server.port % 10_000),
        "topic.prefix": prefix,
        "table.include.list": f"{database}[.]items",
        "event.format": "row",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    } | {key.replace("__", "."): value for key, value in more.items()}
    answer = worker.request("PUT", f"/connectors/{prefix}-source/config", source)
    assert answer.status == 201, answer.content
    worker.wait_state(f"{prefix}-source", "RUNNING", "RUNNING")
    for number, url in enumerate(sinks):
        sink = {
            "connector.class": "SqlSink",
            "topics": f"{prefix}.{database}.items",
            "connection.url": url,
            "table.name.format": "copy",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "pk.fields": "id",
            "delete.enabled": "true",
            "auto.create": "true",
            "auto.evolve": "true",
            "retry.backoff.ms": "200",
            "max.retries": "1000",
        }
        answer = worker.request("PUT", f"/connectors/{prefix}-sink{number}/config", sink)
        assert answer.status == 201, answer.content
        worker.wait_state(f"{prefix}-sink{number}", "RUNNING", "RUNNING")


def table(server, database, name):
    return server.sql(f"SELECT * FROM `{name}` ORDER BY id", database=database)


def same(server, database):
    try:
        return table(server, database, "items") == table(server, database, "copy")
    except Exception as e:
        if "doesn't exist" in str(e):
            return False
        raise


def test_rows_come_back_from_topics_as_they_were(worker, mariadb, mariadb_database, tmp_path):
    url = f"mysql://root@127.0.0.1:{mariadb.port}/{mariadb_database}"
    mariadb.sql(TABLE, database=mariadb_database)
    mariadb.sql(INSERT % (1, 300), database=mariadb_database)
    start_pipeline(worker, new_name("p"), mariadb, mariadb_database, [f"sqlite:///{tmp_path}/x.db", url])
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    for statement in (
        INSERT % (301, 400),
        "DELETE FROM items WHERE id % 5 = 0",
        "UPDATE items SET name = CONCAT(name, '!'), price = -price WHERE id % 3 = 0",
        "UPDATE items SET id = id + 1000 WHERE id BETWEEN 100 AND 120",
        "ALTER TABLE items ADD COLUMN extra JSON",
        "UPDATE items SET extra = '{\"a\": [1]}' WHERE id = 1",
    ):
        mariadb.sql(statement, database=mariadb_database)
    expected = table(mariadb, mariadb_database, "items")
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    found = []

    def in_sqlite():
        with closing(sqlite3.connect(tmp_path / "x.db", timeout=60)) as connection:
            try:
                rows = connection.execute("SELECT id, name, price, note, extra FROM copy ORDER BY id")
            except sqlite3.OperationalError as e:  # this sink is behind the other one
                if "no such" in str(e):
                    return False
                raise
            found[:] = rows.fetchall()
        return found == [
            (r[0], r[1], None if r[2] is None else format(r[2], "f"), r[9], r[10]) for r in expected
        ]

    wait_for(in_sqlite, lambda: f"{found[:3]} {expected[:3]}")


def test_a_signal_by_rest_or_command_reads_a_table_again(worker, mariadb, mariadb_database, tmp_path):
    mariadb.sql(TABLE, database=mariadb_database)
    mariadb.sql(INSERT % (1, 50), database=mariadb_database)
    prefix = new_name("p")
    url = f"mysql://root@127.0.0.1:{mariadb.port}/{mariadb_database}"
    start_pipeline(worker, prefix, mariadb, mariadb_database, [url])
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    mariadb.sql("DELETE FROM copy", database=mariadb_database)
    signal = {
        "type": "execute-snapshot",
        "data": {"type": "blocking", "data-collections": [rf"{mariadb_database}\.items"]},
    }
    answer = worker.request("POST", f"/connectors/{prefix}-source/tasks/0/signals", signal)
    assert answer.status == 202, answer.content
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    mariadb.sql("DELETE FROM copy WHERE id < 20", database=mariadb_database)
    words = ["execute-snapshot", "--data-collections", f"{mariadb_database}[.]items", "--type", "blocking"]
    command = ["connector", "signal", f"{prefix}-source", *words, "--url", f"http://127.0.0.1:{worker.port}"]
    done = klamm(*command)
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    bad = [
        ({"type": "read-snapshot"}, "there is no signal 'read-snapshot' here: use execute-snapshot"),
        (
            {**signal, "data": {"data-collections": "d.items"}},
            "data-collections is 'd.items', which is no list",
        ),
        ({**signal, "data": {"data-collection": ["d.items"]}}, "data-collection is no field of data"),
        ({**signal, "data": {"data-collections": ["d.items"]}}, "need signal.data.collection"),
    ]
    for body, words in bad:
        refused = worker.request("POST", f"/connectors/{prefix}-source/tasks/0/signals", body)
        assert (refused.status, words in refused.message) == (400, True), refused.message
    said = klamm(*command[:4], "--data-collections", "a.b", "--additional-condition", "a.c=x", *command[-2:])
    assert (said.returncode, "a.c is none of data-collections" in said.stderr) == (1, True), said.stderr
    command[2] = f"{prefix}-sink0"
    said = klamm(*command)
    assert (said.returncode, "takes no signals" in said.stderr) == (1, True)
    refused = worker.request("POST", f"/connectors/{prefix}-sink0/tasks/0/signals", signal)
    assert (refused.status, "takes no signals" in refused.message) == (400, True)
    unknown = worker.request("POST", f"/connectors/{prefix}-source/tasks/7/signals", signal)
    assert unknown.status == 404
    worker.request("PUT", f"/connectors/{prefix}-source/stop")
    wait_for(lambda: not worker.request("GET", f"/connectors/{prefix}-source/status").json["tasks"])
    assert worker.request("POST", f"/connectors/{prefix}-source/tasks/0/signals", signal).status in {404, 409}


def test_a_row_that_fits_no_schema_is_a_dead_letter(worker, broker, mariadb, mariadb_database):  # noqa: F811
    mariadb.sql("CREATE TABLE items (id INT PRIMARY KEY, b BIGINT UNSIGNED)", database=mariadb_database)
    mariadb.sql(
        "INSERT INTO items VALUES (1, 1), (2, 18446744073709551615), (3, 3)", database=mariadb_database
    )
    prefix, dead = new_name("p"), new_name("dead")
    more = {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": dead,
        "errors__deadletterqueue__topic__replication__factor": "1",
    }
    start_pipeline(worker, prefix, mariadb, mariadb_database, [], **more)
    mariadb.sql("INSERT INTO items VALUES (4, 18446744073709551614), (5, 5)", database=mariadb_database)
    with closing(
        Consumer({"bootstrap.servers": broker.bootstrap, "group.id": prefix, "auto.offset.reset": "earliest"})
    ) as consumer:
        topics = [f"{prefix}.{mariadb_database}.items", dead]
        wait_for(
            lambda: set(topics) <= set(consumer.list_topics(timeout=20).topics), lambda: worker.log[-3000:]
        )
        consumer.subscribe(topics)
        found = []

        def five():
            found.extend(m.topic() for m in consumer.consume(10, timeout=0.5) if m.error() is None)
            return len(found) == 5

        wait_for(five, lambda: f"{found} {worker.log[-3000:]}")
    assert sorted(found) == sorted([topics[0]] * 3 + [dead] * 2)
    worker.wait_state(f"{prefix}-source", "RUNNING", "RUNNING")


def test_rows_that_vanished_unseen_vanish_from_the_copy(worker, broker, mariadb, mariadb_database):  # noqa: F811
    mariadb.sql(TABLE, database=mariadb_database)
    mariadb.sql(INSERT % (1, 50), database=mariadb_database)
    prefix = new_name("p")
    url = f"mysql://root@127.0.0.1:{mariadb.port}/{mariadb_database}"
    cluster = {"schema__history__internal__kafka__bootstrap__servers": broker.bootstrap}
    start_pipeline(worker, prefix, mariadb, mariadb_database, [url], snapshot__mode="always", **cluster)
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    assert worker.request("PUT", f"/connectors/{prefix}-source/stop").status == 204
    wait_for(lambda: not worker.request("GET", f"/connectors/{prefix}-source/status").json["tasks"])
    mariadb.sql("DELETE FROM items WHERE id % 5 = 0", database=mariadb_database)
    worker.request("PUT", f"/connectors/{prefix}-source/resume")
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])
    mariadb.sql(INSERT % (51, 60), database=mariadb_database)
    wait_for(lambda: same(mariadb, mariadb_database), lambda: worker.log[-3000:])


def test_tasks_and_the_server_are_killed_in_the_middle_and_every_row_is_right(worker, tmp_path):
    require()
    with MariaDB() as server:
        server.sql("CREATE DATABASE d")
        server.sql(TABLE, database="d")
        server.sql(INSERT % (1, 2000), database="d")
        prefix, done, written = new_name("p"), threading.Event(), []
        server.sql(
            "CREATE TABLE d.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)"
        )
        url, signals = f"mysql://root@127.0.0.1:{server.port}/d", {"signal__data__collection": "d.signals"}
        start_pipeline(
            worker, prefix, server, "d", [url], incremental__snapshot__chunk__size="200", **signals
        )
        wait_for(lambda: same(server, "d"), lambda: worker.log[-3000:])
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(write, server, done, written)
            try:
                for victim in ("tasks", "tasks", "server", "tasks"):
                    before = len(written)
                    # These rows come back by an incremental snapshot, which the kill interrupts.
                    server.sql("DELETE FROM d.copy WHERE id <= 2000")
                    server.sql(
                        f"INSERT INTO d.signals VALUES ('{victim}{before}', 'execute-snapshot', '{SIGNAL}')"
                    )
                    wait_for(lambda before=before: len(written) > before, lambda: server.log)
                    time.sleep(2)  # load between two kills
                    if victim == "tasks":
                        kill_each(
                            worker, *(f"{prefix}-{n}" for n in ("source", "source-0", "sink0", "sink0-0"))
                        )
                    else:
                        server.kill()
                        time.sleep(1)
                        server.start()
                time.sleep(1)
            finally:
                done.set()
            load.result()
        wait_for(lambda: same(server, "d"), lambda: worker.log[-5000:], timeout_s=150)
        assert len(table(server, "d", "items")) > 5000


def kill_each(worker, *names):
    """kill -9 of the processes of these tasks and connectors, of each as soon as it has one."""
    left = {f"klamm connect: {name}" for name in names}

    def killed():
        for child in psutil.Process(worker.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if (title := " ".join(child.cmdline()).strip()) in left:
                    child.kill()
                    left.remove(title)
        return not left

    wait_for(killed, lambda: f"{left}\n{worker.log}")


def write(server, done, written):
    """Writes transactions of thousands of rows, while the server lives; their numbers are in `written`."""
    number = 10_000
    while not done.is_set():
        try:
            connection = server.connect("d", autocommit=False, read_timeout=20)
            with connection.cursor() as cursor:
                while not done.is_set():
                    cursor.execute(INSERT % (number, number + 2999))
                    cursor.execute(
                        "UPDATE items SET name = CONCAT(id, '-', %s) WHERE id > %s", (number, number - 1500)
                    )
                    cursor.execute(
                        "DELETE FROM items WHERE id BETWEEN %s AND %s", (number - 500, number - 400)
                    )
                    connection.commit()
                    written.append(number)
                    number += 3000
                    time.sleep(1)
            connection.close()
        except Exception:
            number += 3000  # the last one may be in or not: its numbers are not used again
            time.sleep(0.2)
