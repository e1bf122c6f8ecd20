"""A plugin directory that cannot be used is told at the start, with the property's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.connect.settings.plugins import DIRECTORY_VARIABLE, not_writable


def test_env_a_plugin_directory_that_cannot_be_written_is_told_by_its_property(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for directory in ("/proc/nope", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        why = not_writable({"plugins.directory": directory})
        assert why is not None
        assert why.startswith(
            f"plugins.directory: plugin packages cannot be installed or removed in {directory}: "
        )
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/proc/nope")
    assert not_writable({"plugins.directory": None}) is not None
    assert not_writable({"plugins.directory": str(tmp_path / "new" / "one")}) is None


def test_env_a_folder_that_belongs_to_somebody_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write everywhere
    why = not_writable({"plugins.directory": str(tmp_path)})
    assert why is not None
    assert f"{tmp_path} cannot be written by this user" in why


def test_env_the_default_directory_is_not_made_before_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert not_writable({"plugins.directory": None}) is None
    assert not (tmp_path / "data").exists()
