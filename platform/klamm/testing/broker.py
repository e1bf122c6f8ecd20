"""`EmbeddedBroker`: a real broker process for tests, with its own data directory and port.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It can be stopped, killed and started again on the same data and port. It ends with `stop`, `kill`, the end of the
`with` block, or the process that started it; `log_text` is what it logged.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from klamm.testing.process import first_line
from klamm_base.errors import KlammError

START_S: Final = 30.0
STOP_S: Final = 20.0
EXIT_S: Final = 2.0
TEST_DEFAULTS: Final = {
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",  # fifty partitions are a second of every test's time
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerFailed(KlammError):
    """The broker process did not start, or did not stop, as it should; carries the end of its log."""


class EmbeddedBroker:
    """A broker subprocess. `port=0` takes a free port at the first start and keeps it for later ones.

    `config` may have `log.dirs`, for several directories; `data_dir` is one otherwise.
    """

    def __init__(
        self, data_dir: Path | None = None, *, port: int = 0, config: Mapping[str, str] | None = None
    ) -> None:
        self._temporary = None if data_dir else tempfile.TemporaryDirectory(prefix="klamm-broker-")
        self.data_dir = data_dir or Path(self._temporary.name if self._temporary else "") / "data"
        self.port = port
        self.config = {**TEST_DEFAULTS, **(config or {})}
        self._log_path = self.data_dir.parent / f"{self.data_dir.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.metrics_url: str | None = None
        """Where its metrics are, with `klamm.metrics.port` in `config`; known once it runs."""

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker has not been started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """What the process has logged, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self) -> Self:
        """Start, and return once it serves. Raises BrokerFailed."""
        if self.running:
            raise BrokerFailed(f"the broker on port {self.port} is running already (pid {self.pid})")
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        properties = {
            "log.dirs": str(self.data_dir),
            **self.config,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        arguments = ["--stop-with-stdin", *(f"{k}={v}" for k, v in properties.items())]
        command = [sys.executable, "-m", "klamm_broker.server", *arguments]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        line = first_line(self._process, START_S)
        if not line.startswith("ready broker="):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)  # its output ends a moment before the process does
            code = self._exit_code(self._process)
            self.kill()
            raise BrokerFailed(f"the broker did not start (exit code {code}):\n{self._log_tail()}")
        said = dict(word.partition("=")[::2] for word in line.split()[1:])
        self.port = int(said["broker"].rpartition(":")[2])
        self.metrics_url = said.get("metrics")
        return self

    def stop(self) -> int:
        """Stop cleanly (SIGTERM); the exit code. Does nothing when it is not running."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"the broker did not stop within {STOP_S:.0f} s:\n{self._log_tail()}"
            ) from None
        self._forget()
        return code

    def kill(self) -> None:
        """`kill -9`: the process gets no chance to write anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def freeze(self) -> None:
        """Let the process stand still (SIGSTOP): connections stay, and nobody answers. `thaw` ends it."""
        assert self._process is not None, "the broker has not been started"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        assert self._process is not None, "the broker has not been started"
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._clean()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean()

    def _clean(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _forget(self) -> None:
        process, self._process = self._process, None
        for stream in (process.stdin, process.stdout) if process is not None else ():
            if stream is not None:
                stream.close()

    @staticmethod
    def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
        """The exit code of a process that closed its output; None when it goes on all the same."""
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            return None

    def _log_tail(self) -> str:
        return "\n".join(self.log_text.splitlines()[-20:])
