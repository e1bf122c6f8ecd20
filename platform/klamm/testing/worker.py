"""`EmbeddedWorker`: a real distributed Connect worker for tests, a process of its own on a port of its own.

    with EmbeddedBroker() as broker, EmbeddedWorker(broker.bootstrap, plugins=[TicketSourceConnector]) as worker:
        worker.create("tickets", {"connector.class": "TicketSource", "topic": "t"})
        worker.wait_running("tickets")

A test can stop, kill and start it again: it keeps its port, group and topics. Workers with the same `group` are one group. It
ends with `stop`, `kill`, the end of the `with` block, or the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from klamm.testing.exposed import expose
from klamm.testing.process import EmbeddedProcess, first_line
from klamm_base.errors import KlammError

START_S: Final = 60.0
STOP_S: Final = 60.0
WAIT_S: Final = 60.0
POLL_S: Final = 0.02
JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"


class WorkerFailed(KlammError):
    """The worker, or a connector on it, did not do what the test waited for. Carries status and the end of the log."""


class Answer(NamedTuple):
    """An answer of the REST API. `body` is decoded JSON, text that is no JSON, or None."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def message(self) -> str:
        """The reason of a refusal; empty for a success."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


class EmbeddedWorker(EmbeddedProcess):
    """See the module. `config` are worker properties in addition to those that a test needs. `plugins` are classes of connectors,
    converters, transforms or predicates whose package is not installed, in modules that another process can import.
    """

    _what = "worker"
    _failed = WorkerFailed
    _stop_s = STOP_S

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        config: Mapping[str, str] | None = None,
        plugins: Sequence[type] = (),
        directory: Path | None = None,
    ) -> None:
        super().__init__(directory=directory, log="worker.log")
        self._directory.mkdir(parents=True, exist_ok=True)
        self.group = group or f"worker-{uuid.uuid4().hex[:8]}"
        self.config = {**_defaults(bootstrap, self.group, self._directory), **(config or {})}
        self._plugins = tuple(plugins)
        self.port = 0

    @property
    def url(self) -> str:
        """The address of its REST API."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Starts the worker, and returns once it serves and has its place in the group. Raises WorkerFailed."""
        if self.running:
            raise WorkerFailed(f"the worker on port {self.port} is running already (pid {self.pid})")
        properties = {"listeners": f"http://127.0.0.1:{self.port}", **self.config}
        path = [*expose(self._plugins, self._directory / "plugins"), os.environ.get("PYTHONPATH", "")]
        process = self._spawn(
            [sys.executable, "-m", "klamm.testing.worker_process"],
            os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(properties).encode() + b"\n")
        process.stdin.flush()
        line = first_line(process, START_S)
        if not line.startswith("ready rest="):
            self.kill()
            raise WorkerFailed(f"the worker did not start:\n{self._log_tail()}")
        self.port = int(line.rpartition(":")[2])
        return self

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        """Sends a request to its REST API. A refusal is an answer, too. Raises OSError when nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - our own URL
        try:
            with _OPENER.open(request, timeout=90) as answer:
                return Answer(answer.status, _decoded(answer.read()), dict(answer.headers))
        except urllib.error.HTTPError as e:
            with e:
                return Answer(e.code, _decoded(e.read()), dict(e.headers))

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Makes a connector, or changes its configuration. Raises WorkerFailed with the reason when it is refused."""
        answer = self.request("PUT", f"/connectors/{name}/config", dict(config))
        if answer.status not in {200, 201}:
            raise WorkerFailed(f"connector {name} is refused ({answer.status}): {answer.message}")

    def delete(self, name: str) -> None:
        """Removes a connector. Its tasks have ended when this returns. Does nothing where there is no such connector."""
        self._ask("DELETE", f"/connectors/{name}", 204, 404)

    def pause(self, name: str) -> None:
        """Pauses a connector, and returns when its tasks are paused."""
        self._ask("PUT", f"/connectors/{name}/pause", 202)
        self.wait_state(name, "PAUSED")

    def halt(self, name: str) -> None:
        """Stops a connector (`PUT …/stop`). Its tasks may still be committing their offsets; `resume` waits for them."""
        self._ask("PUT", f"/connectors/{name}/stop", 204)
        self.wait(lambda: self.states(name) == ["STOPPED"], f"connector {name} stopped", name)

    def resume(self, name: str) -> None:
        """Ends `pause` or `halt`, and returns when the tasks run."""
        self._ask("PUT", f"/connectors/{name}/resume", 202)
        self.wait_running(name)

    def status(self, name: str) -> dict[str, Any]:
        """Returns `GET /connectors/NAME/status`; empty while there is no such connector."""
        answer = self.request("GET", f"/connectors/{name}/status")
        return answer.body if answer.status == 200 else {}

    def states(self, name: str) -> list[str]:
        """Returns the state of the connector, then those of its tasks."""
        status = self.status(name)
        return [status["connector"]["state"], *(t["state"] for t in status["tasks"])] if status else []

    def wait_running(self, name: str) -> None:
        """Waits until the connector and at least one task run, and all its tasks do. Raises WorkerFailed at once when one has failed."""
        self.wait_state(name, "RUNNING")

    def wait_state(self, name: str, state: str) -> None:
        """Waits until the connector and all its tasks, at least one, are in a state."""

        def reached() -> bool:
            found = self.states(name)
            if "FAILED" in found and state != "FAILED":
                raise WorkerFailed(f"connector {name} has failed\n{self._say(name)}")
            return len(found) > 1 and set(found) == {state}

        self.wait(reached, f"connector {name} {state}", name)

    def wait(
        self, condition: Callable[[], bool], what: str, name: str | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Waits until `condition` holds. WorkerFailed says what did not happen, and the state of connector `name`."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise WorkerFailed(f"not within {timeout_s:g} s: {what}\n{self._say(name)}")
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str, *accepted: int) -> None:
        answer = self.request(method, path)
        if answer.status not in accepted:
            raise WorkerFailed(f"{method} {path}: {answer.status} {answer.message}")

    def _say(self, name: str | None) -> str:
        status = ""
        if name is not None:
            with contextlib.suppress(OSError):
                status = json.dumps(self.status(name), indent=1).replace("\\n", "\n")
        return f"{status}\n{self._log_tail()}"


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode(errors="replace")


def _defaults(bootstrap: str, group: str, directory: Path) -> dict[str, str]:
    """Returns the usual properties: topics of the group's own, and frequent commits, so that tests need not wait for them."""
    stores = ("config", "offset", "status")
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "offset.flush.interval.ms": "200",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "plugins.directory": str(directory / "installed"),
        **{f"{store}.storage.topic": f"{group}-{store}" for store in stores},
        **{f"{store}.storage.replication.factor": "1" for store in stores},
    }
