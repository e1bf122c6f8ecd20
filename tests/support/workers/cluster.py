"""A broker and three workers of one group, each behind a relay of its own."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from support.connect_worker import STRING, WorkerProcess, free_port, wait_for, worker_properties
from support.runtime import install_plugins
from support.workers.proxy import Relay

from klamm.testing.process import first_line

SESSION_MS, HEARTBEAT_MS = 3000, 300
SETTLE_S = 60.0
REQUEST_S = 60.0
GENERATION = re.compile(r"rebalancer: generation (\d+)")


class Broker:
    """Klamm's broker with one listener for the tests and one for each worker, advertised as that worker's relay."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.port = free_port()
        inner, outer = [free_port() for _ in range(workers)], [free_port() for _ in range(workers)]
        names = [f"W{i}" for i in range(workers)]
        own = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        properties = {
            "log.dirs": str(directory / "data"),
            "num.partitions": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "listeners": ",".join(own + [f"{n}://127.0.0.1:{p}" for n, p in zip(names, inner, strict=True)]),
            "advertised.listeners": ",".join(
                own + [f"{n}://127.0.0.1:{p}" for n, p in zip(names, outer, strict=True)]
            ),
            "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in ("PLAINTEXT", *names)),
        }
        self._log = (directory / "broker.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "klamm_broker.server", "--stop-with-stdin"]
            + [f"{k}={v}" for k, v in properties.items()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        line = first_line(self._process, 60)
        assert line.startswith("ready broker="), (directory / "broker.log").read_text()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.relays = [Relay(o, i) for o, i in zip(outer, inner, strict=True)]

    def close(self) -> None:
        for relay in self.relays:
            relay.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            stream.close()


class Cluster:
    """Workers 0 to 2 and the load's connectors. `say` tells what happens."""

    def __init__(self, directory: Path, *, exactly_once: bool, workers: int = 3) -> None:
        self.directory, self.exactly_once = directory, exactly_once
        self.broker = Broker(directory, workers)
        self.workers: list[WorkerProcess] = []
        self._python_path = install_plugins(directory / "site", "support.workers.plugins")
        self._properties = [
            worker_properties(
                f"127.0.0.1:{relay.port}",
                "faults",
                **{
                    "session.timeout.ms": str(SESSION_MS),
                    "heartbeat.interval.ms": str(HEARTBEAT_MS),
                    "rebalance.timeout.ms": "6000",
                    "task.shutdown.graceful.timeout.ms": "2000",
                    "offset.flush.interval.ms": "300",
                    "exactly.once.source.support": "enabled" if exactly_once else "disabled",
                    "key.converter": STRING,
                    "value.converter": STRING,
                    # A task that its worker's fault has failed is to come back however often that happens.
                    "task.restart.max": "10000",
                },
            )
            for relay in self.broker.relays
        ]
        try:
            self.workers = [self._spawn(i) for i in range(workers)]
            for worker in self.workers:
                worker.wait_ready(60)
        except BaseException:
            self.close()
            raise

    def _spawn(self, index: int) -> WorkerProcess:
        return WorkerProcess(self._properties[index], self.directory, python_path=self._python_path)

    def start(self, index: int) -> None:
        self.workers[index] = self._spawn(index).wait_ready(60)

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGCONT)
            worker.end()
        self.broker.close()

    def tree(self, index: int) -> list[psutil.Process]:
        """Returns the worker with all its children: the fork server and the tasks."""
        process = psutil.Process(self.workers[index].process.pid)
        return [process, *process.children(recursive=True)]

    @property
    def alive(self) -> list[WorkerProcess]:
        return [w for w in self.workers if w.process.poll() is None]

    def request(
        self, method: str, path: str, body: Any = None, *, accept: tuple[int, ...] = (200, 201, 202, 204)
    ) -> Any:
        """Asks one worker after the other until one says what is accepted; rebalances answer 409, and some are away."""
        deadline, turn, last = time.monotonic() + REQUEST_S, 0, "nobody is alive"
        while time.monotonic() < deadline:
            workers = self.alive
            worker = workers[turn % len(workers)]
            turn += 1
            try:
                answer = worker.request(method, path, body, timeout_s=10)
            except (OSError, ValueError) as e:
                last = f"{type(e).__name__}: {e}"
            else:
                if answer.status in accept:
                    return answer.json
                last = f"{answer.status} {answer.content}"
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: {last}")

    def put(self, name: str, config: Mapping[str, str]) -> None:
        self.request("PUT", f"/connectors/{name}/config", dict(config))

    def generation(self) -> int:
        """Returns the highest generation of the group that a worker of now has logged."""
        found = (GENERATION.findall(worker.log) for worker in self.workers)
        return max((int(numbers[-1]) for numbers in found if numbers), default=0)

    def unsettled(self, wanted: Mapping[str, int]) -> str:
        """Returns why the group has not settled on these connectors with so many tasks; empty when it has."""
        where = {f"127.0.0.1:{w.port}" for w in self.alive}
        try:
            found = self.request("GET", "/connectors?expand=status")
        except AssertionError as e:
            return str(e)
        for name, count in wanted.items():
            if name not in found:
                return f"{name} is not there"
            status = found[name]["status"]
            parts = [status["connector"], *status["tasks"]]
            if len(parts) != count + 1:
                return f"{name} has {len(parts) - 1} tasks, not {count}"
            for part in parts:
                if part["state"] != "RUNNING" or part["worker_id"] not in where:
                    return f"{name}: {json.dumps(part)}"
        return ""

    def settle(self, wanted: Mapping[str, int]) -> None:
        why = [""]

        def settled() -> bool:
            why[0] = self.unsettled(wanted)
            return not why[0]

        wait_for(settled, lambda: f"not settled: {why[0]}\n{self.logs()}", SETTLE_S)

    def logs(self, lines: int = 40) -> str:
        return "\n".join(
            f"--- worker {i}\n" + "\n".join(w.log.splitlines()[-lines:]) for i, w in enumerate(self.workers)
        )


class Feeder:
    """Appends numbered lines to files, one after the other, until it is stopped."""

    def __init__(self, paths: list[Path], every_s: float = 0.05, lines: int = 5) -> None:
        self._paths, self._every_s, self._lines = paths, every_s, lines
        self.written: dict[Path, list[str]] = {path: [] for path in paths}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="feeder", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        while not self._stop.wait(self._every_s):
            for path in self._paths:
                first = len(self.written[path])
                new = [f"{path.name} {n}" for n in range(first, first + self._lines)]
                with path.open("a") as out:
                    out.writelines(f"{line}\n" for line in new)
                self.written[path] += new

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
