"""Files that this user may not read: the sentence names them, whose they are, and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties
from klamm_base.unreadable import why_unreadable

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv (util-linux)"
)


def test_another_error_is_as_it_was(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read: No such file or directory$"):
        load_properties(tmp_path / "none.properties")


def test_whose_file_it_is_and_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "app.properties"
    path.write_text("a=b\n")
    denied = PermissionError(13, "Permission denied")
    assert why_unreadable(path, denied).startswith("cannot be read: Permission denied; it is a file of ")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 54_321)
    said = why_unreadable(path, denied)
    assert f"this is user {path.stat().st_uid + 54_321}: run this as " in said
    assert "install -o" in said


@as_root
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("mode", [0o600, 0o644], ids=["the file", "its folder"])
@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list", "--command-config"),
        ("user", "list", "--command-config"),
        ("kafka-topics", "--list", "--bootstrap-server", "127.0.0.1:1", "--command-config"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_of_another_user_says_what_to_do(tmp_path, words, mode):
    says_what_to_do(tmp_path, words, mode)


@as_root
@pytest.mark.usefixtures("processes")
def test_a_context_needs_a_file_that_can_be_seen(tmp_path):
    says_what_to_do(
        tmp_path, ("context", "add", "x", "--bootstrap-server", "127.0.0.1:1", "--command-config"), 0o644
    )


def says_what_to_do(tmp_path, words, mode):
    folder = tmp_path / "security"
    folder.mkdir(mode=0o755 if mode == 0o600 else 0o700)
    path = folder / "app.properties"
    path.write_text("security.protocol=PLAINTEXT\n")
    path.chmod(mode)
    for each in (tmp_path, *tmp_path.parents):
        if each.owner() == "root" and not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    run = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "klamm.cli.main", *words, str(path)],
        env=os.environ | {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"},
        cwd="/",
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert run.returncode != 0
    said = f"{path}: cannot be read: Permission denied; it is for root alone, and this is nobody: run this as root"
    assert said in run.stderr + run.stdout
    assert "Traceback" not in run.stderr
    assert "unexpected" not in run.stderr
