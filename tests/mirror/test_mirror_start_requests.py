"""The requests of a task's start: their number does not grow with the partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import NO_RETENTION, new_name
from support.mirror_topics import keeping
from support.mirroring import Running, props

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import BrokerError, Cluster, Connection
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.topics import leaders

PER_TOPIC, TOPICS = 100, 10
PARTITIONS = PER_TOPIC * TOPICS
REQUESTS_MAX = 120
"""More than twice of what a start takes. A request for each partition would be a thousand."""


@pytest.fixture(scope="module")
def source(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("source") / "data", config=NO_RETENTION) as running:
        yield running


@pytest.fixture(scope="module")
def target(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data", config=NO_RETENTION) as running:
        yield running


@pytest.fixture(scope="module")
def names(source: EmbeddedBroker) -> list[str]:
    """Returns topics with a record in each of their partitions."""
    names = [f"{new_name('many')}-{number}" for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for made in admin.create_topics([NewTopic(name, PER_TOPIC, 1) for name in names]).values():
        made.result(60)
    fill(source, names)
    return names


def fill(source: EmbeddedBroker, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 5})
    for name in names:
        for number in range(PER_TOPIC):
            producer.produce(name, b"x", partition=number)
    assert producer.flush(60) == 0


@pytest.fixture
def requests(monkeypatch) -> Counter[str]:
    """Counts the requests of the mirror by their kind."""
    found: Counter[str] = Counter()
    ask = Connection._ask

    async def counted(self: Connection, message: Any, *args: Any) -> Any:
        found[ApiKey(message.API_KEY).name] += 1
        return await ask(self, message, *args)

    monkeypatch.setattr(Connection, "_ask", counted)
    return found


def test_a_thousand_partitions_begin_with_a_few_requests(source, target, names, requests):
    with Running(props(source.bootstrap, target.bootstrap, topics=",".join(names))) as mirror:
        mirror.until(lambda: mirror.records >= PARTITIONS, "a record of each partition")
    assert requests.total() < REQUESTS_MAX, requests


def test_a_thousand_copies_that_keep_offsets_go_on_with_a_few_requests(source, target, names, requests):
    for _ in range(2):  # copies that are empty, and copies that have an end
        requests.clear()
        with keeping(source.bootstrap, target.bootstrap, ",".join(names)) as mirror:
            mirror.until(lambda: mirror.records >= PARTITIONS, "a record of each partition")
        assert requests.total() < REQUESTS_MAX, requests
        fill(source, names)


async def test_answers_come_for_each_partition_also_where_others_have_none(source, names):
    topic = names[0]
    async with Cluster(source.bootstrap) as cluster:
        wanted = {(topic, 0): EARLIEST, (topic, 1): LATEST, (topic, PER_TOPIC): LATEST, ("absent", 0): LATEST}
        found = await leaders.offsets_at(cluster, wanted)
        assert found[topic, 0] == 0
        end = found[topic, 1]
        assert isinstance(end, int)
        assert end >= 1
        assert isinstance(found[topic, PER_TOPIC], BrokerError)
        assert isinstance(found["absent", 0], BrokerError)
        ends = {(topic, number): end for number in range(PER_TOPIC)}
        epochs = await leaders.epochs_before(cluster, ends | {(topic, 0): end + 10})
        assert set(epochs) == set(ends)
        assert all(isinstance(epoch, int) and epoch >= 0 for place, epoch in epochs.items() if place[1])
        assert isinstance(epochs[topic, 0], BrokerError)


async def test_epochs_of_batches_that_fill_an_answer_are_asked_for_again(
    source, monkeypatch, names, requests
):
    monkeypatch.setattr(leaders, "EPOCH_BYTES", 1)
    wanted = {(names[1], number): 1 for number in range(5)}
    async with Cluster(source.bootstrap) as cluster:
        epochs = await leaders.epochs_before(cluster, wanted)
    assert all(isinstance(epoch, int) and epoch >= 0 for epoch in epochs.values())
    assert requests["FETCH"] == 5
