"""`klamm up --secure` with all its servers: each answers over TLS to its users only; backed up, lost, and restored."""

from __future__ import annotations

import base64
import http.cookiejar
import json
import re
import shutil
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest
from support.broker import wait_until
from support.klamm import Server, klamm

pytestmark = pytest.mark.usefixtures("processes")

SERVERS = {"registry": "/subjects", "lag": "/v3/kafka", "rest-proxy": "/topics", "rest": "/connectors"}
PORTS = ("broker", "rest", "metrics", "registry", "console", "lag", "rest-proxy")
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
AVRO = "application/vnd.kafka.avro.v2+json"


class All(Server):
    """The whole system on free ports; `ask` is a request as one of its users."""

    def __init__(self, data: Any) -> None:
        self.folder = data / "security"
        ports = [word for name in PORTS for word in (f"--{name}-port", "0")]
        super().__init__("up", "--data-dir", str(data), "--secure", *ports)
        self.context = ssl.create_default_context(cafile=self.folder / "ca.pem")

    def password(self, user: str) -> str:
        name = "basic.auth.user.info" if user == "rest-proxy" else "sasl.jaas.config"
        text = next(
            line
            for line in (self.folder / f"{user}.properties").read_text().splitlines()
            if line.startswith(name)
        )
        return text.partition(":")[2] if user == "rest-proxy" else re.findall(r'password="([^"]+)"', text)[0]

    def ask(
        self,
        user: str | None,
        server: str,
        path: str,
        body: Any = None,
        media: str = "application/json",
        method: str | None = None,
    ) -> tuple[int, Any]:
        request = urllib.request.Request(self.ready[server] + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", media)
        if user is not None:
            login = base64.b64encode(f"{user}:{self.password(user)}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return answer.status, json.load(answer) if answer.status != 204 else None
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def command(self, user: str, *words: str) -> str:
        env = {
            "KLAMM_BOOTSTRAP_SERVER": self.ready["broker"], "KLAMM_COMMAND_CONFIG": str(self.folder / f"{user}.properties"),
            "KLAMM_REST_CACERT": str(self.folder / "ca.pem"), "KLAMM_REST_USER": user, "KLAMM_REST_PASSWORD": self.password(user),
        }  # fmt: skip
        done = klamm(*words, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_all_servers_answer_their_users_and_a_lost_disk_comes_back(tmp_path):
    data, backups = tmp_path / "data", str(tmp_path / "backups")
    with All(data) as up:
        for server, path in SERVERS.items():
            assert up.ready[server].startswith("https://")
            assert up.ask(None, server, path)[0] == 401, server
            assert up.ask("app", server, path)[0] == 200, server
        the_proxy_registers_and_nothing_more(up)
        up.command("app", "consume", "orders", "--from-beginning", "-n", "1", "--group", "readers")
        wait_until(
            lambda: "readers" in up.ask("app", "lag", "/v3/kafka/local/consumer")[1]["consumers"],
            "lag sees the group",
        )
        made = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines"}
        (tmp_path / "in.txt").write_text("a\nb\n")
        assert up.ask("admin", "rest", "/connectors", {"name": "src", "config": made})[0] == 201
        wait_until(lambda: "lines" in up.command("app", "topic", "list").split(), "the connector has written")
        wait_until(
            lambda: up.ask("admin", "rest", "/connectors/src/offsets")[1]["offsets"], "its offset is kept"
        )
        the_console_shows_all(up)
        before = state(up)
        said = up.command("admin", "backup", "create", backups, "--rest", up.ready["rest"])
        assert "topics" in said
        errors = list(up.errors)
        secrets = [up.password(user) for user in ("admin", "app", "connect", "rest-proxy")]
    assert not [line for line in errors if any(secret in line for secret in secrets)]

    shutil.rmtree(data / "broker")
    restored_alone(data, backups)
    with All(data) as up:
        wait_until(
            lambda: "src" in up.ask("admin", "rest", "/connectors")[1], "the worker has read its topic"
        )
        assert state(up) == before
        up.command("admin", "backup", "verify", backups, "--against", up.ready["broker"])
        assert up.command("app", "produce", "orders", "x") is not None  # the application's rights are back


def state(up: All) -> Any:
    """Returns schemas with ids, connectors with offsets, and a group's offsets."""
    return [
        up.ask("admin", "registry", "/subjects/orders-value/versions/1")[1],
        up.ask("admin", "rest", "/connectors/src")[1]["config"],
        up.ask("admin", "rest", "/connectors/src/offsets")[1],
        [
            (row["topic"], row["partition"], row["current_offset"])
            for row in json.loads(up.command("admin", "group", "describe", "readers", "-o", "json"))
        ],
    ]


def the_proxy_registers_and_nothing_more(up: All) -> None:
    body = {"value_schema": SCHEMA, "records": [{"value": {"id": 7}}]}
    assert up.ask("app", "rest-proxy", "/topics/orders", body, AVRO)[0] == 403  # a viewer
    status, sent = up.ask("admin", "rest-proxy", "/topics/orders", body, AVRO)
    assert (status, sent["value_schema_id"]) == (200, 1)
    assert "connect-configs" in up.ask("admin", "rest-proxy", "/topics")[1]
    assert up.ask("app", "rest-proxy", "/topics")[1] == ["orders"]
    consumer = up.ask("app", "rest-proxy", "/consumers/g", {})[1]["base_uri"].removeprefix(
        up.ready["rest-proxy"]
    )
    for topic, status in (("orders", 204), ("connect-configs", 403)):
        assert up.ask("app", "rest-proxy", f"{consumer}/subscription", {"topics": [topic]})[0] == status
    assert up.ask("rest-proxy", "registry", "/subjects")[1] == ["orders-value"]
    assert up.ask("rest-proxy", "registry", "/subjects/orders-value", method="DELETE")[0] == 403
    assert up.ask("rest-proxy", "rest", "/connectors")[1] == []
    assert up.ask("rest-proxy", "rest", "/admin/loggers")[0] == 403
    assert up.ask("rest-proxy", "rest-proxy", "/topics/orders")[0] == 403


def the_console_shows_all(up: All) -> None:
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=up.context),
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
    )
    page = opener.open(up.ready["console"] + "/", timeout=30).read().decode()
    assert 'name="password"' in page  # a login first
    token = re.findall(r'name="csrf" value="([^"]+)"|data-token="(\w+)"', page)
    fields = {"user": "admin", "password": up.password("admin"), "csrf": "".join(token[0]) if token else ""}
    action = re.findall(r'<form[^>]*action="([^"]+)"', page)[0]
    opener.open(up.ready["console"] + action, urllib.parse.urlencode(fields).encode(), timeout=30)
    for path, shown in (
        ("/c/local/connectors", "src"),
        ("/c/local/schemas", "orders-value"),
        ("/c/local/topics", "lines"),
    ):
        assert shown in opener.open(up.ready["console"] + path, timeout=30).read().decode(), path


def restored_alone(data: Any, backups: str) -> None:
    """The runbook: the users first, then the broker alone, then the backup."""
    folder = data / "security"
    made = klamm("security", "init", str(folder), "--host", "localhost", "--log-dir", str(data / "broker"))
    assert made.returncode == 0, made.stderr
    with Server("broker", "start", str(data / "broker.properties")) as broker:
        words = ("-b", broker.ready["broker"], "--command-config", str(folder / "admin.properties"))
        done = klamm("backup", "restore", backups, *words)
        assert done.returncode == 0, done.stdout + done.stderr
