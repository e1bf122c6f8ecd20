"""Access over REST: users, tokens, roles by connector, HTTPS, separate admin listeners, browsers' rules."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.certificates import Authority
from support.connect_worker import Response, WorkerProcess, free_port, wait_for, worker_properties

from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.errors import BadRequest
from klamm.connect.rest.access import REALM
from klamm.connect.rest.jaas_login import jaas_file, login_of
from klamm.connect.service.redaction import Redaction, unhide
from klamm.web.answer_headers import Cors, parse_rules
from klamm.web.endpoint import Access
from klamm.web.passwords import hash_password, token_digest, verify
from klamm.web.roles import Caller, Grant, Realm, Role
from klamm.web.users import THINGS, parse_users
from klamm_base.errors import ConfigError

PASSWORDS = {name: f"{name}'s secret" for name in ("ann", "ops", "vic")}
TOKEN = "a-token-for-prometheus"


def users() -> str:
    hashed = {name: hash_password(password) for name, password in PASSWORDS.items()}
    return f"""
[users.ann]
password = "{hashed["ann"]}"
role = "admin"

[users.ops]
password = "{hashed["ops"]}"
grants = [{{ role = "admin", connectors = ["mine-*"] }}, {{ role = "operator", connectors = ["shared-*"] }}]

[users.vic]
password = "{hashed["vic"]}"
role = "viewer"
connectors = "shared-*"

[tokens.prometheus]
sha256 = "{token_digest(TOKEN)}"
role = "viewer"
"""


class Secured:
    """A worker with two listeners (http, https), another for /admin, users, and headers for browsers."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.authority = Authority.make(directory)
        self.users = directory / "users.toml"
        self.users.write_text(users())
        self.https_port, self.admin_port, self.metrics_port = free_port(), free_port(), free_port()
        more = {
            "listeners": f"http://127.0.0.1:0,https://127.0.0.1:{self.https_port}",
            "listeners.https.ssl.keystore.type": "PEM",
            "listeners.https.ssl.keystore.location": str(self.authority.issue("worker")),
            "admin.listeners": f"http://127.0.0.1:{self.admin_port}",
            "klamm.metrics.port": str(self.metrics_port),
            "rest.auth.file": str(self.users),
            "access.control.allow.origin": "https://console.example",
            "access.control.allow.methods": "GET,PUT",
            "response.http.headers.config": '"add Cache-Control: no-cache, no-store", set X-Frame-Options: DENY',
        }
        self.worker = WorkerProcess(
            worker_properties(bootstrap, f"acc-{uuid.uuid4().hex[:8]}", **more), directory
        )
        self.worker.wait_ready()

    def ask(self, user: str | None, method: str, path: str, body: Any = None, **headers: str) -> Response:
        if user is not None:
            secret = base64.b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        return self.worker.request(method, path, body, headers=headers)

    def make(self, name: str) -> None:
        config = {
            "connector.class": "FileStreamSource",
            "file": "/nowhere",
            "topic": "t",
            "db.password": "s3cret",
        }
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        answer = self.ask("ann", "POST", "/connectors", body)
        assert answer.status == 201, answer.body


@pytest.fixture(scope="module")
def secured(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(bootstrap, tmp_path_factory.mktemp("access"))
    for name in ("mine-1", "shared-1", "other-1"):
        found.make(name)
    yield found
    found.worker.end()


def test_nobody_unknown_comes_in(secured: Secured) -> None:
    for headers in (
        {},
        {"Authorization": "Basic " + base64.b64encode(b"ann:wrong").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"nobody:x").decode()},
        {"Authorization": "Basic !!"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Digest x"},
    ):
        answer = secured.ask(None, "GET", "/connectors", **headers)
        assert answer.status == 401, headers
        assert answer.json == {"error_code": 401, "message": "User cannot access the resource."}
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert secured.ask(None, "GET", "/health").status == 200  # probes have no password
    assert secured.ask(None, "POST", "/connectors/shared-1/tasks", []).status == 400  # workers sign instead


# user, method, path, status of what the user may do (2xx) or may not (403)
RIGHTS = [
    ("vic", "GET", "/connectors/shared-1/status", 200),
    ("vic", "GET", "/connectors/mine-1/status", 403),
    ("vic", "PUT", "/connectors/shared-1/pause", 403),
    ("vic", "DELETE", "/connectors/shared-1", 403),
    ("vic", "GET", "/connector-plugins", 200),
    ("vic", "POST", "/connector-plugins", 403),
    ("vic", "GET", "/metrics", 403),  # of all connectors
    ("ops", "PUT", "/connectors/shared-1/stop", 204),
    ("ops", "PUT", "/connectors/shared-1/config", 403),
    ("ops", "PATCH", "/connectors/mine-1/config", 200),
    ("ops", "PUT", "/connectors/other-1/stop", 403),
    ("ops", "GET", "/connectors/other-1", 403),
    ("ann", "PUT", "/connectors/other-1/stop", 204),
    ("ann", "GET", "/metrics", 200),
]


@pytest.mark.parametrize(("user", "method", "path", "status"), RIGHTS)
def test_roles_hold_for_connectors_by_pattern(
    secured: Secured, user: str, method: str, path: str, status: int
) -> None:
    body = {"tasks.max": "1"} if method in {"PATCH", "POST"} or path.endswith("/config") else None
    answer = secured.ask(user, method, path, body)
    assert answer.status == status, answer.body
    if status == 403:
        assert answer.message.startswith(f"{user} may not ")


def test_lists_show_what_the_caller_may_see(secured: Secured) -> None:
    assert secured.ask("vic", "GET", "/connectors").json == ["shared-1"]
    assert set(secured.ask("ops", "GET", "/connectors?expand=status").json) == {"mine-1", "shared-1"}
    config = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": "t"}
    refused = secured.ask("ops", "POST", "/connectors", {"name": "other-2", "config": config})
    assert (refused.status, refused.message) == (403, "ops may not administer connector other-2")
    validate = "/connector-plugins/FileStreamSource/config/validate"
    assert secured.ask("ops", "PUT", validate, config | {"name": "mine-9"}).status == 200
    assert secured.ask("vic", "PUT", validate, config | {"name": "shared-1"}).status == 403


def test_tokens(secured: Secured) -> None:
    assert secured.ask(None, "GET", "/metrics", Authorization=f"Bearer {TOKEN}").status == 200
    assert secured.ask(None, "DELETE", "/connectors/mine-1", Authorization=f"Bearer {TOKEN}").status == 403


def test_users_may_change_while_the_worker_runs(secured: Secured) -> None:
    before, changed = secured.users.read_text(), hash_password("new")
    token = token_digest("one more")
    secured.users.write_text(before + f'\n[tokens.more]\nsha256 = "{token}"\nrole = "viewer"\n')
    wait_for(lambda: secured.ask(None, "GET", "/", Authorization="Bearer one more").status == 200)
    secured.users.write_text("[users.ann]\nrole = 3\n")  # cannot be used: what was known stays

    def stays() -> bool:
        assert secured.ask("ann", "GET", "/").status == 200
        return "users stay as they were" in secured.worker.log

    wait_for(stays)
    secured.users.write_text(before.replace(before.split('"')[1], changed, 1))
    wait_for(lambda: secured.ask("ann", "GET", "/").status == 401)
    secured.users.write_text(before)
    wait_for(lambda: secured.ask("ann", "GET", "/").status == 200)


def test_https_beside_http(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.authority.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", secured.https_port, context=context, timeout=60)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (200, "healthy")
    connection.close()
    with pytest.raises(ssl.SSLError, match=r"self-signed|unable to get local issuer"):
        http.client.HTTPSConnection("127.0.0.1", secured.https_port, timeout=60).request("GET", "/health")


def test_admin_and_metrics_have_listeners_of_their_own(secured: Secured) -> None:
    assert secured.ask("ann", "GET", "/admin/loggers").status == 404

    def at(port: int, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    ann = "Basic " + base64.b64encode(f"ann:{PASSWORDS['ann']}".encode()).decode()
    assert at(secured.admin_port, "/admin/loggers").status == 401
    assert at(secured.admin_port, "/admin/loggers", Authorization=ann).status == 200
    for user in ("ops", "vic"):  # roles for some connectors, none for the worker
        told = "Basic " + base64.b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
        assert at(secured.admin_port, "/admin/loggers", Authorization=told).status == 403
        assert at(secured.admin_port, "/admin/loggers/root", Authorization=told).status == 403
        assert at(secured.admin_port, "/admin/loggers/root", "PUT", Authorization=told).status == 403
    assert at(secured.admin_port, "/connectors", Authorization=ann).status == 404
    assert at(secured.metrics_port, "/metrics").status == 200
    assert at(secured.metrics_port, "/connectors").status == 404


def test_browsers_and_headers_as_with_jetty(secured: Secured) -> None:
    origin = "https://console.example"
    plain = secured.ask("ann", "GET", "/", Origin=origin)
    assert plain.headers["Access-Control-Allow-Origin"] == origin
    assert (plain.headers["Vary"], plain.headers["X-Frame-Options"]) == ("Origin", "DENY")
    assert plain.headers["Cache-Control"] == "no-cache, no-store"
    other = secured.ask("ann", "GET", "/", Origin="https://evil.example")
    assert other.status == 200
    assert "Access-Control-Allow-Origin" not in other.headers
    preflight = secured.ask(
        None, "OPTIONS", "/connectors", Origin=origin, **{"Access-Control-Request-Method": "PUT"}
    )
    assert preflight.status == 200
    assert preflight.headers["Access-Control-Allow-Methods"] == "GET,PUT"
    assert preflight.headers["Access-Control-Max-Age"] == "60"
    missing = secured.ask("ann", "GET", "/nope")
    assert (missing.status, missing.headers["X-Frame-Options"]) == (404, "DENY")


def test_passwords_are_hidden_and_come_back_unchanged(secured: Secured) -> None:
    path = "/connectors/mine-1/config"
    shown = secured.ask("ann", "GET", path)
    assert shown.json["db.password"] == "[hidden]"
    for answer in (
        secured.ask("ann", "GET", "/connectors/mine-1"),
        secured.ask("ann", "GET", "/connectors?expand=info"),
        secured.ask("ann", "PUT", path, shown.json | {"topic": "other"}),
        secured.ask("ann", "PATCH", path, {"tasks.max": "1"}),
    ):
        assert answer.status == 200, answer.body
        assert b"s3cret" not in answer.body
        assert b"[hidden]" in answer.body
    # It is kept: a change of it alone is a change.
    changed = secured.ask("ann", "PATCH", path, {"db.password": "${file:/etc/x:y}"})
    assert changed.json["config"]["db.password"] == "${file:/etc/x:y}"
    again = secured.ask("ann", "POST", "/connectors", {"name": "copy", "config": shown.json})
    assert again.status == 400
    assert again.message.startswith("db.password is [hidden], which stands for a password in answers")
    assert "s3cret" not in secured.worker.log


# Without a worker


def test_kafkas_password_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ann: secret\nbob=p\\u00e4\n")
    jaas = tmp_path / "jaas.conf"
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    jaas.write_text(
        f'KafkaClient {{ x.Y required; }};\nKafkaConnect {{\n  {module} required\n  file="{tmp_path}/users";\n}};\n'
    )
    assert login_of(jaas) is not None
    assert jaas_file(None, {"KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={jaas} -Dx=y"}) == jaas
    assert jaas_file("/other", {}) == Path("/other")
    with pytest.raises(ConfigError, match=r"needs a JAAS file: set rest\.auth\.jaas\.file"):
        jaas_file(None, {})
    jaas.write_text("KafkaClient { x.Y required; };")
    with pytest.raises(ConfigError, match="no login context KafkaConnect"):
        login_of(jaas)


BAD_FILES = [
    ({}, "nobody could do anything"),
    ({"anonymous": {"role": "admin", "connectors": ["!a"]}}, "anonymous.connectors has exceptions only"),
    ({"user": {}}, r"user is unknown; there are \[users.NAME\]"),
    ({"users": {"a": {"role": "admin"}}}, "users.a.password is missing"),
    ({"users": {"a": {"password": "secret", "role": "admin"}}}, "users.a.password: it is not scrypt"),
    ({"users": {"a:b": {"password": "x", "role": "admin"}}}, "cannot hold a colon"),
    ({"tokens": {"t": {"sha256": "abc", "role": "admin"}}}, "not a SHA-256 in hex"),
    ({"anonymous": {}}, "anonymous has no role"),
    ({"anonymous": {"role": "root"}}, "must be one of viewer, operator, admin, not 'root'"),
    ({"anonymous": {"role": "viewer", "connectors": []}}, "must be a list of patterns"),
    ({"anonymous": {"role": "viewer", "groups": []}}, "anonymous.groups must be a list of patterns"),
    ({"anonymous": {"role": "viewer", "connector": "x"}}, "anonymous.connector is unknown"),
]


def test_servers_share_a_file_and_each_reads_its_own_grants() -> None:
    data = {
        "anonymous": {
            "grants": [{"role": "admin", "subjects": ["*"]}, {"role": "viewer", "connectors": ["a"]}]
        }
    }
    here = parse_users(data, REALM).anonymous
    assert here is not None
    assert [(grant.role.name, grant.names) for grant in here.grants] == [("VIEWER", ("a",))]
    there = parse_users(data, Realm(title="", server="", thing="subject")).anonymous
    assert there is not None
    assert [(grant.role.name, grant.names) for grant in there.grants] == [("ADMIN", ("*",))]
    elsewhere = parse_users({"anonymous": {"role": "admin", "subjects": "x"}}, REALM).anonymous
    assert elsewhere is not None
    assert not elsewhere.may(Access.VIEW, "a")
    assert not elsewhere.may(Access.VIEW, None)


@pytest.mark.parametrize(
    ("entry", "used"),
    [
        ({"role": "admin"}, {"a", "b"}),
        ({"role": "operator"}, {"a", "b"}),
        ({"role": "operator", "groups": ["a"]}, {"a"}),
        ({"role": "admin", "connectors": ["*-x"]}, set()),
        ({"role": "viewer"}, set()),
        ({"role": "viewer", "groups": "a*"}, {"a"}),
        ({"role": "viewer", "connectors": ["x"], "groups": ["b", "c"]}, {"b"}),
        ({"grants": [{"role": "viewer"}, {"role": "viewer", "groups": ["b"]}]}, {"b"}),
        ({"role": "viewer", "subjects": ["x"], "groups": ["*"]}, set()),
    ],
)
def test_groups_are_for_those_whose_grant_lists_them_and_operators_of_all(
    entry: dict[str, Any], used: set[str]
) -> None:
    """A viewer who commits moves the members of a group, who are others as well."""
    caller = parse_users({"anonymous": entry}, REALM).anonymous
    assert caller is not None
    assert {each for each in ("a", "b") if caller.may_use_group(each)} == used


def test_patterns_have_exceptions() -> None:
    entry = {"role": "operator", "connectors": ["*", "!secret-*"], "groups": ["*", "!g"]}
    caller = parse_users({"anonymous": entry}, REALM).anonymous
    assert caller is not None
    assert [name for name in ("a", "secret-a", "!secret-a") if caller.may(Access.VIEW, name)] == [
        "a",
        "!secret-a",
    ]
    assert not caller.may(Access.VIEW, None)  # the worker itself would show all of them
    assert [name for name in ("f", "g") if caller.may_use_group(name)] == ["f"]


def test_every_server_has_its_things_in_the_shared_file() -> None:
    from klamm.console.server import REALM as CONSOLE
    from klamm.lag.server import REALM as LAG
    from klamm.registry.config import REALM as REGISTRY
    from klamm.restproxy.config import REALM as PROXY

    assert {each.things for each in (REALM, CONSOLE, LAG, REGISTRY, PROXY)} == THINGS


@pytest.mark.parametrize(("data", "message"), BAD_FILES)
def test_a_wrong_users_file_says_what_is_wrong(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_users(data, REALM)


def test_passwords_are_checked() -> None:
    stored = hash_password("pä\x00ss")
    assert verify("pä\x00ss", stored)
    assert not verify("pass", stored)
    assert hash_password("x") != hash_password("x")


names = st.text("ab-", min_size=1, max_size=6)
patterns = st.text("ab-*?", min_size=1, max_size=4)


@given(role=st.sampled_from(Role), pattern=patterns, name=names)
def test_a_higher_role_may_what_a_lower_one_may(role: Role, pattern: str, name: str) -> None:
    caller = Caller(name="x", grants=(Grant(role=role, names=(pattern,)),))
    may = [caller.may(access, name) for access in (Access.VIEW, Access.OPERATE, Access.ADMINISTER)]
    assert may == sorted(may, reverse=True)
    assert any(may) == Grant(role=role, names=(pattern,)).covers(name)
    if caller.may(Access.VIEW, None):
        assert pattern == "*"


def test_origins_are_literal_or_expressions() -> None:
    cors = Cors("https://a.example,https://.*\\.b\\.example", "")
    assert cors.allows("https://a.example")
    assert cors.allows("https://x.b.example")
    assert not cors.allows("https://aXexample")
    assert not cors.allows("https://a.example.evil")
    assert Cors("*", "").allows("http://anything")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("put X: 1", "does not begin with one of set, add, setDate, addDate"),
        ("set X", "does not have the form ACTION NAME: VALUE"),
        ("setDate X: soon", "needs a number of milliseconds"),
    ],
)
def test_wrong_header_rules(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rules(text)


async def test_what_a_password_is_definitions_say_and_else_names() -> None:
    redaction = Redaction(cast("Any", None), enabled=True)
    config = {
        "connector.class": "X", "pin": "1234", "token.bucket": "7", "my.secret": "s", "ref": "${env:A}",
        "half": "x${env:A}", "transforms": "t", "transforms.t.type": "T", "transforms.t.salt": "pepper",
    }  # fmt: skip
    typed = {
        "pin": "PASSWORD",
        "token.bucket": "INT",
        "ref": "PASSWORD",
        "half": "PASSWORD",
        "transforms.t.salt": "PASSWORD",
    }
    redaction.learn(config, [{"definition": {"name": k, "type": t}} for k, t in typed.items()])
    shown = await redaction.hide(config)
    assert {k for k, v in shown.items() if v == "[hidden]"} == {
        "pin",
        "my.secret",
        "half",
        "transforms.t.salt",
    }
    assert unhide(shown | {"token.bucket": "8"}, config) == config | {"token.bucket": "8"}
    assert await Redaction(cast("Any", None), enabled=False).hide(config) == config
    address = {"connector.class": "X", "connection.url": "jdbc:mysql://h/db?user=u&password=s3cret"}
    shown = await redaction.hide(address)
    assert shown["connection.url"] == "jdbc:mysql://h/db?user=u&password=[hidden]"
    assert unhide(shown, address) == address, "sent back as it was shown"
    moved = {"connection.url": shown["connection.url"].replace("//h", "//other")}
    with pytest.raises(BadRequest, match=r"connection.url has .hidden. in place of a password"):
        unhide(moved, address)


@pytest.mark.parametrize("kind", ["timeout", "exit", "config"])
async def test_of_a_plugin_that_does_not_say_everything_is_hidden(kind: str) -> None:
    """Names decide for a plugin that is not installed (config): it runs nowhere."""
    asked: list[str] = []

    class Children:
        async def call(self, method: str, params: dict[str, str], *, timeout_s: float) -> Any:
            asked.append(params["plugin"])
            assert (method, timeout_s) == ("plugin_config", 2.0)
            raise PluginCallError("The plugin did not answer", kind=kind)

    redaction = Redaction(cast("Any", Children()), enabled=True)
    config = {
        "connector.class": "Hangs", "topics": "t", "errors.tolerance": "all", "dsn": "ann:pw@h", "db.password": "s3cret",
        "topic.creation.default.partitions": "1", "ref": "${env:A}", "transforms": "x", "transforms.x.type": "Y",
        "transforms.x.salt": "pepper",
    }  # fmt: skip
    shown = await asyncio.gather(*(redaction.hide(config) for _ in range(3)))
    assert shown == [shown[0]] * 3
    hidden = {key for key, value in shown[0].items() if value == "[hidden]"}
    assert hidden == {"db.password"} | (set() if kind == "config" else {"dsn", "transforms.x.salt"})
    assert await redaction.hide(config) == shown[0]
    assert asked == ["Hangs", "Y"]
    assert unhide(shown[0], config) == config
