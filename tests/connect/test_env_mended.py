"""A plugin beside the worker that is broken says its own error, at once, and heals by itself when it is mended."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.connect_worker import WorkerProcess, wait_for, worker_properties

R, F = "RUNNING", "FAILED"
SOUND = """
from klamm_plugins.connector import SourceConnector, SourceTask
from klamm_plugins.hookspecs import hookimpl


class MendTask(SourceTask):
    def start(self, props):
        pass

    def poll(self):
        self.context.stopping.wait(0.1)


class MendSourceConnector(SourceConnector):
    @classmethod
    def version(cls):
        return "1"

    @classmethod
    def task_class(cls):
        return MendTask

    def start(self, props):
        pass

    def task_configs(self, max_tasks):
        return [{}]


@hookimpl
def register_connectors():
    return [MendSourceConnector]
"""
BROKEN = {
    "SyntaxError": (f"{SOUND}\ndef (\n", "SyntaxError: invalid syntax ({file}, line 34)"),
    "ImportError": (
        f"import no_such_library\n{SOUND}",
        "ModuleNotFoundError: No module named 'no_such_library'",
    ),
}


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Returns the module of a package that is installed in a folder of the worker's path."""
    info = tmp_path / "site/acme_mend-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-mend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[klamm]\nmend = acme_mend\n")
    return tmp_path / "site/acme_mend.py"


def started(bootstrap: str, plugin: Path) -> WorkerProcess:
    properties = worker_properties(bootstrap, f"mend-{uuid.uuid4().hex[:8]}")
    return WorkerProcess(properties, plugin.parents[1], python_path=str(plugin.parent)).wait_ready()


def validate(worker: WorkerProcess, name: str) -> str:
    config = {"connector.class": name, "name": "x", "tasks.max": "1"}
    answer = worker.request("PUT", f"/connector-plugins/{name}/config/validate", config)
    return answer.message if answer.status >= 400 else ""


@pytest.mark.parametrize("kind", BROKEN)
def test_a_plugin_that_breaks_says_why_and_its_connector_heals(
    bootstrap: str, plugin: Path, kind: str
) -> None:
    code, error = BROKEN[kind]
    said = error.format(file=plugin)
    plugin.write_text(SOUND)
    worker = started(bootstrap, plugin)
    try:
        for name in ("MendSource", "acme_mend.MendSourceConnector"):
            assert worker.create(name, connector__class=name).status == 201
            worker.wait_state(name, R, R)
        plugin.write_text(code)
        for name in ("MendSource", "acme_mend.MendSourceConnector"):
            assert said in validate(worker, name)
            worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")
            worker.wait_state(name, F, F)
            status = worker.get(f"/connectors/{name}/status")
            assert all(said in each["trace"] for each in (status["connector"], *status["tasks"]))
        path = "acme_mend.MendSourceConnector cannot be used, because its plugin package mend is broken: "
        assert validate(worker, "acme_mend.MendSourceConnector").endswith(f"{path}{said}")
        plugin.write_text(SOUND)
        for name in ("MendSource", "acme_mend.MendSourceConnector"):
            worker.wait_state(name, R, R)
            assert validate(worker, name) == ""
    finally:
        worker.end()


def test_a_plugin_that_was_broken_before_the_worker_came_heals_too(bootstrap: str, plugin: Path) -> None:
    code, error = BROKEN["SyntaxError"]
    plugin.write_text(SOUND)
    worker = started(bootstrap, plugin)
    try:
        worker.create("m", connector__class="MendSource")
        worker.wait_state("m", R, R)
        worker.end()
        plugin.write_text(code)
        worker = WorkerProcess(
            worker._properties, plugin.parents[1], python_path=str(plugin.parent)
        ).wait_ready()
        wait_for(lambda: worker.state("m")[0] == F, lambda: worker.log)
        assert error.format(file=plugin) in worker.get("/connectors/m/status")["connector"]["trace"]
        assert error.format(file=plugin) in validate(worker, "MendSource")
        plugin.write_text(SOUND)
        worker.wait_state("m", R, R)
        wait_for(lambda: validate(worker, "MendSource") == "")
    finally:
        worker.end()
