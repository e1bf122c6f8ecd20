"""Apache's worker and ours, side by side: what browsers are told, which headers answers have, who is let in."""

from __future__ import annotations

import base64
import http.client
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.kafka_connect import KafkaConnectWorker

PROPERTIES = {
    "access.control.allow.origin": "http://a.example,http://b.example",
    "access.control.allow.methods": "GET,PUT",
    "response.http.headers.config": '"add Cache-Control: no-cache, no-store", add X-XSS-Protection: 1; mode=block, set X-Two: 2',
}
PREFLIGHT = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "X-Foo"}
REQUESTS: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "/", {}),
    ("GET", "/nope", {}),
    ("GET", "/", {"Origin": "http://a.example"}),
    ("GET", "/", {"Origin": "http://evil.example"}),
    ("OPTIONS", "/connectors", {"Origin": "http://b.example", **PREFLIGHT}),
    ("OPTIONS", "/connectors", {"Origin": "http://a.example", "Access-Control-Request-Method": "DELETE"}),
    ("OPTIONS", "/connectors", {"Origin": "http://evil.example", **PREFLIGHT}),
]
# Of their HTTP servers, and what has no order in a set of Java's.
IGNORED = {"Server", "Date", "Content-Length", "Content-Type", "Allow"}


def answers(worker: WorkerProcess) -> list[Any]:
    found = []
    for method, path, headers in REQUESTS:
        connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        shown = {name: value for name, value in answer.getheaders() if name not in IGNORED}
        if "Access-Control-Allow-Methods" in shown:
            shown["Access-Control-Allow-Methods"] = ",".join(
                sorted(shown["Access-Control-Allow-Methods"].split(","))
            )
        found.append((method, path, answer.status, shown))
        connection.close()
    return found


@pytest.mark.usefixtures("apache_kafka")
def test_headers_are_apaches(bootstrap: str, tmp_path: Path) -> None:
    seen = []
    for kind in (KafkaConnectWorker, WorkerProcess):
        worker = kind(worker_properties(bootstrap, f"h-{uuid.uuid4().hex[:8]}", **PROPERTIES), tmp_path)
        try:
            worker.wait_ready()
            seen.append(answers(worker))
        finally:
            worker.end()
    apaches, ours = seen
    assert ours == apaches


def test_kafkas_basic_auth_extension_by_its_name(bootstrap: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "users").write_text("ann: secret\nbob=pw\n")
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f'KafkaConnect {{\n {module} required file="{tmp_path}/users";\n}};\n')
    monkeypatch.setitem(os.environ, "KAFKA_OPTS", f"-Djava.security.auth.login.config={jaas}")
    extension = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
    more = {"rest.extension.classes": extension}
    worker = WorkerProcess(worker_properties(bootstrap, f"jaas-{uuid.uuid4().hex[:8]}", **more), tmp_path)
    try:
        worker.wait_ready()

        def status(path: str, credentials: str | None, method: str = "GET") -> int:
            secret = base64.b64encode((credentials or "").encode()).decode()
            headers = {} if credentials is None else {"Authorization": f"Basic {secret}"}
            return worker.request(method, path, [] if method == "POST" else None, headers=headers).status

        # As recorded from Apache's worker with the same files.
        assert [status("/", c) for c in (None, "ann:wrong", "eve:secret", "ann:secret", "bob:pw")] == [
            401
        ] * 3 + [200] * 2
        assert status("/health", None) == 401
        assert status("/nope", None) == 404
        assert status("/connectors/x/tasks", None, "POST") == 400  # workers sign instead
        wait_for(lambda: status("/connectors", "ann:secret") == 200)
    finally:
        worker.end()
