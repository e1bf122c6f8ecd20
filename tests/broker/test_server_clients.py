"""The broker with the clients that people use: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from support.broker import new_name, new_topic, wait_until

with warnings.catch_warnings():  # it reads its tables through an old function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


@contextmanager
def closing(client):
    """Close a kafka-python client, and collect here the socket pairs that it leaves open."""
    try:
        yield client
    finally:
        client.close()
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 300


def produce(broker, topic, count=COUNT, **config):
    """Records k0..kN with values, headers and timestamps; everything acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, **config})
    for i in range(count):
        producer.produce(
            topic,
            f"value {i} {'x' * 200}".encode(),
            f"k{i}".encode(),
            headers=[("n", str(i).encode()), ("null", None)],
            timestamp=1_700_000_000_000 + i,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == []


def consumer(broker, **config):
    base = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": new_name("group"),
        "auto.offset.reset": "earliest",
    }
    return Consumer(base | config)


def consume(reader, count, timeout_s=60):
    got, deadline = [], time.monotonic() + timeout_s
    while len(got) < count and time.monotonic() < deadline:
        for message in reader.consume(min(count - len(got), 1000), 0.2):
            assert message.error() is None, message.error()
            got.append(message)
    assert len(got) == count
    return got


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_it_wrote(broker, codec):
    topic = new_topic(broker, partitions=3)
    produce(broker, topic, **{"compression.type": codec, "enable.idempotence": True})
    reader = consumer(broker, **{"check.crcs": True})
    reader.subscribe([topic])
    got = sorted(consume(reader, COUNT), key=lambda m: m.timestamp()[1])
    reader.close()
    for i, message in enumerate(got):
        assert message.key() == f"k{i}".encode()
        assert message.value() == f"value {i} {'x' * 200}".encode()
        assert message.headers() == [("n", str(i).encode()), ("null", None)]
        assert message.timestamp() == (1, 1_700_000_000_000 + i)
    for partition in range(3):
        offsets = [m.offset() for m in got if m.partition() == partition]
        assert sorted(offsets) == list(range(len(offsets)))


@pytest.mark.parametrize("codec", ["none", "gzip"])  # it needs further packages for the others
def test_kafka_python(broker, codec):
    topic = new_topic(broker, partitions=2)
    codec_or_none = None if codec == "none" else codec
    with closing(
        kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=codec_or_none, acks="all")
    ) as writer:
        sent = [writer.send(topic, b"v%d" % i, key=b"k%d" % i, headers=[("h", b"1")]) for i in range(COUNT)]
        writer.flush(60)
        assert all(future.get(60).topic == topic for future in sent)
    with closing(
        kafka.KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=new_name(),
            consumer_timeout_ms=60_000,
        )
    ) as reader:  # fmt: skip
        got = [next(reader) for _ in range(COUNT)]
    assert sorted(m.value for m in got) == sorted(b"v%d" % i for i in range(COUNT))
    assert all(m.headers == [("h", b"1")] for m in got)


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka(broker, codec):
    topic = new_topic(broker, partitions=2)
    codec_or_none = None if codec == "none" else codec
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec_or_none, enable_idempotence=True
    ) as writer:
        pending = [await writer.send(topic, b"v%d" % i, key=b"k%d" % i) for i in range(COUNT)]
        for future in pending:
            await future
    async with aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=new_name()
    ) as reader:
        got = [await reader.getone() for _ in range(COUNT)]
    assert sorted(m.value for m in got) == sorted(b"v%d" % i for i in range(COUNT))


def test_long_poll_is_woken_at_once(broker):
    topic = new_topic(broker)
    reader = consumer(broker, **{"fetch.wait.max.ms": 200_000, "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    writer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for i in range(20):
        writer.produce(topic, b"%d" % i)
        assert writer.flush(60) == 0
        assert consume(reader, 1)[0].value() == b"%d" % i  # within a minute, not at the end of the poll
    reader.close()


def test_seek_by_timestamp(broker):
    topic = new_topic(broker)
    produce(broker, topic)
    reader = consumer(broker)
    found = reader.offsets_for_times([TopicPartition(topic, 0, 1_700_000_000_000 + 123)], timeout=60)[
        0
    ].offset
    assert found == 123
    reader.assign([TopicPartition(topic, 0, found)])
    assert consume(reader, 1)[0].key() == b"k123"
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, COUNT)
    reader.close()


def test_offset_out_of_range_resets(broker):
    topic = new_topic(broker)
    produce(broker, topic, 10)
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, 999)])
    assert consume(reader, 10)[0].offset() == 0
    reader.close()


def test_large_message_is_refused_by_the_producer_s_error(broker):
    topic = new_topic(broker, config={"max.message.bytes": "10000"})
    errors = []
    writer = Producer({"bootstrap.servers": broker.bootstrap})
    writer.produce(topic, bytes(50_000), on_delivery=lambda error, _: errors.append(error))
    writer.flush(60)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_read_committed_consumer(broker):
    topic = new_topic(broker)
    produce(broker, topic, 20)
    reader = consumer(broker, **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, 0, 0)])
    assert len(consume(reader, 20)) == 20
    reader.close()


def test_admin_of_librdkafka(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = new_name()
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000"})])[name].result(60)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "1000"
    change = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([change])[change].result(60)
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "5000"
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 2
    cluster = admin.describe_cluster().result(60)
    assert [node.id for node in cluster.nodes] == [1]
    admin.delete_topics([name])[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics


def test_admin_of_kafka_python(broker):
    name = new_name()
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics([kafka.admin.NewTopic(name, num_partitions=3, replication_factor=1)])
        assert name in admin.list_topics()
        assert len(admin.describe_topics([name])[0]["partitions"]) == 3
        admin.delete_topics([name])
        assert name not in admin.list_topics()


def test_clients_go_on_while_another_sends_garbage(broker):
    import socket

    topic = new_topic(broker, partitions=2)
    stop = threading.Event()

    def harass():
        while not stop.is_set():
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                sock.sendall(b"\0\0\0\x20" + bytes(range(40)))
                with suppress(ConnectionResetError):  # it is closed before all of it was read
                    sock.recv(10)

    with ThreadPoolExecutor(1) as pool:
        harassing = pool.submit(harass)
        try:
            produce(broker, topic, 2000, **{"enable.idempotence": True})
            reader = consumer(broker)
            reader.subscribe([topic])
            assert len(consume(reader, 2000)) == 2000
            reader.close()
        finally:
            stop.set()
        harassing.result()


@pytest.mark.usefixtures("processes")
def test_retention_and_restart_keep_clients_going(tmp_path):
    """A producer and a consumer that live through a clean restart of the broker lose and repeat nothing."""
    from klamm.testing import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "data") as own:
        topic = new_topic(own)
        delivered, errors = [], []
        writer = Producer(
            {"bootstrap.servers": own.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200}
        )

        def send(first, last):
            for i in range(first, last):
                writer.produce(
                    topic,
                    b"%d" % i,
                    on_delivery=lambda e, m: errors.append(e) if e else delivered.append(m.offset()),
                )

        send(0, 100)
        assert writer.flush(60) == 0
        send(100, 200)
        own.stop()
        own.start()
        wait_until(lambda: writer.flush(0.1) == 0, "all records delivered after the restart", timeout_s=60)
        assert errors == []
        assert sorted(delivered) == list(range(200))
        reader = consumer(own)
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [m.value() for m in consume(reader, 200)] == [b"%d" % i for i in range(200)]
        reader.close()
