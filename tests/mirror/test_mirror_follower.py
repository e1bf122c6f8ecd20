"""The mirror's own topics are followed by their ids: what was made anew is read from its beginning."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_until

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.follower import TopicFollower


class Values(TopicFollower):
    """The values of a topic."""

    def reset(self) -> None:
        self.found: list[bytes | None] = []

    def take(self, record: Record) -> None:
        self.found.append(record.value)


async def write(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [Record(timestamp=now_ms, key=b"k", value=value) for value in values]
    await internal_topics.produce(cluster, topic, records)


@pytest.mark.parametrize("count", [2, 3, 5], ids=["shorter", "equal", "longer"])
async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(target: EmbeddedBroker, count: int):
    topic, admin = new_name(), AdminClient({"bootstrap.servers": target.bootstrap})
    async with Cluster(target.bootstrap) as cluster, Cluster(target.bootstrap) as other:
        values = Values(cluster, topic)
        assert not await values.catch_up()
        new_topic(target, name=topic)
        await write(other, topic, [b"1", b"2", b"3"])
        assert await values.catch_up()
        assert await values.catch_up()
        assert values.found == [b"1", b"2", b"3"]
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "it is gone")
        new_topic(target, name=topic)
        new = [b"new %d" % n for n in range(count)]
        await write(other, topic, new)
        assert await values.catch_up()
        assert values.found == new
