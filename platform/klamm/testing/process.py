"""The common part of the embedded broker and worker: the life of a server process, and its log."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from klamm_base.errors import KlammError

_TAIL_LINES = 30


class EmbeddedProcess(ABC):
    """A server in a process of its own. It ends with `stop`, `kill`, the end of the `with` block, or whoever started it.

    Subclasses name the server (`_what`) for the sentences of its error (`_failed`), and start it.
    """

    _what: ClassVar[str]
    _failed: ClassVar[type[KlammError]]
    _stop_s: ClassVar[float]

    def __init__(self, *, directory: Path | None, log: str) -> None:
        """Takes the log's path below `directory` as `log`. Without a directory it uses a temporary one, removed at the end."""
        prefix = f"klamm-{self._what}-"
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix=prefix)
        self._directory = directory or Path(self._temporary.name if self._temporary else "")
        self._log_path = self._directory / log
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Starts the server, and returns once it serves."""

    @property
    def pid(self) -> int:
        assert self._process is not None, f"the {self._what} has not been started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """The log of the process, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def stop(self) -> int:
        """Stops the process cleanly (SIGTERM; a worker drains), and returns the exit code. Does nothing when it is not running."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(
                f"the {self._what} did not stop within {self._stop_s:.0f} s:\n{self._log_tail()}"
            ) from None
        self._forget()
        return code

    def kill(self) -> None:
        """Sends SIGKILL: the process gets no chance to write anything. A worker's tasks are gone within two seconds."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def freeze(self) -> None:
        """Stops the process where it is (SIGSTOP): connections stay, and nobody answers. `thaw` ends that."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets the process go on after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

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

    def _spawn(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts the process. Its standard error goes to the end of the log."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env
            )
        return self._process

    def _log_tail(self) -> str:
        return "\n".join(self.log_text.splitlines()[-_TAIL_LINES:])

    def _clean(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _forget(self) -> None:
        process, self._process = self._process, None
        for stream in (process.stdin, process.stdout) if process is not None else ():
            if stream is not None:
                stream.close()


def first_line(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Returns the first line of standard output, or the part of it that is there when the process ends or the time is over."""
    assert process.stdout is not None
    fd, data = process.stdout.fileno(), b""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:  # select() fails where many files are open
        selector.register(fd, selectors.EVENT_READ)
        while b"\n" not in data and (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            part = os.read(fd, 4096)
            if not part:
                break
            data += part
    return data.partition(b"\n")[0].decode()
