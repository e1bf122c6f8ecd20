"""A day in the life, from the installation to the restore: the script of examples/ as a user runs it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.systemd import Systemd, place

SCRIPT = Path(__file__).parents[2] / "examples" / "day_in_the_life" / "day.py"
DAY_S = 420.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with place() as made:
        yield made


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import state as found  # type: ignore[import-not-found]

    return found


def _is_whole(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "the pager: open connect-archive" in done.stdout
    assert "the pager: close connect-archive" in done.stdout
    assert "none of 2000 acknowledged orders is lost" in done.stdout
    assert "the form says 'Invalid value many" in done.stdout
    assert ("no Chromium" in done.stdout) == (shutil.which("chromedriver") is None)
    assert "all is as it was" in done.stdout


@pytest.mark.usefixtures("systemd_host")
def test_a_day_under_systemd(folder: Path) -> None:
    with Systemd() as systemd:
        words = (sys.executable, str(SCRIPT), "--place", str(folder / "day"), "--run-as", "root")
        done = systemd.run(*words, timeout_s=DAY_S)
        assert systemd.show("klamm-day-broker", "LoadState") == "not-found"  # nothing stays installed
    assert "systemd runs here" in done.stdout
    _is_whole(done)


@pytest.mark.usefixtures("processes")
def test_a_day_without_systemd(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), "--place", str(tmp_path / "day"), "--no-systemd"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DAY_S, check=False)
    _is_whole(done)
    again = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, "remove it" in again.stdout) == (2, True)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_servers_too(tmp_path: Path, number: int) -> None:
    words = [sys.executable, str(SCRIPT), "--place", str(tmp_path / "day"), "--no-systemd"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as day:
        assert day.stdout is not None
        ready = next(line for line in day.stdout if "ready broker=" in line)
        day.send_signal(number)
        said = day.stdout.read()
    assert (day.returncode, "Traceback" in said, "stopped by a signal" in said) == (1, False, True), said
    host, port = ready.strip().rpartition("=")[2].split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


@pytest.mark.usefixtures("processes")
def test_a_place_that_cannot_be_and_a_python_without_klamm_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bare = tmp_path / "python"
    bare.symlink_to(sys.executable)
    for python, place_, told in (
        (Path(sys.executable), "file/day", "cannot be made (Not a directory)"),
        (bare, "day", "has no klamm"),
    ):
        words = [str(python), str(SCRIPT), "--place", str(tmp_path / place_), "--no-systemd"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, told in done.stdout, done.stderr) == (2, True, "")


@pytest.mark.parametrize(
    ("after", "good"),
    [
        ({"records": {"a-0 at 0": 1}}, True),
        ({"records": {"a-0 at 0": 2}}, False),
        ({"records": {}}, False),
        ({"records": {"a-0 at 0": 1, "a-0 at 1": 1}}, False),
    ],
)
def test_a_difference_is_seen(state: ModuleType, after: dict[str, dict[str, int]], good: bool) -> None:
    assert state.compare({"records": {"a-0 at 0": 1}}, after) is good


def test_nothing_is_no_proof(state: ModuleType) -> None:
    assert not state.compare({"records": {}}, {"records": {}})
