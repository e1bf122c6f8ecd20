"""Ends of a registry: a topic that cannot be read or is another one, and another registry at its address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic

from klamm.registry import node as nodes
from klamm.registry import service
from klamm.registry import topic as topics
from klamm.registry.errors import RegistryError
from klamm.registry.model import Schema, Version
from klamm.registry.node import Node
from klamm.registry.records import SchemaRecord, encode
from klamm.registry.server import reached_host
from klamm.registry.service import Registration
from klamm.registry.topic import NOOP, TopicError, TopicReader
from klamm.testing import EmbeddedBroker

URL = "http://127.0.0.1:1"


def node_on(broker: EmbeddedBroker, topic: str, *, eligible: bool = True) -> Node:
    return Node(
        topic=topic,
        client={"bootstrap.servers": broker.bootstrap, "log_level": 2},
        group=topic,
        replicas=1,
        leader_eligible=eligible,
    )


@pytest.mark.parametrize("listener", ["0.0.0.0", "::", ""])
def test_a_listener_on_all_addresses_is_reached_by_the_machines_name(listener: str) -> None:
    assert reached_host(None, listener) == socket.getfqdn()
    assert reached_host("registry-1.example", listener) == "registry-1.example"
    assert reached_host(None, "10.0.0.7") == "10.0.0.7"


async def test_a_second_registry_at_the_same_address_ends_the_first(broker: EmbeddedBroker) -> None:
    """The broker fences the first one: it must not go on as if it could lead."""
    topic = new_name("_schemas")
    first, second = node_on(broker, topic), node_on(broker, topic)
    await first.start(URL)
    assert await first.led(30)
    waiting = asyncio.create_task(first.wait())
    await second.start(URL)
    try:
        with pytest.raises(TopicError, match=r"is there another with this address\? Each needs a host\.name"):
            await asyncio.wait_for(waiting, 60)
    finally:
        await first.stop()
        await second.stop()


@pytest.mark.parametrize("again", [False, True])
async def test_a_topic_that_is_deleted_or_made_anew_ends_the_registry(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(nodes, "SAME_S", 0.2)
    topic = new_name("_schemas")
    node = node_on(broker, topic, eligible=False)
    await node.start(URL)
    waiting = asyncio.create_task(node.wait())
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, 60)
        if again:
            await asyncio.to_thread(new_topic, broker, 1, {"cleanup.policy": "compact"}, topic)
        with pytest.raises(TopicError, match=r"made anew|not read any more"):
            await asyncio.wait_for(waiting, 60)
    finally:
        await node.stop()


async def test_a_reader_whose_place_is_gone_fails(broker: EmbeddedBroker) -> None:
    """Records that were deleted before they were read are missed schemas."""
    from confluent_kafka import TopicPartition

    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(3):
        producer.produce(topic, key=NOOP)
    producer.flush(60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, 2)
    await asyncio.to_thread(admin.delete_records([place])[place].result, 60)
    reader = TopicReader(topic, {"bootstrap.servers": broker.bootstrap}, topic, lambda *_: None)
    reader.start()
    try:
        with pytest.raises(TopicError, match="is not read any more"):
            await asyncio.wait_for(reader.wait_for_end(), 60)
    finally:
        await reader.stop()


@pytest.mark.usefixtures("processes")
async def test_a_broker_that_was_killed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors that pass end nothing: reader, election and writer go on when it is back. The log tells of it soon."""
    caplog.set_level("INFO")
    monkeypatch.setattr(nodes, "SAME_S", 0.2)
    with EmbeddedBroker(tmp_path / "data") as broker:
        node = node_on(broker, new_name("_schemas"))
        await node.start(URL)
        waiting = asyncio.create_task(node.wait())
        try:
            assert await node.led(30)
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(3)
            assert "no broker answers" in caplog.text
            await asyncio.to_thread(broker.start)
            given = Registration(schema=Schema(kind="AVRO", text='"int"'))
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(RegistryError):  # the leader may be between two sessions
                        answer = await node.write(lambda store: service.register(store, "a", given))
                        break
                    await asyncio.sleep(0.2)
            assert answer["id"] == 1
            assert not waiting.done()
            async with asyncio.timeout(60):
                while "brokers answer again" not in caplog.text:
                    await asyncio.sleep(0.1)
        finally:
            waiting.cancel()
            await node.stop()


@pytest.mark.usefixtures("processes")
async def test_a_write_without_a_broker_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails within kafkastore.timeout.ms, as do those that wait behind it."""
    monkeypatch.setattr(topics, "TRANSACTION_S", 2.0)
    with EmbeddedBroker(tmp_path / "data") as broker:
        node = node_on(broker, new_name("_schemas"))
        node._timeout_s = 0.5
        await node.start(URL)
        try:
            assert await node.led(30)
            await asyncio.to_thread(broker.kill)
            given = Registration(schema=Schema(kind="AVRO", text='"int"'))
            writes = [
                node.write(lambda store, n=n: service.register(store, f"s{n}", given)) for n in range(3)
            ]
            async with asyncio.timeout(10):
                found = await asyncio.gather(*writes, return_exceptions=True)
            assert [getattr(each, "code", each) for each in found] == [50002] * 3
            assert "timed out" in str(found[0])
        finally:
            await node.stop()


async def test_a_start_without_brokers_says_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes, "SAY_AFTER_S", 0.0)
    node = Node(topic="t", client={"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, group="g", replicas=1)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(node.start(URL), 1)
    assert "waiting for the brokers at 127.0.0.1:1" in caplog.messages


async def test_a_write_is_told_that_no_broker_says_who_leads() -> None:
    node = Node(topic="t", client={}, group="g", replicas=1)
    node._admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    async with asyncio.timeout(10):
        with pytest.raises(RegistryError, match="Error while forwarding the request to the leader") as told:
            await node.write(
                lambda store: service.register(
                    store, "a", Registration(schema=Schema(kind="AVRO", text='"int"'))
                )
            )
    assert (told.value.code, told.value.status) == (50003, 500)


async def test_an_id_of_an_aborted_write_means_no_other_schema(broker: EmbeddedBroker) -> None:
    """Confluent's registry reads aborted records as well, and would leave out the second schema of an id."""
    topic = new_name("_schemas")

    async def registered(text: str) -> int:
        node = node_on(broker, topic)
        await node.start(URL)
        try:
            assert await node.led(30)
            given = Registration(schema=Schema(kind="AVRO", text=text))
            answer = await node.write(lambda store: service.register(store, ":.x:s", given))
            return int(answer["id"])
        finally:
            await node.stop()

    version = Version(subject=":.x:s", version=1, id=1, schema=Schema(kind="AVRO", text='"float"'))
    key, value = encode(SchemaRecord(subject=":.x:s", version=1, value=version))
    assert await registered('"int"') == 1
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"klamm-registry-{topic}-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(
        topic, key=key, value=value.replace(b'"id":1', b'"id":2') if value else None, partition=0
    )
    producer.flush(30)
    producer.abort_transaction(30)
    assert await registered('"long"') == 3


async def test_what_is_not_read_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "READ_BACK_S", 0.05)
    node = Node(topic="t", client={}, group="g", replicas=1)
    node._reader = TopicReader("t", {}, "g", lambda *_: None)
    with pytest.raises(
        TopicError, match=r"record 7 of topic t was written, and not read back within 0\.05 s"
    ):
        await asyncio.wait_for(node._read_back(7), 10)


async def test_health_makes_no_topic(broker: EmbeddedBroker) -> None:
    topic = new_name("_schemas")
    node = node_on(broker, topic)
    node._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert await node.healthy()
    assert topic not in (await asyncio.to_thread(node._admin.list_topics, timeout=30)).topics
