"""A Connect worker as a process of its own, for tests: started, asked over HTTP, stopped or killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_RUN = """
import json, sys
from klamm_base.logs import configure
from klamm.connect.config import WorkerConfig
from klamm.connect.worker import main
configure()
sys.exit(main(WorkerConfig.from_properties(json.loads(sys.argv[1]))))
"""

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def worker_properties(bootstrap: str, group: str, **more: str) -> dict[str, str]:
    """Returns properties of a worker with topics of its own, on a free port."""
    topics = {f"{p}.storage.topic": f"{group}-{p}" for p in ("config", "offset", "status")}
    factors = {f"{p}.storage.replication.factor": "1" for p in ("config", "offset", "status")}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": JSON,
        "value.converter": JSON,
        "offset.flush.interval.ms": "500",
        "listeners": "http://127.0.0.1:0",
        **topics,
        **factors,
        **more,
    }


class WorkerProcess:
    """A worker; `log` is its standard error so far."""

    https = False
    host = "127.0.0.1"
    """The address of its ready line."""

    def __init__(self, properties: dict[str, str], directory: Path, *, python_path: str = "") -> None:
        self._properties = properties
        self._log_path = directory / f"worker-{time.monotonic_ns()}.log"
        self._err = self._log_path.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN, json.dumps(properties)],
            stdout=subprocess.PIPE,
            stderr=self._err,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, (python_path, os.environ.get("PYTHONPATH"))))},
        )
        self.port = 0

    def topic(self, which: str) -> str:
        """Returns the name of its config, offset or status topic."""
        return self._properties[f"{which}.storage.topic"]

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def wait_ready(self, timeout_s: float = 60) -> WorkerProcess:
        """Wait for the ready line."""
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        line, deadline = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            assert self.process.poll() is None, f"the worker ended:\n{self.log}"
            assert time.monotonic() < deadline, f"the worker is not ready:\n{self.log}"
            line += self.process.stdout.read() or b""
            time.sleep(0.02)
        places = [f"ready rest={scheme}://{self.host}:".encode() for scheme in ("http", "https")]
        assert line.startswith(tuple(places)), line
        self.https = line.startswith(b"ready rest=https")
        self.port = int(line.rsplit(b":", 1)[1])
        return self

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: str | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 60,
    ) -> Response:
        data = raw.encode() if raw is not None else None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = self._connect(timeout_s)
        try:
            connection.request(method, path, body=data, headers=sent)
            found = connection.getresponse()
            return Response(found.status, found.reason, dict(found.getheaders()), found.read())
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self.https:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=anybody)

    def get(self, path: str) -> Any:
        return self.request("GET", path).json

    def state(self, name: str) -> list[str]:
        """Returns states of the connector and its tasks; empty when it has none."""
        answer = self.request("GET", f"/connectors/{name}/status")
        if answer.status != 200:
            return []
        return [answer.json["connector"]["state"], *(t["state"] for t in answer.json["tasks"])]

    def wait_state(self, name: str, *states: str, timeout_s: float = 60) -> None:
        wait_for(
            lambda: self.state(name) == list(states), lambda: f"{self.state(name)}\n{self.log}", timeout_s
        )

    def create(self, name: str, **config: str) -> Response:
        """POST a connector; dots in keys are written as double underscores."""
        given = {key.replace("__", "."): value for key, value in config.items()}
        return self.request("POST", "/connectors", {"name": name, "config": given})

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the worker did not stop:\n{self.log}") from None
        finally:
            self._err.close()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def end(self) -> None:
        """Ends the worker, whatever its state is: it is gone afterwards."""
        self.stop(signal.SIGKILL)

    def wait_exit(self, timeout_s: float = 60) -> int:
        """Wait for a worker that ends by itself."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker goes on:\n{self.log}") from None


class Response:
    def __init__(self, status: int, reason: str, headers: dict[str, str], body: bytes) -> None:
        self.status, self.reason, self.headers, self.body = status, reason, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    @property
    def content(self) -> Any:
        """Returns the body: parsed if it is JSON, else as text."""
        try:
            return self.json
        except ValueError:
            return self.body.decode()

    @property
    def message(self) -> str:
        return self.json["message"]


def wait_for(condition: Any, say: Any = lambda: "", timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, say()
        time.sleep(0.03)


_given_ports: set[int] = set()


def free_port() -> int:
    """Returns a free port of loopback for a server that starts later, or again: not one that a connection is given meanwhile, nor
    one that was given here before.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            if port not in _given_ports:
                _given_ports.add(port)
                return port


def feed(directory: Path, first: int, count: int) -> None:
    """Appends lines to in.txt, numbered from `first`."""
    with (directory / "in.txt").open("a") as f:
        f.writelines(f"line {i}\n" for i in range(first, first + count))


def lines_out(directory: Path) -> list[str]:
    """Returns what a sink has written to out.txt; a line that is just being written is none yet."""
    path = directory / "out.txt"
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
