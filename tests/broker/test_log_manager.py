"""LogManager: a directory's lock and identity, topics that survive restarts and crashes, a fast start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from klamm_base.errors import ConfigError
from klamm_broker.log import checkpoints, files
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.flush_job import FlushJob
from klamm_broker.log.log_dir import uuid_to_bytes
from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch, iter_headers

NOW = 1_800_000_000_000
IS_LINUX = sys.platform == "linux"


def batch(value: bytes = b"v") -> bytearray:
    return encode_batch([Record(timestamp=NOW, value=value)])


def crash(manager: LogManager) -> None:
    """Leaves what kill -9 leaves: nothing is written, descriptors and lock are gone."""
    manager.release()


@pytest.fixture
def start(tmp_path):
    """Starts managers on one directory; the last one is closed at the end."""
    running: list[LogManager] = []

    def open_manager(*args, **kwargs) -> LogManager:
        manager = LogManager(tmp_path / "data", *args, now_ms=NOW, **kwargs)
        running.append(manager)
        return manager

    yield open_manager
    for manager in running:
        crash(manager)


def test_topics_survive_a_restart(start):
    manager = start()
    topic = manager.create_topic("orders", 3, {"retention.ms": "1000"}, now_ms=NOW)
    manager.get("orders", 1).append(batch(), now_ms=NOW)
    manager.close()
    manager = start()
    assert manager.topics["orders"].id == topic.id
    assert manager.topic_id("orders") == uuid_to_bytes(topic.id)
    assert manager.topics["orders"].configs == {"retention.ms": "1000"}
    assert [log.name for log in manager] == ["orders-0", "orders-1", "orders-2"]
    assert manager.get("orders", 1).log_end_offset == 1
    assert manager.get("orders", 1).config.retention_ms == 1000
    assert manager.get("orders", 3) is None


def test_changed_configs_apply_at_once_and_survive_a_crash(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.alter_configs("t", {"max.message.bytes": "77"})
    assert manager.get("t", 0).config.max_message_bytes == 77
    with pytest.raises(ConfigError, match="Not a number"):
        manager.alter_configs("t", {"max.message.bytes": "many"})
    crash(manager)
    manager = start()
    assert manager.get("t", 0).config.max_message_bytes == 77
    assert manager.topics["t"].configs == {"max.message.bytes": "77"}


def test_broker_defaults_apply_where_the_topic_says_nothing(start):
    manager = start({"retention.ms": "5000", "segment.ms": "7"})
    manager.create_topic("t", 1, {"segment.ms": "9"}, now_ms=NOW)
    assert (manager.get("t", 0).config.retention_ms, manager.get("t", 0).config.segment_ms) == (5000, 9)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms"),
        ({"cleanup.policy": "burn"}, "String must be one of"),
        ({"segment.bytes": "1000"}, "Value must be at least 1048576"),
        ({"remote.storage.enable": "true"}, "Tiered storage"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "conflict"),
    ],
)
def test_a_bad_config_creates_nothing(start, configs, message):
    manager = start()
    with pytest.raises(ConfigError, match=message):
        manager.create_topic("t", 1, configs, now_ms=NOW)
    assert not manager.topics
    assert not list(manager.directory.glob("t-*"))


def test_a_deleted_topic_stays_deleted_even_after_a_crash(start, monkeypatch):
    manager = start()
    manager.create_topic("t", 2, now_ms=NOW)
    manager.create_topic("keep", 1, now_ms=NOW)
    manager.get("t", 0).append(batch(), now_ms=NOW)

    def die(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(manager, "_doom", die)  # between the registry and the directories
    with pytest.raises(KeyboardInterrupt):
        manager.delete_topic("t", now_ms=NOW)
    assert (manager.directory / "t-0").exists()
    crash(manager)
    manager = start()
    assert list(manager.topics) == ["keep"]
    assert not list(manager.directory.glob("t-*"))


def test_a_creation_that_a_crash_cut_off_never_happened(start, monkeypatch):
    manager = start()

    def die(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(manager._registry, "putting", die)
    with pytest.raises(KeyboardInterrupt):
        manager.create_topic("t", 2, now_ms=NOW)
    crash(manager)
    manager = start()
    assert not manager.topics
    assert not list(manager.directory.glob("t-*"))
    manager.create_topic("t", 2, now_ms=NOW)


def test_nothing_is_lost_to_an_old_copy_of_the_registry(start, caplog):
    manager = start()
    manager.create_topic("old", 1, now_ms=NOW)
    registry = (manager.directory / "klamm-topics.json").read_text()
    new = manager.create_topic("new", 2, {"retention.ms": "1"}, now_ms=NOW)
    manager.add_partitions("old", 3, now_ms=NOW)
    for log in manager:
        log.append(batch(), now_ms=NOW)
    manager.close()
    (manager.directory / "klamm-topics.json").write_text(registry)
    manager = start()
    assert {log.name: log.log_end_offset for log in manager} == {
        "old-0": 1, "old-1": 1, "old-2": 1, "new-0": 1, "new-1": 1,
    }  # fmt: skip
    assert manager.topics["new"].id == new.id
    assert "topic new is adopted" in caplog.text
    assert manager.tick_retention(NOW + 10**12) == 3, (
        "the rules of an adopted topic are unknown: it keeps all"
    )
    assert manager.get("new", 0).log_start_offset == 0


def test_the_directory_of_another_topic_of_the_same_name_is_put_aside(start, caplog):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.get("t", 0).append(batch(b"precious"), now_ms=NOW)
    manager.close()
    metadata = manager.directory / "t-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    manager = start()
    (aside,) = manager.directory.glob("t-0.*-stray")
    assert b"precious" in (aside / f"{0:020d}.log").read_bytes()
    assert "put aside" in caplog.text
    assert manager.get("t", 0).log_end_offset == 0


def test_deleted_partitions_are_renamed_and_removed_later(start):
    manager = start()
    manager.create_topic("t", 2, {"file.delete.delay.ms": "50"}, now_ms=NOW)
    log = manager.get("t", 0)
    log.append(batch(), now_ms=NOW)
    piece = log.read(0, 100, up_to=1)
    manager.delete_topic("t", now_ms=NOW)
    names = [path.name for path in manager.directory.glob("t-*")]
    assert len(names) == 2
    assert all(re.fullmatch(r"t-[01]\.[0-9a-f]{32}-delete", name) for name in names)
    manager.create_topic("t", 1, now_ms=NOW)
    manager.tick_retention(NOW + 49)
    assert len(list(manager.directory.glob("*-delete"))) == 2
    manager.tick_retention(NOW + 50)
    assert not list(manager.directory.glob("*-delete"))
    assert (manager.directory / "t-0").exists()
    assert len(os.pread(piece.fd, piece.size, piece.position)) == piece.size, "a fetch in flight goes on"
    manager.close()
    assert checkpoints.read_offsets(manager.directory / checkpoints.RECOVERY_POINT) == {("t", 0): 0}


def test_delete_directories_of_the_last_run_are_removed_at_start(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.delete_topic("t", now_ms=NOW)
    crash(manager)
    manager = start()
    assert not list(manager.directory.glob("t-*"))


def test_the_longest_topic_name_can_be_deleted(start):
    manager = start()
    manager.create_topic("x" * 249, 1, now_ms=NOW)
    manager.delete_topic("x" * 249, now_ms=NOW)
    (path,) = manager.directory.glob("x*")
    assert len(path.name) <= 255


def test_added_partitions(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.add_partitions("t", 3, now_ms=NOW)
    with pytest.raises(ValueError, match="3 is not more"):
        manager.add_partitions("t", 3, now_ms=NOW)
    crash(manager)
    assert [log.partition for log in start()] == [0, 1, 2]


def test_leader_epochs_rise_with_every_start(start):
    manager = start()
    manager.create_topic("old", 1, now_ms=NOW)
    assert manager.get("old", 0).leader_epoch == 0
    manager.get("old", 0).append(batch(), now_ms=NOW)
    manager.close()
    manager = start()
    manager.create_topic("new", 1, now_ms=NOW)
    manager.get("old", 0).append(batch(), now_ms=NOW)
    assert (manager.get("old", 0).leader_epoch, manager.get("new", 0).leader_epoch) == (1, 0)
    crash(manager)
    manager = start()
    assert (manager.get("old", 0).leader_epoch, manager.get("new", 0).leader_epoch) == (2, 1)
    assert manager.get("old", 0).end_offset_for_epoch(0) == (0, 1)
    assert manager.get("old", 0).end_offset_for_epoch(1) == (1, 2)


def test_a_crash_is_recovered_from_and_a_clean_stop_is_not_checked(start, caplog):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    for _ in range(3):
        log.append(batch(), now_ms=NOW)
    path = manager.directory / "t-0" / f"{0:020d}.log"
    crash(manager)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])  # a torn append
    manager = start()
    assert path.read_bytes() == whole
    assert "cut at 207 of 257 bytes, offset 3" in caplog.text
    manager.close()
    assert json.loads((manager.directory / ".kafka_cleanshutdown").read_text()) == {
        "version": 0,
        "brokerEpoch": 2,
    }
    manager = start()
    assert not (manager.directory / ".kafka_cleanshutdown").exists(), "it speaks of the last run only"


def test_a_log_that_cannot_be_flushed_makes_the_shutdown_unclean(start, monkeypatch, caplog):
    manager = start()
    manager.create_topic("t", 2, now_ms=NOW)
    for log in manager:
        log.append(batch(), now_ms=NOW)

    def refuse(self) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(FlushJob, "run", refuse)
        manager.close()
    assert "t-1: could not be closed" in caplog.text
    assert not (manager.directory / ".kafka_cleanshutdown").exists()
    assert checkpoints.read_offsets(manager.directory / checkpoints.RECOVERY_POINT)["t", 0] == 0
    manager = start()
    assert [log.log_end_offset for log in manager] == [1, 1]


def test_checkpoints_hold_what_kafka_expects(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    for _ in range(4):
        log.append(batch(), now_ms=NOW)
    log.advance_log_start_offset(2)
    manager.tick_checkpoints()
    read = {p.name: p.read_text() for p in manager.directory.glob("*-checkpoint")}
    assert read == {
        "recovery-point-offset-checkpoint": "0\n1\nt 0 0\n",
        "log-start-offset-checkpoint": "0\n1\nt 0 2\n",
        "replication-offset-checkpoint": "0\n1\nt 0 4\n",
    }
    crash(manager)
    assert start().get("t", 0).log_start_offset == 2


def test_retention_tick(start):
    manager = start()
    manager.create_topic("t", 1, {"retention.ms": "1000", "segment.ms": "500"}, now_ms=NOW)
    log = manager.get("t", 0)
    log.append(batch(), now_ms=NOW)
    log.append(encode_batch([Record(timestamp=NOW + 600, value=b"young")]), now_ms=NOW + 600)
    assert log.segment_base_offsets == [0, 1]
    assert manager.tick_retention(NOW + 1000) == 0
    assert manager.tick_retention(NOW + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)


@pytest.mark.usefixtures("processes")
def test_a_second_broker_is_refused(tmp_path, start):
    manager = start()
    with pytest.raises(DirectoryError, match=r"is in use by process \d+ .*log\.dirs"):
        LogManager(manager.directory, now_ms=NOW)
    code = (
        "import sys; from pathlib import Path; from klamm_broker.log.log_manager import LogManager\n"
        "LogManager(Path(sys.argv[1]), now_ms=0)"
    )
    command = [sys.executable, "-c", code, str(manager.directory)]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode != 0
    assert f"in use by process {os.getpid()} " in second.stderr
    manager.close()
    third = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert third.returncode == 0, third.stderr


def test_the_directory_of_another_broker_is_refused(start):
    manager = start(node_id=1, cluster_id="cluster-a")
    manager.close()
    with pytest.raises(DirectoryError, match=r"node\.id=1, this broker is node\.id=2"):
        start(node_id=2)
    with pytest.raises(DirectoryError, match="cluster cluster-a, this broker to cluster-b"):
        start(node_id=1, cluster_id="cluster-b")
    assert start().meta == manager.meta, "a refusal gives the lock back"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("klamm-topics.json", "{", "not JSON"),
        ("klamm-topics.json", '{"version": 9}', "version 1"),
        ("klamm-topics.json", '{"version": 1, "starts": 1, "topics": {"t": {}}}', "missing or bad value"),
        ("meta.properties", "version=0\nbroker.id=1\n", "version=0 where 1 is expected"),
        ("meta.properties", "version=1\nnode.id=one\ncluster.id=c\n", "missing or bad value"),
    ],
)
def test_damaged_files_that_cannot_be_rebuilt_stop_the_start(start, name, content, message):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.close()
    (manager.directory / name).write_text(content)
    with pytest.raises(DirectoryError, match=message):
        start()
    assert (manager.directory / "t-0").exists()


@pytest.mark.parametrize("content", ["", "1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt zero 1\n", "\x00\x00"])
def test_a_damaged_recovery_point_costs_a_check_of_the_log(start, content):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.get("t", 0).append(batch(), now_ms=NOW)
    crash(manager)
    (manager.directory / checkpoints.RECOVERY_POINT).write_text(content)
    assert start().get("t", 0).log_end_offset == 1


@pytest.mark.parametrize("crashes", [True, False])
def test_a_topic_inherits_nothing_from_a_deleted_one_of_its_name(start, monkeypatch, crashes):
    """The checkpoints of the old one could not be rewritten, by a crash or by a full disk."""
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    for _ in range(5):
        manager.get("t", 0).append(batch(), now_ms=NOW)
    manager.get("t", 0).advance_log_start_offset(4)
    manager.tick_checkpoints()

    def refuse(*_args, **_more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_offsets", refuse)
        with pytest.raises(OSError, match="No space"):
            manager.delete_topic("t", now_ms=NOW)
        if crashes:
            crash(manager)
            manager = start()
        with pytest.raises(OSError, match="No space"):
            manager.create_topic("t", 1, now_ms=NOW)
    manager.create_topic("t", 1, now_ms=NOW)
    manager.get("t", 0).append(batch(b"acknowledged"), now_ms=NOW)
    crash(manager)
    log = start().get("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_lost_partition_directory_is_reported_and_made_again(start, caplog):
    manager = start()
    manager.create_topic("t", 2, now_ms=NOW)
    manager.close()
    shutil.rmtree(manager.directory / "t-1")
    manager = start()
    assert "t-1: its directory is missing" in caplog.text
    assert manager.get("t", 1).log_end_offset == 0


def test_a_directory_that_cannot_be_written_to_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="cannot be made"):
        LogManager(tmp_path / "file", now_ms=NOW)


def test_open_files_stay_within_the_process_limit(start):
    manager = start()
    manager.create_topic("t", 20, now_ms=NOW)
    capacity, files.SEGMENT_FILES.capacity = files.SEGMENT_FILES.capacity, 5
    try:
        for n in range(3):
            for log in manager:
                assert log.append(batch(b"%d" % n), now_ms=NOW).first_offset == n
        assert len(files.SEGMENT_FILES) <= 5
        open_now = (
            [p.readlink() for p in Path("/proc/self/fd").iterdir() if p.is_symlink()] if IS_LINUX else []
        )
        assert sum(path.suffix == ".log" and manager.directory in path.parents for path in open_now) <= 5
        for log in manager:
            piece = log.read(0, 1000, up_to=3)
            data = os.pread(piece.fd, piece.size, piece.position)
            assert [header.base_offset for _, header in iter_headers(data)] == [0, 1, 2]
    finally:
        files.SEGMENT_FILES.capacity = capacity


def test_what_is_held_of_indexes_is_bounded(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    log.config = LogConfig(segment_bytes=1000, index_interval_bytes=0)
    for _ in range(200):
        log.append(batch(), now_ms=NOW)
    capacity, files.INDEX_BYTES.capacity = files.INDEX_BYTES.capacity, 500
    try:
        for offset in [*range(200), *range(199, -1, -1)]:
            assert log.read(offset, 1, up_to=200) is not None
        held = [s for s in log._segments if isinstance(s.index._data, bytes)]
        assert 0 < len(held) < 10 < len(log.segment_base_offsets)
    finally:
        files.INDEX_BYTES.capacity = capacity


class CallCount:
    """Counts calls by name, of C functions (`open`, `scandir`) and of Python's: what work was done, not how fast."""

    def __init__(self) -> None:
        self.of_c: Counter[str] = Counter()
        self.of_python = 0

    def __call__(self, _frame: FrameType, event: str, called: object) -> None:
        if event == "c_call":
            self.of_c[called.__name__] += 1  # type: ignore[attr-defined]
        elif event == "call":
            self.of_python += 1


@pytest.mark.parametrize("partitions", [50, 1000])
def test_the_work_of_a_clean_start_is_small_and_the_same_for_each_partition(memory_path, partitions):
    directory = memory_path / str(partitions)
    manager = LogManager(directory, now_ms=NOW)
    manager.create_topic("many", partitions, now_ms=NOW)
    for log in manager:
        for _ in range(20):
            log.append(batch(bytes(1000)), now_ms=NOW)
    manager.close()
    count = CallCount()
    sys.setprofile(count)
    try:
        manager = LogManager(directory, now_ms=NOW)
    finally:
        sys.setprofile(None)
    assert sum(log.log_end_offset for log in manager) == 20 * partitions
    crash(manager)
    of_c = {name: number / partitions for name, number in count.of_c.items()}
    assert "mmap" not in of_c, "no segment is read as a whole"
    assert of_c["open"] <= 8, "log end, epochs, producer snapshot, topic id, indexes"
    assert of_c["scandir"] <= 2
    assert of_c["stat"] <= 16
    assert of_c["unpack_from"] <= 25, "of 20 batches only those behind the last index entry are read"
    assert count.of_python / partitions <= 600


def test_the_work_of_a_start_after_a_crash_is_small_where_little_was_written(start):
    manager = start()
    manager.create_topic("many", 50, now_ms=NOW)
    for log in manager:
        log.append(batch(), now_ms=NOW)
    manager.tick_checkpoints()
    manager.release()
    count = CallCount()
    sys.setprofile(count)
    try:
        manager = start()
    finally:
        sys.setprofile(None)
    assert [log.log_end_offset for log in manager] == [1] * 50
    of_c = {name: number / 50 for name, number in count.of_c.items()}
    assert not {"mmap", "unlink", "rename"} & {name for name, number in of_c.items() if number >= 1}
    assert of_c.get("ftruncate", 0) < 1, "indexes that are empty are left alone"
    assert of_c["open"] <= 4, "topic id, epochs, log"
    assert of_c.get("fsync", 0) < 1


def test_names_of_other_files_are_left_alone(start):
    manager = start()
    (manager.directory / "lost+found").mkdir()
    (manager.directory / "__cluster_metadata-0").mkdir()
    (manager.directory / "notes.txt").write_text("mine")
    manager.close()
    manager = start()
    assert not manager.topics
    assert {p.name for p in Path(manager.directory).iterdir()} >= {
        "lost+found",
        "__cluster_metadata-0",
        "notes.txt",
    }


def test_a_checkpoint_that_is_written_late_replaces_no_newer_one(start):
    manager = start()
    manager.create_topic("t", 1, now_ms=NOW)
    manager.create_topic("keep", 1, now_ms=NOW)
    log = manager.get("t", 0)
    log.append(batch(), now_ms=NOW)
    late = manager.checkpoint_job()
    manager.delete_topic("t", now_ms=NOW)
    late()
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        assert list(checkpoints.read_offsets(manager.directory / name)) == [("keep", 0)]
    crash(manager)
