"""Transactions with real clients against a real broker process: what is committed is read, once, and nothing else is."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support import needs
from support.broker import new_name, new_topic
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.batch import iter_headers
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.produce import ProduceRequest

pytestmark = pytest.mark.usefixtures("processes")

QUIET = {"log_level": 0}


def producer(broker, name: str, **config) -> Producer:
    made = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, **QUIET, **config}
    )
    made.init_transactions(60)
    return made


def consumer(broker, topic: str, *, isolation: str = "read_committed", group: str | None = None) -> Consumer:
    made = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": group or new_name("group"), "isolation.level": isolation,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 50, **QUIET,
    })  # fmt: skip
    made.assign([TopicPartition(topic, 0, 0)])
    return made


def read_all(broker, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """Returns the values up to the end of partition 0."""
    reader = consumer(broker, topic, isolation=isolation)
    values = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        values.append(message.value())
    reader.close()
    return values


def test_committed_records_are_read_and_aborted_ones_are_not(broker):
    topic = new_topic(broker)
    client = producer(broker, new_name("txn"))
    for n in range(6):
        client.begin_transaction()
        for i in range(3):
            client.produce(topic, f"{n}.{i}".encode(), partition=0)
        client.flush(60)
        if n % 2:
            client.abort_transaction(60)
        else:
            client.commit_transaction(60)
    committed = [f"{n}.{i}".encode() for n in (0, 2, 4) for i in range(3)]
    assert read_all(broker, topic) == committed
    assert len(read_all(broker, topic, isolation="read_uncommitted")) == 18


def test_an_open_transaction_hides_what_comes_after_it(broker):
    topic = new_topic(broker)
    open_one, other = producer(broker, new_name("txn")), producer(broker, new_name("txn"))
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=0)
    open_one.flush(60)
    other.begin_transaction()
    other.produce(topic, b"later", partition=0)
    other.commit_transaction(60)
    assert read_all(broker, topic) == []
    assert read_all(broker, topic, isolation="read_uncommitted") == [b"open", b"later"]
    open_one.commit_transaction(60)
    assert read_all(broker, topic) == [b"open", b"later"]


def test_a_second_producer_fences_the_first(broker):
    topic, name = new_topic(broker), new_name("txn")
    first = producer(broker, name)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    first.flush(60)
    second = producer(broker, name)
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(60)
    with pytest.raises(KafkaException) as failed:
        first.commit_transaction(60)
    assert failed.value.args[0].fatal()
    assert failed.value.args[0].code() == KafkaError._FENCED
    assert read_all(broker, topic) == [b"of the second"]


def test_offsets_become_visible_with_their_transaction(broker):
    topic, group = new_topic(broker), new_name("group")
    client = producer(broker, new_name("txn"))
    reader = consumer(broker, topic, group=group)
    at = [TopicPartition(topic, 0)]

    def send(offset: int) -> None:
        client.begin_transaction()
        client.produce(topic, b"x", partition=0)
        client.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], reader.consumer_group_metadata(), 60
        )

    send(5)
    with pytest.raises(KafkaException, match=r"UNSTABLE|unstable|Timed out"):
        reader.committed(at, timeout=0.5)
    client.commit_transaction(60)
    assert reader.committed(at, timeout=60)[0].offset == 5
    send(9)
    client.abort_transaction(60)
    assert reader.committed(at, timeout=60)[0].offset == 5
    reader.close()


def test_a_transaction_that_is_open_for_too_long_is_aborted(tmp_path):
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with EmbeddedBroker(tmp_path / "data", config=settings) as broker:
        topic = new_topic(broker)
        slow = producer(broker, "slow", **{"transaction.timeout.ms": 1000})
        slow.begin_transaction()
        slow.produce(topic, b"too late", partition=0)
        slow.flush(60)
        quick = producer(broker, "quick")
        quick.begin_transaction()
        quick.produce(topic, b"in time", partition=0)
        quick.commit_transaction(60)
        reader = consumer(broker, topic)
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while not values and time.monotonic() < deadline:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
        reader.close()
        assert values == [b"in time"]
        with pytest.raises(KafkaException):
            slow.commit_transaction(60)


def test_with_durability_fsync_transactions_are_the_same(tmp_path):
    """Then every step of the coordinator waits for the disk, and so do requests that depend on it."""
    with EmbeddedBroker(tmp_path / "data", config={"durability": "fsync"}) as broker:
        topic = new_topic(broker)
        client = producer(broker, "txn")
        for n in range(8):
            client.begin_transaction()
            for i in range(20):
                client.produce(topic, f"{n}.{i}".encode(), partition=0)
            if n % 2:
                client.abort_transaction(60)
            else:
                client.commit_transaction(60)
        assert read_all(broker, topic) == [f"{n}.{i}".encode() for n in range(0, 8, 2) for i in range(20)]


class NewClient:
    """A client of transaction version 2, as Java's from 4.0 on: it adds no partitions, and its epoch grows."""

    def __init__(self, client: RawClient, name: str) -> None:
        self.client, self.name = client, name
        given = client.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 5)
        self.producer_id, self.epoch, self.sequence = given.producer_id, given.producer_epoch, 0

    def produce(self, topic: str, *values: bytes) -> int:
        records = batch(
            *values, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=self.sequence, is_transactional=True
        )  # fmt: skip
        request = produce_request(topic, records, acks=-1, transactional_id=self.name)
        (answer,) = self.client.request(request, 12).responses[0].partition_responses
        if not answer.error_code:
            self.sequence += len(values)
        return answer.error_code

    def end(self, *, committed: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = self.client.request(request, 5)
        assert answer.error_code == E.NONE
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_newer_clients_add_partitions_by_writing(tmp_path, durability):
    patient = {"add.partitions.to.txn.retry.backoff.max.ms": "10000"}  # these requests do not come again
    with EmbeddedBroker(tmp_path / "data", config={"durability": durability, **patient}) as broker:
        topic = new_topic(broker)
        with RawClient(broker.port) as raw:
            client = NewClient(raw, "txn")
            for n in range(5):
                assert client.epoch == n
                assert client.produce(topic, f"{n}".encode()) == E.NONE
                client.end(committed=n % 2 == 0)
        assert read_all(broker, topic) == [b"0", b"2", b"4"]


def test_a_marker_wakes_a_fetch_that_waits_for_committed_records(broker):
    """The fetch waits for a megabyte: the records came long ago, and a marker has only some bytes."""
    topic = new_topic(broker)
    with RawClient(broker.port) as raw, RawClient(broker.port) as reading:
        client = NewClient(raw, new_name("txn"))
        for _ in range(2):
            assert client.produce(topic, bytes(700_000)) == E.NONE
        request = fetch_request(topic, max_wait_ms=200_000, min_bytes=1_000_000, isolation_level=1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(reading.request, request, 12)
            time.sleep(0.2)  # time to be answered too early
            assert not waiting.done()
            client.end()
            answer = waiting.result()  # within the minute that a client waits, not at the end of the poll
        (partition,) = answer.responses[0].partitions
        assert sum(h.record_count for _, h in iter_headers(bytes(partition.records))) >= 2


async def test_aiokafka(broker):
    aiokafka = needs.module("aiokafka")
    topic, group = new_topic(broker), new_name("group")
    client = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=new_name("txn"))
    await client.start()
    async with client.transaction():
        await client.send(topic, b"kept")
        await client.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): 3}, group)
    await client.begin_transaction()
    await client.send(topic, b"dropped")
    await client.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): 4}, group)
    await client.abort_transaction()
    await client.stop()
    assert read_all(broker, topic) == [b"kept"]
    reader = consumer(broker, topic, group=group)
    assert reader.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == 3
    reader.close()


def test_kafka_python(broker):
    kafka = needs.module("kafka")
    topic, name = new_topic(broker), new_name("txn")
    client = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    client.init_transactions()
    for value, committed in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
        client.begin_transaction()
        client.send(topic, value)
        client.flush()
        if committed:
            client.commit_transaction()
        else:
            client.abort_transaction()
    client.close()
    assert read_all(broker, topic) == [b"kept", b"kept too"]


def test_pipelined_requests_of_a_transaction_stay_in_order(tmp_path):
    """The first waits until its partition is added, which takes a write to the disk; the others must not overtake it."""
    patient = {"add.partitions.to.txn.retry.backoff.max.ms": "10000"}  # these requests do not come again
    with EmbeddedBroker(tmp_path / "data", config={"durability": "fsync", **patient}) as broker:
        topic = new_topic(broker)
        with RawClient(broker.port) as raw:
            client = NewClient(raw, "txn")
            for n in range(10):
                for i in range(5):
                    records = batch(
                        f"{n}.{i}".encode(), producer_id=client.producer_id, producer_epoch=client.epoch, base_sequence=i,
                        is_transactional=True,
                    )  # fmt: skip
                    raw.send(produce_request(topic, records, acks=-1, transactional_id="txn"), 12, i)
                for i in range(5):
                    correlation_id, answer = raw.receive(ProduceRequest, 12)
                    assert correlation_id == i
                    assert answer.responses[0].partition_responses[0].error_code == E.NONE
                client.end()
        assert read_all(broker, topic) == [f"{n}.{i}".encode() for n in range(10) for i in range(5)]
