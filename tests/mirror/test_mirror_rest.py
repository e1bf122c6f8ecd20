"""REST of dedicated mode: the connectors of all flows, the status of the mirror, and who may do what."""

from __future__ import annotations

import base64
import json
import os
import signal
import urllib.error
import urllib.request
from typing import Any

import jsonschema
import pytest
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import mirror_file, produce, read_all, status

from klamm.mirror.rest import FLOW_ENDPOINTS
from klamm.web.passwords import hash_password
from klamm_base.properties import Properties
from klamm_mirror.settings.mm2_config import parse

REST = {"dedicated.mode.enable.internal.rest": "true", "listeners": "http://127.0.0.1:0"}
AB = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}


class Rest:
    """A client of one address, with a login or without."""

    def __init__(self, url: str, login: str | None = None) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"}
        if login is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            self._url + path, data, method=method, headers=self._headers if data else {**self._headers}
        )
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, _body(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, _body(e.read())


def _body(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode()


@pytest.mark.usefixtures("processes")
def test_the_connectors_of_all_flows(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    produce(source.bootstrap, topic, [str(i) for i in range(50)])
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, **REST}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        url = server.ready["rest"]
        ask = Rest(url)
        there, back = f"{a}->{b}", f"{b}->{a}"
        assert ask("GET", "/flows") == (200, [there, back])
        assert ask("GET", "/")[1]["flows"] == [there, back]
        assert ask("GET", "/health")[0] == 200
        code, connectors = ask("GET", f"/flows/{there}/connectors")
        assert code == 200
        assert set(connectors) == {
            "MirrorSourceConnector",
            "MirrorCheckpointConnector",
            "MirrorHeartbeatConnector",
        }
        assert ask("GET", f"/flows/{back}/connectors/")[1] == ["MirrorHeartbeatConnector"]
        connector = f"/flows/{there}/connectors/MirrorSourceConnector"
        assert ask("GET", f"{connector}/status")[1]["connector"]["state"] == "RUNNING"
        assert "expand" not in ask("GET", f"/flows/{there}/connectors?expand=status")[1]

        # what the file decides has no path here
        assert ask("POST", f"/flows/{there}/connectors", {"name": "x", "config": {}})[0] == 405
        assert ask("PUT", f"{connector}/config", {})[0] == 405
        assert ask("DELETE", connector)[0] == 405
        assert ask("GET", "/flows/x->y/connectors")[0] == 404
        assert ask("GET", "/connectors")[0] == 404

        # Connect's way to change offsets
        wait_until(lambda: ask("GET", f"{connector}/offsets")[1]["offsets"], "an offset")
        assert ask("PUT", f"{connector}/stop")[0] == 204
        wait_until(lambda: ask("GET", f"/flows/{there}")[1]["state"] == "STOPPED", "the stop")
        where = {"cluster": a, "topic": topic, "partition": 0}
        offsets = {"offsets": [{"partition": where, "offset": {"offset": 39}}]}
        assert ask("PATCH", f"{connector}/offsets", offsets)[0] == 200
        assert ask("PUT", f"{connector}/resume")[0] == 202
        found = read_all(target.bootstrap, f"{a}.{topic}", lambda values: len(values) >= 60)
        assert found == [str(i) for i in (*range(50), *range(40, 50))]

        # the same as the command says, and as the document describes
        code, said = ask("GET", "/status")
        assert code == 200
        document = ask("GET", "/openapi.json")[1]
        schemas = {"components": document["components"]}
        jsonschema.validate(said, {"$ref": "#/components/schemas/MirrorStatus", **schemas})
        assert {flow["flow"] for flow in said["flows"]} == {there, back}
        shown = klamm("mirror", "status", "--url", url, "-o", "json")
        assert [f["flow"] for f in json.loads(shown.stdout)["flows"]] == [there, back]
        assert f'klamm_mirror_flow_up{{flow="{there}"}} 1' in ask("GET", "/metrics")[1]

        pid = status(path)[there]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: ask("GET", f"{connector}/status")[0] == 503, "the process has gone")
        wait_until(lambda: ask("GET", f"{connector}/status")[0] == 200, "it is back")
        assert server.stop() == 0


@pytest.mark.usefixtures("processes")
def test_logins_and_roles_are_those_of_a_worker(source, target, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(
        f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "operator"\n'
        f'[users.bob]\npassword = "{hash_password("b")}"\nrole = "viewer"\n'
        f'[users.cid]\npassword = "{hash_password("c")}"\n'
        'grants = [{ role = "operator", connectors = ["MirrorHeartbeat*"] }]\n'
    )
    users.chmod(0o600)
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", "topics": new_topic(source), "rest.auth.file": str(users), **REST}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        url = server.ready["rest"]
        connectors = f"/flows/{a}->{b}/connectors"
        pause = f"{connectors}/MirrorSourceConnector/pause"
        beat = f"{connectors}/MirrorHeartbeatConnector/pause"
        for who, seen, paused, beats in (
            (None, 401, 401, 401),
            ("bob:wrong", 401, 401, 401),
            ("bob:b", 200, 403, 403),
            ("cid:c", 403, 403, 202),
            ("ann:a", 200, 202, 202),
        ):
            ask = Rest(url, who)
            for path_ in ("/status", "/flows", "/metrics", connectors):
                assert ask("GET", path_)[0] == seen, (who, path_)
            assert ask("PUT", pause)[0] == paused, who
            assert ask("PUT", beat)[0] == beats, who
            assert ask("GET", "/health")[0] == 200
        wait_until(lambda: status(path)[f"{a}->{b}"]["state"] == "PAUSED", "the pause")
        shown = klamm("mirror", "status", "--url", url, "--user", "bob:b")
        assert "PAUSED" in shown.stdout
        refused = klamm("mirror", "status", "--url", url)
        assert refused.returncode == 1
        assert "User cannot access the resource" in refused.stderr
        assert server.stop() == 0


@pytest.mark.usefixtures("processes")
def test_a_connector_that_was_stopped_stays_so_and_holds_nobody_up(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", "topics": new_topic(source), **REST}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    stop = f"/flows/{a}->{b}/connectors/MirrorSourceConnector/stop"
    with Server("mirror", "start", str(path)) as server:
        assert Rest(server.ready["rest"])("PUT", stop)[0] == 204
        wait_until(lambda: status(path)[f"{a}->{b}"]["state"] == "STOPPED", "the stop")
        assert server.stop() == 0
    with Server("mirror", "start", str(path)) as server:
        ask = Rest(server.ready["rest"])
        assert status(path)[f"{a}->{b}"]["state"] == "STOPPED"
        assert ask("PUT", stop.replace("/stop", "/resume"))[0] == 202
        wait_until(lambda: status(path)[f"{a}->{b}"]["state"] == "RUNNING", "it runs again")
        assert server.stop() == 0


@pytest.mark.usefixtures("processes")
def test_an_open_address_is_warned_of_and_a_bad_one_is_named(source, target, tmp_path):
    flows = {
        "A->B.enabled": "true", "topics": new_topic(source), "dedicated.mode.enable.internal.rest": "true",
    }  # fmt: skip
    clusters = {"A": source.bootstrap, "B": target.bootstrap}
    path = mirror_file(tmp_path / "mm2.properties", clusters, flows | {"listeners": "here"})
    result = klamm("mirror", "start", str(path))
    assert result.returncode == 2
    assert "mm2.properties:" in result.stderr
    assert "listeners: not a listener" in result.stderr
    mirror_file(path, clusters, flows | {"listeners": "http://0.0.0.0:0"})
    with Server("mirror", "start", str(path)) as server:
        assert server.ready["rest"].startswith("http://0.0.0.0:")
        assert server.stop() == 0
    assert "asks nobody for credentials" in "".join(server.errors)


@pytest.mark.usefixtures("processes")
def test_status_takes_a_file_or_an_address(tmp_path):
    for words in ((), (str(tmp_path / "mm2.properties"), "--url", "http://127.0.0.1:1")):
        result = klamm("mirror", "status", *words)
        assert result.returncode == 2
        assert "one of mm2.properties and --url is expected" in result.stderr


def test_rest_changes_no_configuration():
    changes = {(e.method, e.path) for e in FLOW_ENDPOINTS if e.method != "GET"}
    assert not any(path.endswith("/config") for _, path in changes)
    assert ("POST", "/connectors") not in changes
    assert not any(method == "DELETE" and not path.endswith("/offsets") for method, path in changes)
    assert ("PUT", "/connectors/{connector}/pause") in changes


def test_settings_of_rest_count_where_it_is_switched_on():
    off = parse(AB | {"listeners": "http://:1"}, ())
    assert off.rest is None
    assert off.warnings == (
        "listeners has no effect: REST is off; dedicated.mode.enable.internal.rest=true switches it on",
    )
    settings = {"listeners": "http://:1", "rest.auth.file": "u", "listeners.https.ssl.keystore.location": "k"}
    on = parse(Properties(AB | settings | {"dedicated.mode.enable.internal.rest": "true"}), ())
    assert on.warnings == ()
    assert dict(on.rest or {}) == settings
    assert not any("listeners" in flow.worker for flow in on.flows)
    (warning,) = parse(AB | {"A.listeners": "http://:1"}, ()).warnings
    assert "REST is for all flows" in warning
