"""durability=fsync: what is acknowledged is on the disk, and 100 producers share the fsyncs that it takes."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
import threading

import pytest
from support.inprocess import connect, produce, serving
from support.power import SyncedDisk

from klamm_broker.api import api_00_produce
from klamm_broker.log.errors import StorageError
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.steps import finish
from klamm_broker.server.broker import Broker
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, iter_headers
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FETCH_VERSION = 12
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SyncedDisk reads /proc, which is Linux's")


@pytest.fixture
def disk(monkeypatch):
    made = SyncedDisk(monkeypatch, delay_s=0.002)
    yield made
    made.close()


def records_of(log, up_to=None):
    """Returns every value in a log."""
    values, offset, end = [], log.log_start_offset, log.log_end_offset if up_to is None else up_to
    while offset < end:
        piece = log.read(offset, 1 << 20, up_to=end)
        assert piece is not None
        data = os.pread(piece.fd, piece.size, piece.position)
        for position, header in iter_headers(data):
            values += [record.value for record in decode_records(data, position)]
            offset = header.last_offset + 1
    return values


async def test_a_hundred_producers_share_the_fsyncs(tmp_path, disk):
    each = 5
    async with serving(tmp_path / "data", durability="fsync") as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        connections = [await connect(server) for _ in range(100)]
        before = disk.syncs

        async def one(connection):
            for number in range(each):
                answer = await produce(connection, "t", b"%d" % number)
                assert answer.error_code == 0

        await asyncio.gather(*(one(connection) for connection in connections))
        commits = server.broker.commits
        syncs = disk.syncs - before
        assert commits.commits == 100 * each
        assert syncs <= commits.syncs + 5
        assert syncs < 100 * each / 5, f"{syncs} fsyncs for {100 * each} acknowledged requests"
        for connection in connections:
            await connection.close()


async def test_nobody_reads_what_is_not_on_the_disk_yet(tmp_path, disk):
    async with serving(tmp_path / "data", durability="fsync") as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        partition = server.broker.partition("t", 0)
        writer, reader = await connect(server), await connect(server)
        await produce(writer, "t", b"first")
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(path):
            if path.endswith(".log"):
                asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)

        disk.before = hold
        waiting = asyncio.create_task(produce(writer, "t", b"second"))
        while partition.log.log_end_offset < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert partition.log.high_watermark == 1
        fetching = asyncio.create_task(
            reader.request(
                FetchRequest(
                    replica_id=-1, max_wait_ms=200_000, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
                    session_epoch=-1, rack_id="",
                    topics=[FetchTopic(topic="t", partitions=[
                        FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)])],
                ),
                FETCH_VERSION,
            )
        )  # fmt: skip
        await asyncio.sleep(0.02)
        assert not fetching.done()
        disk.before = lambda _: None
        gate.set()
        assert (await waiting).base_offset == 1
        (found,) = (await fetching).responses[0].partitions
        assert [r.value for r in decode_records(bytes(found.records))] == [b"second"]
        assert found.high_watermark == 2
        for connection in (writer, reader):
            await connection.close()


@pytest.mark.parametrize("every", [1, 3])
async def test_flush_messages_waits_for_the_disk_beside_the_loop(tmp_path, disk, every):
    loop_thread, on_loop = threading.get_ident(), []

    def note(path):
        if path.endswith(".log") and threading.get_ident() == loop_thread:
            on_loop.append(path)

    async with serving(tmp_path / "data") as server:
        server.broker.topic_changes.create_topic("t", partitions=1, overrides={"flush.messages": str(every)})
        server.broker.topic_changes.create_topic("other", partitions=1)
        log = server.broker.partition("t", 0).log
        connections = [await connect(server) for _ in range(20)]
        before = disk.syncs
        disk.before = note

        async def one(connection):
            for number in range(6):
                answer = await produce(connection, "t", b"%d" % number)
                assert answer.error_code == 0
                assert answer.base_offset < log.high_watermark
                assert answer.base_offset - log.recovery_point < every - 1, (
                    "more could be lost than was allowed"
                )
                assert log.high_watermark - log.recovery_point < every

        await asyncio.gather(*(one(connection) for connection in connections))
        assert not on_loop
        assert disk.syncs > before
        assert disk.syncs - before < 120 / every, "those who wait share an fsync"
        disk.before = lambda path: pytest.fail(f"{path} is forced to the disk")
        assert (await produce(connections[0], "other", b"v")).error_code == 0
        disk.before = lambda _: None
        for connection in connections:
            await connection.close()


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_acknowledged_survives_a_power_cut(tmp_path, disk, seed):
    chance = random.Random(seed)
    acknowledged: list[tuple[int, bytes]] = []
    committed = -1
    async with serving(tmp_path / "data", durability="fsync", log_segment_bytes="1048576") as server:
        server.broker.topic_changes.create_topic("t", partitions=3)
        stopping = False

        async def write(number):
            connection = await connect(server)
            count = 0
            while not stopping:
                value = b"%d-%d-" % (number, count) + b"x" * chance.choice([1, 100, 60_000])
                partition = chance.randrange(3)
                answer = await produce(connection, "t", value, partition=partition)
                assert answer.error_code == 0
                if not stopping:
                    acknowledged.append((partition, value))
                count += 1
            await connection.close()

        async def commit_offsets():
            nonlocal committed
            connection = await connect(server)
            offset = 0
            while not stopping:
                offset += 1
                wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                request = OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=-1,
                    topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
                )
                answer = await connection.request(request, 8)
                if not stopping and answer.topics[0].partitions[0].error_code == 0:
                    committed = offset
            await connection.close()

        writers = [asyncio.create_task(write(number)) for number in range(10)]
        writers.append(asyncio.create_task(commit_offsets()))
        await asyncio.sleep(0.4 + chance.random() / 4)
        while len(acknowledged) <= 20 or committed <= 0:
            await asyncio.sleep(0.01)
        seen = {index: server.broker.partition("t", index).log.high_watermark for index in range(3)}
        wanted, last_commit = list(acknowledged), committed
        disk.image(tmp_path / "data", tmp_path / "cut")
        stopping = True
        await asyncio.gather(*writers)
    manager = LogManager(tmp_path / "cut", now_ms=Broker.now_ms(), commit_by_flush=True)
    for index in range(3):
        log = manager.get("t", index)
        assert log.high_watermark == log.log_end_offset >= seen[index], "what a consumer could read is there"
        there = set(records_of(log))
        missing = [value[:20] for partition, value in wanted if partition == index and value not in there]
        assert not missing
    assert manager.get("__consumer_offsets", 0).log_end_offset >= last_commit
    manager.close()


async def test_an_fsync_that_fails_is_not_tried_again(tmp_path, disk):
    directories = [tmp_path / "a", tmp_path / "b"]
    async with serving(*directories, durability="fsync") as server:
        server.broker.topic_changes.create_topic("t", partitions=2)
        connection = await connect(server)
        assert (await produce(connection, "t", b"kept", partition=1)).error_code == 0

        def fail(path):
            if "t-1" in path:
                raise OSError(errno.EIO, "Input/output error")

        disk.before = fail
        others = [await connect(server) for _ in range(3)]
        answers = await asyncio.gather(*(produce(c, "t", b"lost", partition=1) for c in others))
        assert {answer.error_code for answer in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
        disk.before = lambda _: None
        again = await produce(connection, "t", b"later", partition=1)
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(connection, "t", b"v", partition=0)).error_code == 0
        for each in (connection, *others):
            await each.close()
    assert not (directories[1] / ".kafka_cleanshutdown").exists()
    manager = LogManager(directories, now_ms=Broker.now_ms(), commit_by_flush=True)
    assert b"kept" in records_of(manager.get("t", 1))
    manager.close()


async def test_acks_0_and_the_normal_mode_wait_for_nothing(tmp_path, disk):
    async with serving(tmp_path / "data") as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        assert not server.broker.commits.busy
        connection = await connect(server)
        before = disk.syncs
        assert (await produce(connection, "t", b"v")).error_code == 0
        assert disk.syncs == before
        told = []
        server.broker.when_committed(server.broker.partition("t", 0), 1, told.append)
        assert told == [ErrorCode.NONE]
        await connection.close()


async def test_a_deleted_topic_leaves_no_one_waiting(tmp_path, disk):
    async with serving(tmp_path / "data", durability="fsync") as server:
        topic = server.broker.topic_changes.create_topic("t", partitions=1)
        connection = await connect(server)
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()
        disk.before = lambda path: (
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60) if path.endswith(".log") else None
        )
        waiting = asyncio.create_task(produce(connection, "t", b"v"))
        while topic.partitions[0].log.log_end_offset < 1:
            await asyncio.sleep(0.001)
        finish(server.broker.topic_changes.deleting([topic]))
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gate.set()
        await connection.close()


async def test_a_coordinator_waits_where_a_producer_is_told_that_the_disk_is_full(
    tmp_path, disk, monkeypatch
):
    """A commit that was told to have failed, and is in the log, would be there after a restart only."""
    async with serving(tmp_path / "data", durability="fsync") as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        server.broker.groups.ensure_topic()
        producer, committer = await connect(server), await connect(server)
        full = True

        def begin_commit(log, now_ms):
            if full:
                raise StorageError(f"{log.name}: no room for an index")
            return begin(log, now_ms)

        begin = PartitionLog.begin_commit
        monkeypatch.setattr(PartitionLog, "begin_commit", begin_commit)
        commit = asyncio.create_task(
            committer.request(
                OffsetCommitRequest(
                    group_id="g",
                    topics=[
                        OffsetCommitRequestTopic(
                            name="t",
                            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
                        )
                    ],
                ),
                version=8,
            )
        )
        answer = await produce(producer, "t", b"v")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not commit.done()
        full = False
        done = await asyncio.wait_for(commit, 60)
        assert done.topics[0].partitions[0].error_code == ErrorCode.NONE
        (offset,) = server.broker.groups.coordinator.fetch("g").offsets.values()
        assert offset.offset == 7
        await producer.close()
        await committer.close()


async def test_a_topic_that_is_made_anew_between_two_slices_of_a_request(tmp_path, monkeypatch):
    """Nothing appended before is said to be stored, and nothing that comes after it is kept."""
    appending = api_00_produce.appending
    async with serving(tmp_path / "data", durability="fsync") as server:
        changes = server.broker.topic_changes
        topic = changes.create_topic("t", partitions=200)

        def disturbed(*args, **more):
            steps = appending(*args, **more)
            next(steps)
            finish(changes.deleting([topic]))
            changes.create_topic("t", partitions=1)
            return (yield from steps)

        batch = encode_batch([Record(timestamp=Broker.now_ms(), value=b"x")])
        data = [PartitionProduceData(index=n, records=batch) for n in range(200)]
        ask = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        async with await connect(server) as connection:
            with monkeypatch.context() as patch:
                patch.setattr(api_00_produce, "appending", disturbed)
                (told,) = (await connection.request(ask, 9)).responses
            assert len(told.partition_responses) == 200
            assert {p.error_code for p in told.partition_responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert (await produce(connection, "t", b"x")).base_offset == 0
