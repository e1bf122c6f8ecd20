"""Defects of our own, parked answers, and what a request costs: in-process, with handlers put in their place."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading

import pytest

from klamm_broker.api.api_03_metadata import AUTO_CREATE_PARTITIONS
from klamm_broker.api.registry import Api
from klamm_broker.log import checkpoints
from klamm_broker.log.steps import finish
from klamm_broker.log.topic_registry import TopicRegistry
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.connection import MAX_PARKED
from klamm_broker.server.listener import Server
from klamm_kafka.client import Connection, ConnectionLost
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture
async def server(tmp_path):
    config = BrokerConfig.load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
            "offsets.topic.num.partitions": "1",
        }
    )
    broker = Broker(config, asyncio.get_running_loop())
    server = Server(broker, asyncio.get_running_loop())
    server.apis = dict(server.apis)
    broker.listeners = {listener.name: listener for listener in server.bind()}
    broker.open()
    server.serve()
    yield server
    server.quiesce()
    await server.drain(1)
    await broker.close()


@pytest.fixture
async def client(server):
    port = server.broker.listeners["PLAINTEXT"].port
    async with await Connection.open("127.0.0.1", port) as connection:
        yield connection


def replace(server, key, handler, *, raw=False):
    old = server.apis[key]
    versions = (old.min_version, old.max_version)
    server.apis[key] = Api(key, versions=versions, advertised_min=None, handler=handler, raw=raw)


ASK = DescribeClusterRequest()


async def test_a_handler_that_raises_ends_its_connection_only(server, client, caplog):
    def broken(broker, ctx, request):
        raise ZeroDivisionError("a defect")

    replace(server, ApiKey.DESCRIBE_CLUSTER, broken)
    port = server.broker.listeners["PLAINTEXT"].port
    async with await Connection.open("127.0.0.1", port) as other:
        with caplog.at_level(logging.ERROR), pytest.raises(ConnectionLost):
            await client.request(ASK)
        assert "a defect" in caplog.text
        await other.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))


async def test_a_raw_handler_that_raises(server, client, caplog):
    def broken(conn, body, version, correlation_id):
        raise ZeroDivisionError("a defect")

    replace(server, ApiKey.FETCH, broken, raw=True)
    with caplog.at_level(logging.ERROR), pytest.raises(ConnectionLost):
        await client.request(FetchRequest())
    assert "a defect" in caplog.text


async def test_an_answer_that_cannot_be_sent_ends_the_connection(server, client, caplog, monkeypatch):
    def broken(sock, pieces):
        raise ZeroDivisionError("a defect")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patch:
        for connection in server.connections:
            patch.setattr(connection, "send", broken)
        with pytest.raises(ConnectionLost):
            await client.request(ASK)
    assert "could not be sent" in caplog.text


async def test_parked_answers_keep_their_order_whoever_is_ready_first(server, client):
    waiting = []

    def park(broker, ctx, request):
        waiting.append(broker.loop.create_future())
        return waiting[-1]

    replace(server, ApiKey.DESCRIBE_CLUSTER, park)
    asked = [asyncio.create_task(client.request(ASK)) for _ in range(4)]
    while len(waiting) < 4:
        await asyncio.sleep(0)
    for index in (3, 1, 0):
        waiting[index].set_result(DescribeClusterResponse(cluster_id=str(index)))
    first, second = await asked[0], await asked[1]
    assert (first.cluster_id, second.cluster_id) == ("0", "1")
    assert not asked[2].done()
    assert not asked[3].done(), "it is ready, but the third is before it"
    waiting[2].set_result(DescribeClusterResponse(cluster_id="2"))
    assert [(await task).cluster_id for task in asked[2:]] == ["2", "3"]


@pytest.mark.parametrize("end", ["exception", "cancel"])
async def test_a_future_that_fails_ends_the_connection(server, client, caplog, end):
    def park(broker, ctx, request):
        future = broker.loop.create_future()
        if end == "cancel":
            broker.loop.call_soon(future.cancel)
        else:
            broker.loop.call_soon(future.set_exception, ZeroDivisionError("a defect"))
        return future

    replace(server, ApiKey.DESCRIBE_CLUSTER, park)
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectionLost):
        await client.request(ASK)
    assert "DESCRIBE_CLUSTER" in caplog.text


async def test_answer_after_the_connection_is_gone_is_dropped(server, client):
    waiting = []

    def park(broker, ctx, request):
        waiting.append(broker.loop.create_future())
        return waiting[-1]

    replace(server, ApiKey.DESCRIBE_CLUSTER, park)
    task = asyncio.create_task(client.request(ASK))
    while not waiting:
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ConnectionLost):
        await task
    while server.connections:
        await asyncio.sleep(0)
    waiting[0].set_result(DescribeClusterResponse(cluster_id="late"))
    await asyncio.sleep(0)
    assert not server.connections


async def test_a_parked_fetch_leaves_no_waiter_behind(server, client):
    topic = server.broker.topic_changes.create_topic("t", partitions=1)
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1)

    request.topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1)])]
    task = asyncio.create_task(client.request(request, 11))
    while not topic.partitions[0].waiters:
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ConnectionLost):
        await task
    while server.connections:
        await asyncio.sleep(0)
    assert not topic.partitions[0].waiters


async def test_deleting_records_writes_the_checkpoints_once(server, client, monkeypatch):
    server.broker.topic_changes.create_topic("many", partitions=20)
    written = []
    write = server.broker.logs.writing_checkpoints
    monkeypatch.setattr(server.broker.logs, "writing_checkpoints", lambda: written.append(1) or write())
    asked = [DeleteRecordsPartition(partition_index=i, offset=-1) for i in range(20)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="many", partitions=asked)], timeout_ms=1)
    answer = await client.request(request)
    assert {p.error_code for p in answer.topics[0].partitions} == {0}
    assert len(written) == 1
    request.topics[0].name = "none"
    await client.request(request)
    assert len(written) == 1, "nothing was deleted"


async def test_changes_of_topics_on_a_full_disk_are_refused_and_change_nothing(server, client, monkeypatch):
    broker = server.broker
    topic = broker.topic_changes.create_topic("t", partitions=1)
    config = AlterableConfig(name="retention.ms", config_operation=0, value="1")
    requests = [
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=1),
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=1
        ),
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])]
        ),
    ]

    def refuse(*_):
        raise OSError(28, "No space left on device")

    for request in requests:
        with monkeypatch.context() as patch:
            patch.setattr("klamm_broker.log.topic_registry.TopicRegistry._write", refuse)
            answer = await client.request(request)
        (result,) = getattr(answer, "responses", None) or answer.results
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left" in result.error_message
        assert broker.topics.by_name["t"] is broker.topics.by_id[topic.id] is topic
        assert (len(topic.partitions), topic.overrides) == (1, {})
    for request in reversed(requests):
        answer = await client.request(request)
        (result,) = getattr(answer, "responses", None) or answer.results
        assert result.error_code == 0
    assert "t" not in broker.topics.by_name


def waiting_fetch(topic, *, version=11):
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[partition])],
    ), version


@pytest.mark.parametrize(
    ("version", "error"),
    [(11, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
async def test_a_fetch_that_waits_hears_that_its_topic_is_deleted(server, client, version, error):
    topic = server.broker.topic_changes.create_topic("t", partitions=1)
    task = asyncio.create_task(client.request(*waiting_fetch(topic, version=version)))
    while not topic.partitions[0].waiters:
        await asyncio.sleep(0)
    finish(server.broker.topic_changes.deleting([topic]))
    answer = await task
    assert answer.responses[0].partitions[0].error_code == error


async def test_a_topic_may_come_again_by_what_its_deletion_sets_going(server, client):
    """With `MAX_PARKED` fetches on the topic the next request stays in the buffer until they are answered."""
    broker = server.broker
    topic = broker.topic_changes.create_topic("t", partitions=1)
    fetches = [asyncio.create_task(client.request(*waiting_fetch(topic))) for _ in range(MAX_PARKED)]
    while len(topic.partitions[0].waiters) < MAX_PARKED:
        await asyncio.sleep(0)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    again = asyncio.create_task(client.request(request, 12))
    (connection,) = server.connections
    while connection._end == connection._start:
        await asyncio.sleep(0)
        connection._on_readable()  # what came with the last fetches is read, the rest is not
    finish(broker.topic_changes.deleting([topic]))
    for fetch in fetches:
        answer = await fetch
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (created,) = (await again).topics
    assert created.error_code == 0
    assert created.topic_id == broker.topics.by_name["t"].id == broker.logs.topic_id("t") != topic.id


@pytest.fixture
def saved(server, monkeypatch):
    """Returns the names of all topics, each time that they were written to the disk."""
    write, saved = TopicRegistry._write, []

    def note(registry, turn, content):
        saved.append(list(json.loads(content)["topics"]))
        write(registry, turn, content)

    monkeypatch.setattr(TopicRegistry, "_write", note)
    return saved


async def test_many_topics_are_created_with_one_change_of_the_registry(server, client, saved):
    names = [f"t{i}" for i in range(30)]
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    bad = CreatableTopic(name="t.1", num_partitions=0, replication_factor=1)
    answer = await client.request(CreateTopicsRequest(topics=[*topics, bad], timeout_ms=1), 7)
    assert [topic.error_code for topic in answer.topics] == [0] * 30 + [ErrorCode.INVALID_PARTITIONS]
    assert saved == [names]
    for topic in answer.topics[:30]:
        assert topic.topic_id == server.broker.topics.by_name[topic.name].id
        assert len(server.broker.topics.by_name[topic.name].partitions) == 2


async def test_topics_of_one_request_that_collide_with_each_other(server, client):
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a.b", "a_b")]
    answer = await client.request(CreateTopicsRequest(topics=topics, timeout_ms=1), 7)
    assert [topic.error_code for topic in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    names = [MetadataRequestTopic(name=name) for name in ("c_d", "c.d", "a_b")]
    answer = await client.request(MetadataRequest(topics=names), 12)
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [topic.error_code for topic in answer.topics] == [0, invalid, invalid]
    assert set(server.broker.topics.by_name) == {"a.b", "c_d"}


async def test_one_request_cannot_create_without_end(server, client, saved):
    topics = [CreatableTopic(name=f"t{i}", num_partitions=5001, replication_factor=1) for i in range(2)]
    answer = await client.request(CreateTopicsRequest(topics=topics, timeout_ms=1), 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.POLICY_VIOLATION] * 2
    names = [f"auto{i}" for i in range(AUTO_CREATE_PARTITIONS + 10)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answer = await client.request(request, 12)
    assert [topic.error_code for topic in answer.topics] == (
        [0] * AUTO_CREATE_PARTITIONS + [ErrorCode.LEADER_NOT_AVAILABLE] * 10
    )
    assert len(saved) == 1
    answer = await client.request(request, 12)
    assert {topic.error_code for topic in answer.topics} == {0}
    assert saved[1] == names


async def test_checkpoints_are_written_beside_the_loop_and_before_the_end(tmp_path, monkeypatch):
    loop_thread, threads = threading.get_ident(), []
    go = threading.Event()
    write = checkpoints.write_offsets

    def slow(path, offsets):
        threads.append(threading.get_ident())
        if threads[-1] != loop_thread:
            assert go.wait(60)
        write(path, offsets)

    settings = {"log.dirs": str(tmp_path), "log.flush.offset.checkpoint.interval.ms": "10"}
    broker = Broker(BrokerConfig.load(settings), asyncio.get_running_loop())
    broker.open()
    monkeypatch.setattr(checkpoints, "write_offsets", slow)
    async with asyncio.timeout(60):
        while not threads:
            await asyncio.sleep(0.01)  # the loop is free while the disk is not
    assert loop_thread not in threads
    closing = asyncio.create_task(broker.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    go.set()
    await closing
    assert threads[-3:] == [loop_thread] * 3, "the last word is that of the end"
    assert loop_thread not in threads[:-3]


async def test_deleted_topics_are_removed_beside_the_loop_and_before_the_end(tmp_path, monkeypatch):
    loop_thread, threads = threading.get_ident(), []
    go = threading.Event()
    remove = shutil.rmtree

    def slow(path):
        threads.append(threading.get_ident())
        if threads[-1] != loop_thread:
            assert go.wait(60)
        remove(path)

    settings = {
        "log.dirs": str(tmp_path),
        "log.retention.check.interval.ms": "10",
        "log.segment.delete.delay.ms": "0",
    }
    broker = Broker(BrokerConfig.load(settings), asyncio.get_running_loop())
    broker.open()
    monkeypatch.setattr(shutil, "rmtree", slow)
    finish(broker.topic_changes.deleting([broker.topic_changes.create_topic("t", partitions=1)]))
    async with asyncio.timeout(60):
        while not threads:
            await asyncio.sleep(0.01)
    closing = asyncio.create_task(broker.close())
    await asyncio.sleep(0.05)
    assert not closing.done(), "the directory stays locked while it is changed"
    go.set()
    await closing
    assert loop_thread not in threads
    assert not list(tmp_path.glob("t-0*"))
