"""A log directory that fails while the broker runs goes offline as a whole; without the first one the broker stops."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.inprocess import connect, produce, serving
from support.log_dirs import describe, fetch_request, move

from klamm_broker.log.disk_failure import is_broken
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
E = ErrorCode


class BadDisk:
    """Operations on open files below `path` fail with `code`."""

    def __init__(self, monkeypatch):
        self.path, self.code = None, errno.EIO
        for name in ("fsync", "pwrite", "pread", "write"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real):
        def call(fd, *arguments):
            if self.path is not None and str(Path(f"/proc/self/fd/{fd}").readlink()).startswith(
                f"{self.path}/"
            ):
                raise OSError(self.code, os.strerror(self.code))
            return real(fd, *arguments)

        return call


@pytest.fixture
def bad_disk(monkeypatch):
    return BadDisk(monkeypatch)


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / name for name in ("a", "b", "c")]


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("durability", ["process", "fsync"])
async def test_all_partitions_of_the_directory_are_offline_and_no_others(dirs, bad_disk, durability, caplog):
    properties = {"durability": durability, "log_retention_ms": "-1"}
    async with serving(*dirs, **properties) as server:
        server.broker.topic_changes.create_topic("t", partitions=6)  # two in each
        connection, reader = await connect(server), await connect(server)
        for index in range(6):
            assert (await produce(connection, "t", b"kept", partition=index)).error_code == 0
        parked = asyncio.create_task(reader.request(fetch_request("t", 1, partition=4, wait_ms=60_000), 12))
        await until(lambda: server.broker.partition("t", 4).waiters)
        bad_disk.path = dirs[1]
        assert (await produce(connection, "t", b"lost", partition=1)).error_code == E.KAFKA_STORAGE_ERROR
        await until(lambda: dirs[1] in server.broker.logs.unusable)
        bad_disk.path = None
        async with asyncio.timeout(60):
            assert (await parked).responses[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
        codes = [(await produce(connection, "t", b"more", partition=index)).error_code for index in range(6)]
        assert codes == [0, E.KAFKA_STORAGE_ERROR, 0] * 2
        metadata = await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        leaders = {p.partition_index: p.leader_id for p in metadata.topics[0].partitions}
        assert leaders == {0: 1, 1: -1, 2: 1, 3: 1, 4: -1, 5: 1}
        found = await describe(connection)
        assert found[str(dirs[1])] == (E.KAFKA_STORAGE_ERROR, {}, (-1, -1))
        assert {key[1] for key in found[str(dirs[0])][1]} | {key[1] for key in found[str(dirs[2])][1]} == {
            0,
            2,
            3,
            5,
        }
        answer = await connection.request(move(dirs[1], "t", 0), 2)
        assert answer.results[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
        server.broker.topic_changes.create_topic("new", partitions=4)
        assert {p.log.directory.parent for p in server.broker.topics.by_name["new"].partitions} == {
            dirs[0],
            dirs[2],
        }
        assert f"log directory {dirs[1]} has failed" in caplog.text
        for each in (connection, reader):
            await each.close()
    assert not (dirs[1] / ".kafka_cleanshutdown").exists(), "its logs are to be checked"
    assert (dirs[2] / ".kafka_cleanshutdown").exists()
    async with serving(*dirs, **properties) as server:
        ends = [server.broker.partition("t", index).log.log_end_offset for index in range(6)]
        assert [end >= 1 for end in ends] == [True] * 6
        connection = await connect(server)
        assert (await produce(connection, "t", b"again", partition=1)).error_code == 0
        await connection.close()


async def test_a_read_that_fails_and_a_move_to_a_bad_disk(dirs, bad_disk):
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=3)
        connection = await connect(server)
        for index in range(3):
            await produce(connection, "t", b"v", partition=index)
        bad_disk.path = dirs[2]
        answer = await connection.request(move(dirs[2], "t", 1), 2)
        assert answer.results[0].partitions[0].error_code == 0
        await until(lambda: dirs[2] in server.broker.logs.unusable)
        assert not server.broker.logs.moves
        assert server.broker.partition("t", 2).log.offline
        bad_disk.path = dirs[1]
        log = server.broker.partition("t", 1).log
        log.segments[-1].max_timestamp = None
        assert (await produce(connection, "t", b"v", partition=1)).error_code == E.KAFKA_STORAGE_ERROR
        await until(lambda: dirs[1] in server.broker.logs.unusable)
        bad_disk.path = None
        assert (await produce(connection, "t", b"v", partition=0)).error_code == 0
        await connection.close()


async def test_a_directory_that_is_removed_is_noticed(dirs):
    async with serving(*dirs, log_flush_offset_checkpoint_interval_ms="20") as server:
        server.broker.topic_changes.create_topic("t", partitions=3)
        shutil.rmtree(dirs[1])
        await until(lambda: server.broker.partition("t", 1).log.offline)
        assert not server.broker.partition("t", 0).log.offline
        assert server.broker.failure is None


async def test_a_full_disk_and_one_bad_file_fail_no_directory(dirs, bad_disk):
    async with serving(*dirs) as server:
        server.broker.topic_changes.create_topic("t", partitions=3)
        connection = await connect(server)
        await produce(connection, "t", b"v", partition=1)
        bad_disk.path = dirs[1]
        for bad_disk.code in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOENT):
            assert (await produce(connection, "t", b"v", partition=1)).error_code == E.KAFKA_STORAGE_ERROR
        await asyncio.sleep(0.02)  # time to give the directory up
        bad_disk.path = None
        assert (await produce(connection, "t", b"v", partition=1)).error_code == 0
        assert not server.broker.logs.unusable
        await connection.close()


def test_what_breaks_a_directory(tmp_path):
    (tmp_path / "meta.properties").touch()
    broken = {code for code in errno.errorcode if is_broken(tmp_path, OSError(code, "x"))}
    assert {errno.EIO, errno.EROFS, errno.ENODEV} <= broken
    assert not broken & {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.EACCES}
    assert is_broken(tmp_path / "gone", OSError(errno.ENOENT, "x"))


async def test_producers_that_wait_are_told_and_the_broker_stops(tmp_path, bad_disk, caplog):
    stopped = []
    async with serving(tmp_path / "data", durability="fsync") as server:
        server.broker.on_failure = lambda: stopped.append(True)
        server.broker.topic_changes.create_topic("t", partitions=1)
        connection = await connect(server)
        assert (await produce(connection, "t", b"kept")).error_code == 0
        bad_disk.path = tmp_path / "data"
        answers = await asyncio.gather(*(produce(connection, "t", b"lost") for _ in range(3)))
        assert {answer.error_code for answer in answers} == {E.KAFKA_STORAGE_ERROR}
        await until(lambda: stopped)
        assert stopped == [True], "it is told once"
        await connection.close()
    assert f"log directory {tmp_path / 'data'} has failed" in caplog.text
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("others", [0, 1])
def test_the_process_ends_with_an_error_when_its_first_directory_is_away(tmp_path, others):
    paths = [tmp_path / f"d{number}" for number in range(1 + others)]
    process = subprocess.Popen(
        [sys.executable, "-m", "klamm_broker.server", "listeners=PLAINTEXT://127.0.0.1:0",
         f"log.dirs={','.join(map(str, paths))}", "log.flush.offset.checkpoint.interval.ms=50"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        paths[0].rename(tmp_path / "away")
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert f"log directory {paths[0]} has failed" in said
    assert "Traceback" not in said
    assert ("first of log.dirs" in said) == bool(others)
