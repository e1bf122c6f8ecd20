"""Requests that mean no good, or that nobody thought of: none gets past its limits, none leaves a trace in the log."""

from __future__ import annotations

import asyncio
import base64
import http.client
import http.server
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from support.connect_worker import Response, WorkerProcess, wait_for, worker_properties

from klamm.cli.rest_client import Worker
from klamm.connect.rest import forwarding, watching
from klamm.connect.rest.access import REALM
from klamm.connect.service.connectors import ConnectService
from klamm.connect.service.plugins import Checked
from klamm.connect.service.redaction import Redaction
from klamm.connect.topics.config_topic import connector_record
from klamm.web import authentication
from klamm.web.authentication import UsersFile
from klamm.web.passwords import hash_password

CONFIG = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": "t"}
USERS = '[anonymous]\nrole = "admin"\n'
FRIEND = "https://console.example"


class Target:
    """A worker that lets anybody in, with a users file that may change."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.users = directory / "users.toml"
        self.users.write_text(USERS)
        more = {"rest.auth.file": str(self.users), "access.control.allow.origin": FRIEND}
        properties = worker_properties(bootstrap, f"hostile-{uuid.uuid4().hex[:8]}", **more)
        self.worker = WorkerProcess(properties, directory).wait_ready()

    def raw(self, data: bytes, *, until: int = 1) -> bytes:
        """Returns what comes back for these bytes, until so many answers were seen or the worker closes."""
        with socket.create_connection(("127.0.0.1", self.worker.port), timeout=60) as s:
            s.sendall(data)
            found = b""
            while found.count(b"HTTP/1.1 ") < until and (part := s.recv(1 << 16)):
                found += part
            return found

    def let_in(self, users: str) -> None:
        """Change the users file in one step: the worker may look at any moment."""
        new = self.users.with_suffix(".new")
        new.write_text(users)
        new.replace(self.users)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.worker.request(method, path, body, headers=sent)


@pytest.fixture(scope="module")
def target(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    found = Target(bootstrap, tmp_path_factory.mktemp("hostile"))
    yield found
    found.worker.end()


@pytest.mark.parametrize("path", ["/metrics", "/events", "/connectors", "/openapi.json"])
def test_nothing_follows_the_head_of_an_answer_to_head(target: Target, path: str) -> None:
    """A body there would be read as the next answer, on a connection that others may share."""
    both = f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    first, _, rest = target.raw(both.encode(), until=2).partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert rest.startswith(b"HTTP/1.1 200 "), rest[:200]


ODD: list[tuple[str, str, bytes, str, int]] = [
    ("GET", "/connectors/x/tasks/" + "9" * 5000 + "/status", b"", "", 404),
    ("GET", "/connectors/x/tasks/99999999999/status", b"", "", 404),
    ("GET", "/connectors/x/tasks/%D9%A3/status", b"", "", 404),
    ("PATCH", "/connectors/x/offsets", b'{"offsets": [' + b"1" * 5000 + b"]}", "application/json", 400),
    ("PATCH", "/connectors/x/offsets", b'{"offsets": [NaN]}', "application/json", 400),
    ("PUT", "/connectors/x/config", b'{"a": "b"}', "application/json; charset=undefined", 400),
    ("PUT", "/connectors/x/config", b'{"a": "b"}', "application/json; charset=punycode", 400),
    ("GET", "/connectors/a%0AERROR%20b%1B/tasks/" + "9" * 4500 + "/status", b"", "", 404),
]


@pytest.mark.parametrize(("method", "path", "body", "kind", "status"), ODD)
def test_what_nobody_thought_of_is_the_requests_fault(
    target: Target, method: str, path: str, body: bytes, kind: str, status: int
) -> None:
    kinds = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{kinds}Content-Length: {len(body)}\r\n\r\n"
    answer = target.raw(head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert "Traceback" not in target.worker.log
    assert "\x1b" not in target.worker.log


def test_a_token_that_is_no_text_is_nobodys(target: Target) -> None:
    answer = target.raw(b"GET /connectors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert "Traceback" not in target.worker.log


@pytest.mark.parametrize("kind", [None, "application/octet-stream", "text/plain"])
def test_a_body_must_say_that_it_is_json(target: Target, kind: str | None) -> None:
    """Apache's worker demands the same: browsers send others to loopback without asking first."""
    connection = http.client.HTTPConnection("127.0.0.1", target.worker.port, timeout=60)
    body = json.dumps({"name": "csrf", "config": CONFIG}).encode()
    for path in ("/connectors", "/connector-plugins"):
        connection.request("POST", path, body, {} if kind is None else {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 415
    connection.close()
    assert target.worker.get("/connectors") == []


def test_pages_of_other_sites_change_nothing(target: Target) -> None:
    cross = {"Sec_Fetch_Site": "cross-site", "Origin": "https://evil.example"}
    refused = target.ask("POST", "/connectors/x/restart", **cross)
    assert (refused.status, refused.message.split(";")[0]) == (
        403,
        "The request comes from a page of another site",
    )
    friend = target.ask("POST", "/connectors/x/restart", **{**cross, "Origin": FRIEND})
    same = target.ask("POST", "/connectors/x/restart", **{**cross, "Sec_Fetch_Site": "same-origin"})
    assert friend.status == same.status == 404
    assert target.ask("GET", "/connectors", **cross).status == 200


def test_a_stream_of_events_ends_with_the_right_to_see_it(target: Target) -> None:
    target.let_in(USERS + f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "viewer"\n')
    ann = {"Authorization": "Basic " + base64.b64encode(b"ann:a").decode()}
    wait_for(lambda: target.worker.request("GET", "/connectors", headers=ann).status == 200)
    connection = http.client.HTTPConnection("127.0.0.1", target.worker.port, timeout=60)
    connection.request("GET", "/events", headers=ann)
    stream = connection.getresponse()
    assert stream.readline() == b":\n"
    target.let_in(USERS)
    wait_for(lambda: target.worker.request("GET", "/connectors", headers=ann).status == 401)
    target.ask("POST", "/connectors", {"name": "seen", "config": CONFIG, "initial_state": "STOPPED"})
    assert b"seen" not in stream.read()  # and it ends
    assert target.ask("DELETE", "/connectors/seen").status == 204
    connection.close()


def test_nobody_passes_for_a_worker_where_workers_do_not_sign(bootstrap: str, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "admin"\n')
    more = {"rest.auth.file": str(users), "connect.protocol": "compatible"}
    worker = WorkerProcess(worker_properties(bootstrap, f"unsigned-{uuid.uuid4().hex[:8]}", **more), tmp_path)
    try:
        worker.wait_ready()
        for method, path in (("POST", "/connectors/x/tasks"), ("PUT", "/connectors/x/fence")):
            answer = worker.request(method, path, [])
            assert answer.status == 403
            assert "workers do not sign their requests" in answer.message
        assert worker.request("GET", "/internal/tasks").status == 403
    finally:
        worker.end()


# Without a worker


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def test_a_password_is_checked_once_right_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def verify(password: str, stored: str) -> bool:
        checked.append(password)
        return password == "a" and stored == ann

    monkeypatch.setattr(authentication, "verify", verify)
    monkeypatch.setattr(authentication, "LOOK_S", 0.0)
    monkeypatch.setattr(authentication, "REMEMBERED_MAX", 3)
    ann, file = hash_password("a"), tmp_path / "users.toml"
    file.write_text(f'[users.ann]\npassword = "{ann}"\nrole = "viewer"\n')
    users = UsersFile(file, REALM)
    for _ in range(3):
        found = await users.authenticate(basic("ann", "a"))
        assert found is not None
        assert found.name == "ann"
        assert await users.authenticate(basic("ann", "b")) is None
        assert await users.authenticate(basic("eve", "a")) is None
    assert checked == ["a", "b", "a"]
    for guess in range(5):  # pushes out other guesses, and not who is right
        assert await users.authenticate(basic("ann", str(guess))) is None
    del checked[:]
    assert await users.authenticate(basic("ann", "a")) is not None
    assert checked == []
    ann = hash_password("a")  # written again: what was known of the old one is worth nothing
    file.write_text(f'[users.ann]\npassword = "{ann}"\nrole = "viewer"\n# longer\n')
    assert await users.authenticate(basic("ann", "a")) is not None
    assert checked == ["a"]


async def test_who_guesses_makes_no_endless_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "WAITING_MAX", 3)
    file = tmp_path / "users.toml"
    file.write_text(f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "viewer"\n')
    users = UsersFile(file, REALM)
    asked = [users.authenticate(basic("ann", f"guess {i}")) for i in range(8)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[:3] == [None] * 3
    assert [type(answer) for answer in answers[3:]] == [authentication.TooMany] * 5
    assert await users.authenticate(basic("ann", "a")) is not None


async def test_a_client_with_many_connections_is_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start, or a new password, all of them come at once."""
    checked: list[str] = []

    def verify(password: str, stored: str) -> bool:
        checked.append(password)
        return password == "a" and bool(stored)

    monkeypatch.setattr(authentication, "verify", verify)
    file = tmp_path / "users.toml"
    file.write_text(f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "viewer"\n')
    users = UsersFile(file, REALM)
    found = await asyncio.gather(*(users.authenticate(basic("ann", "a")) for _ in range(300)))
    assert {caller.name for caller in found if caller is not None} == {"ann"}
    assert len(found) == 300
    assert checked == ["a"]


async def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WRITE_S", 0.01)
    aborted = asyncio.Event()

    class Stuck:
        async def write(self, _data: bytes) -> None:
            await asyncio.Event().wait()

    request = SimpleNamespace(transport=SimpleNamespace(abort=aborted.set))
    with pytest.raises(ConnectionResetError):
        await watching._write(cast("Any", request), cast("Any", Stuck()), b":\n\n")
    assert aborted.is_set()


async def test_a_tasks_passwords_are_those_that_its_connector_defines() -> None:
    """The configuration of a task need not name the plugin."""
    redaction = Redaction(cast("Any", None), enabled=True)
    connector = {"connector.class": "X", "pin": "1234", "other": "o"}
    rows = [
        {"definition": {"name": "pin", "type": "PASSWORD"}},
        {"definition": {"name": "other", "type": "STRING"}},
    ]
    redaction.learn(connector, rows)
    shown = await redaction.hide({"pin": "1234", "other": "o", "task.class": "T"}, connector)
    assert shown == {"pin": "[hidden]", "other": "o", "task.class": "T"}


async def test_a_password_that_changes_while_a_config_is_checked_stays() -> None:
    """A client that sends [hidden] back leaves the password as it is, not as it was."""
    stored = {"c": {"connector.class": "X", "password": "old", "topic": "a"}}
    configs = SimpleNamespace(config=stored.get, tasks=lambda _: [], target=lambda _: None)

    async def nothing() -> None: ...

    async def write(records: list[Any]) -> None:
        stored["c"] = records[0]

    class Service(ConnectService):
        def __init__(self) -> None:
            self._runtime = cast(
                "Any",
                SimpleNamespace(
                    configs=configs,
                    config_lock=asyncio.Lock(),
                    write_config=write,
                    cluster=SimpleNamespace(require_leader=nothing),
                ),
            )
            self.checks = 0

        async def checked(self, name: str, config: Any) -> Checked:
            self.checks += 1
            if self.checks == 1:  # another request comes first
                stored["c"] = {**stored["c"], "password": "new"}
            return Checked(dict(config), [])

        def _info(self, name: str, config: Any) -> dict[str, Any]:
            return dict(config)

    for change in ("put_config", "patch_config"):
        stored["c"] = {"connector.class": "X", "password": "old", "topic": "a"}
        service = Service()
        await getattr(service, change)("c", {"connector.class": "X", "password": "[hidden]", "topic": "b"})
        expected = {"connector.class": "X", "password": "new", "topic": "b"}
        assert stored["c"] == connector_record("c", expected)
        assert service.checks == 2


@pytest.mark.parametrize("path", ["/connector-plugins", "/connector-plugins/"])
def test_packages_may_be_large_however_their_path_is_written(path: str) -> None:
    request = SimpleNamespace(method="POST", path=path)
    assert forwarding._installs(cast("web.Request", request))


def test_the_command_line_sends_credentials_to_nobody_else() -> None:
    """A worker, or what stands before it, that sends its clients on does not send their passwords on."""
    seen: list[str | None] = []

    class Sends(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            if self.path == "/connectors":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Sends) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        worker = Worker(url=f"http://127.0.0.1:{server.server_address[1]}", token="a-token")
        assert worker.call("GET", "/connectors") == []
        server.shutdown()
    assert seen == ["Bearer a-token", None]
