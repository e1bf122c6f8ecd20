"""Two workers with HTTPS and users: what the leader must do reaches it over TLS, in the name of who asked."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.certificates import Authority
from support.connect_worker import Response, WorkerProcess, wait_for, worker_properties

from klamm.web.passwords import hash_password

Pair = tuple[WorkerProcess, WorkerProcess]


@pytest.fixture(scope="module")
def pair(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority.make(directory)
    users = directory / "users.toml"
    users.write_text(
        f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "admin"\n'
        f'[users.vic]\npassword = "{hash_password("v")}"\nrole = "viewer"\n'
    )
    group = f"sec-{uuid.uuid4().hex[:8]}"
    workers = []
    for name in ("one", "two"):
        more = {
            "listeners": "https://127.0.0.1:0",
            "listeners.https.ssl.keystore.location": str(authority.issue(name)),
            "listeners.https.ssl.truststore.location": str(authority.ca),
            "listeners.https.ssl.client.auth": "requested",
            "rest.auth.file": str(users),
            "heartbeat.interval.ms": "300",
        }
        workers.append(WorkerProcess(worker_properties(bootstrap, group, **more), directory).wait_ready())
    yield workers[0], workers[1]
    for worker in workers:
        worker.end()


def ask(worker: WorkerProcess, user: str, method: str, path: str, body: object = None) -> Response:
    secret = base64.b64encode(f"{user}:{user[0]}".encode()).decode()
    return worker.request(method, path, body, headers={"Authorization": f"Basic {secret}"})


def metric(worker: WorkerProcess, name: str) -> float:
    text = ask(worker, "ann", "GET", "/metrics").body.decode()
    return next(f.samples[0].value for f in text_string_to_metric_families(text) if f.name == name)


def test_requests_are_forwarded_with_credentials_over_tls(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    for number, worker in enumerate(pair):  # one of them is not the leader
        name = f"c{number}"
        config = {
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "in.txt"),
            "topic": "sec",
            "x.password": "pw",
        }
        assert ask(worker, "vic", "POST", "/connectors", {"name": name, "config": config}).status == 403
        created = ask(worker, "ann", "POST", "/connectors", {"name": name, "config": config})
        assert created.status == 201, created.body
        assert created.json["config"]["x.password"] == "[hidden]"
        assert created.headers["Location"].startswith("https://127.0.0.1:")
    for worker in pair:
        for name in ("c0", "c1"):

            def runs(worker: WorkerProcess = worker, name: str = name) -> bool:
                answer = ask(worker, "vic", "GET", f"/connectors/{name}/status")
                return answer.status == 200 and [t["state"] for t in answer.json["tasks"]] == ["RUNNING"]

            wait_for(runs, lambda worker=worker: worker.log)
            # What a password was stays as it is, whichever worker takes the configuration back.
            shown = ask(worker, "ann", "GET", f"/connectors/{name}/config").json
            assert ask(worker, "ann", "PUT", f"/connectors/{name}/config", shown).status == 200
    stored = [ask(worker, "ann", "GET", "/connectors/c0/config").json["x.password"] for worker in pair]
    assert stored == ["[hidden]", "[hidden]"]
    for count in ("kafka_connect_coordinator_assigned_tasks", "kafka_connect_worker_task_count"):
        wait_for(
            lambda count=count: sum(metric(w, count) for w in pair) == 2,
            lambda: "\n".join(w.log for w in pair),
        )
    assert all(metric(w, "kafka_connect_worker_rebalance_completed_rebalances") >= 1 for w in pair)


def test_a_request_in_absolute_form_goes_to_the_leader_and_nowhere_else(pair: Pair, tmp_path: Path) -> None:
    """Clients send it to proxies, which may pass it on as it is."""
    config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "abs"}
    body = {"name": "absolute", "config": config}
    assert ask(pair[0], "ann", "POST", "/connectors", body).status == 201
    for worker in pair:
        answer = ask(worker, "ann", "PUT", "http://elsewhere.invalid:1/connectors/absolute/stop")
        assert answer.status == 204, answer.body
