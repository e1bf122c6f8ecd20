"""Groups of a topic that was made anew: no flow gives them offsets of the topic that was deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from support.broker import new_name, wait_until
from support.gaps import decide, delete, gaps, make
from support.mirroring import Running, produce, props, rows
from support.mirroring_once import Mirror, numbered

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.checkpointer import Checkpointer
from klamm_mirror.checkpoint.config import parse
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.copy.gap_policy import new_name as copy_name
from klamm_mirror.gaps.entries import State
from klamm_mirror.stops import Action

PREFIX, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class World:
    """A topic whose 200 records are at B, a group that has read 100 of them, and the mirror that runs."""

    def __init__(self, a: str, b: str, policy: str = PREFIX, **settings: str) -> None:
        self.a, self.b, self.policy = a, b, policy
        self.topic, self.group = make(a, new_name()), new_name("group")
        self.copy = self.topic if policy == IDENTITY else f"A.{self.topic}"
        self.config = self._props("A", "B") | {k.replace("__", "."): v for k, v in settings.items()}
        produce(a, self.topic, rows(200))
        self.mirror = Running(self.config).start()
        self.mirror.until(lambda: self.mirror.records == 200, "copied")
        self.commit(a, self.topic, 100)
        self.mirror.until(self.follow, "the mapping is there", 60)
        assert self.offsets(b)[self.copy] == 100

    def _props(self, source: str, target: str) -> dict[str, str]:
        servers = {"A": self.a, "B": self.b}
        found = props(servers[source], servers[target], topics=f".*{self.topic}.*", groups=self.group)
        found |= {"source.cluster.alias": source, "target.cluster.alias": target}
        return found | {"replication.policy.class": self.policy, "sync.group.offsets.enabled": "true"}

    def follow(self, source: str = "A", target: str = "B") -> int:
        """Lets a flow look after the group once. Returns how many offsets it set."""

        async def run() -> int:
            async with self.checkpointer(source, target) as checkpointer:
                await checkpointer.step(0, now_ms())
                return checkpointer.counts.synced

        return asyncio.run(run())

    @asynccontextmanager
    async def checkpointer(self, source: str, target: str) -> AsyncIterator[Checkpointer]:
        """The checkpointer of a flow, as it starts."""
        settings = parse(self._props(source, target))
        servers = {"A": self.a, "B": self.b}
        async with Cluster(servers[source]) as here, Cluster(servers[target]) as there:
            yield Checkpointer(settings.checkpointer, source=here, target=there)

    def offsets(self, servers: str) -> dict[str, int]:
        """The group's offsets at a cluster, by topic."""

        async def run() -> dict[str, int]:
            async with Cluster(servers) as cluster:
                found = await groups.committed_offsets(cluster, self.group)
                return {topic: each.offset for (topic, _), each in found.items()}

        return asyncio.run(run())

    def commit(self, servers: str, topic: str, offset: int) -> None:
        async def run() -> None:
            async with Cluster(servers) as cluster:
                assert not await groups.commit_offsets(cluster, self.group, {(topic, 0): Committed(offset)})

        asyncio.run(run())

    def make_anew(self, count: int) -> None:
        delete(self.a, self.topic)
        make(self.a, self.topic)
        produce(self.a, self.topic, rows(count, "new"))
        assert self.topic not in self.offsets(self.a), "the broker forgets them with the topic"

    def done(self) -> bool:
        return any(g.done_ms is not None for g in gaps(self.b, self.topic))


@pytest.fixture(scope="module")
def clusters(processes, tmp_path_factory) -> Iterator[tuple[str, str]]:
    work = tmp_path_factory.mktemp("clusters")
    with EmbeddedBroker(work / "a") as a, EmbeddedBroker(work / "b") as b:
        yield a.bootstrap, b.bootstrap


def test_a_group_gets_no_offset_of_the_deleted_topic(clusters):
    world = World(*clusters)
    try:
        world.make_anew(50)
        world.follow("B", "A")
        assert world.offsets(world.a) == {}, "before the mirror knows, and while it is stopped"
        world.mirror.until(lambda: world.mirror.details().get("stopped"), "stopped")
        world.follow("B", "A")
        assert world.offsets(world.a) == {}
        [gap] = decide(world.b, world.topic, Action.APPEND)
        assert gap.state is State.RESOLVED
        world.mirror.until(lambda: world.mirror.records == 250, "copied")
        world.follow("B", "A")
        assert world.offsets(world.a) == {world.topic: 0}, (
            "all of the new topic is behind the copy's 100th record"
        )
        world.commit(world.b, world.copy, 230)
        world.mirror.until(lambda: world.follow("B", "A"), "what it has read of the new topic")
        assert world.offsets(world.a) == {world.topic: 30}
    finally:
        world.mirror.stop()


@pytest.mark.parametrize("policy", [PREFIX, IDENTITY])
def test_a_checkpoint_from_before_the_deletion_sets_no_group(clusters, policy):
    """Neither one that is remembered nor one that is read back, while the topic is stopped and behind that."""
    world = World(*clusters, policy)
    a_day = 86_400.0

    async def over_the_deletion() -> None:
        async with world.checkpointer("B", "A") as checkpointer:
            await checkpointer.step(0, now_ms())
            assert checkpointer.counts.checkpoints == 1
            await asyncio.to_thread(world.make_anew, 50)
            await checkpointer.step(a_day, now_ms())
            assert await asyncio.to_thread(world.offsets, world.a) == {}

    try:
        if policy == IDENTITY:
            world.commit(world.b, world.copy, 120)
        asyncio.run(over_the_deletion())
        world.follow("B", "A")
        assert world.offsets(world.a) == {}, "the checkpoints topic still has the old one"
        world.mirror.until(lambda: world.mirror.details().get("stopped"), "stopped")
        decide(world.b, world.topic, Action.APPEND)
        world.mirror.until(world.done, "it goes on")
        world.follow("B", "A")
        assert world.offsets(world.a).get(world.topic, 0) == 0
    finally:
        world.mirror.stop()


def test_a_group_gets_no_offset_beyond_an_empty_topic(clusters):
    world = World(*clusters, mirror__topic__recreated="append")
    try:
        world.commit(world.b, world.copy, 200)
        world.make_anew(0)
        world.mirror.until(world.done, "it goes on")
        world.follow("B", "A")
        assert world.offsets(world.a) == {world.topic: 0}
    finally:
        world.mirror.stop()


def test_a_group_of_a_new_copy_goes_back_to_the_topics_name(clusters):
    world = World(*clusters, mirror__topic__recreated="new-topic")
    try:
        world.make_anew(50)
        world.mirror.until(lambda: world.mirror.records == 250, "copied")
        world.mirror.until(world.done, "noted")
        world.follow("B", "A")
        assert world.offsets(world.a) == {}, "what it has read of the old copy is nowhere at A"
        [new] = [g.new_id for g in gaps(world.b, world.topic)]
        assert new is not None
        world.commit(world.b, copy_name(world.copy, new), 20)
        world.mirror.until(lambda: world.follow("B", "A"), "translated")
        assert world.offsets(world.a) == {world.topic: 20}
    finally:
        world.mirror.stop()


def test_exactly_once_the_mapping_begins_anew_in_a_transaction(clusters, tmp_path):
    a, b = clusters
    topic = make(a, new_name())
    produce(a, topic, numbered(0, 100))
    mirror = Mirror(a, b, topic, tmp_path, mirror__topic__recreated="append")
    try:
        mirror.wait_for_records(100)
        delete(a, topic)
        make(a, topic)
        produce(a, topic, numbered(100, 30))
        found = mirror.wait_for_records(130)
        assert [int(value) for _, value in found] == list(range(130))
        wait_until(
            lambda: any(g.done_ms is not None for g in gaps(b, topic)), "the ledger knows the new topic"
        )
    finally:
        mirror.worker.end()
