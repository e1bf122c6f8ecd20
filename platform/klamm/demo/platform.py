"""`klamm up` as the demonstration's child, and plain HTTP to its Connect REST API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from klamm.up import ports
from klamm_base.errors import KlammError

TOPIC: Final = "connect-test"
CONNECTORS: Final = ("local-file-source", "local-file-sink")
READY_S: Final = 300.0
"""A busy machine takes minutes to start Python five times. Whatever fails says so at once."""
HTTP_S: Final = 30.0


class NoAnswer(KlammError):
    """A server did not answer in time; a busy one may answer later."""


def connectors(source: Path, sink: Path) -> list[dict[str, Any]]:
    """Returns the two connector documents, in Kafka Connect's form."""
    return [
        {
            "name": CONNECTORS[0],
            "config": {
                "connector.class": "FileStreamSource",
                "tasks.max": "1",
                "file": str(source),
                "topic": TOPIC,
            },
        },
        {
            "name": CONNECTORS[1],
            "config": {
                "connector.class": "FileStreamSink",
                "tasks.max": "1",
                "file": str(sink),
                "topics": TOPIC,
            },
        },
    ]


def _environment() -> dict[str, str]:
    """Returns our environment without settings of brokers and workers, so that the demonstration is the same for everybody."""
    return {k: v for k, v in os.environ.items() if not k.startswith("KLAMM_") or k == "KLAMM_LOG_LEVEL"}


class Embedded:
    """A `klamm up` of its own. `with` starts it and stops it cleanly."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._held = -1
        self.bootstrap = ""
        self.rest = ""

    def __enter__(self) -> Embedded:
        broker, said_broker = ports.choose(None, 9092, "--broker-port")
        rest, said_rest = ports.choose(None, 8083, "--rest-port", frozenset({broker}))
        for said in filter(None, (said_broker, said_rest)):
            print(said.partition(" (--")[0])  # the options are those of `klamm up`
        # Started like a child of `klamm up`: Ctrl-C reaches us alone, and it ends when we do, however we end
        watched, self._held = os.pipe()
        with (self._directory / "klamm.log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "klamm.up.child", str(watched),
                    "up", "--data-dir", str(self._directory / "data"),
                    "--broker-port", str(broker), "--rest-port", str(rest), "--metrics-port", "0",
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment(),
                pass_fds=(watched,), start_new_session=True,
            )  # fmt: skip
        os.close(watched)
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(45)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._held)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(READY_S, self._process.terminate)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        word, _, rest = line.strip().partition(" ")
        if word != "ready":
            raise KlammError(f"klamm up did not start (exit code {self._process.wait(45)})")
        found = dict(item.split("=", 1) for item in rest.split(" ") if "=" in item)
        self.bootstrap, self.rest = found["broker"], found["rest"]

    def create(self, connector: dict[str, Any]) -> None:
        """POSTs the connector and waits until its task runs."""
        self._call("POST", "/connectors", connector)
        deadline = time.monotonic() + READY_S
        while True:
            status = self.check(connector["name"])
            if status["tasks"] and all(t["state"] == "RUNNING" for t in status["tasks"]):
                return
            if time.monotonic() > deadline:
                raise KlammError(f"{connector['name']} does not run: {json.dumps(status)}")
            time.sleep(0.05)

    def check(self, name: str) -> dict[str, Any]:
        """Returns the connector's status. Raises KlammError with the trace when it, or one of its tasks, has FAILED."""
        status = self.status(name)
        for part in [status["connector"], *status["tasks"]]:
            if part["state"] == "FAILED":
                raise KlammError(f"{name} failed:\n{part.get('trace', 'no trace')}")
        return status

    def delete(self, name: str) -> None:
        """DELETEs the connector."""
        self._call("DELETE", f"/connectors/{quote(name, safe='')}")

    def status(self, name: str) -> dict[str, Any]:
        """GETs the connector's status. A connector that was just made may have none for a moment."""
        try:
            answer = self._call("GET", f"/connectors/{quote(name, safe='')}/status")
        except HTTPError as e:
            if e.code == 404:
                return {"connector": {"state": "UNASSIGNED"}, "tasks": []}
            raise
        return answer if isinstance(answer, dict) else {}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.rest + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        try:
            with urlopen(request, timeout=HTTP_S) as answer:  # noqa: S310 - our own loopback server
                text = answer.read()
        except HTTPError as e:
            if e.code == 404 and method == "GET":
                raise
            raise KlammError(f"{method} {path}: HTTP {e.code}: {e.read().decode(errors='replace')}") from None
        except (URLError, TimeoutError) as e:
            raise NoAnswer(f"{method} {path}: {getattr(e, 'reason', e)}") from None
        return json.loads(text) if text else None
