"""Klamm's membership beside Apache's worker in one group, either one leading, and on Apache's broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition
from support.connect_worker import worker_properties
from support.kafka_broker import KafkaBroker
from support.kafka_connect import KafkaConnectWorker
from support.worker_churn import Churn
from support.worker_group import Arena, ConfigTopic, Group, Listener, worker_group

from klamm.connect.group.listener import ConfigView
from klamm.connect.model import TaskId

pytestmark = pytest.mark.usefixtures("apache_kafka")

CONNECTORS = 4


class ReadingListener(Listener):
    """Reads the real config topic."""

    def __init__(
        self, name: str, topic: ConfigTopic, arena: Arena, *, bootstrap: str, config_topic: str
    ) -> None:
        super().__init__(name, topic, arena)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        self._partition = TopicPartition(config_topic, 0, 0)
        self._consumer.assign([self._partition])
        self.known = ConfigView()

    async def catch_up(self, offset: int) -> bool:
        await asyncio.to_thread(self._read)
        return self.snapshot().offset >= offset

    def _read(self) -> None:
        end = self._consumer.get_watermark_offsets(self._partition, timeout=60)[1]
        while self.snapshot().offset < end:
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                self._apply(message.key().decode(), message.value(), message.offset() + 1)

    def _apply(self, key: str, value: bytes | None, offset: int) -> None:
        tasks = dict(self.snapshot().tasks)
        data: dict[str, Any] = {} if value is None else orjson.loads(value)
        if key.startswith("connector-"):
            name = key.removeprefix("connector-")
            if value is None:
                tasks.pop(name, None)
            else:
                tasks.setdefault(name, 0)
        elif key.startswith("commit-") and key.removeprefix("commit-") in tasks:
            tasks[key.removeprefix("commit-")] = data["tasks"]
        self.known = ConfigView(offset=offset, tasks=tasks)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def name() -> str:
    return f"mixed-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def properties(bootstrap: str, name: str) -> dict[str, str]:
    return worker_properties(
        bootstrap,
        name,
        **{
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
        },
    )


@pytest.fixture
def java(properties: dict[str, str], tmp_path: Path) -> Iterator[KafkaConnectWorker]:
    worker = KafkaConnectWorker(properties, tmp_path)
    yield worker
    worker.end()


def ours(group: Group, properties: dict[str, str], name: str) -> ReadingListener:
    """Returns a member with a listener that reads the group's real config topic."""
    member = group.make(name)
    listener = ReadingListener(
        name,
        group.topic,
        group.arena,
        bootstrap=group.bootstrap,
        config_topic=properties["config.storage.topic"],
    )
    member.listener = listener
    member.membership._listener = member.membership._rebalancer._listener = listener
    return listener


def create(java: KafkaConnectWorker, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("line\n")
    for i in range(CONNECTORS):
        answer = java.create(
            f"c{i}",
            connector__class="org.apache.kafka.connect.file.FileStreamSourceConnector",
            file=str(tmp_path / "in.txt"),
            topic="mixed",
        )
        assert answer.status == 201, answer.body
    for i in range(CONNECTORS):
        java.wait_state(f"c{i}", "RUNNING", "RUNNING")


def runs_on_java(java: KafkaConnectWorker) -> set[str | TaskId]:
    """Returns what Apache's worker says that it runs itself."""
    me = f"127.0.0.1:{java.port}"
    found: set[str | TaskId] = set()
    for name, told in java.get("/connectors?expand=status").items():
        status = told["status"]
        if (status["connector"]["state"], status["connector"]["worker_id"]) == ("RUNNING", me):
            found.add(name)
        found |= {
            TaskId(name, t["id"]) for t in status["tasks"] if (t["state"], t["worker_id"]) == ("RUNNING", me)
        }
    return found


EVERYTHING = {f"c{i}" for i in range(CONNECTORS)} | {TaskId(f"c{i}", 0) for i in range(CONNECTORS)}


async def until_shared(group: Group, java: KafkaConnectWorker, listener: Listener) -> None:
    """Half each, together everything."""
    async with asyncio.timeout(60):
        while True:
            theirs = await asyncio.to_thread(runs_on_java, java)
            if len(listener.items) == CONNECTORS and theirs | listener.items >= EVERYTHING:
                # What runs here may still be shown as Java's: it says UNASSIGNED, and nobody here says RUNNING.
                assert len(theirs - listener.items) == CONNECTORS
                return
            await asyncio.sleep(0.1)


async def test_group_java_leads(
    bootstrap: str, name: str, properties: dict[str, str], java: KafkaConnectWorker, tmp_path: Path
) -> None:
    """Apache's worker gives ours its share, and takes it back."""
    await asyncio.to_thread(java.wait_ready)
    await asyncio.to_thread(create, java, tmp_path)
    async with worker_group(bootstrap, name, session_timeout_ms="6000", heartbeat_interval_ms="500") as group:
        listener = ours(group, properties, "klamm")
        with closing(listener):
            member = group.members["klamm"]
            await member.membership.start()
            assert member.membership.leader_url == f"http://127.0.0.1:{java.port}/"
            assert not member.membership.is_leader
            assert member.membership.protocol_version == 2
            await until_shared(group, java, listener)
            urls = await member.membership.members()
            assert sorted(urls.values()) == sorted(["http://klamm:8083", f"http://127.0.0.1:{java.port}/"])
            await group.leave("klamm")
            async with asyncio.timeout(60):
                while await asyncio.to_thread(runs_on_java, java) != EVERYTHING:
                    await asyncio.sleep(0.1)


async def test_group_java_follows(
    bootstrap: str, name: str, properties: dict[str, str], java: KafkaConnectWorker, tmp_path: Path
) -> None:
    """Ours takes over as leader when Apache's worker ends, and gives the next one its share."""
    await asyncio.to_thread(java.wait_ready)
    await asyncio.to_thread(create, java, tmp_path)
    async with worker_group(bootstrap, name, session_timeout_ms="6000", heartbeat_interval_ms="500") as group:
        listener = ours(group, properties, "klamm")
        with closing(listener):
            member = group.members["klamm"]
            await member.membership.start()
            await asyncio.to_thread(java.stop)
            await group.until(lambda: listener.items == EVERYTHING, timeout_s=60)
            assert member.membership.is_leader
            second = KafkaConnectWorker(properties, tmp_path)
            try:
                await asyncio.to_thread(second.wait_ready)
                await until_shared(group, second, listener)
                assert member.membership.is_leader
                kept = set(listener.items)
                await asyncio.to_thread(second.stop)
                await group.until(lambda: listener.items == EVERYTHING, timeout_s=60)
                assert kept <= listener.items
            finally:
                second.end()


async def test_group_on_apaches_broker(tmp_path: Path, name: str) -> None:
    """The same life as on ours, with cuts."""
    properties = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    with KafkaBroker(tmp_path, properties) as broker:
        async with (
            AsyncExitStack() as proxies,
            worker_group(
                broker.address, name, session_timeout_ms="1500", heartbeat_interval_ms="100"
            ) as group,
        ):
            await Churn(group, 7, proxies).run(40)
