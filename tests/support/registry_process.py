"""A schema registry of ours in a process, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support.connect_worker import free_port

from klamm.testing.process import first_line

START_S = 60.0


class RegistryProcess:
    """`klamm registry start` on a port that it keeps over restarts."""

    def __init__(self, bootstrap: str, directory: Path, *, scheme: str = "http", **more: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"{scheme}://127.0.0.1:{free_port()}"
        settings = {"bootstrap.servers": bootstrap, "listeners": self.url, **more}
        self._file = directory / "registry.properties"
        self._file.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.log = directory / "registry.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "klamm.cli.main", "registry", "start", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        line = first_line(self.process, START_S)
        assert line == f"ready registry={self.url}", f"{line!r}\n{self.log.read_text()}"
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Returns status and answer of a request."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, kind, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())
