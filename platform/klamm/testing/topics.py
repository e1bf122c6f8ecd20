"""Topics for tests: makes, fills and reads them, with librdkafka, on any cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm_base.errors import KlammError

_TIMEOUT_S: Final = 60.0


class Sent(NamedTuple):
    """A record as it is in its topic."""

    partition: int
    key: bytes | None
    value: bytes | None


def make_topic(bootstrap: str, partitions: int = 1, name: str | None = None) -> str:
    """Makes a topic. Its name is one that no other test has, unless `name` gives it."""
    found = name or f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    future = admin.create_topics([NewTopic(found, partitions, 1)])[found]
    future.result(_TIMEOUT_S)
    return found


def send(bootstrap: str, topic: str, records: Iterable[Sent]) -> None:
    """Writes records in order. All are acknowledged when this returns. Raises KlammError."""
    failed: list[str] = []

    def note(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "enable.idempotence": True})
    for record in records:
        producer.produce(topic, record.value, record.key, partition=record.partition, on_delivery=note)
    left = producer.flush(_TIMEOUT_S)
    if left or failed:
        raise KlammError(
            f"{left} records of {topic} were not acknowledged: {', '.join(failed) or 'no answer'}"
        )


class TopicReader:
    """Reads a topic from its beginning, without a group. `seen` holds the records so far, in order within each partition.

    Reads committed records only, as a careful consumer does. `with` closes it.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.seen: list[Message] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        found = self._consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in found.partitions])

    def read(self, timeout_s: float = 0.1) -> list[Message]:
        """Returns the records that have come since the last call. Waits for up to `timeout_s` seconds."""
        found = [m for m in self._consumer.consume(10_000, timeout_s) if m.error() is None]
        self.seen += found
        return found

    def wait_for(self, count: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Waits until `count` records have been seen. Raises KlammError."""
        end = time.monotonic() + timeout_s
        while len(self.seen) < count:
            if time.monotonic() > end:
                raise KlammError(f"{len(self.seen)} of {count} records in {self.topic} after {timeout_s:g} s")
            self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()
