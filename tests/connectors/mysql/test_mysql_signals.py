"""Snapshots on request, on a real MariaDB: by the table of signals and by a topic, while others write."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pymysql
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm_connectors.mysql import incremental
from klamm_connectors.mysql.changes import Changes
from klamm_connectors.mysql.server import PositionPurgedError
from klamm_plugins.errors import ConnectError

pytestmark = pytest.mark.usefixtures("mariadb_server")

NUMBERS = itertools.count()


@pytest.fixture
def signalled(source):
    """Starts tasks that know a table of signals, and inserts signals."""
    source.sql("CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")

    def start(committed=None, **more):
        settings = {
            "event__format": "row",
            "snapshot__mode": "no_data",
            "signal__data__collection": f"{source.database}.signals",
            "table__exclude__list": r".*\.signals",
            "incremental__snapshot__chunk__size": "7",
        }
        task = source(committed, **settings | more)
        if committed is None:
            assert not task.task.poll(), "it begins here, where nothing has happened yet"
        return task

    def send(kind, /, **data):
        data = {k.replace("__", "-"): v for k, v in data.items()}
        source.sql("INSERT INTO signals VALUES (%s, %s, %s)", f"s{next(NUMBERS)}", kind, json.dumps(data))

    start.send = send
    start.execute = lambda *tables, **more: send(
        "execute-snapshot", data__collections=[rf"{source.database}\.{t}" for t in tables], **more
    )
    start.sql, start.database = source.sql, source.database
    return start


def ids(records):
    return [r.key["id"] for r in records]


def until(task, condition, what, timeout_s=60):
    """Reads until the condition holds of all records."""
    found, end = [], time.monotonic() + timeout_s
    while not condition(found):
        assert time.monotonic() < end, f"{what}: {found[-3:]}"
        found += task.task.poll() or []
    return found


def produce(broker, topic, *signals):
    """Makes a topic of signals with these keys and values."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in signals:
        producer.produce(topic, key=key, value=value)
    producer.flush()


def group_offset(broker, group):
    """Returns the group's offset in the topic of its name; negative for none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        return consumer.committed([TopicPartition(group, 0)], timeout=10)[0].offset
    finally:
        consumer.close()


def done(task):
    return not task.task._incremental._plan.readings


def test_an_incremental_snapshot_reads_a_table_by_chunks(signalled):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    signalled.sql("INSERT INTO t SELECT seq, seq FROM seq_1_to_30")
    signalled.sql("CREATE TABLE empty (id INT PRIMARY KEY)")
    task = signalled(event__format="envelope")
    signalled.execute("t", "empty")
    found = task.read(30)
    assert sorted(ids(found)) == list(range(1, 31))
    assert {(r.value["op"], r.value["source"]["snapshot"]) for r in found} == {("r", "incremental")}
    for record in found:
        record.value.validate()
    until(task, lambda _: done(task), "the end")
    signalled.sql("INSERT INTO t VALUES (31, 1)")
    (after,) = task.read(1)
    assert "incremental" not in after.source_offset
    assert [("incremental" in r.source_offset) for r in found] == [True] * 29 + [False]


def test_by_conditions_surrogate_keys_and_keys_of_several_columns(signalled):
    signalled.sql("CREATE TABLE k (a VARCHAR(5), b DECIMAL(5,1), c VARBINARY(4), PRIMARY KEY (a, b, c))")
    signalled.sql("INSERT INTO k SELECT seq % 3, seq / 2, CHAR(seq) FROM seq_1_to_40")
    signalled.sql("CREATE TABLE s (d DATE PRIMARY KEY, n INT NOT NULL UNIQUE)")
    signalled.sql("INSERT INTO s SELECT DATE '2020-01-01' + INTERVAL seq DAY, seq FROM seq_1_to_20")
    task = signalled()
    condition = {"data-collection": rf"{signalled.database}\.k", "filter": "c > 'x' OR b LIKE '1%'"}
    signalled.execute("k", additional__conditions=[condition])
    count = next(iter(signalled.sql("SELECT COUNT(*) FROM k WHERE c > 'x' OR LEFT(b, 1) = '1'")))[0]
    assert len({tuple(r.key.values) for r in task.read(count)}) == count
    signalled.execute("s", surrogate__key="n")
    assert len({r.key["d"] for r in task.read(20)}) == 20


@pytest.mark.parametrize("values", ["seq % 3", "IF(seq % 2, NULL, seq)", "NULL", "IF(seq < 9, NULL, 1)"])
def test_a_surrogate_key_that_rows_share_brings_each_row_once(signalled, values):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
    signalled.sql(f"INSERT INTO t SELECT seq, {values} FROM seq_1_to_30")
    task = signalled()
    signalled.execute("t", surrogate__key="g")
    found = until(task, lambda found: found and done(task), "the end")
    assert sorted(ids(found)) == list(range(1, 31))


def test_a_table_whose_key_changes_under_way_is_read_again(signalled, caplog):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
    signalled.sql("INSERT INTO t SELECT seq, seq % 2 FROM seq_1_to_30")
    task = signalled()
    signalled.execute("t")
    until(task, lambda found: found, "the first chunk")
    signalled.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)")
    found = until(task, lambda _: done(task), "the end")
    assert set(ids(found)) == set(range(1, 31))
    assert "t is read again from its begin, for its key has changed" in caplog.text


def test_a_surrogate_key_that_identifies_no_row_is_refused_by_name(signalled, caplog):
    columns = "(a INT NOT NULL, b INT UNIQUE, c INT NOT NULL, UNIQUE (a, c))"
    for column in ("a", "b"):
        signalled.sql(f"CREATE TABLE n{column} {columns}")
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t VALUES (1)")
    task = signalled()
    for column in ("a", "b"):
        signalled.execute(f"n{column}", surrogate__key=column)
    signalled.execute("t")
    assert ids(task.read(1)) == [1]
    for column in ("a", "b"):
        assert (
            f"n{column} is left out, for it cannot be read in chunks by surrogate-key={column}" in caplog.text
        )


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(signalled, caplog):
    signalled.sql("CREATE TABLE none (a INT)")
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t VALUES (1)")
    task = signalled()
    signalled.execute("none", "t")
    wrong = {"data-collection": ".*", "filter": "nothing = 1"}
    assert ids(task.read(1)) == [1]
    assert "none is left out, for it cannot be read in chunks" in caplog.text
    signalled.execute("t", additional__conditions=[wrong])
    signalled.execute("t", surrogate__key="nothing")
    signalled.execute("nowhere")
    signalled.send("dance")
    signalled.send("log", message="hello from the table")
    signalled.execute("t", type="blocking", additional__conditions=[wrong])
    deadline = time.monotonic() + 60
    while "the blocking snapshot ends here" not in caplog.text:
        assert time.monotonic() < deadline
        poll(task)
    signalled.sql("INSERT INTO t VALUES (2)")
    assert ids(task.read(1)) == [2]
    for words in ("incremental snapshot of", "no captured table", "there is no signal 'dance'"):
        assert words in caplog.text


def poll(task):
    try:
        return task.task.poll() or []
    except ConnectError:
        return []


def test_a_table_of_signals_that_takes_no_watermarks_does_not_stop_capture(signalled, caplog):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t VALUES (1)")
    signalled.sql("ALTER TABLE signals ADD COLUMN more INT")
    task = signalled()
    data = json.dumps({"data-collections": [r".*\.t"]})
    signalled.sql("INSERT INTO signals VALUES ('x', 'execute-snapshot', %s, NULL)", data)
    deadline = time.monotonic() + 60
    while "takes no watermarks" not in caplog.text:
        assert time.monotonic() < deadline
        task.task.poll()
    assert done(task)
    signalled.sql("INSERT INTO t VALUES (2)")
    assert ids(task.read(1)) == [2]


def test_a_table_with_too_few_columns_is_no_table_of_signals(signalled, caplog):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("ALTER TABLE signals DROP COLUMN data")
    task = signalled()
    signalled.sql("INSERT INTO signals VALUES ('x', 'log')")
    signalled.sql("INSERT INTO t VALUES (1)")
    assert ids(task.read(1)) == [1]
    assert "the table needs the columns id, type and data" in caplog.text


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("INT", (1, 2, 3)),
        ("BIGINT UNSIGNED", (1, 2, 2**63 - 1)),
        ("DECIMAL(9,3)", ("1.5", "2.25", "3")),
        ("VARCHAR(9)", ("a", "ü", "Z")),
        ("BINARY(4)", ("aaaa", "bbbb", "cc")),
        ("UUID", tuple(f"550e8400-e29b-41d4-a716-44665544000{i}" for i in range(3))),
        ("INET6", ("2001:db8::1", "::ffff:10.0.0.1", "::")),
        ("INET4", ("10.0.0.1", "10.0.0.2", "255.1.2.3")),
    ],
)
def test_rows_that_change_between_the_watermarks_are_not_sent_as_they_were(
    signalled, monkeypatch, type, values
):
    signalled.sql(f"CREATE TABLE t (id {type} PRIMARY KEY, v INT)")
    for value in values:
        signalled.sql("INSERT INTO t VALUES (%s, 0)", value)
    task = signalled()
    read_chunk = incremental.read_chunk

    def read_and_change(*args, **more):
        found = read_chunk(*args, **more)
        signalled.sql("UPDATE t SET v = 1 WHERE id = %s", values[0])
        signalled.sql("DELETE FROM t WHERE id = %s", values[1])
        return found

    monkeypatch.setattr(incremental, "read_chunk", read_and_change)
    signalled.execute("t")
    found = until(task, lambda r: done(task) and len(r) > 2, "the end")
    assert [r.value and r.value["v"] for r in found] == [1, None, 0]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("TRUNCATE TABLE t", []),
        ("DROP TABLE t", []),
        ("RENAME TABLE t TO gone, n TO t", [(1, 1), (2, 1), (3, 1)]),
        ("ALTER TABLE t MODIFY v INT NOT NULL DEFAULT 7", [(1, 0), (2, 0), (3, 0)]),
    ],
)
def test_a_chunk_whose_table_is_another_before_it_ends_is_read_again(signalled, monkeypatch, statement, left):
    for name, value in (("t", 0), ("n", 1)):
        signalled.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
        signalled.sql(f"INSERT INTO {name} VALUES (1, {value}), (2, {value}), (3, {value})")
    task = signalled(event__format="envelope", skipped__operations="none")
    read_chunk, statements = incremental.read_chunk, [statement]

    def read_and_change(*args, **more):
        found = read_chunk(*args, **more)
        for one in statements:
            signalled.sql(one)
        statements.clear()
        return found

    monkeypatch.setattr(incremental, "read_chunk", read_and_change)
    signalled.execute("t")
    found = until(task, lambda _: not statements and done(task), "the end")
    rows = [r.value["after"] for r in found if r.value["op"] == "r"]
    assert [(row["id"], row["v"]) for row in rows] == left
    assert [r.value["op"] for r in found if r.value["op"] != "r"] == ["t"] * statement.startswith("TRUNCATE")


def test_incremental_snapshots_outlive_a_position_that_is_gone(signalled, monkeypatch):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_19")
    beginning = signalled()  # at the end of the binlog
    signalled.sql("INSERT INTO t VALUES (20)")
    (first,) = beginning.read(1)
    beginning.task.stop()
    task = signalled(first, snapshot__mode="when_needed")
    snapshots, batch, losses = task.task._incremental, Changes.batch, []

    def purged(changes, stopping):
        if losses or snapshots._window is None:
            return batch(changes, stopping)
        losses.append(snapshots._window)  # its watermarks are written, and not read yet
        raise PositionPurgedError("the binlog is gone")

    monkeypatch.setattr(Changes, "batch", purged)
    signalled.execute("t")
    assert until(task, lambda _: losses, "a chunk") == []
    assert snapshots._window is None, "its watermarks never come"
    again = until(task, lambda r: len(r) >= 20, "the snapshot")
    assert {r.source_offset["snapshot"] for r in again[:19]} == {True}
    assert all("incremental" in r.source_offset for r in again[:20])
    rest = until(task, lambda _: done(task), "the end")
    assert sorted(ids(rest)) == list(range(1, 21))
    for broken_off in (again[5], again[19]):  # a task that ends in the snapshot, and one that ends with it
        other = signalled(broken_off, snapshot__mode="when_needed")
        found = until(other, lambda r, other=other: len(r) >= 20 and done(other), "the end")
        incremental_rows = ids(found)[-20:]
        assert sorted(incremental_rows) == list(range(1, 21))
        other.task.stop()


def test_stop_pause_and_resume(signalled):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_50")
    task = signalled()
    signalled.execute("t")
    first = task.read(7)
    signalled.send("pause-snapshot")
    paused = until(task, lambda _: json.loads(task.task._incremental.state).get("paused"), "the pause")
    paused += until(task, lambda _: task.task._incremental._window is None, "the chunk on its way")
    seen = len(first) + len(paused)
    assert seen < 50
    assert not task.task.poll()
    signalled.send("resume-snapshot")
    until(task, lambda r: len(r) >= 7, "more")
    signalled.send("stop-snapshot", data__collections=[r".*\.t"])
    until(task, lambda _: done(task), "the stop")
    assert not task.task.poll()


@pytest.mark.parametrize("restarts", [False, True])
def test_the_topic_ends_up_as_the_table_while_others_write(signalled, mariadb, restarts):
    """Each key's last record is the row of the table, and no record is older than the one before it."""
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    signalled.sql("INSERT INTO t SELECT seq, 0 FROM seq_1_to_300")
    settings = {"incremental__snapshot__chunk__size": "20", "max__batch__size": "50"}
    task = signalled(**settings)
    stop = threading.Event()

    def write():
        connection = mariadb.connect(signalled.database, autocommit=False)
        for number in itertools.count(1):
            if stop.is_set():
                break
            with connection.cursor() as cursor:
                cursor.execute("UPDATE t SET v = %s WHERE id %% 11 = %s", (number, number % 11))
                cursor.execute("DELETE FROM t WHERE id = %s", (number * 7 % 300,))
                cursor.execute("REPLACE INTO t VALUES (%s, %s)", (number * 13 % 300, number))
            connection.commit()
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            found = until(task, lambda r: len(r) > 20, "changes")
            signalled.execute("t")
            found += until(task, lambda _: not done(task), "the begin")
            for _ in range(4 if restarts else 0):
                found += until(task, lambda r: len(r) > 150, "some more")
                task.task.stop()
                task = signalled(found[-1], **settings)
            found += until(task, lambda _: done(task), "the end")
        finally:
            stop.set()
        writer.result()
    signalled.sql("INSERT INTO t VALUES (1000, 0)")
    found += until(task, lambda r: any(x.key["id"] == 1000 for x in r), "the last change")
    state, order = {}, {}
    for record in found:
        key = record.key["id"]
        if record.value is None:
            state.pop(key, None)
            continue
        state[key] = record.value["v"]
        assert record.value["v"] >= order.get(key, 0), f"{key}: an older row came later"
        order[key] = record.value["v"]
    assert state == dict(signalled.sql("SELECT id, v FROM t"))


def test_an_incremental_snapshot_goes_on_after_a_restart(signalled):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_40")
    task = signalled()
    signalled.execute("t")
    first = task.read(14)
    task.task.stop()
    again = signalled(first[-1])
    rest = until(again, lambda _: done(again), "the end")
    assert ids(first) + ids(rest) == list(range(1, 41)), "each chunk once"


def test_a_blocking_snapshot_by_a_statement_goes_on_after_a_restart(signalled):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_40")
    task = signalled(snapshot__fetch__size="5")
    where = {"data-collection": r".*\.t", "filter": f"SELECT * FROM {signalled.database}.t WHERE id > 10"}
    signalled.execute("t", type="blocking", additional__conditions=[where])
    first = until(task, lambda r: len(r) >= 5, "a part")
    task.task.stop()
    again = signalled(first[-1], snapshot__fetch__size="5")
    whole = until(again, lambda _: done(again), "the end")
    assert ids(whole) == list(range(11, 41)), "from its begin"
    assert "incremental" not in whole[-1].source_offset
    signalled.sql("INSERT INTO t VALUES (100)")
    assert ids(again.read(1)) == [100]


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_each_of_several_signals_for_a_table_is_obeyed(signalled, kind):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_9")
    task = signalled()
    for number in (7, 8, 7):
        where = {"data-collection": r".*\.t", "filter": f"id = {number}"}
        signalled.execute("t", type=kind, additional__conditions=[where])
    found = until(task, lambda r: len(r) >= 2 and done(task), "both")
    assert sorted(set(ids(found))) == [7, 8]
    assert "incremental" not in found[-1].source_offset


@pytest.mark.parametrize("channel", ["source", "kafka"])
def test_a_signal_that_meets_a_lost_connection_is_taken_again(signalled, klamm_broker, channel):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    topic = f"signals-{next(NUMBERS)}-{time.time_ns()}"
    data = {"data-collections": [rf"{signalled.database}\.t"]}
    task = signalled(
        signal__enabled__channels=channel,
        signal__kafka__topic=topic,
        signal__kafka__groupId=topic,
        signal__kafka__bootstrap__servers=klamm_broker.bootstrap,
        signal__poll__interval__ms="1",
    )
    snapshots = task.task._incremental
    tables_of = snapshots._tables_of

    def lost(_wanted):
        snapshots._tables_of = tables_of
        raise pymysql.err.OperationalError(2013, "Lost connection")

    snapshots._tables_of = lost
    signalled.sql("INSERT INTO t VALUES (1)")  # its record comes before the error
    if channel == "source":
        signalled.execute("t")
    else:
        produce(klamm_broker, topic, ("p", json.dumps({"type": "execute-snapshot", "data": data})))
    assert ids(task.read(2)) == [1, 1]


def test_signals_by_a_topic(signalled, klamm_broker):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_20")
    topic = f"signals-{next(NUMBERS)}-{time.time_ns()}"
    task = signalled(
        signal__enabled__channels="source,kafka",
        signal__kafka__topic=topic,
        signal__kafka__groupId=topic,
        signal__kafka__bootstrap__servers=klamm_broker.bootstrap,
        signal__poll__interval__ms="50",
    )
    data = {"type": "execute-snapshot", "data": {"data-collections": [rf"{signalled.database}\.t"]}}
    produce(klamm_broker, topic, ("other", json.dumps(data)), ("p", "no signal"), ("p", json.dumps(data)))
    records = task.read(20)
    assert sorted(ids(records)) == list(range(1, 21))
    until(task, lambda _: done(task), "the end")
    assert group_offset(klamm_broker, topic) < 0, "the connector's offset does not know of the signals"
    task.context.commit(records[-1])
    until(task, lambda _: group_offset(klamm_broker, topic) == 3, "the group's offset")
    signalled.sql("INSERT INTO t VALUES (21)")
    [last] = task.read(1)
    assert "incremental" not in last.source_offset


def test_a_signal_of_the_topic_outlives_a_task_that_ends_before_its_first_chunk(signalled, klamm_broker):
    signalled.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    topic = f"signals-{next(NUMBERS)}-{time.time_ns()}"
    settings = {
        "signal__enabled__channels": "kafka",
        "signal__kafka__topic": topic,
        "signal__kafka__groupId": topic,
        "signal__kafka__bootstrap__servers": klamm_broker.bootstrap,
        "signal__poll__interval__ms": "50",
    }
    task = signalled(**settings)
    signalled.sql("INSERT INTO t SELECT seq FROM seq_1_to_20")
    *_, committed = task.read(20)
    task.context.commit(committed)
    data = {"type": "execute-snapshot", "data": {"data-collections": [rf"{signalled.database}\.t"]}}
    produce(klamm_broker, topic, ("p", json.dumps(data)))
    until(task, lambda _: not done(task), "the signal")
    task.task.stop()
    assert ids(signalled(committed, **settings).read(20)) == list(range(1, 21))
