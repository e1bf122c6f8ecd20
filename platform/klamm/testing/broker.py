"""`EmbeddedBroker`: a real broker process for tests, with its own data directory and port.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

A test can stop, kill and start it again on the same data and port. It ends with `stop`, `kill`, the end of the `with` block,
or the process that started it. `log_text` is its log.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from klamm.testing.process import EmbeddedProcess, first_line
from klamm_base.errors import KlammError

START_S: Final = 60.0
STOP_S: Final = 60.0
EXIT_S: Final = 2.0
TEST_DEFAULTS: Final = {
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",  # fifty partitions are a second of every test's time
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerFailed(KlammError):
    """The broker process did not start or stop as it should. Carries the end of its log."""


class EmbeddedBroker(EmbeddedProcess):
    """A broker subprocess. `port=0` takes a free port at the first start and keeps it for later starts.

    `config` may have `log.dirs` for several directories (otherwise `data_dir` is the only one), and `listeners`, of which the
    first is then the broker's address (otherwise it listens on `port` of loopback).
    """

    _what = "broker"
    _failed = BrokerFailed
    _stop_s = STOP_S

    def __init__(
        self, data_dir: Path | None = None, *, port: int = 0, config: Mapping[str, str] | None = None
    ) -> None:
        name = data_dir.name if data_dir else "data"
        super().__init__(directory=data_dir.parent if data_dir else None, log=f"{name}.log")
        self.data_dir = self._directory / name
        self.port = port
        self.config = {**TEST_DEFAULTS, **(config or {})}
        self.metrics_url: str | None = None
        """Where its metrics are, with `klamm.metrics.port` in `config`; known once it runs."""

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Starts the broker, and returns once it serves. Raises BrokerFailed."""
        if self.running:
            raise BrokerFailed(f"the broker on port {self.port} is running already (pid {self.pid})")
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        properties = {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **self.config,
        }
        arguments = ["--stop-with-stdin", *(f"{k}={v}" for k, v in properties.items())]
        process = self._spawn([sys.executable, "-m", "klamm_broker.server", *arguments])
        line = first_line(process, START_S)
        if not line.startswith("ready broker="):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_S)  # its output ends a moment before the process does
            code = self._exit_code(process)
            self.kill()
            raise BrokerFailed(f"the broker did not start (exit code {code}):\n{self._log_tail()}")
        said = dict(word.partition("=")[::2] for word in line.split()[1:])
        self.port = int(said["broker"].rpartition(":")[2])
        self.metrics_url = said.get("metrics")
        return self

    @staticmethod
    def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
        """Returns the exit code of a process that closed its output; None when the process goes on all the same."""
        try:
            return process.wait(START_S)
        except subprocess.TimeoutExpired:
            return None
