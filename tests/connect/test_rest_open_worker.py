"""A worker on an address other than loopback that asks nobody for credentials: it warns, and keeps foreign code out."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.connect_worker import WorkerProcess, worker_properties
from support.klamm import klamm
from support.wheels import make_index

from klamm.connect.config import WorkerConfig
from klamm.connect.rest.server import RestServer

FILE = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": "t"}
SPARK = {
    "connector.class": "SparkSink",
    "topics": "t",
    "output.format": "parquet",
    "output.options.path": "/nowhere",
}
PYTHON_PATH = "support.runtime_plugins.NumbersSource"
WARNING = "asks nobody for credentials: whoever reaches it"


def properties(bootstrap: str, listeners: str, **more: str) -> dict[str, str]:
    more = {"listeners": listeners, **more}
    return worker_properties(bootstrap, f"open-{uuid.uuid4().hex[:8]}", **more)


class OpenWorker(WorkerProcess):
    host = "0.0.0.0"


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp("open")
    more = {
        "rest.advertised.host.name": "localhost",  # as the system's own name may be
        "plugins.directory": str(directory / "plugins"),
    }
    found = OpenWorker(properties(bootstrap, "http://0.0.0.0:0", **more), directory)
    found.wait_ready()
    yield found
    found.end()


def test_the_log_warns_of_the_bound_address(worker: WorkerProcess) -> None:
    said = [line for line in worker.log.splitlines() if WARNING in line]
    assert len(said) == 1
    assert re.search(rf"WARNING.*REST listens on http://0\.0\.0\.0:{worker.port}, ", said[0])
    assert "rest.auth.file" in said[0]


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("POST", "/connector-plugins", {"package": "evil"}, "Plugin packages are neither installed nor removed here"),
        ("DELETE", "/connector-plugins/acme", None, "Plugin packages are neither installed nor removed here"),
        ("GET", f"/connector-plugins/{PYTHON_PATH}/config", None, f"{PYTHON_PATH} is no plugin that GET "),
        ("PUT", f"/connector-plugins/{PYTHON_PATH}/config/validate", FILE, f"{PYTHON_PATH} is no plugin that GET "),
        (
            "PUT", "/connector-plugins/FileStreamSource/config/validate", FILE | {"connector.class": "os.path"},
            "connector.class=os.path is no plugin",
        ),
        (
            "POST", "/connectors", {"name": "x", "config": FILE | {"connector.class": PYTHON_PATH}},
            f"connector.class={PYTHON_PATH} is no plugin",
        ),
        ("PUT", "/connectors/x/config", FILE | {"key.converter": "a.B"}, "key.converter=a.B is no plugin"),
        ("PUT", "/connectors/x/config", FILE | {"header.converter": "a.B"}, "header.converter=a.B is no plugin"),
        (
            "PUT", "/connectors/x/config", FILE | {"transforms": "t", "transforms.t.type": "a:B"},
            "transforms.t.type=a:B is no plugin",
        ),
        ("PUT", "/connectors/x/config", FILE | {"predicates.p.type": "a.B"}, "predicates.p.type=a.B is no plugin"),
        ("PATCH", "/connectors/x/config", {"value.converter": "a.B"}, "value.converter=a.B is no plugin"),
        ("PATCH", "/connectors/x/config", {"query.function": "a:b"}, "query.function may name code to run"),
        ("PATCH", "/connectors/x/config", {"query.sql": "SELECT java_method('a', 'b')"}, "query.sql may name code to run"),
        ("PATCH", "/connectors/x/config", {"query.view.v": "SELECT 1"}, "query.view.v may name code to run"),
        ("PATCH", "/connectors/x/config", {"query.options": "{}"}, "query.options may name code to run"),
        ("PATCH", "/connectors/x/config", {"spark.a\nb": "c"}, "spark.a\nb may name code to run"),
        ("PATCH", "/connectors/x/config", {"transforms.t.type": "os.path"}, "transforms.t.type=os.path is no plugin"),
        ("PATCH", "/connectors/x/config", {"plugin": "FileStreamSource", "key.converter": "a.B"}, "key.converter=a.B is no plugin"),
        (
            "PUT", "/connectors/x/config", FILE | {"transforms": "a\nb", "transforms.a\nb.type": "os.path"},
            "transforms.a\nb.type=os.path is no plugin",
        ),
        ("PUT", "/connectors/x/config", FILE | {"predicates.a\nb.type": "os.path"}, "predicates.a\nb.type=os.path is no plugin"),
        ("PATCH", "/connectors/x/config", {"spark.jars": "http://e/x.jar"}, "spark.jars may name code to run"),
        ("PUT", "/connectors/x/config", SPARK | {"output.format": "a.B"}, "output.format=a.B may name a Java class"),
        ("PUT", "/connectors/x/config", SPARK | {"output.options.fs.x.impl": "a.B"}, "output.options.fs.x.impl may name a Java class"),
        (
            "PATCH", "/connectors/x/config", {"output.options.kafka.PLUGIN.LIBRARY.PATHS": "/nowhere/evil.so"},
            "output.options.kafka.PLUGIN.LIBRARY.PATHS may load native code",
        ),
        (
            "PATCH", "/connectors/x/config", {"source.connector": "spark"},
            "source.connector=spark may run Java classes that its client's settings name",
        ),
        (
            "POST", "/connectors/x/dry-run",
            {"config": FILE | {"key.converter": "a.B"}, "records": [{"value": 1}]}, "key.converter=a.B is no plugin",
        ),
    ],
)  # fmt: skip
def test_foreign_code_is_refused(
    worker: WorkerProcess, method: str, path: str, body: dict[str, Any] | None, why: str
) -> None:
    answer = worker.request(method, path, body)
    assert answer.status == 403, answer.body
    assert answer.message.startswith(why)
    assert f"the worker listens on http://0.0.0.0:{worker.port} and asks nobody" in answer.message
    assert "set rest.auth.file" in answer.message


def test_a_patch_is_judged_with_what_it_changes(bootstrap: str, tmp_path: Path) -> None:
    """Spark's own connector takes a client's classes from settings that are harmless for ours."""
    same = properties(bootstrap, "http://127.0.0.1:0")
    before = WorkerProcess(same, tmp_path)
    before.wait_ready()
    body = {"name": "legacy", "config": SPARK | {"source.connector": "spark"}, "initial_state": "STOPPED"}
    made = before.request("POST", "/connectors", body)
    assert made.status == 201, made.body
    before.end()

    worker = OpenWorker(same | {"listeners": "http://0.0.0.0:0"}, tmp_path)
    try:
        worker.wait_ready()
        answer = worker.request("PATCH", "/connectors/legacy/config", {"consumer.override.client.id": "x"})
        assert answer.status == 403, answer.body
        assert answer.message.startswith("source.connector=spark may run Java classes")
        assert worker.request("PUT", "/connectors/legacy/pause").status == 202
    finally:
        worker.end()


def test_installed_plugins_are_used_as_ever(worker: WorkerProcess) -> None:
    config = FILE | {
        "name": "files",
        "transforms": "t",
        "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.t.static.field": "a",
        "transforms.t.static.value": "b",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter": "StringConverter",
        "header.converter": "SimpleHeaderConverter",
        "transforms.t.target.type": "Timestamp",  # no plugin, but a transform's own setting
    }
    answer = worker.request("PUT", "/connector-plugins/FileStreamSource/config/validate", config)
    assert (answer.status, answer.json["error_count"]) == (200, 0), answer.body
    assert worker.request("GET", "/connector-plugins/FileStreamSource/config").status == 200
    body = {"name": "files", "config": config, "initial_state": "STOPPED"}
    assert worker.request("POST", "/connectors", body).status == 201
    assert worker.request("PATCH", "/connectors/files/config", {"file": "/elsewhere"}).status == 200
    assert worker.request("DELETE", "/connectors/files").status == 204


@pytest.mark.parametrize("name", ["plugin.library.paths", "ssl.engine.location", "ssl.providers"])
@pytest.mark.parametrize(
    "prefix",
    ["", "source.cluster.", "target.cluster.producer.", "producer.", "consumer.", "admin.", "admin.override.",
     "producer.override.", "consumer.override.", "transforms.t."],
)  # fmt: skip
def test_no_client_of_a_connector_loads_native_code(worker: WorkerProcess, prefix: str, name: str) -> None:
    key = prefix + name
    config = FILE | {"name": "native", key: "/nowhere/evil.so"}
    for method, path, body in (
        ("PUT", "/connector-plugins/FileStreamSource/config/validate", config),
        ("POST", "/connectors", {"name": "native", "config": config}),
        ("PUT", "/connectors/native/config", config),
        ("PATCH", "/connectors/native/config", {key: "/nowhere/evil.so"}),
    ):
        answer = worker.request(method, path, body)
        assert answer.status == 403, answer.body
        assert answer.message.startswith(f"{key} may load native code, and is refused: the worker listens on")


def test_a_newly_installed_plugin_is_used_at_once(worker: WorkerProcess, tmp_path: Path) -> None:
    index = make_index(tmp_path / "index")
    config = {"connector.class": "acme_old.OldConnector", "file": str(tmp_path / "out")}
    body = {"name": "acme", "config": config, "initial_state": "STOPPED"}
    assert worker.request("POST", "/connectors", body).status == 403
    where = ("-d", worker._properties["plugins.directory"], "--find-links", str(index), "--offline")
    done = klamm("plugins", "install", "acme-old", *where)
    assert done.returncode == 0, done.stderr
    assert worker.request("POST", "/connectors", body).status == 201
    assert worker.request("DELETE", "/connectors/acme").status == 204


INTERNAL = [
    ("POST", "/connectors/x/tasks", [{"query.function": "a:b"}]),
    ("PUT", "/connectors/x/fence", None),
    ("GET", "/internal/tasks", None),
    ("GET", "/internal/plugins", None),
]


@pytest.fixture(scope="module")
def unsigned(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    more = {"rest.advertised.host.name": "localhost", "connect.protocol": "compatible"}
    found = OpenWorker(properties(bootstrap, "http://0.0.0.0:0", **more), tmp_path_factory.mktemp("unsigned"))
    found.wait_ready()
    yield found
    found.end()


@pytest.mark.parametrize(("method", "path", "body"), INTERNAL)
def test_internal_requests_that_nobody_signs_are_refused(
    unsigned: WorkerProcess, method: str, path: str, body: Any
) -> None:
    answer = unsigned.request(method, path, body)
    assert answer.status == 403, answer.body
    assert answer.message.startswith(
        "Internal requests are not answered here, because the workers of this group"
    )
    assert "connect.protocol=sessioned" in answer.message


@pytest.mark.parametrize(("method", "path", "body"), INTERNAL)
def test_a_worker_whose_group_signs_asks_for_the_signature(
    worker: WorkerProcess, method: str, path: str, body: Any
) -> None:
    answer = worker.request(method, path, body)
    assert answer.status in {400, 403}, answer.body
    assert not answer.message.startswith("Internal requests are not answered")


@pytest.mark.parametrize("listeners", ["http://127.0.0.1:0", "http://localhost:0", "http://[::1]:0"])
async def test_a_worker_on_loopback_is_not_open(listeners: str) -> None:
    assert await open_address(properties("b:1", listeners)) is None


async def test_who_asks_for_credentials_is_not_open(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('[anonymous]\nrole = "admin"\n')
    assert await open_address(properties("b:1", "http://0.0.0.0:0", **{"rest.auth.file": str(users)})) is None
    found = await open_address(properties("b:1", "http://127.0.0.1:0,http://0.0.0.0:0"))
    assert found is not None
    assert found.startswith("http://0.0.0.0:")


async def test_the_printed_address_is_the_advertised_one_where_others_reach_it() -> None:
    more = {"rest.advertised.host.name": "connect", "rest.advertised.port": "8083"}
    for config, printed in (
        (properties("b:1", "http://0.0.0.0:0", **more), "http://connect:8083"),
        (properties("b:1", "http://127.0.0.1:0", **more), "http://connect:8083"),
        (properties("b:1", "http://0.0.0.0:0", **more | {"rest.advertised.host.name": "localhost"}), "http://0.0.0.0:"),
        (properties("b:1", "http://localhost:0"), "http://localhost:"),
    ):  # fmt: skip
        rest = RestServer(WorkerConfig.from_properties(config))
        rest.bind()
        try:
            assert str(rest.printed).startswith(printed)
        finally:
            rest.close()


async def open_address(config: dict[str, str]) -> str | None:
    rest = RestServer(WorkerConfig.from_properties(config))
    rest.bind()
    try:
        return rest.open_address
    finally:
        rest.close()
