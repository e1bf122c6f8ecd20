"""Connectors and tasks of a worker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from bench.connect.compare import KlammWorker
from bench.growth.units import Unit
from bench.servers import Klamm
from confluent_kafka.admin import AdminClient, NewTopic

TASKS = 4
WAIT_S = 900.0


class Connectors(Unit):
    """File sinks of four tasks each, on a topic of four partitions: consumers that wait for records.

    500 of them, 2,500 processes, take some 16 GB: more than a usual machine for tests has. 100 show the trend.
    """

    name = "connectors of four tasks"
    counts = (5, 25, 100)
    holder = "worker and tasks"
    more: ClassVar[dict[str, str]] = {}
    """Settings of each connector beside its own."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._broker = Klamm(work / "broker")
        self._worker: KlammWorker | None = None

    def start(self) -> None:
        self._broker.start()
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        admin.create_topics([NewTopic("growth", TASKS, 1)])["growth"].result(60)
        self._worker = KlammWorker(self.work, self._broker.bootstrap)
        self._worker.start()

    def pid(self) -> int:
        assert self._worker is not None
        assert self._worker.process is not None
        return self._worker.process.pid

    def grow(self, count: int) -> None:
        assert self._worker is not None
        for n in range(count):
            config = {
                "connector.class": "FileStreamSink", "tasks.max": f"{TASKS}", "topics": "growth", "file": f"{self.work}/{n}", **self.more,
            }  # fmt: skip
            self._worker.call("POST", "/connectors", {"name": f"growth-{n}", "config": config})
        self._wait(count)

    def _wait(self, count: int) -> None:
        """Waits until all tasks run. Raises TimeoutError with how far it came."""
        deadline = time.monotonic() + WAIT_S
        while True:
            running = self._running()
            if running == count * TASKS:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{running} of {count * TASKS} tasks run after {WAIT_S:.0f} s")
            time.sleep(0.5)

    def _running(self) -> int:
        assert self._worker is not None
        states = self._worker.call("GET", "/connectors?expand=status")
        return sum(task["state"] == "RUNNING" for one in states.values() for task in one["status"]["tasks"])

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._broker.stop()


class SharedConnectors(Connectors):
    """The same with `task.processes=connector`: one process for a connector and its tasks."""

    name = "connectors of four tasks in one process"
    counts = (25, 100, 500)
    more: ClassVar[dict[str, str]] = {"task.processes": "connector"}
