"""Rows that vanished before a repeated snapshot get tombstones: a real MariaDB, a real broker, the topic read back."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import RetriableError

pytestmark = pytest.mark.usefixtures("mariadb_server")


class Topics:
    """Writes a task's records to a broker as the runtime does, and reads them back."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._made = set()
        self._key, self._value = JsonConverter(), JsonConverter()
        self._key.configure({"schemas.enable": "false"}, is_key=True)
        self._value.configure({"schemas.enable": "false"}, is_key=False)

    def make(self, topic, partitions=2):
        if topic not in self._made:
            self._made.add(topic)
            self._admin.create_topics([NewTopic(topic, partitions)])[topic].result()

    def publish(self, records, renamed=""):
        producer = Producer({"bootstrap.servers": self.bootstrap})  # a new one knows all partitions
        for r in records:
            topic = r.topic + renamed
            self.make(topic)
            key = self._key.from_connect_data(topic, r.key_schema, r.key)
            value = (
                self._value.from_connect_data(topic, r.value_schema, r.value) if r.value is not None else None
            )
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def read(self, topic, partitions=2):
        """Returns all records as (partition, key, value)."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"}
        )
        found = []
        for number in range(partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            consumer.assign([TopicPartition(topic, number, 0)])
            deadline, here = time.monotonic() + 30, []
            while len(here) < high:
                assert time.monotonic() < deadline
                here += consumer.consume(100, timeout=0.5)
            found += [(number, m.key(), m.value()) for m in here]
        consumer.close()
        return found


@pytest.fixture
def topics(klamm_broker):
    return Topics(klamm_broker.bootstrap)


@pytest.fixture
def table(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t SELECT seq FROM seq_1_to_9")
    prefix = f"v{time.time_ns()}"

    def start(committed=None, **more):
        return source(
            committed,
            **{"topic__prefix": prefix, "event__format": "row", "tombstones__on__delete": "true"} | more,
        )

    start.sql = source.sql
    start.topic = f"{prefix}.{source.database}.t"
    return start


def sweep(task):
    deadline = time.monotonic() + 60
    found = []
    while task.task._position.sweep:
        assert time.monotonic() < deadline
        found += task.task.poll() or []
    return found


def repeated(table, topics):
    """Takes a snapshot that breaks off, removes two rows, and takes another one."""
    kafka = {"schema__history__internal__kafka__bootstrap__servers": topics.bootstrap}
    first = table(**kafka)
    rows = first.read(9)
    first.task.stop()
    topics.publish(rows)
    table.sql("DELETE FROM t WHERE id IN (2, 7)")
    second = table(rows[0], **kafka)
    again = second.read(7)
    return second, again, kafka


@pytest.mark.parametrize("restart", [False, True])
def test_rows_that_vanished_get_tombstones_in_their_partitions(table, topics, restart):
    task, again, kafka = repeated(table, topics)
    topics.publish(again)
    table.sql("INSERT INTO t VALUES (7)")
    assert not task.task.poll(), "nothing of the binlog before the tombstones"
    task.context.commit(again[-1])
    if restart:
        task.task.stop()
        task = table(again[-1], **kafka)
    # The poll that ends the tombstones may bring what follows them.
    topics.publish(sweep(task) or task.read(1))
    partitions, last, tombstones = {}, {}, []
    for number, key, value in topics.read(table.topic):
        assert partitions.setdefault(key, number) == number
        last[key] = value
        tombstones += [key] if value is None else []
    assert sorted(tombstones) == [b'{"id":2}', b'{"id":7}']
    assert [key for key, value in last.items() if value is None] == [b'{"id":2}']


def test_a_row_that_moved_to_a_new_partition_has_not_vanished(table, topics):
    task, again, _ = repeated(table, topics)
    grown = topics._admin.create_partitions([NewPartitions(table.topic, 3)])
    grown[table.topic].result()
    topics.publish(again)
    task.context.commit(again[-1])
    sweep(task)
    gone = [key for _, key, value in topics.read(table.topic, 3) if value is None]
    assert sorted(gone) == [b'{"id":2}', b'{"id":7}']


def test_an_empty_table_buries_all_its_rows(table, topics):
    kafka = {"signal__kafka__bootstrap__servers": topics.bootstrap}
    first = table(**kafka)
    rows = first.read(9)
    first.task.stop()
    topics.publish(rows)
    table.sql("DELETE FROM t")
    task = table(rows[0], **kafka)
    task.task.poll()
    sweep(task)
    assert len([1 for _, _, value in topics.read(table.topic) if value is None]) == 9


def gone(topics, topic):
    return [key for _, key, value in topics.read(topic) if value is None]


def read_again(table, topics, count, then, *, dropped=(), **more):
    """Takes a snapshot of rows 1 to 9, changes the table, takes another one and ends its sweep.

    Returns the records of the second one. Those in the place of `dropped` do not reach the topic.
    """
    kafka = {"schema__history__internal__kafka__bootstrap__servers": topics.bootstrap} | more
    first = table(**kafka)
    rows = first.read(9)
    topics.publish(rows)
    table.sql(then)
    first.task.stop()
    second = table(rows[0], **kafka)
    again = second.read(count)
    topics.publish([r for i, r in enumerate(again) if i not in dropped])
    second.context.commit(again[-1])
    sweep(second)
    return again


def test_rows_outside_of_a_statement_of_the_user_have_not_vanished(table, topics):
    """Row 3 came by the binlog, and the statement that stands for the table does not read it."""
    name = table.topic.split(".", 1)[1]
    kafka = {
        "schema__history__internal__kafka__bootstrap__servers": topics.bootstrap,
        "snapshot__select__statement__overrides": name,
        f"snapshot__select__statement__overrides__{name}": f"SELECT * FROM {name} WHERE id > 5",
        "snapshot__mode": "always",
    }
    first = table(**kafka)
    rows = first.read(4)
    table.sql("DELETE FROM t WHERE id = 3")
    table.sql("INSERT INTO t VALUES (3)")
    rows += first.read(2)
    first.task.stop()
    topics.publish(rows)
    before = gone(topics, table.topic)
    second = table(rows[-1], **kafka)
    again = second.read(4)
    topics.publish(again)
    second.context.commit(again[-1])
    sweep(second)
    assert gone(topics, table.topic) == before


def test_rows_that_a_failure_mode_leaves_out_have_not_vanished(table, topics, caplog):
    table.sql("ALTER TABLE t ADD n BIGINT UNSIGNED NOT NULL DEFAULT 1")
    change = "UPDATE t SET n = 18446744073709551615 WHERE id = 1"
    read_again(table, topics, 8, change, event__processing__failure__handling__mode="skip")
    assert gone(topics, table.topic) == []
    assert "8 keys for the 9 rows" in caplog.text


@pytest.mark.parametrize("then", ["DO 0", "DELETE FROM t WHERE id = 2"])
def test_rows_that_were_dropped_on_their_way_have_not_vanished(table, topics, then, caplog):
    """A filter, a dead letter topic: the topic did not get each row, so no missing key proves anything."""
    read_again(table, topics, 9 if then == "DO 0" else 8, then, dropped=[3])
    assert gone(topics, table.topic) == []
    assert "Rows that have vanished keep their last records" in caplog.text


@pytest.mark.parametrize("skipped", [{"skipped__operations": "c,d"}, {"tombstones__on__delete": "false"}])
def test_without_deletes_no_tombstones_are_written(table, topics, skipped):
    read_again(table, topics, 8, "DELETE FROM t WHERE id = 2", **skipped)
    assert gone(topics, table.topic) == []


def test_a_renamed_topic_is_left_alone(table, topics, caplog):
    task, again, _ = repeated(table, topics)
    topics.publish(again, renamed="-other")
    task.context.commit(again[-1])
    sweep(task)
    assert "a transform may have renamed the topic" in caplog.text
    assert all(value is not None for _, _, value in topics.read(table.topic))


def test_a_transform_that_has_always_renamed_the_topic_is_named(table, topics, caplog):
    kafka = {"schema__history__internal__kafka__bootstrap__servers": topics.bootstrap}
    first = table(**kafka)
    rows = first.read(9)
    topics.publish(rows, renamed="-other")
    first.task.stop()
    table.sql("DELETE FROM t WHERE id = 2")
    table(rows[0], **kafka).read(8)
    assert f"there is no topic {table.topic} (1 such topics): if a transform has renamed it" in caplog.text


def test_without_a_cluster_it_is_said_and_a_cluster_that_is_away_is_tried_again(table, topics, caplog):
    rows = table().read(9)
    task = table(rows[0])
    task.read(9)
    assert "rows that vanished since keep their last records" in caplog.text
    away = table(rows[0], schema__history__internal__kafka__bootstrap__servers="127.0.0.1:1")
    with pytest.raises(RetriableError, match=r"snapshot\.tombstones.*127\.0\.0\.1:1"):
        away.task.poll()
