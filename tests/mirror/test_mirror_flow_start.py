"""The start of a flow's processes."""

from __future__ import annotations

from klamm.mirror.flow import PRELOAD
from klamm_mirror.plugin import CONNECTORS


def test_the_fork_server_imports_each_connector_and_its_task():
    needed = {c.__name__: {c.__module__, c.task_class().__module__} for c in CONNECTORS}
    assert {name: set(modules) for name, modules in PRELOAD.items()} == needed
