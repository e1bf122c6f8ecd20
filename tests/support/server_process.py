"""A server of ours in a process, for tests: `klamm NAME start FILE` on a port that it keeps over restarts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from support.connect_worker import free_port

from klamm.testing.process import first_line

START_S = 60.0
STOP_S = 30.0


class ServerProcess:
    """A server with one listener. `command` starts it, `ready` is its name in the line that says that it serves."""

    command: str
    ready: str

    def __init__(self, directory: Path, settings: Mapping[str, str], *, scheme: str = "http") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"{scheme}://127.0.0.1:{free_port()}"
        self._file = directory / f"{self.command}.properties"
        self._settings = {"listeners": self.url, **settings}
        self.log = directory / f"{self.command}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def over_tls(self) -> None:
        """Serve HTTPS from the next start on, with the certificate that the settings name."""
        self.url = self._settings["listeners"] = self.url.replace("http:", "https:")

    def start(self) -> Self:
        self._file.write_text("".join(f"{k}={v}\n" for k, v in self._settings.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "klamm.cli.main", self.command, "start", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        line = first_line(self.process, START_S)
        assert line == f"ready {self.ready}={self.url}", f"{line!r}\n{self.log.read_text()}"
        return self

    def end(self, *, kill: bool = False) -> int:
        """Ends it in order, or by SIGKILL, and returns its exit code."""
        assert self.process is not None
        self.process.kill() if kill else self.process.terminate()
        code = self.process.wait(STOP_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end(kill=True)
