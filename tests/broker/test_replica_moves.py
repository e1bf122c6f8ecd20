"""Moves between log directories where something goes wrong or happens at the same time, and what they may not lose."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest
from support.inprocess import connect, produce, serving
from support.log_dirs import move

from klamm_broker.log import checkpoints, log_manager, topic_registry
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.replica_move import CopyJob, ReplicaMove
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, iter_headers
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

NOW = 1_800_000_000_000


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
def start(dirs):
    running = []

    def open_manager(*paths):
        running.append(LogManager(paths or dirs, now_ms=NOW))
        return running[-1]

    yield open_manager
    for manager in running:
        manager.release()


def append(log, value):
    log.append(encode_batch([Record(timestamp=NOW, value=value)]), now_ms=NOW)


def moved(manager, topic, partition, target):
    manager.begin_move(topic, partition, target)
    under_way = manager.moves[topic, partition]
    job = under_way.plan()
    job.run()
    under_way.done(job)
    manager.finish_move(under_way, NOW)


def test_a_copy_whose_name_is_not_on_the_disk_does_not_take_over_at_the_next_start(start, dirs, monkeypatch):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    append(log, b"before")
    real = log_manager.sync_directory

    def failing(path):
        if path == dirs[1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(log_manager, "sync_directory", failing)
        with pytest.raises(OSError, match="Input/output") as raised:
            moved(manager, "t", 0, dirs[1])
    assert manager.moves["t", 0].directory_of(raised.value) == dirs[1]
    manager.cancel_move("t", 0)
    append(log, b"acknowledged after it")
    manager.release()
    again = start()
    assert again.get("t", 0).directory.parent == dirs[0]
    assert again.get("t", 0).log_end_offset == 2
    moved(again, "t", 0, dirs[1])
    assert again.get("t", 0).log_end_offset == 2


def test_of_a_lost_copy_that_comes_back_nobody_guesses(start, dirs):
    """The partition has begun anew elsewhere: the registry's word for the old place does not hold any more."""
    manager = start(*dirs[:2])
    manager.create_topic("t", 1, now_ms=NOW)
    append(manager.get("t", 0), b"old")
    moved(manager, "t", 0, dirs[1])
    manager.close()
    manager = start(dirs[0])
    append(manager.get("t", 0), b"new")
    manager.close()
    with pytest.raises(DirectoryError, match=r"partition t-0 is in .*a and in .*b"):
        start(*dirs[:2])
    assert (dirs[0] / "t-0").exists()
    assert (dirs[1] / "t-0").exists()


def test_every_adopted_partition_gets_a_leader_epoch_that_it_has_not_had(start, dirs):
    """The directories are as Kafka leaves them: one topic in several directories, and partitions whose leader has changed more often."""
    manager = start()
    manager.create_topic("t", 12, now_ms=NOW)
    latest = {}
    for partition in range(12):
        log = manager.get("t", partition)
        log.leader_epoch = latest[partition] = 3 + partition * 7 % 12
        append(log, b"v")
    manager.close()
    (dirs[0] / topic_registry.FILE_NAME).unlink()
    manager = start()
    for partition, epoch in latest.items():
        assert manager.get("t", partition).leader_epoch > epoch, partition


def test_checkpoints_of_a_move_that_is_about_to_end_are_kept_by_others(start, dirs):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    for _ in range(3):
        append(log, b"v")
    log.advance_log_start_offset(2)
    manager.begin_move("t", 0, dirs[1])
    under_way = manager.moves["t", 0]
    job = under_way.plan()
    job.run()
    under_way.done(job)
    for step in manager.preparing_move(under_way):
        if step is not None:
            step()
    under_way.prepared()
    manager.tick_checkpoints()
    for directory in dirs[:2]:
        assert checkpoints.read_offsets(directory / checkpoints.LOG_START_OFFSET) == {("t", 0): 2}
    manager.end_move(under_way, NOW)
    manager.release()  # killed before the last checkpoints
    assert start().get("t", 0).log_start_offset == 2


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_the_end_of_a_move_and_new_partitions_write_beside_the_loop(dirs, monkeypatch):
    threads = {}
    for module in (topic_registry, checkpoints):
        real = module.write_atomically

        def noting(path, data, *, sync=True, _real=real):
            threads.setdefault(path.name, set()).add(threading.get_ident())
            _real(path, data, sync=sync)

        monkeypatch.setattr(module, "write_atomically", noting)
    async with serving(*dirs[:2]) as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        connection = await connect(server)
        await produce(connection, "t", b"x" * 1000)
        threads.clear()
        await connection.request(move(dirs[1], "t", 0), 2)
        await until(lambda: not server.broker.logs.moves)
        await until(lambda: not server.broker.logs.directories[0].checkpoints_stale)
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=5000
        )
        answer = await connection.request(grow, 3)
        assert answer.results[0].error_code == 0
        assert {topic_registry.FILE_NAME, checkpoints.RECOVERY_POINT} <= threads.keys()
        assert threading.get_ident() not in set().union(*threads.values())
        assert server.broker.partition("t", 0).log.directory.parent == dirs[1]
        await connection.close()


async def test_moves_go_on_after_one_that_fails_for_whatever_reason(dirs, monkeypatch, caplog):
    real = ReplicaMove.plan

    def defective(self, limit=1 << 20):
        if self.log.partition == 0:
            raise RuntimeError("a defect")
        return real(self, limit)

    async with serving(*dirs[:2]) as server:
        server.broker.topic_changes.create_topic("t", partitions=4)
        connection = await connect(server)
        monkeypatch.setattr(ReplicaMove, "plan", defective)
        await connection.request(move(dirs[1], "t", 0, 2), 2)
        await until(lambda: not server.broker.logs.moves)
        logs = [server.broker.partition("t", index).log for index in range(4)]
        assert [log.directory.parent.name for log in logs] == ["a", "b", "b", "b"]
        assert not logs[0].copying
        assert "a defect" in caplog.text
        monkeypatch.undo()
        await connection.request(move(dirs[1], "t", 0), 2)
        await until(lambda: logs[0].directory.parent == dirs[1])
        await connection.close()


async def test_a_move_that_is_cancelled_while_its_end_is_prepared_and_begun_again(dirs, monkeypatch):
    began, go = threading.Event(), threading.Event()
    real = CopyJob.run

    def waiting(self):
        if not self.ranges:  # what there is beside the segments: the last job
            began.set()
            assert go.wait(60)
        real(self)

    monkeypatch.setattr(CopyJob, "run", waiting)
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=1)
        connection = await connect(server)
        await produce(connection, "t", b"first")
        log = server.broker.partition("t", 0).log
        await connection.request(move(dirs[1], "t", 0), 2)
        assert await asyncio.to_thread(began.wait, 60)
        await connection.request(move(dirs[0], "t", 0), 2)  # cancelled
        assert not server.broker.logs.moves
        await connection.request(move(dirs[2], "t", 0), 2)  # and another one
        await produce(connection, "t", b"second")
        go.set()
        await until(lambda: not server.broker.logs.moves)
        assert log.directory.parent == dirs[2]
        assert log.log_end_offset == 2
        await produce(connection, "t", b"third")
        await connection.close()
    assert [path.name for path in dirs[1].glob("t-0*") if "-delete" not in path.name] == []
    async with serving(*dirs) as server:
        assert server.broker.partition("t", 0).log.log_end_offset == 3
        assert not list(dirs[1].glob("t-0*"))


@pytest.mark.usefixtures("processes")
async def test_a_compacted_log_moves_back_and_forth_while_it_is_cleaned(dirs):
    async with serving(*dirs[:2], log_cleaner_backoff_ms="20") as server:
        broker = server.broker
        overrides = {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
            "file.delete.delay.ms": "0",
        }
        broker.topic_changes.create_topic("t", partitions=1, overrides=overrides)
        partition = broker.partition("t", 0)
        log, connection, latest = partition.log, await connect(server), {}
        for number in range(90):
            key, value = b"k%d" % (number % 7), b"%d-" % number + os.urandom(50_000)
            broker.append(
                partition,
                encode_batch([Record(timestamp=broker.now_ms(), key=key, value=value)]),
                now_ms=broker.now_ms(),
            )
            latest[key] = value
            if number % 15 == 14:
                target = dirs[1] if log.directory.parent == dirs[0] else dirs[0]
                answer = await connection.request(move(target, "t", 0), 2)
                assert answer.results[0].partitions[0].error_code == 0
                await asyncio.sleep(0.05)
        await until(lambda: not broker.logs.moves)
        await until(lambda: broker.cleaner.stats.runs and log.size < 3_000_000)
        await connection.close()
    async with serving(*dirs[:2]) as server:
        log = server.broker.partition("t", 0).log
        found, offset = {}, 0
        while offset < log.log_end_offset:
            piece = log.read(offset, 1 << 20, up_to=log.log_end_offset)
            data = os.pread(piece.fd, piece.size, piece.position)
            for position, header in iter_headers(data):
                found |= {record.key: record.value for record in decode_records(data, position)}
                offset = header.last_offset + 1
        assert found == latest
        assert log.log_end_offset == 90
