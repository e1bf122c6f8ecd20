"""The mirror's fetches from brokers, ours and Apache Kafka: sessions name changes only, and end with the task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_topic, wait_until
from support.kafka_broker import KafkaBroker
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster, Connection
from klamm_kafka.wire.messages.fetch import FetchRequest, FetchResponse

PARTITIONS = 30
FINAL_EPOCH = -1


@dataclass
class Source:
    bootstrap: str
    kafka: KafkaBroker | None = None


@pytest.fixture(
    scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))]
)
def source(request, processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    work = tmp_path_factory.mktemp("source")
    if request.param == "klamm":
        with EmbeddedBroker(work / "data") as running:
            yield Source(running.bootstrap)
    else:
        with KafkaBroker(work) as kafka:
            yield Source(kafka.address, kafka)


@dataclass
class Fetches:
    """The requests of the mirror, and their answers."""

    seen: list[tuple[FetchRequest, FetchResponse]] = field(default_factory=list)

    def after(self, start: int) -> list[tuple[FetchRequest, FetchResponse]]:
        return self.seen[start:]

    @property
    def ended(self) -> list[int]:
        """The errors of requests that ended a session."""
        return [a.error_code for r, a in self.seen if r.session_epoch == FINAL_EPOCH and r.session_id]


@pytest.fixture
def fetches(monkeypatch) -> Fetches:
    found = Fetches()
    ask = Connection.request

    async def request(self: Connection, message: Any, *args: Any, **more: Any) -> Any:
        answer = await ask(self, message, *args, **more)
        if isinstance(message, FetchRequest):
            found.seen.append((message, answer))
        return answer

    monkeypatch.setattr(Connection, "request", request)
    return found


def partitions(message: FetchRequest | FetchResponse) -> int:
    topics = message.topics if isinstance(message, FetchRequest) else message.responses
    return sum(len(t.partitions) for t in topics)


def test_idle_partitions_are_named_once_and_the_session_ends_with_the_task(source, target, fetches):
    topic = new_topic(source, PARTITIONS)
    produce(source.bootstrap, topic, rows(100), partition=3)
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 100, "copied")
        mirror.until(lambda: fetches.seen[-1][0].session_epoch > 2, "a session")
        start = len(fetches.seen)
        mirror.until(lambda: len(fetches.seen) >= start + 3, "idle fetches")
        idle = fetches.after(start)
        assert [(partitions(r), partitions(a), a.error_code) for r, a in idle] == [(0, 0, 0)] * len(idle)
        assert len({r.session_id for r, _ in idle}) == 1
        produce(source.bootstrap, topic, rows(50), partition=7)
        mirror.until(lambda: mirror.records == 150, "a record that ends the idle time")
    assert max(partitions(r) for r, _ in fetches.seen) == PARTITIONS
    assert fetches.ended == [0]
    assert read(target.bootstrap, f"A.{topic}", 50, partition=7) == rows(50)


def test_a_session_that_the_broker_forgot_is_made_again(source, target, fetches):
    topic = new_topic(source, PARTITIONS)
    produce(source.bootstrap, topic, rows(100), partition=1)
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 100, "copied")
        mirror.until(lambda: fetches.seen[-1][0].session_epoch > 2, "a session")
        first = fetches.seen[-1][1].session_id
        if source.kafka is not None:
            source.kafka.stop()
            source.kafka.start()
        else:
            end_session(source.bootstrap, first)
        produce(source.bootstrap, topic, rows(100), partition=2)
        mirror.until(lambda: mirror.records == 200, "a new session")
        assert fetches.seen[-1][1].session_id not in {0, first}
    assert read(target.bootstrap, f"A.{topic}", 100, partition=2) == rows(100)


def end_session(bootstrap: str, session_id: int) -> None:
    """Ends another client's session, as a broker that was started anew has forgotten it."""

    async def end() -> None:
        async with Cluster(bootstrap) as cluster:
            request = FetchRequest(session_id=session_id, session_epoch=FINAL_EPOCH, topics=[])
            assert (await cluster.request(request)).error_code == 0

    asyncio.run(end())


def test_a_topic_that_is_made_anew_has_its_new_id_in_the_session(source, target, fetches):
    topic = new_topic(source, 2)
    other = new_topic(source, 2)
    produce(source.bootstrap, topic, rows(100))
    produce(source.bootstrap, other, rows(10))
    config = props(
        source.bootstrap, target.bootstrap, topics=f"{topic},{other}", mirror__topic__recreated="append",
        source__consumer__metadata__max__age__ms="500",
    )  # fmt: skip
    with Running(config) as mirror:
        mirror.until(lambda: mirror.records == 110, "copied")
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "deleted")
        new_topic(source, 2, name=topic)
        produce(source.bootstrap, topic, rows(30, "new"))
        mirror.until(lambda: mirror.records == 140, "the new topic's records")
        produce(source.bootstrap, other, rows(10))
        mirror.until(lambda: mirror.records == 150, "the other topic goes on")
