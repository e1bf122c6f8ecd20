"""Every connector of ours has the same files with the same names in them (see `klamm_connectors`)."""

from __future__ import annotations

import importlib.util
import inspect

import pytest

from klamm_plugins.discovery import PluginManager, python_name

CONNECTORS = [d.cls for d in PluginManager.load().connectors() if d.location.startswith("klamm-")]


@pytest.mark.parametrize("cls", CONNECTORS, ids=lambda cls: cls.__name__)
def test_a_connector_has_the_usual_files(cls):
    folder, _, file = cls.__module__.rpartition(".")
    assert file == "connector"
    config = importlib.import_module(f"{folder}.config")
    assert [key.name for key in cls.config()] == [key.name for key in config.config_def()]
    assert "props" in inspect.signature(config.parse).parameters
    assert importlib.util.find_spec(f"{folder}.task") is not None


@pytest.mark.parametrize("cls", CONNECTORS, ids=lambda cls: cls.__name__)
def test_a_connector_that_has_moved_is_found_by_its_former_path(cls):
    manager = PluginManager.load()
    for name in (python_name(cls), *vars(cls).get("former_names", ())):
        assert manager.find_connector(name) is cls
