"""Several log directories: where partitions go, what a missing one takes along, and moves between them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from klamm_broker.log import checkpoints
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import DirectoryError, StorageError, UnknownDirectory, UnusableDirectory
from klamm_broker.log.log_dir import read_meta
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.replica_move import ReplicaMove
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, iter_headers
from klamm_kafka.wire.errors import ErrorCode

NOW = 1_800_000_000_000
CHANGES = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "pwrite", "write", "ftruncate", "open")


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
def start(dirs):
    running: list[LogManager] = []

    def open_manager(*paths: Path, **kwargs) -> LogManager:
        running.append(LogManager(paths or dirs, now_ms=NOW, **kwargs))
        return running[-1]

    yield open_manager
    for manager in running:
        manager.release()


def append(log, *values):
    for value in values:
        log.append(encode_batch([Record(timestamp=NOW, value=value)]), now_ms=NOW)


def values_of(log):
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        data = os.pread(piece.fd, piece.size, piece.position)
        for position, header in iter_headers(data):
            found += [(r.offset, r.value) for r in decode_records(data, position) if r.offset >= offset]
            offset = header.last_offset + 1
    return found


def place(manager, topic, partition):
    return manager.get(topic, partition).directory.parent.name


def block(path):
    """Make a directory unusable: a file is in its place (permissions do not stop root)."""
    path.rename(path.with_name(path.name + ".away"))
    path.write_text("")


def bring_back(path):
    path.unlink()
    path.with_name(path.name + ".away").rename(path)


def test_new_partitions_go_to_the_directory_with_the_fewest(start, dirs):
    manager = start()
    manager.create_topic("t", 4, now_ms=NOW)
    assert [place(manager, "t", i) for i in range(4)] == ["a", "b", "c", "a"]
    manager.create_topic("u", 2, now_ms=NOW)
    assert [place(manager, "u", i) for i in range(2)] == ["b", "c"]
    manager.delete_topic("t", now_ms=NOW)
    manager.add_partitions("u", 4, now_ms=NOW)
    assert [place(manager, "u", i) for i in (2, 3)] == ["a", "a"]
    for number in range(4):
        append(manager.get("u", number), b"v")
    manager.close()
    metas = [read_meta(path) for path in dirs]
    assert len({meta.directory_id for meta in metas}) == 3
    assert len({meta.cluster_id for meta in metas}) == 1
    for path in dirs:
        mine = {("u", i) for i in range(4) if (path / f"u-{i}").exists()}
        assert checkpoints.read_offsets(path / checkpoints.RECOVERY_POINT) == dict.fromkeys(mine, 1)
        assert (path / ".kafka_cleanshutdown").exists()
        assert (path / "klamm-topics.json").exists() is (path == dirs[0])
    manager = start()
    assert [values_of(manager.get("u", i)) for i in range(4)] == [[(0, b"v")]] * 4
    assert [place(manager, "u", i) for i in range(4)] == ["b", "c", "a", "a"]


def test_every_directory_is_locked(start, dirs):
    manager = start(*dirs[:2])
    with pytest.raises(DirectoryError, match=f"{dirs[1]} is in use"):
        LogManager([dirs[2], dirs[1]], now_ms=NOW)
    manager.close()
    start(*dirs[:2])


def test_a_crash_counts_in_each_directory_by_itself(start, dirs):
    manager = start()
    manager.create_topic("t", 3, now_ms=NOW)
    for number in range(3):
        append(manager.get("t", number), b"v")
    manager.close()
    (dirs[1] / ".kafka_cleanshutdown").unlink()
    path = dirs[1] / "t-1" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    manager = start()
    assert [values_of(manager.get("t", i)) for i in range(3)] == [[(0, b"v")]] * 3


def test_a_missing_directory_takes_its_partitions_offline_and_no_others(start, dirs, caplog):
    manager = start()
    manager.create_topic("t", 3, now_ms=NOW)
    manager.create_topic("gone", 3, now_ms=NOW)
    for number in range(3):
        append(manager.get("t", number), b"v")
    manager.close()
    block(dirs[1])
    manager = start()
    assert f"log directory {dirs[1]} cannot be made: File exists" in caplog.text
    assert [log.name for log in manager] == ["t-0", "t-2", "gone-0", "gone-2"]
    offline = manager.get("t", 1)
    assert offline.offline
    for refused in (
        lambda: append(offline, b"x"),
        lambda: offline.read(0, 1, up_to=1),
        lambda: offline.offset_for_timestamp(0),
        lambda: offline.advance_log_start_offset(1),
        lambda: manager.begin_move("t", 1, dirs[0]),
        lambda: manager.begin_move("t", 0, dirs[1]),
    ):
        with pytest.raises(StorageError, match="cannot be made"):
            refused()
    append(manager.get("t", 0), b"more")
    manager.create_topic("new", 4, now_ms=NOW)
    assert {place(manager, "new", i) for i in range(4)} == {"a", "c"}
    manager.alter_configs("t", {"retention.ms": "7"})
    manager.delete_topic("gone", now_ms=NOW)
    manager.create_topic("gone", 2, now_ms=NOW)
    manager.close()

    bring_back(dirs[1])
    manager = start()
    assert values_of(manager.get("t", 1)) == [(0, b"v")]
    assert manager.get("t", 1).config.retention_ms == 7
    assert len(values_of(manager.get("t", 0))) == 2
    assert not (dirs[1] / "gone-1").exists(), "deleted while its directory was away"
    assert not manager.unusable


def test_partitions_of_a_directory_that_is_away_are_not_made_anew(start, dirs):
    manager = start()
    manager.create_topic("t", 3, now_ms=NOW)
    manager.close()
    block(dirs[2])
    manager = start()
    assert not any((path / "t-2").exists() for path in dirs[:2])
    manager.close()
    manager = start(*dirs[:2])  # the operator gives the directory up
    assert place(manager, "t", 2) in "ab"


def test_the_first_directory_must_be_there(start, dirs):
    start().close()
    block(dirs[0])
    with pytest.raises(UnusableDirectory, match=r"first of log\.dirs.*klamm-topics\.json"):
        start()
    with pytest.raises(UnusableDirectory, match=f"log directory {dirs[0]} cannot be made"):
        start(dirs[0])


def test_a_directory_whose_files_cannot_be_read(start, dirs, monkeypatch, caplog):
    manager = start()
    manager.create_topic("t", 3, now_ms=NOW)
    manager.close()
    scan = os.scandir

    def broken(path="."):
        if Path(path) == dirs[1]:
            raise OSError(5, "Input/output error")
        return scan(path)

    monkeypatch.setattr(os, "scandir", broken)
    manager = start()
    assert manager.get("t", 1).offline
    assert f"log directory {dirs[1]} cannot be used: [Errno 5]" in caplog.text


def test_a_partition_that_cannot_be_opened_is_offline_by_itself(start, dirs, monkeypatch):
    manager = start(dirs[0])
    manager.create_topic("t", 2, now_ms=NOW)
    append(manager.get("t", 1), b"a", b"b")
    manager.get("t", 1).advance_log_start_offset(1)
    manager.close()
    with monkeypatch.context() as patch:
        scan = os.scandir

        def broken(path="."):
            if Path(path).name == "t-1":
                raise OSError(5, "Input/output error")
            return scan(path)

        patch.setattr(os, "scandir", broken)
        manager = start(dirs[0])
        assert manager.get("t", 1).offline
        assert not manager.get("t", 0).offline
        manager.tick_checkpoints()
        manager.close()
    assert not (dirs[0] / ".kafka_cleanshutdown").exists()
    manager = start(dirs[0])
    assert values_of(manager.get("t", 1)) == [(1, b"b")]


def test_directories_of_two_clusters_or_two_nodes_or_copied_ones_are_refused(start, dirs):
    start(dirs[0]).close()
    start(dirs[1]).close()
    with pytest.raises(DirectoryError, match="belongs to cluster"):
        start(dirs[0], dirs[1])
    shutil.rmtree(dirs[1])
    start(dirs[0], dirs[1]).close()
    shutil.copytree(dirs[1], dirs[2])
    with pytest.raises(DirectoryError, match=r"directory\.id=.* is also that of"):
        start()
    with pytest.raises(DirectoryError, match="belongs into the first"):
        start(dirs[1], dirs[0])


def test_a_new_first_directory_joins_the_cluster_of_the_others(start, dirs):
    manager = start(dirs[1])
    cluster = manager.cluster_id
    manager.close()
    (dirs[1] / "klamm-topics.json").rename(dirs[1].parent / "klamm-topics.json")
    dirs[0].mkdir()
    (dirs[1].parent / "klamm-topics.json").rename(dirs[0] / "klamm-topics.json")
    assert start(dirs[0], dirs[1]).cluster_id == cluster


def test_a_partition_that_is_there_twice_is_not_guessed_about(start, dirs):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.close()
    shutil.copytree(dirs[0] / "t-0", dirs[1] / "t-0")
    with pytest.raises(DirectoryError, match=f"t-0 is in {dirs[0]} and in {dirs[1]}"):
        start()


# Moves


def drive(manager, move: ReplicaMove, meanwhile=lambda: None):
    """Does what `ReplicaMover` does, without a loop."""
    while True:
        job = move.plan(200_000)
        meanwhile()
        job.run()
        move.done(job)
        meanwhile()
        if move.missing < 100_000:
            manager.finish_move(move, NOW)
            return


def filled(manager, *, records=40, size=100_000, **configs):
    manager.create_topic("t", 1, {"segment.bytes": "1048576", **configs}, now_ms=NOW)
    log = manager.get("t", 0)
    append(log, *(b"%d-" % n + b"x" * size for n in range(records)))
    return log


def test_a_log_moves_while_it_is_written_and_read(start, dirs):
    manager = start()
    log = filled(manager)
    manager.begin_move("t", 0, dirs[1])
    move = manager.moves["t", 0]
    assert move.lag == 40
    held = log.read(0, 1 << 20, up_to=log.log_end_offset)
    before = os.pread(held.fd, held.size, held.position)
    written = iter(range(1000))

    def meanwhile():
        append(log, b"during-%d" % next(written) + b"y" * 30_000)

    drive(manager, move, meanwhile)
    assert place(manager, "t", 0) == "b"
    assert not manager.moves
    assert os.pread(held.fd, held.size, held.position) == before, "who was reading reads on"
    append(log, b"after")
    found = values_of(log)
    assert [offset for offset, _ in found] == list(range(log.log_end_offset))
    assert found[-1][1] == b"after"
    assert not (dirs[0] / "t-0").exists()
    manager.removal_job(NOW + 10**9)()
    assert not list(dirs[0].glob("t-0*"))
    manager.release()
    again = start()
    assert values_of(again.get("t", 0)) == found
    assert place(again, "t", 0) == "b"
    again.begin_move("t", 0, dirs[2])
    drive(again, again.moves["t", 0])
    again.close()
    assert values_of(start().get("t", 0)) == found


def test_retention_and_deleted_records_during_a_move(start, dirs):
    manager = start()
    log = filled(manager)
    manager.begin_move("t", 0, dirs[1])
    move = manager.moves["t", 0]

    def meanwhile():
        log.advance_log_start_offset(25)
        log.delete_old_segments(NOW)

    drive(manager, move, meanwhile)
    found = values_of(log)
    assert [offset for offset, _ in found] == list(range(25, 40))
    logs = sorted(path.name for path in (dirs[1] / "t-0").glob("*.log"))
    assert len(logs) == len(log.segment_base_offsets)
    manager.release()
    assert values_of(start().get("t", 0)) == found


def test_a_move_that_is_cancelled_or_changed(start, dirs):
    manager = start()
    log = filled(manager, records=3)
    manager.begin_move("t", 0, dirs[1])
    job = manager.moves["t", 0].plan()
    job.run()
    manager.moves["t", 0].done(job)
    assert len(list(dirs[1].glob("t-0.*-future"))) == 1
    manager.begin_move("t", 0, dirs[1])  # again: nothing changes
    assert len(list(dirs[1].glob("t-0.*-future"))) == 1
    manager.begin_move("t", 0, dirs[2])
    assert not list(dirs[1].glob("*-future"))
    manager.begin_move("t", 0, dirs[0])  # where it is: the move ends
    assert not manager.moves
    assert log.copying is False
    manager.removal_job(NOW)()
    assert not [path for path in (*dirs[1].iterdir(), *dirs[2].iterdir()) if path.name.startswith("t-0")]
    with pytest.raises(UnknownDirectory):
        manager.begin_move("t", 0, dirs[0].parent)
    manager.begin_move("t", 0, dirs[1])
    manager.delete_topic("t", now_ms=NOW)
    assert not manager.moves
    manager.removal_job(NOW + 10**9)()
    assert not list(dirs[1].glob("t-0*"))


class Killed(BaseException):
    pass


def killed_at(monkeypatch, step, work):
    """Run `work`, and end it at the `step`-th change of the file system. Whether it came to that."""
    count = 0
    with monkeypatch.context() as patch:
        for name in CHANGES:
            original = getattr(os, name)

            def counting(*args, _original=original, **kwargs):
                nonlocal count
                count += 1
                if count == step:
                    raise Killed
                return _original(*args, **kwargs)

            patch.setattr(os, name, counting)
        try:
            work()
        except Killed:
            return True
    return False


def test_a_move_may_be_killed_at_every_step(memory_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a killed process loses nothing of the page cache
    step = interrupted = 0
    moved = set()
    while True:
        step += 1
        root = memory_path / str(step)
        dirs = [root / "a", root / "b"]
        root.mkdir()
        manager = LogManager(dirs, now_ms=NOW)
        log = filled(manager, records=3, size=500_000)
        log.advance_log_start_offset(1)
        manager.tick_checkpoints()
        expected = values_of(log)
        manager.begin_move("t", 0, dirs[1])
        was_killed = killed_at(monkeypatch, step, lambda m=manager: drive(m, m.moves["t", 0]))
        manager.release()
        again = LogManager(dirs, now_ms=NOW)
        assert not again.get("t", 0).offline
        assert values_of(again.get("t", 0)) == expected, f"killed at step {step}"
        where = place(again, "t", 0)
        moved.add(where)
        assert sum(len(list(path.glob("t-0"))) for path in dirs) == 1
        assert (("t", 0) in again.unfinished_moves) <= (where == "a")
        append(again.get("t", 0), b"goes on")
        again.close()
        shutil.rmtree(root)
        if not was_killed:
            break
        interrupted += 1
    assert interrupted > 20
    assert moved == {"a", "b"}


def test_a_move_onto_a_full_disk_leaves_the_partition_where_it_is(start, dirs, monkeypatch):
    manager = start()
    log = filled(manager, records=3)
    manager.begin_move("t", 0, dirs[1])

    def full(path, flags, *args, **kwargs):
        if "-future" in str(path) and flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return original(path, flags, *args, **kwargs)

    original = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(OSError, match="No space left"):
            drive(manager, manager.moves["t", 0])
    manager.cancel_move("t", 0)
    append(log, b"goes on")
    assert len(values_of(log)) == 4
    assert place(manager, "t", 0) == "a"


def test_the_default_of_every_topic_is_kept_across_directories(start, dirs):
    manager = start(defaults={"retention.ms": "5"})
    manager.create_topic("t", 2, now_ms=NOW)
    assert [manager.get("t", i).config.retention_ms for i in range(2)] == [5, 5]
    assert LogConfig().retention_ms != 5


def test_error_codes_are_kafkas():
    assert StorageError.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert UnknownDirectory.code == ErrorCode.LOG_DIR_NOT_FOUND
    assert re.match("LOG_DIR", UnknownDirectory.code.name)
