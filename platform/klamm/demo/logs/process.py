"""A process of the pipeline: started, watched and stopped. It ends with us, however we end.

Each child has a session of its own, so that Ctrl-C reaches the command alone. It also has a pipe whose other end only the
command holds: end of file tells the child that its parent is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from klamm_base.errors import KlammError

STOP_S: Final = 30.0
TAIL: Final = 12


class StageFailed(KlammError):
    """A stage of the pipeline ended by itself, or said that it failed."""

    def __init__(self, stage: str, what: str, *, retriable: bool = False) -> None:
        super().__init__(f"stage {stage}: {what}")
        self.stage = stage
        self.retriable = retriable


class Process:
    """Runs `python -m MODULE ARGUMENTS`. A thread gives the lines of its standard output to `on_line`; its log goes to a file.

    `watched` puts the read end of the pipe into the arguments (for `klamm.up.child`); otherwise the pipe is the child's
    standard input, which begins with `hello`.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: list[str],
        log: Path,
        *,
        on_line: Callable[[str], None] | None = None,
        watched: bool = False,
        hello: str = "",
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._module, self._arguments = module, arguments
        self._on_line, self._watched, self._hello, self._env = on_line, watched, hello, env
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._held: int | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, or before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts the process, also again after `kill` or `stop`."""
        words = [sys.executable, "-m", self._module]
        with contextlib.ExitStack() as ours, self.log.open("ab") as log:
            if self._watched:
                read, self._held = os.pipe()
                ours.callback(os.close, read)
                words.append(str(read))
            self._process = subprocess.Popen(
                [*words, *self._arguments], stdin=subprocess.DEVNULL if self._watched else subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env=os.environ | (self._env or {}), pass_fds=(read,) if self._watched else (),
            )  # fmt: skip
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended at once: `check` says so
                self._process.stdin.write(self._hello)
                self._process.stdin.flush()
        assert self._process.stdout is not None
        lines = _lines(self._process.stdout)
        self._reader = threading.Thread(
            target=self._read, args=(lines,), daemon=True, name=f"read {self.name}"
        )
        self._reader.start()

    def check(self) -> None:
        """Raises StageFailed when the process ended by itself with an exit code other than 0."""
        code = self.code
        if code is not None and code != 0:
            raise StageFailed(self.name, f"the process ended ({_how(code)})\n{self.tail()}".rstrip())

    def stop(self) -> int | None:
        """Sends SIGTERM, then SIGKILL after STOP_S. Returns the exit code."""
        if self.running:
            assert self._process is not None
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._gone()

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()
        self._gone()

    def wait(self, timeout_s: float) -> int | None:
        """Waits until the process ends by itself, and returns its exit code; None when it goes on."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def tail(self) -> str:
        """Returns the last lines of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-TAIL:]
        except FileNotFoundError:
            return ""
        return "".join(f"  {line}\n" for line in lines)

    def _gone(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        code = process.wait()
        if self._reader is not None:
            self._reader.join(5)  # what it said last is read
        if self._held is not None:
            os.close(self._held)
            self._held = None
        with contextlib.suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        return code

    def _read(self, lines: Iterator[str]) -> None:
        for line in lines:
            if self._on_line is not None:
                self._on_line(line)


def _lines(stream: IO[str]) -> Iterator[str]:
    with stream:
        yield from stream


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
