"""The fork server of Spark's Python processes, and the program that Java starts as Python; no Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import wait_until

from klamm_spark.fork_server import ForkServer, is_left

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only"),
    pytest.mark.usefixtures("processes"),
]
SHOWN = "import os, sys; print(sys.argv[1:], os.environ.get('GIVEN'), os.getcwd(), os.getppid(), 'pandas' in sys.modules, flush=True)"


@pytest.fixture(scope="module")
def server(processes: None) -> Iterator[ForkServer]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has to be short
        server = ForkServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()
        assert all(map(is_left, Path(folder).iterdir()))


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "shown.py").write_text(SHOWN)
    (tmp_path / "fails.py").write_text("raise SystemExit('on purpose')")
    (tmp_path / "waits.py").write_text(
        "import signal, sys, time\n"
        "def end(*_):\n    print('told', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('here', flush=True)\ntime.sleep(60)\n"
    )
    return tmp_path


def environment(server: ForkServer, modules: Path, **more: str) -> dict[str, str]:
    return os.environ | server.environment | {"PYTHONPATH": str(modules), "PYTHONHASHSEED": "0", **more}


def run(server: ForkServer, modules: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    python = server.environment["PYSPARK_PYTHON"]
    given = environment(server, modules, **more)
    return subprocess.run(
        [python, *command], check=False, env=given, cwd=modules, capture_output=True, text=True, timeout=60
    )


def test_a_module_runs_in_a_fork_with_its_arguments_environment_and_folder(
    server: ForkServer, modules: Path
) -> None:
    done = run(server, modules, "-m", "shown", "a", "b", GIVEN="yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['a', 'b'] yes {modules} {server.pid} True\n"


@pytest.mark.parametrize(
    ("command", "more"),
    [
        pytest.param(("-c", SHOWN, "a", "b"), {}, id="no module"),
        pytest.param(("-m", "shown", "a", "b"), {"PYTHONHASHSEED": "7"}, id="another seed of hashes"),
        pytest.param(("-m", "shown", "a", "b"), {"KLAMM_SPARK_FORK_SERVER": "/nowhere"}, id="no fork server"),
        pytest.param(("-m", "shown", "a", "b"), {"KLAMM_SPARK_FORK_SERVER": ""}, id="none named"),
    ],
)
def test_what_the_fork_server_does_not_take_is_an_ordinary_python(
    server: ForkServer, modules: Path, command: tuple[str, ...], more: dict[str, str]
) -> None:
    done = run(server, modules, *command, **more)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['a', 'b'] None {modules} {os.getpid()} False\n"


def test_the_text_of_a_module_that_fails_reaches_the_error_stream(server: ForkServer, modules: Path) -> None:
    assert run(server, modules, "-m", "fails").stderr == "on purpose\n"


def test_sigterm_is_passed_on_and_the_fork_ends(server: ForkServer, modules: Path) -> None:
    python = server.environment["PYSPARK_PYTHON"]
    with subprocess.Popen(
        [python, "-m", "waits"], env=environment(server, modules), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        assert process.wait(timeout=30) == 0


def test_nothing_stays_of_a_fork_that_has_ended(server: ForkServer, modules: Path) -> None:
    run(server, modules, "-m", "shown")
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    wait_until(lambda: not children.read_text(), "the end of its processes")


def test_a_folder_whose_programs_may_not_run_has_no_fork_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a file system with `noexec`
    with pytest.raises(PermissionError, match="cannot be forked"):
        ForkServer(tmp_path)
