"""`kill -9` of the broker in every state of a transaction: what was decided happens, everywhere, and nothing hangs.

States that last for microseconds are made: while the broker is down the record or the marker that it would have written
next is written into its log.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support.broker import new_topic, wait_until
from support.raw import RawClient, batch, produce_request

from klamm.testing import EmbeddedBroker
from klamm_broker.coordinator.model import TopicPartition as TopicIndex
from klamm_broker.coordinator.partitioning import partition_for
from klamm_broker.coordinator.transactions import records, transitions
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.transaction import Recorded
from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, encode_end_txn_marker, iter_headers
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm_kafka.wire.struct import Message

NAME, GROUP = "txn", "group"
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "2"}
STATE_PARTITION = partition_for(NAME, 2)
S = TransactionState


class OfflineLog:
    """A partition of a broker that is down."""

    def __init__(self, data: Path, topic: str, index: int) -> None:
        directory = data / f"{topic}-{index}"
        self._log = PartitionLog.open(directory, topic, index, LogConfig(), clean=False, now_ms=0)

    def __enter__(self) -> OfflineLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.release()

    def append(self, data: bytearray) -> None:
        self._log.append(data, now_ms=int(time.time() * 1000), origin="coordinator")

    @property
    def last_record(self) -> tuple[str, Recorded]:
        content = b"".join(p.read_bytes() for p in sorted(self._log.directory.glob("*.log")))
        (position, _) = list(iter_headers(content))[-1]
        record = decode_records(content, position)[-1]
        assert record.key is not None
        assert record.value is not None
        decoded = records.decode(record.key, record.value)
        assert decoded is not None
        return decoded

    def write(self, recorded: Recorded) -> None:
        key, value = records.encode(NAME, recorded, transaction_version=2)
        self.append(encode_batch([Record(timestamp=0, key=key, value=value)]))


class Client:
    """A client of transaction version 2."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        wait_until(self._init, "a producer id")

    def _request(self, message: Message, version: int) -> Any:
        with RawClient(self._broker.port) as raw:
            return raw.request(message, version)

    def _init(self) -> bool:
        given = self._request(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 5)
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch
        return not given.error_code

    def produce(self, topic: str, partition: int) -> None:
        records = batch(
            b"x",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request(topic, records, partition=partition, acks=-1, transactional_id=NAME)
        assert self._request(request, 12).responses[0].partition_responses[0].error_code == E.NONE

    def commit_offset(self, topic: str, offset: int) -> None:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=NAME, group_id=GROUP, producer_id=self.producer_id, producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )  # fmt: skip
        answer = self._request(request, 5)
        assert answer.topics[0].partitions[0].error_code == E.NONE

    def end(self, *, committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id=NAME,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return self._request(request, 5).error_code


def state(raw: RawClient) -> str:
    found = raw.request(DescribeTransactionsRequest(transactional_ids=[NAME]), 0).transaction_states[0]
    return found.transaction_state if not found.error_code else E(found.error_code).name


def committed_offset(raw: RawClient) -> int | None:
    """Returns the committed offset; None while it is not stable."""
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=True
    )
    group = raw.request(asked, 8).groups[0]
    if group.error_code:
        return None
    for topic in group.topics:
        for partition in topic.partitions:
            return None if partition.error_code else partition.committed_offset
    return -1


def open_offsets(raw: RawClient, topic: str) -> list[int]:
    """Returns the first offsets of transactions that are open in the topic's two partitions."""
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 1])])
    partitions = raw.request(asked, 0).topics[0].partitions
    return [p.current_txn_start_offset for part in partitions for p in part.active_producers]


def values(broker: EmbeddedBroker, topic: str) -> int:
    """Returns how many committed records the topic has."""
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 20, "log_level": 0,
    })  # fmt: skip
    reader.assign([TopicPartition(topic, p, 0) for p in (0, 1)])
    found, ends = 0, 0
    deadline = time.monotonic() + 60
    while ends < 2 and time.monotonic() < deadline:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found += 1
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
            ends += 1
    reader.close()
    return found


@pytest.fixture
def broker(tmp_path):
    with EmbeddedBroker(tmp_path / "data", config=SETTINGS) as running:
        yield running


def begun(broker: EmbeddedBroker, tmp_path: Path) -> tuple[str, Client]:
    """Returns a transaction with two partitions and an offset, and a broker that was killed in it."""
    topic = new_topic(broker, 2)
    client = Client(broker)
    for partition in (0, 1):
        client.produce(topic, partition)
    client.commit_offset(topic, 7)
    broker.kill()
    return topic, client


def test_an_ongoing_transaction_goes_on(broker, tmp_path):
    topic, before = begun(broker, tmp_path)
    broker.start()
    with RawClient(broker.port) as raw:
        wait_until(lambda: state(raw) == "Ongoing", "the transaction to be loaded")
        assert open_offsets(raw, topic) == [0, 0]
        assert committed_offset(raw) is None or committed_offset(raw) == -1
        assert before.end(committed=True) == E.NONE
        assert (state(raw), committed_offset(raw), open_offsets(raw, topic)) == (
            "CompleteCommit",
            7,
            [-1, -1],
        )
    assert values(broker, topic) == 2


@pytest.mark.parametrize("marked", [0, 1], ids=["no-marker", "one-marker"])
@pytest.mark.parametrize("decision", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_what_was_decided_is_completed(broker, tmp_path, decision, marked):
    topic, before = begun(broker, tmp_path)
    data = tmp_path / "data"
    with OfflineLog(data, "__transaction_state", STATE_PARTITION) as log:
        _, recorded = log.last_record
        assert recorded.state is S.ONGOING
        log.write(transitions.decide(recorded, decision, client_version=2, now_ms=int(time.time() * 1000)))
    committed = decision is S.PREPARE_COMMIT
    for partition in range(marked):
        with OfflineLog(data, topic, partition) as log:
            marker = encode_end_txn_marker(
                committed=committed,
                producer_id=before.producer_id,
                producer_epoch=before.epoch + 1,
                coordinator_epoch=0,
                timestamp=0,
            )
            log.append(marker)
    broker.start()
    with RawClient(broker.port) as raw:
        done = "CompleteCommit" if committed else "CompleteAbort"
        wait_until(lambda: state(raw) == done, "the transaction to be completed")
        assert open_offsets(raw, topic) == [-1, -1]
        wait_until(lambda: committed_offset(raw) is not None, "the group is loaded, and its offset stable")
        assert committed_offset(raw) == (7 if committed else -1)
        assert before.end(committed=committed) == E.NONE, "asked again: it was decided so"
        assert before.end(committed=not committed) == E.INVALID_TXN_STATE
    assert values(broker, topic) == (2 if committed else 0)
    assert "cannot be written" not in broker.log_text


def test_a_completion_that_was_lost_is_written_again(broker, tmp_path):
    """All markers are there, the last record is not: markers come twice, which readers do not notice."""
    topic, _ = begun(broker, tmp_path)
    broker.start()
    client = Client(broker)
    client.produce(topic, 0)
    assert client.end(committed=True) == E.NONE
    broker.kill()
    with OfflineLog(tmp_path / "data", "__transaction_state", STATE_PARTITION) as log:
        _, recorded = log.last_record
        assert recorded.state is S.COMPLETE_COMMIT
        prepared = dataclasses.replace(
            recorded, state=S.PREPARE_COMMIT, partitions=frozenset({TopicIndex(topic, 0)})
        )
        log.write(prepared)
    broker.start()
    with RawClient(broker.port) as raw:
        wait_until(lambda: state(raw) == "CompleteCommit", "the transaction to be completed")
        assert open_offsets(raw, topic) == [-1, -1]
    assert values(broker, topic) == 1


def test_ids_and_epochs_go_on_after_a_kill(broker, tmp_path):
    first = Client(broker)
    broker.kill()
    broker.start()
    second = Client(broker)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    with RawClient(broker.port) as raw:
        plain = raw.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
        assert plain.producer_id > second.producer_id


class Load(threading.Thread):
    """One transaction after the other, each with a record in both partitions; notes what became of them."""

    def __init__(self, broker: EmbeddedBroker, topic: str, name: str) -> None:
        super().__init__()
        self.stopped = threading.Event()
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self._settings = {
            "bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
        }  # fmt: skip
        self._topic, self._name = topic, name

    def run(self) -> None:
        rng = random.Random(self._name)
        n = 0
        while not self.stopped.is_set():
            producer = Producer(self._settings)
            try:
                producer.init_transactions(60)
                while not self.stopped.is_set():
                    n += 1
                    self._one(producer, f"{self._name}.{n}".encode(), committed=rng.random() < 0.7)
            except KafkaException:
                continue  # its fate is not known: either is right, but only one of them

    def _one(self, producer: Producer, value: bytes, *, committed: bool) -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(self._topic, value, partition=partition)
        if committed:
            producer.commit_transaction(60)
            self.committed.add(value)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
            self.aborted.add(value)


def test_kills_under_load(broker):
    topic = new_topic(broker, 2)
    load = [Load(broker, topic, name) for name in ("a", "b", "c")]
    for thread in load:
        thread.start()
    for _ in range(6):
        time.sleep(random.uniform(0.3, 1.2))
        broker.kill()
        broker.start()
    wait_until(lambda: any(thread.committed for thread in load), "a transaction is committed")
    time.sleep(1)  # they go on after the last kill
    for thread in load:
        thread.stopped.set()
    for thread in load:
        thread.join()
    found = read(broker, topic)
    committed, aborted = set().union(*(t.committed for t in load)), set().union(*(t.aborted for t in load))
    assert committed
    for partition in (0, 1):
        assert len(found[partition]) == len(set(found[partition])), "a record twice"
        assert committed <= set(found[partition]), "a committed record is missing"
        assert not aborted & set(found[partition])
    assert set(found[0]) == set(found[1]), "a part of a transaction"


def read(broker: EmbeddedBroker, topic: str) -> dict[int, list[bytes]]:
    """Returns the committed values of both partitions, once no transaction is open any more."""
    for name in ("a", "b", "c"):
        Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
        ).init_transactions(60)
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0,
    })  # fmt: skip
    reader.assign([TopicPartition(topic, p, 0) for p in (0, 1)])
    found: dict[int, list[bytes]] = {0: [], 1: []}
    ends: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ends) < 2 and time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found[message.partition()].append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends.add(message.partition())
    reader.close()
    assert ends == {0, 1}
    return found
