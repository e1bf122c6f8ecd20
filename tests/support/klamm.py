"""The `klamm` command as a user's shell runs it: a process, its output and its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from klamm.up.extras import EXTRAS

KLAMM = Path(sys.executable).with_name("klamm")
UP_SERVERS = ("broker", "rest", "metrics", *(extra.name for extra in EXTRAS if extra.on))
"""The servers that `klamm up` starts unasked."""


def up_words(data_dir: Path) -> list[str]:
    """Returns the words of a `klamm up` on free ports: the usual ones are those of another test, or of whoever runs the tests."""
    ports = (word for name in UP_SERVERS for word in (f"--{name}-port", "0"))
    return ["up", "--data-dir", str(data_dir), *ports]


def klamm(
    *args: str, stdin: str = "", timeout_s: float = 60, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(KLAMM), *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | env,
        cwd=cwd,
        check=False,
    )


class Server:
    """A foreground server: `ready` holds the fields of its ready line. `with` stops it by SIGTERM."""

    def __init__(self, *args: str, cwd: Path | None = None, timeout_s: float = 60) -> None:
        self.process = subprocess.Popen(
            [str(KLAMM), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self.ready = self._wait_ready(timeout_s)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def _wait_ready(self, timeout_s: float) -> dict[str, str]:
        assert self.process.stdout is not None
        watchdog = threading.Timer(timeout_s, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line.startswith("ready "):
            self.process.wait(60)
            self._reader.join(60)
            raise AssertionError(f"not ready, exit code {self.process.returncode}: {''.join(self.errors)}")
        return {name: value for name, _, value in (word.partition("=") for word in line.split()[1:])}

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send the signal and wait for the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        self._reader.join(60)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def gone(pid: int, timeout_s: float = 60) -> bool:
    """Returns whether the process ended within the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may go while we look
            if ") Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        time.sleep(0.05)
    return False
