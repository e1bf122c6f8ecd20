"""Folders in which patterns cannot be followed are told, by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klamm_agent.config.agent import Input
from klamm_agent.files.scan import Scanner

PROGRAM = """
import os, sys
from klamm_agent.config.agent import Input
from klamm_agent.files.scan import Scanner
if os.geteuid() == 0:  # whom permissions do not bind
    os.setuid(65534)
tell = lambda path, error: print(path, error.strerror)
print(*sorted(f.path for f in Scanner((Input(paths=tuple(sys.argv[1:]), topic="t"),), tell).scan()))
"""


def scan(tmp_path, *patterns):
    """Returns what a process says and finds, one line each and one for all files."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *patterns],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture
def folders(tmp_path):
    tmp_path.chmod(0o755)
    for name in ("open", "closed"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "x.log").touch()
    closed = tmp_path / "logs/closed"
    yield closed
    closed.chmod(0o755)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("pattern", ["logs/*/*.log", "logs/**/*.log", "logs/[a-z]*/x.log"])
def test_a_folder_that_may_not_be_read(tmp_path, folders, pattern):
    folders.chmod(0)
    said, found = scan(tmp_path, pattern)
    assert said.replace("/ ", " ") == "logs/closed Permission denied"
    assert found == "logs/open/x.log"


@pytest.mark.usefixtures("processes")
def test_a_file_with_a_name_needs_no_listing_of_its_folder(tmp_path, folders):
    folders.chmod(0o711)
    assert scan(tmp_path, "logs/closed/x.log") == ["logs/closed/x.log"]
    assert scan(tmp_path, "logs/closed/*.log") == ["logs/closed Permission denied", ""]


def test_a_folder_that_cannot_be_looked_at(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    told: list[tuple[str, OSError]] = []
    scanner = Scanner(
        (Input(paths=(f"{tmp_path}/loop/*.log", f"{tmp_path}/none/*.log"), topic="t"),),
        lambda path, error: told.append((path, error)),
    )
    assert list(scanner.scan()) == []
    assert [path for path, _ in told] == [f"{tmp_path}/loop"]
