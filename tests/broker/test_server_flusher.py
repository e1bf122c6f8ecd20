"""The background flusher against a disk whose fsync fails once and then pretends that all is well."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time

import pytest

from klamm_broker.log.errors import StorageError
from klamm_broker.log.flush_job import FlushJob
from klamm_broker.log.log_manager import LogManager
from klamm_broker.server.flusher import Flusher
from klamm_kafka.wire.batch import Record, encode_batch

NOW = int(time.time() * 1000)


class FailingOnce:
    """Stands in for `FlushJob.run`: the first call waits for `go`, then fails; later ones succeed."""

    def __init__(self) -> None:
        self.calls = 0
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.calls += 1
        if self.calls == 1:
            self.began.set()
            assert self.go.wait(60)
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("stop_meanwhile", [False, True])
def test_no_flush_is_believed_after_one_has_failed(tmp_path, monkeypatch, stop_meanwhile):
    disk = FailingOnce()
    monkeypatch.setattr(FlushJob, "run", disk)
    manager = LogManager(tmp_path, {"flush.ms": "0"}, now_ms=NOW)
    manager.create_topic("t", 1, now_ms=NOW)
    log = manager.get("t", 0)
    assert log is not None
    log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW)

    async def scenario() -> None:
        flusher = Flusher(manager, interval_ms=1)
        flusher.start(asyncio.get_running_loop())
        assert await asyncio.to_thread(disk.began.wait, 60)
        if stop_meanwhile:
            stopping = asyncio.create_task(flusher.stop())
            await asyncio.sleep(0)
            disk.go.set()
            await stopping
            return
        disk.go.set()
        while log.wants_flush(NOW * 2):
            await asyncio.sleep(0.01)
        await flusher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    with pytest.raises(StorageError, match="an earlier flush failed"):
        log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW)
    manager.close()
    assert disk.calls == 1
    assert log.recovery_point == 0
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_defect_in_one_log_does_not_end_the_flusher(tmp_path, monkeypatch, caplog):
    manager = LogManager(tmp_path, {"flush.ms": "0"}, now_ms=NOW)
    manager.create_topic("t", 2, now_ms=NOW)
    logs = [manager.get("t", partition) for partition in range(2)]
    for log in logs:
        log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW)
    run = FlushJob.run
    calls = []

    def broken_once(job):
        calls.append(job)
        if len(calls) == 1:
            raise RuntimeError("a defect")
        run(job)

    monkeypatch.setattr(FlushJob, "run", broken_once)

    async def scenario() -> None:
        flusher = Flusher(manager, interval_ms=1)
        flusher.start(asyncio.get_running_loop())
        while any(log.recovery_point < 1 for log in logs):
            await asyncio.sleep(0.01)
        await flusher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert len(calls) == 3, "both logs, and the first one again"
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "t-0: flush failed; it will be tried again" in caplog.text
    manager.close()
