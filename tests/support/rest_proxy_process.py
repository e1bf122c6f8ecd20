"""A REST proxy of ours in a process, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from support.connect_worker import free_port

from klamm.testing.process import first_line

START_S = 60.0
V2 = "application/vnd.kafka.v2+json"


class RestProxyProcess:
    """`klamm rest start` on a port that it keeps over restarts."""

    def __init__(self, bootstrap: str, directory: Path, **more: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        settings = {"bootstrap.servers": bootstrap, "listeners": self.url}
        settings |= {key.replace("__", "."): value for key, value in more.items()}
        self._settings = settings
        self._file = directory / "rest.properties"
        self.log = directory / "rest.log"
        self.process: subprocess.Popen[bytes] | None = None

    def over_tls(self) -> None:
        """Serve HTTPS, with the certificate that the settings name."""
        self.url = self._settings["listeners"] = self.url.replace("http:", "https:")

    def start(self) -> Self:
        self._file.write_text("".join(f"{k}={v}\n" for k, v in self._settings.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "klamm.cli.main", "rest", "start", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        line = first_line(self.process, START_S)
        assert line == f"ready rest-proxy={self.url}", f"{line!r}\n{self.log.read_text()}"
        return self

    def end(self, *, kill: bool = False) -> int:
        assert self.process is not None
        self.process.kill() if kill else self.process.terminate()
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = V2,
        accept: str = "*/*",
        login: str = "",
    ) -> tuple[int, Any]:
        """Returns status and answer of a request; `path` may be a whole address."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Accept": accept, **({"Authorization": login} if login else {})}
        if data is not None:
            headers["Content-Type"] = kind
        url = path if path.startswith("http") else self.url + path
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=60
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())

    def produce(self, topic: str, form: str, records: list[dict[str, Any]], **more: Any) -> Any:
        """Sends records by v2 and returns the answer."""
        body = {"records": records, **more}
        status, answer = self.ask(
            "POST", f"/topics/{topic}", body, kind=f"application/vnd.kafka.{form}.v2+json"
        )
        assert status == 200, answer
        return answer

    def consumer(self, group: str, form: str, **more: str) -> str:
        """Makes a consumer instance from the earliest record on, and returns its address."""
        settings = {"format": form, "auto.offset.reset": "earliest", **more}
        status, answer = self.ask("POST", f"/consumers/{group}", settings)
        assert status == 200, answer
        return str(answer["base_uri"])

    def read(self, consumer: str, form: str, count: int) -> list[dict[str, Any]]:
        """Reads this many records."""
        found: list[dict[str, Any]] = []
        for _ in range(40):
            status, answer = self.ask(
                "GET", f"{consumer}/records?timeout=2000", accept=f"application/vnd.kafka.{form}.v2+json"
            )
            assert status == 200, answer
            found += answer
            if len(found) >= count:
                break
        return found
