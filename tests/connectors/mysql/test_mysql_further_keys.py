"""Debezium's keys of connection, tables, locks, queues, topics and clients on a real MariaDB: each does what it says."""

import re
import socket
import time

import pytest
from confluent_kafka import Producer
from support.broker import new_topic, wait_until
from support.certificates import Authority

from klamm_plugins.errors import ConfigError, ConnectError, RetriableError

pytestmark = pytest.mark.usefixtures("mariadb_server")


def names(records):
    return sorted({r.topic.rpartition(".")[2] for r in records})


@pytest.fixture
def user(source, mariadb):
    """Yields a user with a password and without the privilege to lock all tables."""
    name = f"u{source.database}"[:32]
    mariadb.sql(f"CREATE USER {name}@'%' IDENTIFIED BY 'geheim'")
    mariadb.sql(f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {name}@'%'")
    yield name
    mariadb.sql(f"DROP USER {name}@'%'")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"database.include.list": "{d}"}, ["a", "b", "c"]),
        ({"database.include.list": None, "database.exclude.list": "(?!{d}).*"}, ["a", "b", "c"]),
        ({"table.include.list": "{d}[.]a,{d}[.]C"}, ["a", "c"]),
        ({"table.exclude.list": "{d}[.](a|b)"}, ["c"]),
    ],
)
def test_databases_and_tables_that_are_captured(source, settings, found):
    for name in "abc":
        source.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        source.sql(f"INSERT INTO {name} VALUES (1)")
    given = {key: value and value.format(d=source.database) for key, value in settings.items()}
    task = source(event__format="row", **given)
    assert names(task.read(len(found))) == found
    for name in "abc":
        source.sql(f"INSERT INTO {name} VALUES (2)")
    assert names(task.read(len(found))) == found


@pytest.mark.parametrize("form", ["envelope", "row"])
def test_names_of_schemas_and_fields_are_those_that_avro_has(source, form):
    source.sql("CREATE TABLE `maß-e` (`größe` INT PRIMARY KEY, `2nd` INT)")
    source.sql("INSERT INTO `maß-e` VALUES (1, 2)")
    settings = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
    task = source(event__format=form, **settings)
    source.sql("INSERT INTO `maß-e` VALUES (3, 4)")
    for record, values in zip(task.read(2), [(1, 2), (3, 4)], strict=True):
        row = record.value if form == "row" else record.value["after"]
        assert row.to_dict() == dict(zip(("gr__e", "_2nd"), values, strict=True))
        assert record.key.to_dict() == {"gr__e": values[0]}
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", record.value_schema.name)
        assert row.schema.name.endswith(".ma__e.Value")


def test_an_excluded_database_is_not_captured(source, mariadb):
    other = f"{source.database}_x"
    mariadb.sql(f"CREATE DATABASE {other}")
    try:
        for database in (source.database, other):
            mariadb.sql(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
            mariadb.sql(f"INSERT INTO {database}.t VALUES (1)")
        lists = {
            "database.include.list": None,
            "database.exclude.list": other,
            "table.include.list": r".*\.t",
        }
        task, databases, deadline = source(**lists), set(), time.monotonic() + 60
        while source.database not in databases:
            assert time.monotonic() < deadline, databases
            databases |= {r.value["source"]["db"] for r in task.task.poll() or []}
        assert other not in databases
    finally:
        mariadb.sql(f"DROP DATABASE {other}")


def test_user_and_password(source, user):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    assert source(database__user=user, database__password="geheim").task.poll() is None
    with pytest.raises(ConfigError, match="Access denied") as refused:
        source(database__user=user, database__password="falsch").task.poll()
    assert "falsch" not in str(refused.value)


def test_the_number_under_which_the_binlog_is_read(source, mariadb):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")

    def readers():
        return {
            i
            for (i,) in mariadb.sql(
                "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
            )
        }

    def started(number):
        before = readers()
        task = source(database__server__id=number).task
        return wait_until(lambda: task.poll() or readers() - before, "a reader of the binlog")

    first = started("4711")
    assert started("4712") != first
    assert first <= readers(), "another number, so both read"
    started("4711")
    wait_until(lambda: not first & readers(), "the server ends the older reader of one number")


def test_an_attempt_to_connect_ends_in_time(source):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        task = source(database__port=str(silent.getsockname()[1]), connect__timeout__ms="1000")
        begun = time.monotonic()
        with pytest.raises(RetriableError, match=r"MySQL at 127\.0\.0\.1"):
            task.task.poll()
        assert time.monotonic() - begun < 15, "the default is 30 s"


def test_a_snapshot_locks_the_server_or_does_not(source, user):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t VALUES (1)")
    settings = {"database__user": user, "database__password": "geheim", "snapshot__max__threads": "2"}
    with pytest.raises(ConfigError, match="RELOAD"):  # FLUSH TABLES WITH READ LOCK needs it
        source(**settings, snapshot__locking__mode="minimal").read(1)
    assert len(source(**settings, snapshot__locking__mode="none").read(1)) == 1


def test_the_queue_of_events_is_as_long_as_it_may_be(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(max__queue__size="3", max__batch__size="1", event__format="row")
    task.task.poll()
    for number in range(20):
        source.sql(f"INSERT INTO t VALUES ({number})")
    task.read(1)
    waiting = task.task._changes._reader._waiting
    deadline = time.monotonic() + 30
    while len(waiting) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert waiting.size == 3
    assert [r.key["id"] for r in task.read(19)] == list(range(1, 20)), "the others waited at the server"


def test_a_batch_has_about_as_many_records_as_it_may(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(max__batch__size="5", event__format="row")
    task.task.poll()
    for number in range(20):
        source.sql(f"INSERT INTO t VALUES ({number})")
    deadline, sizes = time.monotonic() + 30, []
    while sum(sizes) < 20:
        assert time.monotonic() < deadline
        sizes.append(len(task.task.poll() or []))
    assert max(sizes) <= 5


@pytest.mark.parametrize(("wanted", "count"), [("true", 2), ("false", 1)])
def test_a_deleted_row_has_a_tombstone_or_none(source, wanted, count):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t VALUES (1)")
    task = source(tombstones__on__delete=wanted)
    task.read(1)
    source.sql("DELETE FROM t")
    source.sql("INSERT INTO t VALUES (2)")
    found = task.read(count + 1)
    assert [r.value and r.value["op"] for r in found] == [*["d", None][:count], "c"]


def test_names_of_the_topics_beside_the_tables(source):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task = source(
        topic__prefix="shop",
        heartbeat__interval__ms="1",
        heartbeat__topics__prefix="beat",
        provide__transaction__metadata="true",
        topic__transaction="tx",
        include__schema__changes="true",
    )
    wanted = {"beat.shop", "shop.tx", f"shop.{source.database}.t", "shop"}
    seen, deadline = set(), time.monotonic() + 60
    seen |= {r.topic for r in task.task.poll() or []}
    source.sql("INSERT INTO t VALUES (1)")
    while seen != wanted:
        assert time.monotonic() < deadline, seen
        seen |= {r.topic for r in task.task.poll() or []}


def test_the_trust_stores_password(source, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    authority = Authority.make(tmp_path)
    store = tmp_path / "trust.p12"
    encryption = serialization.BestAvailableEncryption(b"hush")
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"ca", None, authority.certificate, None, encryption)
    )
    settings = {"database__ssl__mode": "verify_ca", "database__ssl__truststore": str(store)}
    with pytest.raises(ConfigError, match=r"database\.ssl\.truststore") as refused:
        source(**settings, database__ssl__truststore__password="wrong-secret").task.poll()
    assert "wrong-secret" not in str(refused.value)
    # Read with its password, the store does not know who signed the server's certificate (or that it has none).
    with pytest.raises((ConfigError, ConnectError, RetriableError)) as refused:
        source(**settings, database__ssl__truststore__password="hush").task.poll()
    assert "database.ssl.truststore" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "clients"),
    [
        ({"signal.enabled.channels": "kafka", "signal.kafka.topic": "s"}, "signal.consumer."),
        ({"snapshot.mode": "always"}, "schema.history.internal.consumer."),
        ({"snapshot.mode": "always"}, "schema.history.internal.producer."),
    ],
)
def test_clients_get_their_properties(source, klamm_broker, settings, clients, tmp_path):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t VALUES (1), (2)")
    first = source(event__format="row")
    rows = first.read(2)
    first.task.stop()
    topic = f"p.{source.database}.t"
    new_topic(klamm_broker, name=topic)
    producer = Producer({"bootstrap.servers": klamm_broker.bootstrap})
    producer.produce(topic, b"{}", b"1")
    producer.flush()
    (tmp_path / "no-store").write_text("nothing")
    cluster = clients.rpartition(".")[0].rpartition(".")[0]
    task = source(
        rows[0],
        **settings,
        **{
            f"{cluster}.kafka.bootstrap.servers": klamm_broker.bootstrap,
            f"{clients}security.protocol": "SSL",
            f"{clients}ssl.truststore.location": str(tmp_path / "no-store"),
        },
    )

    def all_done():
        task.context.commit(task.read(2)[-1])
        task.task.poll()

    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location=.*no-store"):
        all_done()
