"""A request for many topics changes the registry with one write, beside the event loop, and each topic has its own answer."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from support.inprocess import hold_in_thread, in_time, serving
from support.topic_requests import alteration, deletion, growth, topics

from klamm_base.errors import ConfigError
from klamm_broker.log import checkpoints
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.steps import finish
from klamm_broker.log.topic_registry import Topic, TopicRegistry
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_configs import AlterConfigsRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

E = ErrorCode


@pytest.fixture
async def server(tmp_path):
    async with serving(tmp_path / "data") as server:
        yield server


def stored(server):
    """Returns the topics in the file."""
    return TopicRegistry.load(server.broker.logs.directory / "klamm-topics.json").topics


@pytest.fixture
def writes(monkeypatch):
    """Counts the writes of the registry."""
    writes, write = [], TopicRegistry._write
    monkeypatch.setattr(
        TopicRegistry, "_write", lambda self, *args: (writes.append(1), write(self, *args))[1]
    )
    return writes


async def test_deletions_share_a_write(connect, writes):
    names = [f"t{n}" for n in range(40)]
    one = await connect()
    await one.request(topics(*names), 7)
    writes.clear()
    answer = await one.request(deletion(*names[:20], "nope"), 6)
    codes = [r.error_code for r in answer.responses]
    assert codes == [0] * 20 + [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(writes) == 1, "one request, one write"
    answers = await asyncio.gather(*[(await connect()).request(deletion(name), 6) for name in names[20:]])
    assert [a.responses[0].error_code for a in answers] == [0] * 20
    assert len(writes) <= 4, "those that come together are written together"


@pytest.mark.parametrize("request_of", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
async def test_configurations_of_a_request_share_a_write(server, connect, writes, request_of):
    names = [f"t{n}" for n in range(40)]
    one = await connect()
    await one.request(topics(*names), 7)
    writes.clear()
    request = alteration("retention.ms", "5", *names, "nope", "t7", "no name", kind=request_of)
    request.resources[3].configs[0].value = "no number"
    codes = [r.error_code for r in (await one.request(request, 1)).responses]
    wanted = [E.NONE] * 40
    wanted[3], wanted[7] = E.INVALID_CONFIG, E.INVALID_REQUEST
    assert codes == [
        *wanted,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_REQUEST,
        E.INVALID_TOPIC_EXCEPTION,
    ]
    assert len(writes) == 1, "one request, one write"
    for name in names:
        changed = name not in {"t3", "t7"}
        topic = server.broker.topics.by_name[name]
        assert topic.overrides == ({"retention.ms": "5"} if changed else {})
        assert (topic.config.retention_ms == 5) is changed
    there = stored(server)
    assert sum(topic.configs == {"retention.ms": "5"} for topic in there.values()) == 38
    await one.request(request, 1)
    assert len(writes) == 1, "nothing has changed"


async def test_growths_of_a_request_share_a_write(server, connect, writes):
    names = [f"t{n}" for n in range(20)]
    one = await connect()
    await one.request(topics(*names), 7)
    writes.clear()
    request = growth(3, *names, "nope")
    request.topics[4].count = 1
    codes = [r.error_code for r in (await one.request(request, 3)).results]
    wanted = [E.NONE] * 20 + [E.UNKNOWN_TOPIC_OR_PARTITION]
    wanted[4] = E.INVALID_PARTITIONS
    assert codes == wanted
    assert len(writes) == 1, "one request, one write"
    there = stored(server)
    for name in names:
        count = 1 if name == "t4" else 3
        assert len(server.broker.topics.by_name[name].partitions) == there[name].partitions == count


async def test_of_growths_that_fail_only_those_are_taken_back(server, connect, monkeypatch, caplog):
    one = await connect()
    await one.request(topics("a", "b", "c"), 7)
    make, opened = LogManager._make_directory, LogManager._open

    def full(real, broken):
        def refuse(self, topic, *args, **kwargs):
            if topic.name == broken:
                raise OSError(28, "No space left on device")
            return real(self, topic, *args, **kwargs)

        return refuse

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "_make_directory", full(make, "a"))
        patched.setattr(LogManager, "_open", full(opened, "b"))
        results = (await one.request(growth(3, "a", "b", "c"), 3)).results
    full_disk = E.KAFKA_STORAGE_ERROR, "[Errno 28] No space left on device"
    assert [(r.error_code, r.error_message) for r in results] == [full_disk, full_disk, (E.NONE, None)]
    assert caplog.text.count("could not get more partitions") == 2
    there = stored(server)
    assert {name: topic.partitions for name, topic in there.items()} == {"a": 1, "b": 1, "c": 3}
    assert [r.error_code for r in (await one.request(growth(3, "a", "b"), 3)).results] == [E.NONE] * 2
    assert [len(topic.partitions) for topic in server.broker.topics.by_name.values()] == [3] * 3


@pytest.mark.parametrize("change", ["configurations", "partitions"])
async def test_changes_that_cannot_be_written_have_not_happened(server, connect, monkeypatch, caplog, change):
    one = await connect()
    names = [f"t{n}" for n in range(5)]
    await one.request(topics(*names), 7)
    request = alteration("retention.ms", "5", *names) if change == "configurations" else growth(2, *names)

    async def codes():
        answer = await one.request(request)
        return {r.error_code for r in (answer.responses if change == "configurations" else answer.results)}

    def full(self, turn, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(TopicRegistry, "_write", full)
        assert await codes() == {E.KAFKA_STORAGE_ERROR}
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1, "one line for one failure"
    for topic in server.broker.topics.by_name.values():
        assert (topic.overrides, len(topic.partitions)) == ({}, 1)
        assert topic.config.retention_ms != 5
    assert await codes() == {E.NONE}


async def test_changes_of_a_topic_by_several_at_once_all_count(server, connect, shortest_slices):
    one, other = await connect(), await connect()
    await one.request(topics("t", "u"), 7)
    keys = {"retention.ms": "5", "segment.ms": "6", "max.message.bytes": "7", "file.delete.delay.ms": "8"}
    answers = await asyncio.gather(
        *(
            client.request(alteration(key, value, "t", "u"), 1)
            for client, (key, value) in zip([one, other] * 2, keys.items(), strict=True)
        )
    )
    assert {r.error_code for answer in answers for r in answer.responses} == {E.NONE}
    there = stored(server)
    for name in ("t", "u"):
        assert server.broker.topics.by_name[name].overrides == there[name].configs == keys


@pytest.fixture
def gate(monkeypatch):
    """Yields what makes an event that lets writes of the registry go on, and the turns of those that have come."""
    gate, write, turns = threading.Event(), TopicRegistry._write, []

    def slow(self, turn, content):
        turns.append(turn)
        assert gate.wait(60)
        write(self, turn, content)

    def install():
        monkeypatch.setattr(TopicRegistry, "_write", slow)
        return gate, turns

    yield install
    gate.set()


async def test_a_topic_is_deleted_and_made_anew_once_its_configuration_is_written(server, connect, gate):
    one, other, third = await connect(), await connect(), await connect()
    await one.request(topics("t", "u"), 7)
    opened, turns = gate()
    altering = asyncio.create_task(one.request(alteration("retention.ms", "5", "t", "u"), 1))
    while not turns:
        await asyncio.sleep(0.001)
    topic = server.broker.topics.by_name["t"]
    assert topic.overrides == {}, "what is not on the disk does not hold"
    changing = server.broker.topic_changes._changing
    first = changing["t"]
    deleting = asyncio.create_task(other.request(deletion("t"), 6))
    while changing["t"] is first:
        await asyncio.sleep(0.001)
    await third.request(MetadataRequest(topics=None), 12)
    assert len(turns) == 1
    opened.set()
    assert (await deleting).responses[0].error_code == E.NONE
    assert (await other.request(topics("t"), 7)).topics[0].error_code == E.NONE
    assert {r.error_code for r in (await altering).responses} == {E.NONE}
    by_name = server.broker.topics.by_name
    assert (by_name["t"].overrides, by_name["u"].overrides) == ({}, {"retention.ms": "5"})
    there = stored(server)
    assert (there["t"].configs, there["u"].configs) == ({}, {"retention.ms": "5"})


def test_a_topic_that_is_made_anew_while_a_configuration_changes_has_none(tmp_path):
    logs = LogManager(tmp_path, now_ms=1)
    logs.create_topic("t", 1, now_ms=1)
    altering = logs.altering_configs({"t": {"retention.ms": "5"}})
    write = next(altering)
    logs.delete_topic("t", now_ms=1)
    logs.create_topic("t", 1, now_ms=1)
    write()
    finish(altering)
    assert logs.get("t", 0).config.retention_ms != 5
    assert TopicRegistry.load(tmp_path / "klamm-topics.json").topics["t"].configs == {}
    logs.close()


def test_partitions_that_come_while_a_configuration_changes_have_the_new_one(tmp_path):
    logs = LogManager(tmp_path, now_ms=1)
    logs.create_topic("t", 1, now_ms=1)
    growing = logs.growing_topics({"t": 4}, now_ms=1)
    while logs.get("t", 1) is None:
        job = next(growing)
        if job is not None:
            job()
    logs.alter_configs("t", {"retention.ms": "5"})
    assert logs.get("t", 2) is None
    assert finish(growing) == {}
    assert {logs.get("t", n).config.retention_ms for n in range(4)} == {5}
    logs.close()


async def test_of_many_topics_only_the_one_that_grows_is_deleted_later(server, connect, gate, caplog):
    one, other = await connect(), await connect()
    names = [f"t{n}" for n in range(10)]
    await one.request(topics(*names), 7)
    opened, turns = gate()
    growing = asyncio.create_task(one.request(growth(2, "t3"), 3))
    while not turns:
        await asyncio.sleep(0.001)
    caplog.set_level("INFO")
    deleting = asyncio.create_task(other.request(deletion(*names), 6))
    while len(turns) < 2:
        assert not deleting.done()
        await asyncio.sleep(0.001)
    opened.set()
    answer = await deleting
    assert {result.name: result.error_code for result in answer.responses} == dict.fromkeys(names, E.NONE)
    assert len(turns) == 3, "the others did not wait for it"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert (await growing).results[0].error_code == E.NONE
    told = [json.loads(r.getMessage()) for r in caplog.records if r.name == "klamm.audit"]
    assert [one["deleted"] for one in told if "deleted" in one] == [names]
    assert not server.broker.topics.by_name


def test_a_change_that_was_refused_does_not_come_with_one_that_is_under_way(tmp_path):
    registry = TopicRegistry(tmp_path / "r")
    finish(registry.putting(*(Topic(name=name, id=name * 22, partitions=1) for name in "ab")))
    changes = [registry.changing({"a": {"retention.ms": "1"}}), registry.removing("a")]
    for refused in changes:
        growing = registry.growing({"b": registry.topics["b"].partitions + 1})
        next(refused)
        later = next(growing)
        with pytest.raises(OSError, match="No space left"):
            refused.throw(OSError(28, "No space left on device"))
        later()
        with pytest.raises(StopIteration):
            next(growing)
        stored = TopicRegistry.load(tmp_path / "r").topics
        assert stored == registry.topics
        assert stored["a"].configs == {}


async def test_a_name_that_collides_with_one_that_is_being_created_is_refused(server, connect, gate):
    one, other = await connect(), await connect()
    opened, turns = gate()
    creating = asyncio.create_task(one.request(topics("a.b", "c"), 7))
    while not turns:
        await asyncio.sleep(0.001)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a_b")], allow_auto_topic_creation=True)
    assert (await other.request(asked, 9)).topics[0].error_code == E.LEADER_NOT_AVAILABLE
    colliding = asyncio.create_task(other.request(topics("a_b", "c"), 7))
    answer = await asyncio.wait_for(colliding, 20)
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [E.INVALID_TOPIC_EXCEPTION, E.TOPIC_ALREADY_EXISTS]
    opened.set()
    assert [topic.error_code for topic in (await creating).topics] == [E.NONE, E.NONE]
    assert (await other.request(asked, 9)).topics[0].error_code == E.INVALID_TOPIC_EXCEPTION
    assert (await one.request(deletion("a.b"), 6)).responses[0].error_code == E.NONE
    assert (await other.request(topics("a_b"), 7)).topics[0].error_code == E.NONE


async def test_a_coordinator_whose_topic_is_being_deleted_is_not_available(server, connect, monkeypatch):
    one, other = await connect(), await connect()
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    assert (await one.request(asked, 4)).coordinators[0].error_code == E.NONE
    begun, go_on = hold_in_thread(monkeypatch, checkpoints, "write_offsets")
    deleting = asyncio.create_task(one.request(deletion("__consumer_offsets"), 6))
    await in_time(begun)
    assert (await other.request(asked, 4)).coordinators[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    go_on.set()
    assert (await deleting).responses[0].error_code == E.NONE
    assert (await other.request(asked, 4)).coordinators[0].error_code == E.NONE


OWN = {"min.compaction.lag.ms": "1000", "retention.ms": "7"}
CONTRARY = {"max.compaction.lag.ms": "500", "segment.ms": "6"}


def lags(logs, *partitions):
    """Returns what the configurations of partitions of `t` have from the topic and from the defaults."""
    found = {logs.get("t", n).config for n in partitions}
    return {(c.min_compaction_lag_ms, c.max_compaction_lag_ms, c.retention_ms, c.segment_ms) for c in found}


def test_a_topic_that_newer_defaults_contradict_is_created_and_grows(tmp_path, caplog):
    """They came while it was being created: the registry had it, and nobody could see or delete it."""
    logs = LogManager(tmp_path, now_ms=1)
    creating = logs.creating_topics({"t": (2, OWN)}, now_ms=1)
    while "t" not in logs.topics:
        job = next(creating)
        if job is not None:
            job()
            logs.set_defaults(CONTRARY, producer_id_expiration_ms=1)
    assert finish(creating) == {}
    logs.add_partitions("t", 3, now_ms=1)
    assert lags(logs, 0, 1, 2) == {(1000, 2**63 - 1, 7, 6)}
    assert "topic t goes by its own compaction lags alone" in caplog.text
    logs.close()


def test_a_broker_starts_with_defaults_that_a_topic_contradicts(tmp_path):
    logs = LogManager(tmp_path, now_ms=1)
    logs.create_topic("t", 1, OWN, now_ms=1)
    logs.close()
    again = LogManager(tmp_path, now_ms=1, defaults=CONTRARY)
    assert lags(again, 0) == {(1000, 2**63 - 1, 7, 6)}
    with pytest.raises(ConfigError, match="conflict"):
        again.create_topic("u", 1, OWN, now_ms=1)
    again.close()
