"""Several log directories over the wire: DescribeLogDirs, AlterReplicaLogDirs, partitions of a directory that is away."""

from __future__ import annotations

import asyncio
import random

import pytest
from support.inprocess import connect, produce, serving
from support.log_dirs import describe, fetch_request, move

from klamm_broker.log.errors import UnusableDirectory
from klamm_kafka.wire.batch import decode_records, iter_headers
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.describe_log_dirs import DescribableLogDirTopic
from klamm_kafka.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / name for name in ("a", "b")]


async def test_describe_and_the_errors_of_a_move(dirs):
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=3)
        connection = await connect(server)
        await produce(connection, "t", b"x" * 1000)
        found = await describe(connection)
        assert list(found) == [str(path) for path in dirs]
        assert found[str(dirs[0])][1].keys() == {("t", 0, False), ("t", 2, False)}
        assert found[str(dirs[1])][1].keys() == {("t", 1, False)}
        assert found[str(dirs[0])][1]["t", 0, False][0] > 1000
        assert all(0 < usable < total for _, _, (total, usable) in found.values())
        one = await describe(connection, [DescribableLogDirTopic(topic="t", partitions=[1, 1, 9])])
        assert [list(partitions) for _, partitions, _ in one.values()] == [[], [("t", 1, False)]]
        for path, topic, code in (
            (dirs[0].parent, "t", ErrorCode.LOG_DIR_NOT_FOUND),
            (dirs[0].parent, "none", ErrorCode.LOG_DIR_NOT_FOUND),
            (dirs[0], "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (dirs[0], "t", ErrorCode.NONE),
        ):
            answer = await connection.request(move(path, topic, 0), 2)
            assert answer.results[0].partitions[0].error_code == code
        assert not server.broker.logs.moves
        await connection.close()


@pytest.mark.parametrize("durability", ["process", "fsync"])
async def test_a_partition_moves_back_and_forth_under_load(dirs, durability):
    async with serving(*dirs, durability=durability, log_segment_bytes="1048576") as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        chance = random.Random(3)
        acknowledged, read, stopping, written, pause_s = [], [], False, False, 0.002

        async def write(name):
            connection = await connect(server)
            while not stopping:
                value = b"%s-%d-" % (name, len(acknowledged)) + b"x" * chance.choice([10, 5_000, 100_000])
                answer = await produce(connection, "t", value)
                assert answer.error_code == 0
                acknowledged.append((answer.base_offset, value))
                await asyncio.sleep(pause_s)
            await connection.close()

        async def consume():
            connection = await connect(server)
            offset = 0
            while not written or offset < len(acknowledged):
                answer = await connection.request(fetch_request("t", offset), 12)
                (partition,) = answer.responses[0].partitions
                assert partition.error_code == 0
                data = bytes(partition.records or b"")
                for position, header in iter_headers(data):
                    records = decode_records(data, position)
                    read.extend(
                        (record.offset, record.value) for record in records if record.offset >= offset
                    )
                    offset = header.last_offset + 1
            await connection.close()

        writers = [asyncio.create_task(write(b"w%d" % n)) for n in range(3)]
        reader = asyncio.create_task(consume())
        admin = await connect(server)
        places, lags = [], set()
        for number in range(4):
            await asyncio.sleep(0.1)
            target = dirs[(number + 1) % 2]
            assert (await admin.request(move(target, "t", 0), 2)).results[0].partitions[0].error_code == 0
            while server.broker.logs.moves:
                for _, partitions, _ in (await describe(admin)).values():
                    lags |= {lag for (_, _, future), (_, lag) in partitions.items() if future}
                await asyncio.sleep(0.001)
                pause_s *= 1.05  # at a busy machine's or a slow disk's pace, or the move would never catch up
            pause_s = 0.002
            places.append(server.broker.partition("t", 0).log.directory.parent)
        stopping = True
        await asyncio.gather(*writers)
        written = True
        await reader
        assert places == [dirs[1], dirs[0], dirs[1], dirs[0]]
        assert any(lag > 0 for lag in lags), "the future replica was seen on its way"
        assert read == sorted(acknowledged)
        assert [offset for offset, _ in read] == list(range(len(acknowledged)))
        await admin.close()


async def test_a_move_goes_on_after_a_restart(dirs, monkeypatch):
    monkeypatch.setattr(
        "klamm_broker.log.replica_move.CopyJob.run", lambda self: None if self.cancelled else _slow(self)
    )
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        connection = await connect(server)
        await produce(connection, "t", b"x" * 100_000)
        await connection.request(move(dirs[1], "t", 0), 2)
        assert server.broker.logs.moves
        await connection.close()
    monkeypatch.undo()
    async with serving(*dirs) as server:
        async with asyncio.timeout(60):
            while server.broker.partition("t", 0).log.directory.parent != dirs[1]:
                await asyncio.sleep(0.01)
        assert server.broker.partition("t", 0).log.log_end_offset == 1


def _slow(job):
    import time

    while not job.cancelled:
        time.sleep(0.01)


async def test_partitions_of_a_directory_that_is_away(dirs, caplog):
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=2)
        connection = await connect(server)
        for partition in (0, 1):
            await produce(connection, "t", b"v", partition=partition)
        # the one partition of __consumer_offsets goes where there are fewer, that is to the first directory
        await connection.close()
    dirs[1].rename(dirs[1].with_name("away"))
    dirs[1].write_text("a file where the directory was")
    async with serving(*dirs) as server:
        connection = await connect(server)
        assert f"log directory {dirs[1]} cannot be made" in caplog.text
        assert (await produce(connection, "t", b"v", partition=0)).error_code == 0
        assert (await produce(connection, "t", b"v", partition=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fetched = await connection.request(fetch_request("t", 1, partition=1, wait_ms=5000), 12)
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for timestamp in (-1, -2, -3, 0):
            asked = ListOffsetsPartition(partition_index=1, timestamp=timestamp)
            listed = await connection.request(
                ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 7
            )
            assert listed.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        deleted = await connection.request(
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t", partitions=[DeleteRecordsPartition(partition_index=1, offset=-1)]
                    )
                ]
            ),
            2,
        )
        assert deleted.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        epoch = await connection.request(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=1)])],
            ),
            4,
        )
        assert epoch.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        metadata = await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        by_index = {p.partition_index: p for p in metadata.topics[0].partitions}
        assert (by_index[0].leader_id, by_index[0].offline_replicas) == (1, [])
        assert (by_index[1].error_code, by_index[1].leader_id, by_index[1].offline_replicas) == (
            ErrorCode.LEADER_NOT_AVAILABLE, -1, [1],
        )  # fmt: skip
        found = await describe(connection)
        assert found[str(dirs[0])][0] == 0
        assert found[str(dirs[1])] == (ErrorCode.KAFKA_STORAGE_ERROR, {}, (-1, -1))
        answer = await connection.request(move(dirs[1], "t", 0), 2)
        assert answer.results[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await connection.close()
    dirs[1].unlink()
    dirs[1].with_name("away").rename(dirs[1])
    async with serving(*dirs) as server:
        assert server.broker.partition("t", 1).log.log_end_offset == 1


async def test_groups_whose_offsets_are_offline_are_not_told_that_they_have_none(dirs):
    async with serving(dirs[0], dirs[1]) as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        assert server.broker.groups.ensure_topic()
        assert server.broker.partition("__consumer_offsets", 0).log.directory.parent == dirs[1]
    dirs[1].rename(dirs[1].with_name("away"))
    dirs[1].write_text("")
    async with serving(*dirs) as server:
        connection = await connect(server)
        await asyncio.sleep(0.05)  # time to load what is away
        asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        answer = await connection.request(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])]), 8
        )
        assert answer.groups[0].error_code in {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        await connection.close()


async def test_the_first_directory_must_be_there(dirs):
    async with serving(*dirs):
        pass
    dirs[0].rename(dirs[0].with_name("away"))
    dirs[0].write_text("")
    with pytest.raises(UnusableDirectory, match=r"first of log\.dirs"):
        async with serving(*dirs):
            pass
