"""KafkaBasedLog on a real broker: order, barrier, Java's partitions, bad records, a broker that goes away."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo
from support.connect_worker import free_port
from support.runtime import NO_BROKER
from support.stores import java_partition

from klamm.connect.topics import kafka_log
from klamm.connect.topics.compacted_topics import TopicSettings, ensure_compacted_topics
from klamm.connect.topics.kafka_log import (
    KafkaBasedLog,
    LogError,
    LogProducer,
    make_admin,
)
from klamm.connect.topics.offset_state import offset_record
from klamm.connect.topics.own_offset_topic import OffsetTopic
from klamm.testing import EmbeddedBroker


@pytest.mark.parametrize(
    ("code", "text", "level"),
    [
        (KafkaError._TRANSPORT, "b:9092/1: Receive failed: Connection reset by peer", "DEBUG"),
        (KafkaError._RESOLVE, "no such host", "DEBUG"),
        (KafkaError._SSL, "b:9092/1: SSL handshake failed", "WARNING"),
    ],
)
def test_a_lost_connection_of_a_client_is_logged_at_debug(
    code: int, text: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "klamm.connect.topics.kafka_log")
    kafka_log._log_client_error("reading topic t", KafkaError(code, text), {})
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [(level, f"reading topic t: {text}")]


class Log:
    """A topic of its own, its log, and what the log has handed over."""

    def __init__(self, bootstrap: str, partitions: int = 5) -> None:
        self.client = {"bootstrap.servers": bootstrap}
        self.topic = f"log-{uuid.uuid4().hex[:8]}"
        settings = TopicSettings(name=self.topic, key="k.topic", partitions=partitions, replication_factor=1)
        ensure_compacted_topics(make_admin(self.client), [settings])
        self.producer = LogProducer(self.client)
        self.logs: list[KafkaBasedLog] = []

    async def reader(self) -> list[tuple[str, bytes | None]]:
        seen: list[tuple[str, bytes | None]] = []
        log = KafkaBasedLog(self.topic, self.client, lambda key, value, _: seen.append((key, value)))
        await log.start()
        self.logs.append(log)
        return seen

    async def close(self) -> None:
        await asyncio.gather(*(log.stop() for log in self.logs))
        await self.producer.close()


@pytest.fixture
async def log(bootstrap: str) -> AsyncIterator[Log]:
    made = Log(bootstrap)
    yield made
    await made.close()


async def test_topics_log_hands_over_what_was_there_and_what_comes(log: Log) -> None:
    await asyncio.gather(*(log.producer.send(log.topic, f"k{i}", b"%d" % i) for i in range(50)))
    seen = await log.reader()
    assert sorted(seen) == sorted((f"k{i}", b"%d" % i) for i in range(50))
    await log.producer.send(log.topic, "k1", None)
    await log.logs[0].read_to_end()
    assert seen[-1] == ("k1", None)


async def test_topics_log_read_to_end_is_a_barrier_each_time(log: Log) -> None:
    seen = await log.reader()
    for i in range(20):
        await log.producer.send(log.topic, f"k{i}", b"v")
        await log.logs[0].read_to_end()
        assert len(seen) == i + 1


async def test_topics_log_keeps_the_order_of_each_key(log: Log) -> None:
    sent = [log.producer.send(log.topic, f"k{i % 3}", b"%d" % i) for i in range(300)]
    await asyncio.gather(*sent)
    seen = await log.reader()
    for k in range(3):
        values = [int(v or b"") for key, v in seen if key == f"k{k}"]
        assert values == sorted(values)


async def test_topics_log_puts_keys_where_java_does(log: Log) -> None:
    keys = [f"status-task-übung-{i}" for i in range(30)]
    await asyncio.gather(*(log.producer.send(log.topic, key, b"{}") for key in keys))
    found: dict[str, int] = {}

    class Spy(KafkaBasedLog):
        def _record(self, message, where):
            found[message.key().decode()] = message.partition()

    spy = Spy(log.topic, log.client, lambda _key, _value, _timestamp: None)
    await spy.start()
    await spy.stop()
    assert found == {key: java_partition(key.encode(), 5) for key in keys}


async def test_topics_log_names_a_record_that_it_cannot_use_and_goes_on(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    other = Producer(log.client)
    for key in (b"\xff\xfe", b"good"):
        other.produce(log.topic, key=key, value=b"1", partition=0)
    other.flush()
    assert await log.reader() == [("good", b"1")]
    assert f"ignoring record {log.topic}-0@0" in caplog.text


async def test_topics_log_of_a_topic_that_is_not_there(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.connect.topics.kafka_log.ADMIN_TIMEOUT_S", 0.5)
    missing = KafkaBasedLog("not..there!", log.client, lambda _key, _value, _timestamp: None)
    with pytest.raises(LogError, match=r"cannot read topic not\.\.there!"):
        await missing.start()


@pytest.mark.usefixtures("processes")
async def test_topics_log_survives_its_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", port=free_port()) as broker:
        log = Log(broker.bootstrap, partitions=1)
        try:
            seen = await log.reader()
            await log.producer.send(log.topic, "a", b"1")
            broker.kill()
            waiting = log.producer.send(log.topic, "b", b"2")
            with pytest.raises(LogError, match=r"could not be read to its end in 0\.5 s"):
                await log.logs[0].read_to_end(0.5)
            broker.start()
            await waiting
            await log.logs[0].read_to_end()
            assert seen == [("a", b"1"), ("b", b"2")]
        finally:
            await log.close()


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.REQUEST_TIMED_OUT]
)
async def test_topics_log_asks_again_for_its_end_when_the_leader_is_another(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A broker that starts again has a new leader epoch, and librdkafka asks it by the old one for a while."""
    log = Log(bootstrap, partitions=1)
    try:
        await log.reader()
        ask = log.logs[0]._ask_for_ends
        refused = [KafkaException(KafkaError(code))]

        def fenced_once(isolation: IsolationLevel) -> dict[int, int]:
            if refused:
                raise refused.pop()
            return ask(isolation)

        monkeypatch.setattr(log.logs[0], "_ask_for_ends", fenced_once)
        await log.logs[0].read_to_end()
        assert not refused
    finally:
        await log.close()


def vague(admin: AdminClient, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Spoils the client's first answer about ends, as librdkafka does when a connection ends while it waits; counts answers."""
    ask, answers = admin.list_offsets, []

    def broken(*args: Any, **options: Any) -> Any:
        futures = ask(*args, **options)
        answers.append(len(futures))
        if len(answers) == 1:
            for place in futures:
                futures[place] = Future()
                futures[place].set_result(ListOffsetsResultInfo(-1001, -1, -1))
        return futures

    monkeypatch.setattr(admin, "list_offsets", broken)
    return answers


async def test_topics_log_knows_an_end_that_is_none(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = await log.reader()
    answers = vague(log.logs[0]._admin, monkeypatch)
    await log.producer.send(log.topic, "k", b"1")
    await log.logs[0].read_to_end()
    assert answers == [5, 5]
    assert seen == [("k", b"1")]


async def test_topics_offsets_of_a_source_are_read_to_an_end_that_is_one(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a source would begin anew."""
    await log.producer.send(log.topic, *offset_record("src", {"f": "a"}, {"n": 7}))
    admin = make_admin(log.client)
    answers = vague(admin, monkeypatch)
    settings = TopicSettings(name=log.topic, key="k.topic", partitions=5, replication_factor=1)
    topic = OffsetTopic(
        settings,
        admin=admin,
        make_consumer=lambda more: Consumer({**log.client, "group.id": log.topic, **more}),
    )
    state = await asyncio.to_thread(topic.read_to_end, 60)
    assert state.get("src", {"f": "a"}) == {"n": 7}
    assert len(answers) == 2


async def test_topics_log_tells_of_every_write_also_of_a_producer_that_failed_for_good() -> None:
    """Somebody waits for it, with a lock in the hand."""
    producer = LogProducer({"bootstrap.servers": NO_BROKER, "message.timeout.ms": 800})
    written = producer.send("t", "k", b"1")
    producer._on_error(KafkaError(KafkaError._FATAL))
    async with asyncio.timeout(60):
        with pytest.raises(LogError, match="cannot write to topic t"):
            await written
    await producer.close()


def test_topics_log_topic_is_made_once_and_compacted(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = f"log-{uuid.uuid4().hex[:8]}"
    for partitions in (3, 7):
        settings = TopicSettings(name=name, key="k", partitions=partitions, replication_factor=1)
        ensure_compacted_topics(admin, [settings])
    assert len(admin.list_topics(name).topics[name].partitions) == 3


async def test_topics_log_waits_for_open_transactions_but_not_to_start(bootstrap: str) -> None:
    """A task that was killed in a transaction is started again by the worker that starts: it must not wait for it."""
    topic = f"open-{uuid.uuid4().hex[:8]}"
    client = {"bootstrap.servers": bootstrap}
    admin = make_admin(client)
    settings = TopicSettings(name=topic, key="offset.storage.topic", partitions=1, replication_factor=1)
    await asyncio.to_thread(ensure_compacted_topics, admin, [settings])
    transactional = Producer({**client, "transactional.id": topic})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce(topic, key="open", value=b"1")
    assert transactional.flush(60) == 0
    plain = Producer(client)
    plain.produce(topic, key="behind", value=b"2")
    assert plain.flush(60) == 0

    seen: list[str] = []
    reader = KafkaBasedLog(topic, client, lambda key, value, ts: seen.append(key), transactions=True)
    async with asyncio.timeout(60):
        await reader.start()
    assert seen == []
    with pytest.raises(LogError, match=r"could not be read to its end in 0\.5 s"):
        await reader.read_to_end(0.5)
    await asyncio.to_thread(transactional.commit_transaction, 60)
    await reader.read_to_end(60)
    assert seen == ["open", "behind"]
    await reader.stop()
