"""The checkpointer between two real brokers: what it reads, writes, sets and leaves alone."""

from __future__ import annotations

from threading import Thread

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_until
from support.mirror_topics import promote_by_config

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.checkpointer import Checkpointer
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.checkpoint.groups import Group, Kind
from klamm_mirror.checkpoint.settings import CheckpointSettings
from klamm_mirror.heartbeat.connector import MirrorHeartbeatConnector
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import Checkpoint, OffsetSync
from klamm_plugins.testing import MemoryDriverContext

NOW_MS = 1_700_000_000_000


class Pair:
    """A topic, a group and internal topics of its own on two clusters; `a.` is the upstream alias."""

    def __init__(self, source, target, source_cluster, target_cluster):
        self.source, self.target = source_cluster, target_cluster
        self.target_broker = target
        self.topic = new_topic(source, partitions=2)
        self.remote = new_topic(target, partitions=2, name=f"a.{self.topic}")
        self.group = new_name("group")
        self.syncs_topic, self.checkpoints_topic = new_name("syncs"), new_name("checkpoints")
        self.back_syncs_topic = new_name("back")
        self.segments_topic = new_name("segments")

    def checkpointer(self, **changes) -> Checkpointer:
        given = {
            "syncs_topic": self.syncs_topic,
            "back_syncs_topic": self.back_syncs_topic,
            "segments_topic": self.segments_topic,
            "back_segments_topic": new_name("none"),
            "checkpoints_topic": self.checkpoints_topic,
            "replication_factor": 1,
            "wants_group": lambda g: g == self.group,
            "wants_topic": lambda t: t == self.topic,
            "gaps_topic": new_name("none"),
            "back_gaps_topic": new_name("none"),
            "rename": lambda t: f"a.{t}",
            "original": lambda t: t.removeprefix("b.") if t.startswith("b.") else None,
            "emit_every_s": 60,
            "sync_every_s": 60,
        }
        settings = CheckpointSettings(**{**given, **changes})
        return Checkpointer(settings, source=self.source, target=self.target)

    async def sync(self, *pairs: tuple[int, int], partition: int = 0):
        await internal_topics.create(self.source, self.syncs_topic, 1)
        records = [OffsetSync(self.topic, partition, up, down).encode() for up, down in pairs]
        await internal_topics.produce(
            self.source, self.syncs_topic, [Record(key=k, value=v) for k, v in records]
        )

    async def commit(self, offset: int, partition: int = 0, metadata: str = ""):
        refused = await groups.commit_offsets(
            self.source, self.group, {(self.topic, partition): Committed(offset, metadata)}
        )
        assert not refused

    async def checkpoints(self) -> list[Checkpoint]:
        end = await internal_topics.offset_of(self.target, self.checkpoints_topic, LATEST)
        found = internal_topics.read(self.target, self.checkpoints_topic, 0, end)
        return [Checkpoint.decode(r.key, r.value) async for r in found]

    async def at_target(self) -> dict[tuple[str, int], int]:
        return {p: c.offset for p, c in (await groups.committed_offsets(self.target, self.group)).items()}


@pytest.fixture
async def pair(processes, source, target):
    async with Cluster(source.bootstrap) as a, Cluster(target.bootstrap) as b:
        yield Pair(source, target, a, b)


async def test_a_group_is_told_and_set_at_the_target(pair):
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100, metadata="note")
    await pair.commit(7, partition=1)  # no sync: nothing can be said
    checkpointer = pair.checkpointer()
    written = await checkpointer.step(0, NOW_MS)
    expected = Checkpoint(pair.group, pair.remote, 0, 100, 90, "note")
    assert written == [expected]
    assert await pair.checkpoints() == [expected]
    assert await pair.at_target() == {(pair.remote, 0): 90}
    assert (checkpointer.counts.synced, checkpointer.counts.untranslated) == (1, 1)


async def test_checkpoints_follow_the_interval_and_say_only_news(pair):
    await pair.sync((0, 0), (100, 100))
    await pair.commit(100)
    checkpointer = pair.checkpointer()
    assert len(await checkpointer.step(0, NOW_MS)) == 1
    await pair.sync((200, 200))
    await pair.commit(200)
    assert await checkpointer.step(59, NOW_MS) == []
    assert [c.downstream_offset for c in await checkpointer.step(60, NOW_MS)] == [200]
    assert await checkpointer.step(120, NOW_MS) == []


async def test_a_new_start_goes_on_from_the_checkpoints(pair):
    await pair.sync((0, 0), (100, 100), (200, 200))
    await pair.commit(200)
    await pair.checkpointer().step(0, NOW_MS)
    # Older syncs are gone: what is translated now lies before what was said
    await pair.sync((190, 199), (201, 210))
    assert await pair.checkpointer().step(0, NOW_MS) == []
    # The group itself went back: that is followed
    await pair.sync((10, 300))
    await pair.commit(10)
    assert [c.downstream_offset for c in await pair.checkpointer().step(0, NOW_MS)] == [300]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_target_that_was_made_anew_takes_no_offset_of_the_old_one(pair, restarted):
    await pair.sync((0, 0), (200, 200))
    await pair.commit(200)
    checkpointer = pair.checkpointer()
    assert [c.downstream_offset for c in await checkpointer.step(0, NOW_MS)] == [200]
    gone = {(pair.remote, 0): Committed(0)}  # as a broker forgets the offsets in a topic that is deleted
    assert not await groups.commit_offsets(pair.target, pair.group, gone)
    checkpointer = pair.checkpointer() if restarted else checkpointer
    await pair.sync((201, 0))
    assert await checkpointer.step(60, NOW_MS) == []  # nothing can be said of offset 200
    assert await pair.at_target() == {(pair.remote, 0): 0}
    await pair.commit(210)
    assert [c.downstream_offset for c in await checkpointer.step(120, NOW_MS)] == [1]
    assert await pair.at_target() == {(pair.remote, 0): 1}


async def test_checkpoints_are_written_where_groups_are_set_more_often(pair):
    await pair.sync((0, 0), (100, 90))
    checkpointer = pair.checkpointer(sync_every_s=1, refresh_every_s=1)
    assert await checkpointer.step(0, NOW_MS) == []
    await pair.commit(100)
    for second in range(1, 62):
        await checkpointer.step(second, NOW_MS)
    assert [c.downstream_offset for c in await pair.checkpoints()] == [90]
    assert await pair.at_target() == {(pair.remote, 0): 90}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_that_reads_at_the_target_keeps_its_offsets(pair, protocol):
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100)
    consumer = Consumer(
        {"bootstrap.servers": pair.target_broker.bootstrap, "group.id": pair.group, "group.protocol": protocol}
    )  # fmt: skip
    consumer.subscribe([pair.remote])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        checkpointer = pair.checkpointer()
        assert len(await checkpointer.step(0, NOW_MS)) == 1
        assert await pair.at_target() == {}
    finally:
        consumer.close()
    await checkpointer.step(60, NOW_MS)
    assert await pair.at_target() == {(pair.remote, 0): 90}


async def test_a_static_member_that_is_away_keeps_its_groups_offsets(pair):
    """Until its session ends, the group of a member with `group.instance.id` is not free."""
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100)
    config = {"bootstrap.servers": pair.target_broker.bootstrap, "group.id": pair.group}
    consumer = Consumer({**config, "group.instance.id": "one"})
    consumer.subscribe([pair.remote])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()
    assert len(await pair.checkpointer().step(0, NOW_MS)) == 1
    assert await pair.at_target() == {}


async def test_a_group_is_never_taken_back_at_the_target(pair):
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100)
    there = {(pair.remote, 0): Committed(95)}
    assert not await groups.commit_offsets(pair.target, pair.group, there)
    await pair.checkpointer().step(0, NOW_MS)
    assert await pair.at_target() == {(pair.remote, 0): 95}


async def test_a_checkpoints_topic_that_was_deleted_is_made_and_filled_again(pair):
    await pair.sync((0, 0), (100, 90), (200, 190))
    await pair.commit(100, partition=0)
    checkpointer = pair.checkpointer()
    assert len(await checkpointer.step(0, NOW_MS)) == 1
    delete_topic(pair.target_broker, pair.checkpoints_topic)
    await pair.commit(200)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC") as refused:
        await checkpointer.step(60, NOW_MS)
    assert refused.value.retriable
    assert len(await checkpointer.step(61, NOW_MS)) == 1
    assert [c.downstream_offset for c in await pair.checkpoints()] == [190]


def test_heartbeats_go_on_when_their_topic_was_deleted(source, target):
    props = {
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": target.bootstrap,
    }
    context = MemoryDriverContext(props)
    task = MirrorHeartbeatConnector.task_class()()
    task.initialize(context)
    task.start(props)
    running = Thread(target=task.run)
    running.start()
    try:
        wait_until(lambda: context.commits, "the first heartbeat")
        before = context.said[-1]["records"]
        delete_topic(target, "heartbeats")
        wait_until(lambda: context.said[-1]["records"] > before + 2, "heartbeats again", timeout_s=60)
    finally:
        context.stop()
        running.join(60)
    assert not running.is_alive()


def delete_topic(broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)


async def test_syncs_without_checkpoints(pair):
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100)
    assert await pair.checkpointer(emit_every_s=None).step(0, NOW_MS) == []
    assert await pair.checkpoints() == []
    assert await pair.at_target() == {(pair.remote, 0): 90}


async def test_no_syncs_topic_yet_is_waited_for(pair):
    await pair.commit(100)
    checkpointer = pair.checkpointer()
    assert await checkpointer.step(0, NOW_MS) == []
    await pair.sync((100, 90))
    assert len(await checkpointer.step(1, NOW_MS)) == 1


async def test_records_that_are_no_syncs_are_left_out_and_said(pair, caplog):
    await pair.sync((0, 0))
    await internal_topics.produce(pair.source, pair.syncs_topic, [Record(key=b"?", value=b"!")])
    await pair.sync((100, 90))
    await pair.commit(100)
    assert len(await pair.checkpointer().step(0, NOW_MS)) == 1
    assert "offset 1, is left out: offset sync key" in caplog.text


async def test_tasks_share_the_groups(pair):
    await pair.sync((0, 0), (100, 90))
    await pair.commit(100)
    written = [await pair.checkpointer(task=i, tasks=3).step(0, NOW_MS) for i in range(3)]
    assert sorted(map(len, written)) == [0, 0, 1]


async def test_groups_that_offsets_were_only_set_for_are_listed(pair):
    await pair.commit(1)
    assert (await groups.list_groups(pair.source))[pair.group] == Group(Kind.CONSUMER, "Empty")
    assert await groups.group_state(pair.source, pair.group) == "Empty"
    assert await groups.group_state(pair.source, new_name("nobody")) == "Dead"
    missing = await groups.commit_offsets(pair.source, pair.group, {(new_name("none"), 0): Committed(1)})
    assert list(missing.values()) in ([], [3])


async def test_a_reader_of_a_mirrored_topic_goes_back_to_the_original(pair, source, target):
    """The group moved here from the target's cluster, and read on in the mirrored topic."""
    mirrored = new_topic(source, name=f"b.{pair.topic}")
    original = new_topic(target, name=pair.topic)
    await internal_topics.create(pair.target, pair.back_syncs_topic, 1)
    pairs = [OffsetSync(pair.topic, 0, up, down).encode() for up, down in ((100, 7), (200, 107))]
    await internal_topics.produce(
        pair.target, pair.back_syncs_topic, [Record(key=k, value=v) for k, v in pairs]
    )
    await groups.commit_offsets(pair.source, pair.group, {(mirrored, 0): Committed(107)})
    written = await pair.checkpointer().step(0, NOW_MS)
    assert written == [Checkpoint(pair.group, original, 0, 107, 200)]
    assert await pair.at_target() == {(original, 0): 200}


def make_copy(pair, end: int) -> None:
    """Makes a mirror topic of the pair's remote topic that ends at `end`."""
    admin = AdminClient({"bootstrap.servers": pair.target_broker.bootstrap})
    admin.delete_topics([pair.remote])[pair.remote].result(60)
    wait_until(lambda: pair.remote not in admin.list_topics(timeout=60).topics, "it is gone")
    new_topic(pair.target_broker, 2, {"klamm.mirror.state": "mirror"}, pair.remote)
    at = TopicPartition(pair.remote, 0, end)
    admin.delete_records([at])[at].result(60)


async def test_groups_of_a_promoted_copy_are_their_own(pair):
    make_copy(pair, 1000)
    await pair.commit(1000)
    checkpointer = pair.checkpointer(keeps_offsets=True)
    await checkpointer.step(0, NOW_MS)
    assert await pair.at_target() == {(pair.remote, 0): 1000}
    promote_by_config(pair.target_broker.bootstrap, pair.remote)
    await groups.commit_offsets(pair.target, pair.group, {(pair.remote, 0): Committed(0, "")})
    await checkpointer.step(60, NOW_MS)
    assert await pair.at_target() == {(pair.remote, 0): 0}


async def test_a_group_is_not_set_beyond_the_end_of_a_copy_made_anew(pair):
    make_copy(pair, 1000)
    await pair.commit(1000)
    checkpointer = pair.checkpointer(keeps_offsets=True)
    await checkpointer.step(0, NOW_MS)
    make_copy(pair, 300)
    await groups.commit_offsets(pair.target, pair.group, {(pair.remote, 0): Committed(0, "")})
    await checkpointer.step(60, NOW_MS)
    assert await pair.at_target() == {(pair.remote, 0): 300}
