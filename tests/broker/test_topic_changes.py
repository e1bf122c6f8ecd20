"""Many topics and partitions are made and deleted while others are served, and with few writes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest
from support.inprocess import answered_between_slices, hold_in_thread, in_time, produce, serving
from support.topic_requests import alteration, deletion, growth, topics

from klamm_broker.api import api_19_create_topics
from klamm_broker.api.registry import RequestContext
from klamm_broker.log import checkpoints
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.mirror_topic import MIRROR, PROMOTED, STATE
from klamm_broker.log.steps import finish
from klamm_broker.log.topic_registry import Topic, TopicRegistry
from klamm_broker.server import slices
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.slices import drive, in_slices, when_done
from klamm_kafka.client.errors import ConnectionLost
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_configs import AlterConfigsRequest
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

E = ErrorCode


@pytest.fixture
async def server(tmp_path):
    async with serving(tmp_path / "data") as server:
        yield server


async def test_others_are_served_while_partitions_are_made_added_and_deleted(
    server, connect, shortest_slices
):
    one, other = await connect(), await connect()

    async def quick():
        await other.request(MetadataRequest(topics=[]), 12)

    made = await answered_between_slices(one.request(topics("t", partitions=20), 7), quick)
    assert (made.topics[0].error_code, made.topics[0].num_partitions) == (0, 20)
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=40, assignments=None)])
    grown = await answered_between_slices(one.request(grow, 3), quick)
    assert grown.results[0].error_code == 0
    described = await other.request(MetadataRequest(topics=None), 12)
    assert [len(t.partitions) for t in described.topics] == [40]
    gone = await answered_between_slices(one.request(deletion("t"), 6), quick)
    assert gone.responses[0].error_code == 0
    assert server.broker.logs.busy == set()


async def test_a_topic_is_not_there_before_all_of_it_is(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    making = asyncio.create_task(one.request(topics("t", partitions=20), 7))
    while not server.broker.logs.busy:
        await asyncio.sleep(0)
    assert (await other.request(MetadataRequest(topics=None), 12)).topics == []
    again = await other.request(topics("t"), 7)
    assert again.topics[0].error_code == E.TOPIC_ALREADY_EXISTS
    assert (await other.request(deletion("t"), 6)).responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not making.done()
    assert (await making).topics[0].error_code == 0
    assert (await other.request(deletion("t"), 6)).responses[0].error_code == 0
    assert (await other.request(topics("t"), 7)).topics[0].error_code == 0


async def test_a_deleted_topic_is_gone_at_once(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    await one.request(topics("t", partitions=20), 7)
    deleting = asyncio.create_task(one.request(deletion("t"), 6))
    while "t" in server.broker.topics.by_name:
        await asyncio.sleep(0)
    assert (await other.request(MetadataRequest(topics=None), 12)).topics == []
    assert not deleting.done()
    await deleting


async def test_who_sees_that_a_topic_is_gone_may_take_its_name(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    former = (await one.request(topics("t", "u", partitions=20), 7)).topics[0].topic_id
    deleting = asyncio.create_task(one.request(deletion("t"), 6))
    while "t" in server.broker.topics.by_name:
        await asyncio.sleep(0)
    made = (await other.request(topics("t", "u"), 7)).topics
    assert [(topic.name, topic.error_code) for topic in made] == [("t", 0), ("u", E.TOPIC_ALREADY_EXISTS)]
    assert made[0].topic_id == server.broker.topics.by_name["t"].id != former
    assert (await deleting).responses[0].error_code == 0


async def test_changes_of_a_topic_that_grows_take_turns(server, connect, shortest_slices):
    other = await connect()
    await other.request(topics("t"), 7)
    topic_id = server.broker.topics.by_name["t"].id
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    changes = [growth(50, "t"), growth(60, "t"), deletion("t"), growth(70, "t"), deletion("t"), by_id]
    ended, waiting = [], []

    async def ask(client, change):
        answer = await client.request(change)
        ended.append(change)
        return getattr(answer, "results", None) or answer.responses

    for change in changes:
        waiting.append(asyncio.create_task(ask(await connect(), change)))
        described = await other.request(MetadataRequest(topics=None), 12)
    assert ended == []
    assert [len(t.partitions) for t in described.topics] == [1], "others are served meanwhile"
    codes = [result.error_code for [result] in await asyncio.gather(*waiting)]
    assert codes == [E.NONE, E.NONE, E.NONE, *[E.UNKNOWN_TOPIC_OR_PARTITION] * 2, E.UNKNOWN_TOPIC_ID]
    assert ended == changes
    assert not server.broker.topics.by_name
    assert (await other.request(topics("t"), 7)).topics[0].error_code == E.NONE


async def test_a_mirror_topic_that_grows_is_promoted_with_all_its_partitions(server, connect, monkeypatch):
    one, other = await connect(), await connect()
    topic = server.broker.topic_changes.create_topic("t", partitions=1, overrides={STATE: MIRROR})
    begun, go_on = hold_in_thread(monkeypatch, TopicRegistry, "_write")
    growing = asyncio.create_task(one.request(growth(9, "t"), 3))
    await in_time(begun)
    first = server.broker.topic_changes._changing["t"]
    promoting = asyncio.create_task(other.request(alteration(STATE, PROMOTED, "t"), 1))
    while server.broker.topic_changes._changing["t"] is first:
        await asyncio.sleep(0.001)
    go_on.set()
    assert (await growing).results[0].error_code == E.NONE
    answer = (await promoting).responses[0]
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    assert topic.overrides[STATE] == PROMOTED
    assert {partition.log.promotion_epoch for partition in topic.partitions} == {1}
    assert len(topic.partitions) == 9


async def test_a_broker_that_stops_ends_what_has_begun_and_begins_nothing(
    server, connect, shortest_slices, caplog
):
    other = await connect()
    await other.request(topics("t", "u"), 7)
    changes, waiting = server.broker.topic_changes, []
    for change in (
        growth(20, "t"),
        growth(30, "t"),
        alteration("retention.ms", "5", "t"),
        deletion("t", "u"),
    ):
        last = changes._changing.get("t")
        waiting.append(asyncio.create_task((await connect()).request(change)))
        while changes._changing.get("t") is last:
            await asyncio.sleep(0)
    await changes.finish()
    grown, *others = await asyncio.gather(*waiting, return_exceptions=True)
    assert grown.results[0].error_code == E.NONE
    assert [type(answer) for answer in others] == [ConnectionLost] * 3
    topic = server.broker.topics.by_name["t"]
    assert (len(topic.partitions), topic.overrides) == (20, {})
    assert not any((changes._changing, changes._under_way, changes._not_begun))
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert (await (await connect()).request(deletion("t"), 6)).responses[0].error_code == E.NONE


async def test_nobody_waits_for_the_changes_of_one_who_may_not_change_the_topic(server, connect, monkeypatch):
    one, other = await connect(), await connect()
    await one.request(topics("t", "own"), 7)
    begun, go_on = hold_in_thread(monkeypatch, TopicRegistry, "_write")
    growing = asyncio.create_task(one.request(growth(9, "own"), 3))
    await in_time(begun)
    changing = dict(server.broker.topic_changes._changing)
    monkeypatch.setattr(
        RequestContext, "may", lambda self, operation, kind, name, *, tell=True: name == "own"
    )
    waiting = []
    for change in (
        growth(20, "t", "own"),
        alteration("retention.ms", "5", "t", "own"),
        alteration("retention.ms", "5", "t", "own", kind=AlterConfigsRequest),
    ):
        waiting.append(asyncio.create_task((await connect()).request(change)))
        while server.broker.topic_changes._changing["own"] is changing["own"]:
            await asyncio.sleep(0.001)
        changing["own"] = server.broker.topic_changes._changing["own"]
    assert server.broker.topic_changes._changing.keys() == {"own"}
    refused = (await other.request(growth(20, "t"), 3)).results[0]
    assert refused.error_code == E.TOPIC_AUTHORIZATION_FAILED
    go_on.set()
    assert (await growing).results[0].error_code == E.NONE
    for answer in await asyncio.gather(*waiting):
        results = getattr(answer, "results", None) or answer.responses
        assert [r.error_code for r in results] == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE]


async def test_a_deletion_that_cannot_be_written_has_not_happened(server, connect, monkeypatch):
    one = await connect()
    await one.request(topics("a", "b"), 7)

    def full(self, turn, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(TopicRegistry, "_write", full)
        answer = await one.request(deletion("a", "b"), 6)
    assert [r.error_code for r in answer.responses] == [E.KAFKA_STORAGE_ERROR] * 2
    assert {t.name for t in (await one.request(MetadataRequest(topics=None), 12)).topics} == {"a", "b"}
    assert (await one.request(deletion("a"), 6)).responses[0].error_code == 0


async def test_the_loop_never_waits_for_the_disk(server, connect, monkeypatch):
    """Changes are on the disk when they are answered; others are served while it takes its time."""
    one, other = await connect(), await connect()
    loop_thread, real, on_loop = threading.get_ident(), os.fsync, []
    slow = threading.Event()

    def fsync(fd):
        if threading.get_ident() == loop_thread:
            on_loop.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        else:
            assert slow.wait(60)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    for request, version in (
        (topics("a", "b"), 7),
        (alteration("retention.ms", "5", "a", "b"), 1),
        (growth(2, "a", "b"), 3),
        (deletion("a", "b"), 6),
        (topics("a"), 7),
        (deletion("a"), 6),
    ):
        slow.clear()
        changing = asyncio.create_task(one.request(request, version))
        for _ in range(5):
            await other.request(MetadataRequest(topics=[]), 12)
        assert not changing.done()
        slow.set()
        answer = await changing
        results = {7: "topics", 3: "results"}.get(version, "responses")
        results = getattr(answer, results)
        assert {r.error_code for r in results} == {0}
    assert not on_loop


async def test_deleting_records_waits_for_the_disk_beside_the_loop(server, connect, monkeypatch):
    one, other = await connect(), await connect()
    await one.request(topics("t"), 7)
    await produce(one, "t", b"a", b"b", b"c")
    asked = [DeleteRecordsPartition(partition_index=0, offset=2)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked[0]])])
    gate, real = threading.Event(), checkpoints.write_offsets

    def slow(*args, **kwargs):
        assert gate.wait(60)
        real(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "write_offsets", slow)
    deleting = asyncio.create_task(one.request(request, 2))
    await other.request(MetadataRequest(topics=[]), 12)
    assert not deleting.done()
    gate.set()
    (found,) = (await deleting).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (0, 2)
    stored = checkpoints.read_offsets(server.broker.logs.directory / checkpoints.LOG_START_OFFSET)
    assert stored == {("t", 0): 2}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_offsets", full)
        asked[0].offset = 3
        (found,) = (await one.request(request, 2)).topics[0].partitions
        assert (found.error_code, found.low_watermark) == (E.KAFKA_STORAGE_ERROR, -1)
    (found,) = (await one.request(request, 2)).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (0, 3)


async def test_deletions_of_a_topic_that_is_being_deleted_wait_for_it(server, connect, monkeypatch):
    one, two = await connect(), await connect()
    await one.request(topics("t", "u"), 7)
    gate, write, calls = threading.Event(), TopicRegistry._write, []

    def slow(self, turn, content):
        calls.append(turn)
        assert gate.wait(60)
        write(self, turn, content)

    monkeypatch.setattr(TopicRegistry, "_write", slow)
    first = asyncio.create_task(one.request(deletion("t"), 6))
    while not calls:
        await asyncio.sleep(0.001)
    rest = [asyncio.create_task(two.request(deletion(name), 6)) for name in ("t", "u")]
    await asyncio.sleep(0.02)  # time to go on without the first
    assert not any(task.done() for task in (first, *rest))
    gate.set()
    codes = [(await task).responses[0].error_code for task in (first, *rest)]
    assert codes == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert server.broker.logs.topics == {}


def test_changes_that_overlap_leave_the_file_right_whoever_writes_first(tmp_path):
    def topic(name):
        return Topic(name=name, id=name * 22, partitions=1)

    def stored():
        found = TopicRegistry.load(tmp_path / "r")
        return sorted(found.topics), sorted(found.deleted)

    registry = TopicRegistry(tmp_path / "r")
    finish(registry.putting(topic("a")))
    coming, going = registry.putting(topic("b")), registry.removing("a")
    first, second = next(coming), next(going)
    second()
    first()  # taken before: it must not bring the topic back
    assert stored() == (["b"], ["a" * 22])
    assert sorted(registry.topics) == ["a"]
    for steps in (coming, going):
        with pytest.raises(StopIteration):
            next(steps)
    assert sorted(registry.topics) == ["b"]
    coming = registry.putting(topic("c"))
    next(coming)
    finish(registry.changing({"b": {"retention.ms": "2"}}))  # writes what is coming along
    with pytest.raises(StopIteration):
        coming.throw(OSError(28, "No space left on device"))
    assert sorted(registry.topics) == ["b", "c"]
    assert stored() == (["b", "c"], ["a" * 22])
    going = registry.removing("c")
    next(going)
    with pytest.raises(OSError, match="No space left"):
        going.throw(OSError(28, "No space left on device"))
    registry.save()
    assert stored() == (["b", "c"], ["a" * 22])


async def test_what_is_under_way_ends_before_the_broker_does(tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    config = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
    broker = Broker(config, asyncio.get_running_loop())
    broker.open()
    broker.topic_changes.create({"t": (30, {})})
    await broker.close()
    again = Broker(config, asyncio.get_running_loop())
    again.open()
    assert len(again.topics.by_name["t"].partitions) == 30
    await again.close()


def most_in_a_turn(monkeypatch, owner, name):
    """Counts the calls of a function in each turn of the loop."""
    loop, counts, real = asyncio.get_running_loop(), [0], getattr(owner, name)

    def counted(*args, **kwargs):
        if counts[-1] == 0:
            loop.call_soon(counts.append, 0)
        counts[-1] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return counts


async def test_topics_that_come_by_being_asked_for_are_made_in_slices(
    server, connect, shortest_slices, monkeypatch
):
    made = most_in_a_turn(monkeypatch, LogManager, "_make_directory")
    client = await connect()
    names = [f"auto-{n}" for n in range(20)]
    answer = await client.request(
        MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=True),
        9,
    )
    assert {topic.name: topic.error_code for topic in answer.topics} == dict.fromkeys(names, E.NONE)
    assert sum(made) == 20
    assert max(made) <= 2


@pytest.mark.parametrize("validate_only", [False, True])
async def test_many_topics_are_checked_and_answered_in_slices(
    server, connect, shortest_slices, monkeypatch, validate_only
):
    checked = most_in_a_turn(monkeypatch, api_19_create_topics, "_checked")
    told = most_in_a_turn(monkeypatch, api_19_create_topics, "_created")
    request = topics(*(f"many-{n}" for n in range(20)))
    request.validate_only = validate_only
    answer = await (await connect()).request(request, 7)
    assert [topic.error_code for topic in answer.topics] == [E.NONE] * 20
    assert sum(checked) == sum(told) == 20
    assert max(*checked, *told) <= 2


async def test_two_who_create_the_same_topics_at_once(server, connect, shortest_slices, caplog):
    names = [f"same-{n}" for n in range(10)]
    answers = await asyncio.gather(
        (await connect()).request(topics(*names), 7), (await connect()).request(topics(*reversed(names)), 7)
    )
    codes = [{topic.name: topic.error_code for topic in answer.topics} for answer in answers]
    for name in names:
        assert sorted(answer[name] for answer in codes) == [E.NONE, E.TOPIC_ALREADY_EXISTS]
        assert server.broker.partition(name, 0) is not None
    assert "could not be created" not in caplog.text


async def test_two_who_ask_for_the_same_missing_topics_at_once(server, connect, shortest_slices, caplog):
    names = [f"asked-{n}" for n in range(10)]

    async def ask(client, ordered):
        wanted = [MetadataRequestTopic(name=n) for n in ordered]
        answer = await client.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
        return {topic.name: topic.error_code for topic in answer.topics}

    answers = await asyncio.gather(ask(await connect(), names), ask(await connect(), names[::-1]))
    for codes in answers:
        assert set(codes.values()) <= {E.NONE, E.LEADER_NOT_AVAILABLE}, "who comes late asks again"
    assert set(server.broker.topics.by_name) == set(names)
    assert "could not be created" not in caplog.text


async def test_configurations_of_many_are_changed_in_slices(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    wanted = [
        AlterConfigsResource(resource_type=32, resource_name=f"g{n}", configs=[config]) for n in range(10)
    ]

    async def quick():
        await other.request(MetadataRequest(topics=[]), 12)

    answer = await answered_between_slices(
        one.request(IncrementalAlterConfigsRequest(resources=wanted), 1), quick
    )
    assert [(r.resource_name, r.error_code) for r in answer.responses] == [(f"g{n}", 0) for n in range(10)]


async def test_configurations_of_many_are_described_in_slices(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    wanted = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{n}", configuration_keys=None)
        for n in range(30)
    ]

    async def quick():
        await other.request(MetadataRequest(topics=[]), 12)

    answer = await answered_between_slices(one.request(DescribeConfigsRequest(resources=wanted), 4), quick)
    assert [r.resource_name for r in answer.results] == [f"g{n}" for n in range(30)]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("a defect")])
async def test_what_a_job_raises_is_dealt_with_by_the_steps_or_raised(error):
    def job():
        raise error

    def steps(*, deals_with_it):
        try:
            yield job
        except type(error):
            if not deals_with_it:
                raise
        return "done"

    loop = asyncio.get_running_loop()
    assert finish(steps(deals_with_it=True)) == await drive(loop, steps(deals_with_it=True)) == "done"
    for run in (finish, lambda left: drive(loop, left)):
        with pytest.raises(type(error)):
            await run(steps(deals_with_it=False))


async def test_slices_give_the_results_in_order_and_errors_to_who_waits(monkeypatch):
    loop = asyncio.get_running_loop()
    assert in_slices(loop, range(5), lambda n: n * 2) == [0, 2, 4, 6, 8]
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    later = when_done(loop, in_slices(loop, range(5), lambda n: n * 2), sum)
    assert await later == 20

    def steps():
        yield
        yield
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        await when_done(loop, drive(loop, steps()), lambda found: found)


async def test_who_does_not_wait_for_a_change_sees_it_all_the_same(connect, shortest_slices):
    """Kafka reads a connection's next request when the one before is answered."""
    one = await connect()
    described = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        ]
    )
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=9, assignments=None)])
    of_t = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    _, altered, configs, grown, metadata, gone, again = await asyncio.gather(
        one.request(topics("t"), 7),
        one.request(alteration("retention.ms", "77", "t"), 1),
        one.request(described, 4),
        one.request(grow, 3),
        one.request(of_t, 9),
        one.request(deletion("t"), 6),
        one.request(topics("t"), 7),
    )
    assert altered.responses[0].error_code == grown.results[0].error_code == E.NONE
    assert configs.results[0].configs[0].value == "77"
    assert len(metadata.topics[0].partitions) == 9
    assert gone.responses[0].error_code == again.topics[0].error_code == E.NONE


async def test_topics_do_not_wait_for_a_listener_whose_key_stores_are_read(server, connect, monkeypatch):
    gate, reached = threading.Event(), asyncio.Event()

    def reading(name, configs):
        reached.set()
        yield lambda: gate.wait(60)

    monkeypatch.setattr(server.broker, "reading_dynamic_config", reading)
    one, other = await connect(), await connect()
    await other.request(topics("t"), 7)
    config = AlterableConfig(name="log.retention.ms", config_operation=0, value="5000")
    of_broker = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    slow = asyncio.create_task(one.request(IncrementalAlterConfigsRequest(resources=[of_broker]), 1))
    await reached.wait()
    altered = await other.request(alteration("retention.ms", "77", "t"), 1)
    assert altered.responses[0].error_code == E.NONE
    assert not slow.done()
    gate.set()
    assert (await slow).responses[0].error_code == E.NONE
    assert server.broker.topics.by_name["t"].config.retention_ms == 77
    assert server.broker.config.topic_defaults["retention.ms"] == "5000"
    assert not server.broker.topic_changes._changing
