"""The common part of the tests of MirrorSourceConnector: records in and out, and a task that runs in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.broker import wait_until

from klamm_mirror.source.config import ASSIGNED
from klamm_mirror.source.connector import MirrorSourceConnector
from klamm_plugins.testing import MemoryConnectorContext, MemoryDriverContext

Row = tuple[bytes | None, bytes | None, Any, int]


def props(source: str, target: str, **more: str) -> dict[str, str]:
    return {
        "name": "m",
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "sync.topic.acls.enabled": "false",
        "heartbeats.replication.enabled": "false",  # other tests may send heartbeats to the same brokers
        **{k.replace("__", "."): v for k, v in more.items()},
    }


class Running:
    """A connector and its tasks, as the runtime would run them. `offsets` may be handed to the next one."""

    def __init__(self, config: Mapping[str, str], tasks: int = 1) -> None:
        self.connector = MirrorSourceConnector()
        self.context = MemoryConnectorContext()
        self.connector.initialize(self.context)
        self.connector.start(config)
        self.contexts: list[MemoryDriverContext] = []
        self.errors: list[BaseException] = []
        self.tasks: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._tasks = tasks

    def start(self, commits: Mapping[str, Any] | None = None) -> Running:
        self.configs = self.connector.task_configs(self._tasks)
        for config in self.configs:
            context = MemoryDriverContext(config)
            for commit in commits or ():
                context.commit(commit)
            context.commits.clear()
            self.contexts.append(context)
            thread = threading.Thread(target=self._run, args=(config, context))
            self._threads.append(thread)
            thread.start()
        return self

    def _run(self, config: dict[str, str], context: MemoryDriverContext) -> None:
        task = MirrorSourceConnector.task_class()()
        self.tasks.append(task)
        try:
            task.initialize(context)
            task.start(config)
            task.run()
        except BaseException as e:
            self.errors.append(e)
        finally:
            task.stop()

    @property
    def commits(self) -> list[Any]:
        return [commit for c in self.contexts for commit in c.commits]

    @property
    def records(self) -> int:
        return sum(c.said[-1]["records"] for c in self.contexts if c.said)

    def details(self) -> dict[str, Any]:
        return self.contexts[0].said[-1]["details"] if self.contexts[0].said else {}

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; {self.details()}"
            time.sleep(0.02)

    def stop_tasks(self) -> None:
        for context in self.contexts:
            context.stop()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def stop(self) -> None:
        self.stop_tasks()
        self.connector.stop()

    def __enter__(self) -> Running:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


def assigned(running: Running) -> list[str]:
    return [c[ASSIGNED] for c in running.configs]


def produce(bootstrap: str, topic: str, rows: list[Row], *, partition: int = 0, **config: Any) -> None:
    """Write rows (key, value, headers, timestamp) in order."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for key, value, headers, timestamp in rows:
        producer.produce(topic, value, key, partition, headers=headers or None, timestamp=timestamp)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int | None, *, partition: int = 0) -> list[Row]:
    """Returns the first `count` rows of a partition (fewer after two minutes); None: all that it has now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "isolation.level": "read_uncommitted", "enable.partition.eof": True,
         "topic.metadata.refresh.interval.ms": 500}  # the topic may be made later
    )  # fmt: skip
    found: list[Row] = []
    ended, deadline = False, time.monotonic() + 120
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while time.monotonic() < deadline and (not ended if count is None else len(found) < count):
            for m in consumer.consume(10_000, 0.2):
                if m.error() is None:
                    found.append((m.key(), m.value(), m.headers() or [], m.timestamp()[1]))
                ended = ended or (m.error() is not None and m.error().code() == KafkaError._PARTITION_EOF)
    finally:
        consumer.close()
    assert ended or count is not None, f"{topic}-{partition}: {len(found)} rows and no end within two minutes"
    return found


def rows(count: int, tag: str = "") -> list[Row]:
    """Keys, values, headers and tombstones of all kinds, with timestamps that rise and fall."""
    found: list[Row] = []
    for i in range(count):
        key = None if i % 7 == 3 else f"{tag}k{i % 50}".encode()
        value = None if i % 11 == 5 and key is not None else f"{tag}{i}:".encode() + b"x" * (i % 90)
        headers = [("h", f"{i}".encode()), ("n", None)] if i % 5 == 0 else []
        found.append((key, value, headers, 1_700_000_000_000 + (i * 37) % 5000))
    return found


def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    """The value of a topic's setting."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value: str | None = admin.describe_configs([resource])[resource].result(60)[name].value
    return value


def change(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Set a topic's setting."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def run_until(
    connector_type: Any, config: dict[str, str], done: Callable[[MemoryDriverContext], bool]
) -> MemoryDriverContext:
    """Run a connector's one task, in a thread as its host does, until `done`."""
    connector = connector_type()
    connector.start(config)
    [task_config] = connector.task_configs(1)
    connector.stop()
    task = connector.task_class()()
    context = MemoryDriverContext(task_config)
    task.initialize(context)
    task.start(task_config)
    errors: list[Exception] = []

    def run() -> None:
        try:
            task.run()
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: errors or done(context), "the task's work", timeout_s=60)
    finally:
        context.stop()
        thread.join(60)
        task.stop()
    assert not errors
    assert not thread.is_alive()
    return context
