"""Starts and stops while every write fails for want of room: the same as on a real full disk, step by step."""

from __future__ import annotations

import errno
import os

import pytest

from klamm_base import files
from klamm_broker.log import open_logs
from klamm_broker.log.errors import StorageError, UnusableDirectory
from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch, read_header

NOW = 1_700_000_000_000


class Room:
    """Stands in for the system's writes: without room they fail, as does what would make a file larger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = 0  # errno of every write
        for name in ("write", "pwrite", "writev", "pwritev"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real):
        def write(fd, *arguments):
            if self.error and fd > 2:
                raise OSError(self.error, os.strerror(self.error))
            return real(fd, *arguments)

        return write


@pytest.fixture
def room(monkeypatch):
    return Room(monkeypatch)


@pytest.fixture
def started():
    managers = []

    def start(path, now_ms=NOW):
        managers.append(LogManager(path, {"segment.bytes": "1048576"}, now_ms=now_ms))
        return managers[-1]

    yield start
    for manager in managers:
        manager.release()


def append(log, value, now_ms=NOW):
    log.append(encode_batch([Record(timestamp=NOW, value=value)]), now_ms=now_ms)


def last_epoch(log):
    piece = log.read(log.log_end_offset - 1, 1 << 20, up_to=log.log_end_offset)
    return read_header(memoryview(os.pread(piece.fd, piece.size, piece.position)), 0).leader_epoch


def fill(manager, count=30):
    manager.create_topic("t", 1, now_ms=NOW)
    for number in range(count):
        append(manager.get("t", 0), b"%d" % number + b"x" * 100_000)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("clean", [False, True])
def test_no_leader_epoch_is_used_before_its_start_is_on_the_disk(
    tmp_path, room, started, caplog, clean, code
):
    first = started(tmp_path)
    fill(first)
    epoch = last_epoch(first.get("t", 0))
    first.close() if clean else first.release()
    room.error = code
    for number in range(3):
        manager = started(tmp_path)
        log = manager.get("t", 0)
        assert not log.offline
        assert log.log_end_offset == log.high_watermark == 30
        assert log.leader_epoch == epoch + 1, "the same as long as nobody has written in it"
        for _ in range(3):
            with pytest.raises(StorageError, match=r"klamm-topics\.json"):
                append(log, b"refused")
        caplog.clear()
        manager.close() if number % 2 else manager.release()
        assert len([r for r in caplog.records if r.levelname == "ERROR"]) <= 1
    manager = started(tmp_path)
    log = manager.get("t", 0)
    with pytest.raises(StorageError):
        append(log, b"refused")
    room.error = 0
    with pytest.raises(StorageError, match="a moment ago"):
        append(log, b"too soon", NOW + open_logs.SAVE_PAUSE_MS - 1)
    append(log, b"taken", NOW + open_logs.SAVE_PAUSE_MS)
    assert last_epoch(log) == epoch + 1
    manager.release()
    last = started(tmp_path)
    append(last.get("t", 0), b"taken")
    assert last_epoch(last.get("t", 0)) == epoch + 2
    assert last.get("t", 0).log_end_offset == 32


def test_a_topic_that_is_made_tells_the_disk_of_the_start_as_well(tmp_path, room, started):
    manager = started(tmp_path)
    fill(manager, 1)
    epoch = last_epoch(manager.get("t", 0))
    manager.release()
    room.error = errno.ENOSPC
    manager = started(tmp_path)
    with pytest.raises(OSError, match="No space"):
        manager.create_topic("new", 1, now_ms=NOW)
    room.error = 0
    manager.create_topic("new", 1, now_ms=NOW)
    append(manager.get("t", 0), b"taken")
    manager.release()
    manager = started(tmp_path)
    append(manager.get("t", 0), b"taken")
    assert last_epoch(manager.get("t", 0)) == epoch + 2


def test_the_registry_is_tried_now_and_then_only(tmp_path, room, started, monkeypatch):
    manager = started(tmp_path)
    fill(manager, 1)
    manager.release()
    room.error = errno.ENOSPC
    manager = started(tmp_path)
    tried = []
    real = files.write_all
    monkeypatch.setattr(files, "write_all", lambda fd, data: (tried.append(len(data)), real(fd, data)))
    for step in range(100):
        with pytest.raises(StorageError):
            append(manager.get("t", 0), b"refused", NOW + step * 10)
    assert 3 <= len(tried) <= 6


def test_a_registry_that_cannot_be_written_for_another_reason_is_said(tmp_path, room, started):
    manager = started(tmp_path)
    fill(manager, 1)
    manager.release()
    room.error = errno.EROFS
    with pytest.raises(UnusableDirectory, match=r"klamm-topics\.json cannot be written: .*Read-only"):
        started(tmp_path)


def test_a_stop_without_room_is_one_sentence_and_no_clean_one(tmp_path, room, started, caplog):
    manager = started(tmp_path)
    manager.create_topic("t", 3, now_ms=NOW)
    for partition in range(3):
        append(manager.get("t", partition), b"v")
    room.error = errno.ENOSPC
    manager.close()
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert said[0].startswith("not everything could be written: the next start checks the logs")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not list(tmp_path.rglob("*.tmp")), "what was begun takes no room"
    room.error = 0
    again = started(tmp_path)
    assert [again.get("t", partition).log_end_offset for partition in range(3)] == [1, 1, 1]


def test_epochs_that_cannot_be_written_are_rebuilt_later(tmp_path, room, started):
    manager = started(tmp_path)
    fill(manager)
    epochs = manager.get("t", 0).epochs.entries
    manager.release()
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.write_text("0\n0\n")  # older than the log, as after a power cut
    room.error = errno.ENOSPC
    manager = started(tmp_path)
    assert manager.get("t", 0).epochs.entries == epochs
    assert not path.exists(), "an old one would be believed after a flush"
    with pytest.raises(StorageError, match="No space"):
        manager.get("t", 0).flush(NOW)
    assert manager.get("t", 0).recovery_point == 0, "recovery has to rebuild the indexes"
    manager.release()
    room.error = 0
    assert started(tmp_path).get("t", 0).epochs.entries == epochs
