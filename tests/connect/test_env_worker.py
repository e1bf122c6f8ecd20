"""A worker with plugin packages: installed while it runs, versions side by side, on every worker of its group."""

from __future__ import annotations

import base64
import shutil
import uuid
from pathlib import Path

import pytest
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.klamm import klamm
from support.wheels import make_index, make_plugin, make_wheel

from klamm.environments.users import connectors_in

R = "RUNNING"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("index"))


def start(bootstrap, directory, index, group=None, **more) -> WorkerProcess:
    directory.mkdir(exist_ok=True)
    properties = worker_properties(
        bootstrap,
        group or f"env-{uuid.uuid4().hex[:8]}",
        **{
            "plugins.directory": str(directory / "plugins"),
            "plugins.find.links": str(index),
            "plugins.offline": "true",
            **more,
        },
    )
    return WorkerProcess(properties, directory)


@pytest.fixture(scope="module")
def worker(bootstrap, index, tmp_path_factory):
    """Yields a worker with acme-old and acme-new 2.0, which need different versions of acme-lib."""
    worker = start(bootstrap, tmp_path_factory.mktemp("worker") / "w", index)
    try:
        worker.wait_ready()
        for name in ("acme-old", "acme-new"):
            answer = worker.request("POST", "/connector-plugins", {"package": name})
            assert answer.status == 201, answer.json
            assert answer.json["state"] == "ready"
        yield worker
    finally:
        worker.end()


def make(worker, name, out: Path, kind: str, *states: str, **config: str) -> None:
    answer = worker.create(name, connector__class=f"{kind}Connector", file=str(out), **config)
    assert answer.status == 201, answer.json
    worker.wait_state(name, *(states or (R, R)))


def test_two_plugins_with_different_versions_of_a_library_run_at_once(worker, tmp_path):
    make(worker, "old", tmp_path / "old", "Old")
    make(worker, "new", tmp_path / "new", "New")
    assert (tmp_path / "old").read_text() == "Old 1.0 with lib 1.0"
    assert (tmp_path / "new").read_text() == "New 2.0 with lib 2.0"
    rows = {(r["class"], r["version"]) for r in worker.get("/connector-plugins")}
    assert {("acme_old.OldConnector", "1.0"), ("acme_new.NewConnector", "2.0")} <= rows
    states = [worker.state(name) for name in ("old", "new")]
    assert states == [[R, R], [R, R]]
    used = worker.request("DELETE", "/connector-plugins/acme-old")
    assert (used.status, used.message) == (409, "Plugin package acme-old==1.0 is used by old")
    for where in (
        ["--url", f"http://127.0.0.1:{worker.port}"],
        ["-d", worker._properties["plugins.directory"]],
    ):
        refused = klamm("plugins", "remove", "acme-old", *where)
        said = f"klamm: {used.message} (--force removes it all the same)\n"
        assert (refused.returncode, refused.stderr) == (1, said)
    assert worker.request("PUT", "/connectors/old/stop").status == 204
    assert_not_removed(worker, "old")
    for name in ("old", "new"):
        assert worker.request("DELETE", f"/connectors/{name}").status == 204


def assert_not_removed(worker, connector: str) -> None:
    """Checks that a stopped connector has no process after a moment, and its package stays all the same."""
    directory = Path(worker._properties["plugins.directory"])
    wait_for(lambda: not any(connector in connectors_in(e) for e in (directory / "environments").iterdir()))
    used = worker.request("DELETE", "/connector-plugins/acme-old")
    assert (used.status, used.message) == (409, f"Plugin package acme-old==1.0 is used by {connector}")
    refused = klamm("plugins", "remove", "acme-old", "-d", str(directory))
    assert (refused.returncode, refused.stderr) == (
        1,
        f"klamm: {used.message} (--force removes it all the same)\n",
    )


def test_plugins_that_cannot_be_together_are_a_validation_error(worker, tmp_path):
    config = {
        "connector.class": "OldConnector",
        "name": "both",
        "file": str(tmp_path / "both"),
        "value.converter": "acme_new.NewConverter",
    }
    answer = worker.request("PUT", "/connector-plugins/OldConnector/config/validate", config)
    assert answer.status == 400
    assert answer.message.startswith(
        "The packages acme-new==2.0, acme-old==1.0, whose plugins the configuration names, cannot be used together: "
    )
    assert "acme-old 1.0 depends on acme-lib<2" in answer.message


def test_a_version_that_is_not_there_is_kafkas_error_beside_both_keys(worker):
    """Kafka 4.3.1 answers the same; to POST it answers 500 with a null pointer."""
    why = "Plugin acme_new.NewConnector not found that matches the version range [3.0,), available versions: [2.0]"
    config = {
        "name": "x", "connector.class": "NewConnector", "file": "f", "connector.plugin.version": "[3.0,)",
    }  # fmt: skip
    path = "/connector-plugins/NewConnector/config"
    answer = worker.request("PUT", f"{path}/validate", config)
    errors = {
        r["value"]["name"]: r["value"]["errors"] for r in answer.json["configs"] if r["value"]["errors"]
    }
    assert (answer.status, answer.json["error_count"]) == (200, 2)
    assert errors == {"connector.class": [why], "connector.plugin.version": [why]}
    posted = worker.request("POST", "/connectors", {"name": "x", "config": config})
    assert (posted.status, why in posted.message) == (400, True)
    assert worker.request("GET", f"{path}?version=%5B3.0,)").message == why
    assert worker.request("GET", f"{path}?version=%5B3").status == 400
    keys = {row["name"] for row in worker.get(f"{path}?version=2.0")}
    assert {"file", "connector.plugin.version"} <= keys


def test_a_converters_version_is_checked_beside_both_keys(worker):
    config = {
        "name": "x", "connector.class": "NewConnector", "file": "f", "key.converter": "NewConverter",
        "key.converter.plugin.version": "1.0",
        "transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.t.field": "f", "transforms.t.plugin.version": "99",
    }  # fmt: skip
    answer = worker.request("PUT", "/connector-plugins/NewConnector/config/validate", config)
    errors = {
        r["value"]["name"]: r["value"]["errors"] for r in answer.json["configs"] if r["value"]["errors"]
    }
    assert set(errors) == {
        "key.converter", "key.converter.plugin.version", "transforms.t.type", "transforms.t.plugin.version",
    }  # fmt: skip
    assert errors["key.converter"] == [
        "Plugin acme_new.NewConverter not found that matches the version range [1.0,1.0], available versions: [2.0]"
    ]


def test_a_broken_package_shows_its_traceback_and_disturbs_nobody(worker, tmp_path):
    make(worker, "before", tmp_path / "before", "Old")
    pid_rows = worker.get("/connectors/before/status")["tasks"]
    answer = worker.request("POST", "/connector-plugins", {"package": "acme-broken"})
    assert (answer.status, answer.json["state"], answer.json["plugins"]) == (201, "broken", [])
    packages = {p["name"]: p for p in worker.get("/connector-plugins/packages")}
    (broken,) = packages["acme-broken"]["broken"]
    assert broken["error"] == "ModuleNotFoundError: No module named 'no_such_library'"
    assert "import no_such_library" in broken["trace"]
    assert packages["acme-old"]["state"] == "ready"
    assert worker.get("/connectors/before/status")["tasks"][0]["state"] == pid_rows[0]["state"] == R
    make(worker, "after", tmp_path / "after", "New")
    assert worker.request("DELETE", "/connector-plugins/acme-broken").status == 200
    for name in ("before", "after"):
        worker.request("DELETE", f"/connectors/{name}")


BAD = [
    ({"pakage": "a"}, "Unknown field pakage; there are package, or file and wheel"),
    ({"package": "acme nowhere"}, "'nowhere' is no version specifier"),
    ({"package": "/nowhere"}, "/nowhere is neither a folder with a Python project nor a wheel (.whl)"),
    ({"package": "~nobody-of-this-name/x.whl"}, "x.whl is neither a folder"),
]


@pytest.mark.parametrize(("body", "said"), BAD)
def test_what_cannot_be_installed_is_400_with_a_sentence(worker, body, said):
    answer = worker.request("POST", "/connector-plugins", body)
    assert (answer.status, said in answer.message) == (400, True), answer.json


def test_what_is_not_there_cannot_be_removed(worker):
    answer = worker.request("DELETE", "/connector-plugins/acme-none")
    assert (answer.status, answer.message) == (404, "There is no plugin package acme-none here")
    answer = worker.request("DELETE", "/connector-plugins/acme-new?version=7")
    assert (answer.status, "there is 2.0" in answer.message) == (404, True)


def test_versions_side_by_side_on_one_worker(worker, tmp_path):
    assert worker.request("POST", "/connector-plugins", {"package": "acme-new==1.0"}).status == 201
    try:
        make(worker, "newest", tmp_path / "newest", "New")
        make(worker, "pinned", tmp_path / "pinned", "New", connector__plugin__version="[1.0,2.0)")
        assert (tmp_path / "newest").read_text().startswith("New 2.0")
        assert (tmp_path / "pinned").read_text().startswith("New 1.0")
        status = worker.get("/connectors/pinned/status")
        assert (status["connector"]["version"], status["tasks"][0]["version"]) == ("1.0", "1.0")
        rows = [
            r["version"] for r in worker.get("/connector-plugins") if r["class"] == "acme_new.NewConnector"
        ]
        assert sorted(rows) == ["1.0", "2.0"]
        both = worker.request("DELETE", "/connector-plugins/acme-new")
        assert (both.status, "1.0, 2.0; say which one" in both.message) == (400, True)
    finally:
        for name in ("newest", "pinned"):
            worker.request("DELETE", f"/connectors/{name}")
        wait_for(lambda: worker.get("/connectors") == [])
        gone = worker.request("DELETE", "/connector-plugins/acme-new?version=1.0")
    assert gone.json["version"] == "1.0"


def test_a_connector_and_a_converter_of_two_packages_share_an_environment(worker, tmp_path):
    """acme-any takes either library; with acme-old it gets the one that acme-old needs."""
    assert worker.request("POST", "/connector-plugins", {"package": "acme-any"}).status == 201
    make(worker, "mixed", tmp_path / "mixed", "Any", value__converter="acme_old.OldConverter")
    assert (tmp_path / "mixed").read_text() == "Any 1.0 with lib 1.0"
    make(worker, "alone", tmp_path / "alone", "Any")
    assert (tmp_path / "alone").read_text() == "Any 1.0 with lib 2.0"
    for name in ("mixed", "alone"):
        worker.request("DELETE", f"/connectors/{name}")


def test_an_uploaded_wheel_is_built_by_every_worker_of_the_group_and_removed_from_all(
    bootstrap, index, tmp_path
):
    group = f"env-{uuid.uuid4().hex[:8]}"
    empty = tmp_path / "empty"
    empty.mkdir()
    first = start(bootstrap, tmp_path / "first", index, group)
    second = start(bootstrap, tmp_path / "second", index, group)
    late = None
    try:
        first.wait_ready()
        second.wait_ready()
        wheel = make_plugin(tmp_path / "own", "team", "1.0", "acme-lib>=2")
        body = {"file": wheel.name, "wheel": base64.b64encode(wheel.read_bytes()).decode()}
        answer = first.request("POST", "/connector-plugins", body)
        assert answer.status == 201, answer.json

        def packages(worker):
            return {p["name"]: p for p in worker.get("/connector-plugins/packages")}

        def state(worker):
            return packages(worker).get("acme-team", {}).get("state")

        # All have it when the answer comes.
        assert [each["state"] for each in answer.json["workers"]] == ["ready", "ready"]
        urls = {f"http://127.0.0.1:{each.port}" for each in (first, second)}
        assert {each["worker"].rstrip("/") for each in answer.json["workers"]} == urls
        assert [state(each) for each in (first, second)] == ["ready", "ready"]
        assert packages(second)["acme-team"] == packages(first)["acme-team"]
        # One that comes later has it, too; without an index: the config topic has all wheels that came from files.
        late = start(bootstrap, tmp_path / "late", empty, group)
        late.wait_ready()
        wait_for(lambda: state(late) == "ready", lambda: late.log, 60)
        make(second, "team", tmp_path / "out", "Team")
        assert (tmp_path / "out").read_text() == "Team 1.0 with lib 2.0"
        first.request("DELETE", "/connectors/team")
        assert first.request("DELETE", "/connector-plugins/acme-team").status == 200
        for worker in (first, second, late):
            wait_for(lambda worker=worker: packages(worker) == {}, lambda worker=worker: worker.log)
    finally:
        for worker in (first, second, late):
            if worker is not None:
                worker.end()


def test_a_worker_that_has_lost_its_disk_builds_the_groups_packages_and_goes_on(bootstrap, index, tmp_path):
    group, out = f"env-{uuid.uuid4().hex[:8]}", tmp_path / "out"
    worker = start(bootstrap, tmp_path / "w", index, group)
    try:
        worker.wait_ready()
        assert worker.request("POST", "/connector-plugins", {"package": "acme-old"}).status == 201
        make(worker, "old", out, "Old")
        assert worker.stop() == 0
        shutil.rmtree(tmp_path / "w/plugins")
        out.unlink()
        worker = start(bootstrap, tmp_path / "w", index, group)
        worker.wait_ready()
        worker.wait_state("old", R, R)
        assert out.read_text() == "Old 1.0 with lib 1.0"
    finally:
        worker.end()


def test_a_package_that_cannot_be_built_here_says_why_and_is_tried_again(bootstrap, index, tmp_path):
    """The operator's command installs on this machine, and the worker has it at once."""
    worker = start(bootstrap, tmp_path / "w", index)
    try:
        worker.wait_ready()
        directory = tmp_path / "w/plugins"
        done = klamm(
            "plugins", "install", "acme-old", "-d", str(directory), "--find-links", str(index), "--offline"
        )
        assert done.returncode == 0, done.stderr
        make(worker, "old", tmp_path / "old", "Old")
        assert klamm("plugins", "list", "-d", str(directory), "-o", "jsonl").stdout.count("\n") == 1
        shown = klamm("plugins", "list", "--url", f"http://127.0.0.1:{worker.port}", "-o", "wide")
        assert "acme-lib==1.0,acme-old==1.0" in shown.stdout
        # Away for a moment: what fails for that comes back with it.
        assert klamm("plugins", "remove", "acme-old", "--force", "-d", str(directory)).returncode == 0
        worker.request("POST", "/connectors/old/restart?includeTasks=true")
        worker.wait_state("old", "FAILED", "FAILED")
        again = klamm(
            "plugins", "install", "acme-old", "-d", str(directory), "--find-links", str(index), "--offline"
        )
        assert again.returncode == 0, again.stderr
        worker.wait_state("old", R, R)
        # A connector that names the newest runs with the older one until it is restarted.
        assert worker.request("POST", "/connector-plugins", {"package": "acme-new==1.0"}).status == 201
        make(worker, "running", tmp_path / "running", "New")
        assert worker.request("POST", "/connector-plugins", {"package": "acme-new==2.0"}).status == 201
        refused = worker.request("DELETE", "/connector-plugins/acme-new?version=1.0")
        assert (refused.status, refused.message) == (409, "Plugin package acme-new==1.0 is used by running")
        unknown = worker.create("x", connector__class="OldConectorr")
        assert "; did you mean OldConnector?" in unknown.message
    finally:
        worker.end()


def test_a_worker_starts_beside_a_package_that_kills_whoever_imports_it(bootstrap, index, tmp_path):
    links = tmp_path / "links"
    make_wheel(
        links, "acme-deadly", "1", {"acme_deadly.py": "import os; os._exit(9)"},
        entry_points={"d": "acme_deadly"},
    )  # fmt: skip
    worker = start(bootstrap, tmp_path / "w", links)
    try:
        worker.wait_ready()
        answer = worker.request("POST", "/connector-plugins", {"package": "acme-deadly"})
        assert (answer.status, answer.json["state"]) == (201, "broken")
        assert answer.json["broken"][0]["error"] == "It cannot be inspected: the process exited with code 9"
        assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in [
            r["class"] for r in worker.get("/connector-plugins")
        ]
    finally:
        worker.end()
