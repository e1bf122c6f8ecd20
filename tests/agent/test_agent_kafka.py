"""The agent's producer on a real Apache Kafka: leaders that change, brokers that are killed, batches that are refused."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name, wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode
from support.secure_kafka import PLAIN, SecureKafka

from klamm_agent.config.producer import ProducerSettings, producer_settings
from klamm_agent.delivery.batches import Origin
from klamm_agent.delivery.sender import Sender
from klamm_kafka.wire.compression import Compression

pytestmark = pytest.mark.usefixtures("apache_kafka")
FILES = 6
ORIGIN = Origin("/x.log", (1, 2), 0, 100)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def make(bootstrap, partitions=1, *, replicas=1, **config):
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {k.replace("_", "."): v for k, v in config.items()}
    admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(60)
    return topic


def sender_of(bootstrap, refused=lambda batch, size: None, **options):
    return Sender(bootstrap, ProducerSettings(**options), queue_bytes=1 << 24, topics=1, refused=refused)


class Load:
    """Numbered lines of several files, sent while there is room."""

    def __init__(self, sender, topic):
        self.sender, self.topic, self.batches = sender, topic, []
        self.sent = [0] * FILES

    def run(self, until, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while not until():
            assert time.monotonic() < deadline, (self.sender.troubles, self.sender.acked)
            if self.sender.has_room(self.topic):
                for file in range(FILES):
                    first = self.sent[file]
                    lines = [b"%d %07d %s" % (file, i, b"x" * 60) for i in range(first, first + 40)]
                    self.sent[file] += len(lines)
                    origin = Origin(str(file), (1, file), 0, 0)
                    self.batches.append(self.sender.send(self.topic, lines, 70 * 40, None, origin))
            self.sender.poll(0.01)

    def more(self, records):
        """Waits until so many more are acknowledged."""
        wanted = self.sender.acked + records
        self.run(lambda: self.sender.acked >= wanted)

    def finish(self, timeout_s=120):
        assert self.sender.drain(timeout_s), self.sender.troubles
        assert all(b.done for b in self.batches)
        self.sender.close()


def by_file(bootstrap, topic):
    """Returns line numbers by file and partition, in the order of the log."""
    found = {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "check.crcs": True})
    try:
        for p in consumer.list_topics(topic, 30).topics[topic].partitions:
            at = TopicPartition(topic, p, 0)
            low, high = consumer.get_watermark_offsets(at, 30)
            consumer.assign([TopicPartition(topic, p, low)])
            left = high - low
            deadline = time.monotonic() + 60
            while left and time.monotonic() < deadline:
                for message in consumer.consume(left, 1.0):
                    assert message.error() is None
                    file, number, *_ = message.value().split()
                    found.setdefault((int(file), p), []).append(int(number))
                    left -= 1
            assert not left
    finally:
        consumer.close()
    return found


def assert_once_in_order(found, load):
    for (file, partition), numbers in found.items():
        assert numbers == sorted(numbers), f"file {file}, partition {partition}"
    for file in range(FILES):
        numbers = sorted(n for (f, _), ns in found.items() if f == file for n in ns)
        assert numbers == list(range(load.sent[file])), f"file {file}: each line once"


def test_leaders_that_change_repeat_and_lose_nothing(tmp_path):
    (tmp_path / "1").mkdir()
    with (
        KafkaBroker(tmp_path / "1") as first,
        SecondNode(first, tmp_path / "2") as second,
    ):
        topic = make(first.address, 4, replicas=2)
        load = Load(sender_of(first.address, batch_bytes=8_000, linger=0.005), topic)
        load.more(20_000)
        assert len({load.sender._outgoing.leader(topic, p) for p in range(4)}) == 2
        second.kill()
        load.more(20_000)
        load.run(lambda: {load.sender._outgoing.leader(topic, p) for p in range(4)} == {1})
        load.more(5_000)
        load.finish()
        assert_once_in_order(by_file(first.address, topic), load)


def test_a_broker_that_is_killed_and_comes_back(tmp_path):
    with KafkaBroker(tmp_path) as kafka:
        topic = make(kafka.address, 3)
        load = Load(sender_of(kafka.address, batch_bytes=8_000, linger=0.005), topic)
        for _ in range(2):
            load.more(20_000)
            kafka.kill()
            load.run(lambda: load.sender.brokers_away)
            kafka.start()
            load.more(5_000)
        load.finish()
        assert_once_in_order(by_file(kafka.address, topic), load)


def test_a_producer_that_kafka_has_forgotten_goes_on(kafka):
    """Its batches are deleted: the log begins behind them."""
    topic = make(kafka.address)
    load = Load(sender_of(kafka.address, batch_bytes=8_000, linger=0.005), topic)
    load.more(5_000)
    load.sender.drain(60)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    deleted = sum(load.sent)
    admin.delete_records([TopicPartition(topic, 0, deleted)])[TopicPartition(topic, 0, deleted)].result(60)
    load.more(5_000)
    load.finish()
    found = by_file(kafka.address, topic)
    assert sum(map(len, found.values())) == sum(load.sent) - deleted
    assert all(numbers == sorted(numbers) for numbers in found.values())


def test_batches_that_are_too_large_are_halved_and_the_record_that_is_goes(kafka):
    topic = make(kafka.address, max_message_bytes="20000")
    refused = []
    sender = sender_of(kafka.address, lambda batch, size: refused.append(size), codec=Compression.NONE)
    load = Load(sender, topic)
    origin = Origin("large", (1, 9), 0, 0)
    load.more(1_000)
    large = sender.send(topic, [b"L" * 30_000], 30_000, None, origin)
    load.more(10_000)
    load.finish()
    assert large.done
    assert refused == [30_000]
    assert_once_in_order(by_file(kafka.address, topic), load)


def test_tls_and_sasl(tmp_path):
    with SecureKafka(tmp_path) as kafka:
        topic = make(kafka.address)
        for protocol in ("SASL_SSL", "SSL"):
            props = kafka.connection(protocol)
            bootstrap = props.pop("bootstrap.servers")
            settings, ignored = producer_settings(props)
            assert not ignored
            sender = Sender(
                bootstrap, settings, queue_bytes=1 << 24, topics=1, refused=lambda batch, size: None
            )
            sender.send(topic, [b"%d 0 %s" % (i, protocol.encode()) for i in range(100)], 1000, None, ORIGIN)
            assert sender.drain(60), sender.troubles
            sender.close()
        assert sum(map(len, by_file(kafka.address, topic).values())) == 200


def test_who_is_not_let_in_waits_and_says_so(tmp_path, caplog):
    with SecureKafka(tmp_path) as kafka:
        props = kafka.connection("SASL_PLAINTEXT", "PLAIN") | {
            "sasl.jaas.config": f'{PLAIN} required username="ann" password="wrong";'
        }
        bootstrap = props.pop("bootstrap.servers")
        sender = Sender(
            bootstrap,
            producer_settings(props)[0],
            queue_bytes=1 << 24,
            topics=1,
            refused=lambda batch, size: None,
        )
        sender.send(make(kafka.address), [b"x"], 1, None, ORIGIN)
        said = lambda: [r for r in caplog.records if "the broker rejects this agent" in r.message]
        wait_until(lambda: sender.poll(0.01) or (sender.brokers_away and said()), "the refusal")
        assert not sender.drain(5)
        assert sender.brokers_away
        assert len(said()) == 1
        sender.close()


@pytest.mark.parametrize("codec", list(Compression))
def test_kafka_takes_every_codec(kafka, codec):
    topic = make(kafka.address, 2)
    load = Load(sender_of(kafka.address, codec=codec, level=None), topic)
    load.more(3_000)
    load.finish()
    assert_once_in_order(by_file(kafka.address, topic), load)
