"""`stop()` of a plugin comes once, whatever became of `initialize`, `start` and the main loop; the first error stays."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from klamm.connect.child import connector_host, task_host
from klamm.connect.model import Kind
from klamm_plugins.connector import SourceConnector, SourceTask


class Broken(SourceConnector):
    """Raises in the method that `at` names."""

    at = ""
    calls: list[str]

    @classmethod
    def version(cls):
        return "1"

    @classmethod
    def task_class(cls):
        return BrokenTask

    def initialize(self, context):
        self._call("initialize")

    def start(self, props):
        self._call("start")

    def task_configs(self, max_tasks):
        return []

    def stop(self):
        self._call("stop")
        raise ValueError("stop is broken as well")

    def _call(self, name):
        self.calls.append(name)
        if name == self.at:
            raise RuntimeError(f"{name} is broken")


class BrokenTask(SourceTask):
    start, stop, _call = Broken.start, Broken.stop, Broken._call
    at = "start"

    @property
    def calls(self):
        return Broken.calls

    def poll(self):
        return None


@pytest.mark.parametrize(
    ("at", "calls"), [("initialize", ["initialize", "stop"]), ("start", ["initialize", "start", "stop"])]
)
def test_a_connector_is_stopped_without_a_start(monkeypatch, at, calls):
    monkeypatch.setattr(Broken, "at", at)
    monkeypatch.setattr(Broken, "calls", [], raising=False)
    host = connector_host._Host(Mock(paused=False), SimpleNamespace(config={}), Broken, [])
    with pytest.raises(RuntimeError, match=f"{at} is broken"):
        host.run()
    assert Broken.calls == calls


def test_a_task_is_stopped_after_a_start_that_raised(monkeypatch):
    monkeypatch.setattr(Broken, "calls", [], raising=False)
    spec = SimpleNamespace(
        kind=Kind.SOURCE, worker={}, connector_config={"connector.class": "Broken"}, task_config={}
    )
    for name, value in {
        "TaskSpec": SimpleNamespace(from_json=lambda _: spec), "PluginManager": Mock(), "limit_memory": Mock(),
        "Limits": SimpleNamespace(of=lambda *_: Mock(heartbeat_ms=1000)), "connector_class": lambda *_: Broken, "secret_values": lambda *_: [],
        "keep_secret": Mock(), "_prepared": Mock(),
    }.items():  # fmt: skip
        monkeypatch.setattr(task_host, name, value)
    with pytest.raises(RuntimeError, match="start is broken"):
        task_host.run_task(Mock(), {"spec": {}, "entry_points": []}, [])
    assert Broken.calls == ["start", "stop"]
