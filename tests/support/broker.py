"""A real broker for tests: the fixture `broker` (one per module), and small helpers around it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from klamm.testing import EmbeddedBroker

NO_RETENTION: Final = {"log.retention.check.interval.ms": "86400000"}
"""Tests produce records with times years ago; the usual check would delete them once a run has lasted five minutes."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yields a broker that the tests of a module share; each test takes topics of its own (`new_topic`)."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", config=NO_RETENTION) as running:
        yield running


def new_name(prefix: str = "topic") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def new_topic(
    broker: EmbeddedBroker, partitions: int = 1, config: dict[str, str] | None = None, name: str | None = None
) -> str:
    """Returns a topic of its own for one test."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = name or new_name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(60)
    return name


BUSY_S: Final = 10.0
"""A test waits so much longer than the seconds that we promise: machines that build stand still for that long."""


def wait_until(condition: Callable[[], Any], what: str, *, timeout_s: float = 60) -> Any:
    """Returns the first true value of `condition()`; fails the test with `what` when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"not within {timeout_s} s: {what}")


def wait_decided(bootstrap: str, topic: str) -> None:
    """Waits until no transaction is open in a topic: its marker comes a moment after its commit was answered."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    latest = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}

    def ends(level: IsolationLevel) -> list[int]:
        found = admin.list_offsets(latest, isolation_level=level, request_timeout=60)
        return [future.result().offset for future in found.values()]

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"the end of all transactions in {topic}",
    )
