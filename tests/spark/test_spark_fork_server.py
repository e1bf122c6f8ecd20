"""The fork server of Spark's Python processes, and the program that Java starts as Python; no Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.broker import wait_until

from klamm_spark import fork_server
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


def children(server: ForkServer) -> str:
    return Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()


def ask(server: ForkServer, order: dict[str, object], *, confirm: bool) -> None:
    data = json.dumps(order).encode()
    with socket.socket(socket.AF_UNIX) as asker, Path(os.devnull).open("r+") as null:
        asker.connect(server.environment["KLAMM_SPARK_FORK_SERVER"])
        socket.send_fds(asker, [len(data).to_bytes(8, "big") + data], [null.fileno()] * 3)
        assert int(asker.recv(32)) > 0
        if confirm:
            asker.sendall(b"go")
            assert asker.recv(32) == b"0"


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
        pytest.param(("-m", "shown", "a", "b"), {"TZ": "Asia/Tokyo"}, id="another time zone"),
        pytest.param(("-m", "shown", "a", "b"), {"PYTHONUTF8": "1"}, id="a setting of Python"),
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


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("raise SystemExit('on purpose')", 1, "on purpose"),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("1 / 0", 1, "division by zero"),
        ("import atexit, sys; atexit.register(lambda: print('at exit', file=sys.stderr))", 0, "at exit"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV, ""),
    ],
)
def test_the_end_of_a_fork_is_that_of_the_program_that_was_started(
    server: ForkServer, modules: Path, end: str, code: int, said: str
) -> None:
    (modules / "ends.py").write_text(end)
    done = run(server, modules, "-m", "ends")
    assert done.returncode == code
    assert said in done.stderr


def test_a_folder_that_is_gone_is_no_matter_for_an_ordinary_python(server: ForkServer, modules: Path) -> None:
    gone = modules / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "$0" -c "print(1)"'
    shell = ["sh", "-c", script, server.environment["PYSPARK_PYTHON"]]
    done = subprocess.run(shell, env=environment(server, modules), capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_the_fork_server_has_one_thread(server: ForkServer, modules: Path) -> None:
    run(server, modules, "-m", "shown")  # it has imported everything
    assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) == 1


def test_forks_have_random_numbers_of_their_own(server: ForkServer, modules: Path) -> None:
    """Also those that a fork forks: Spark's daemon forks its workers."""
    (modules / "draws.py").write_text(
        "import os, random, numpy\n"
        "if os.fork():\n    os.wait()\n"
        "print(numpy.random.randint(1 << 30), random.random(), flush=True)\n"
    )
    drawn = (run(server, modules, "-m", "draws").stdout + run(server, modules, "-m", "draws").stdout).split()
    assert len(set(drawn)) == len(drawn) == 8


def test_output_is_written_at_once_where_java_asks_for_it(server: ForkServer, modules: Path) -> None:
    (modules / "says.py").write_text("import os\nprint('kept', end='')\nos._exit(0)\n")
    assert run(server, modules, "-m", "says", PYTHONUNBUFFERED="YES").stdout == "kept"


def test_an_asker_that_gave_up_gets_no_second_process(
    server: ForkServer, modules: Path, tmp_path: Path
) -> None:
    """Its order may come to the fork server when it has begun an ordinary Python with the same streams."""
    done = tmp_path / "done"
    (modules / "works.py").write_text(f"import pathlib\npathlib.Path({str(done)!r}).touch()\n")
    order = {
        "command": ["works"],
        "environment": environment(server, modules),
        "folder": str(tmp_path),
        "ignored": [],
    }
    ask(server, order, confirm=True)
    wait_until(done.exists, "the process")
    done.unlink()
    ask(server, order, confirm=False)
    wait_until(lambda: not children(server), "the end of its processes")
    assert not done.exists()


def test_an_order_that_breaks_off_leaves_nothing_behind(server: ForkServer, modules: Path) -> None:
    descriptors = Path(f"/proc/{server.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for sent in (b"", b"\0\0", (100).to_bytes(8, "big") + b"{", (2).to_bytes(8, "big") + b"{}", bytes(8)):
        with socket.socket(socket.AF_UNIX) as asker, Path(os.devnull).open() as null:
            asker.connect(server.environment["KLAMM_SPARK_FORK_SERVER"])
            if sent:
                socket.send_fds(asker, [sent], [null.fileno()] * 3)
    assert run(server, modules, "-m", "shown").returncode == 0
    wait_until(lambda: len(list(descriptors.iterdir())) == before, "descriptors as before")


@contextmanager
def told_to_end(server: ForkServer, modules: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that waits; at the end it gets SIGTERM by its holder, and ends."""
    python = server.environment["PYSPARK_PYTHON"]
    with subprocess.Popen(
        [python, "-m", "waits"], env=environment(server, modules), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        assert process.wait(timeout=30) == 0


def test_sigterm_is_passed_on_and_the_fork_ends(server: ForkServer, modules: Path) -> None:
    with told_to_end(server, modules) as process:
        assert process.poll() is None


def test_sigterm_that_comes_as_soon_as_the_fork_begins_ends_it_too(server: ForkServer, modules: Path) -> None:
    """Nobody passed it on yet: the holder ended alone."""
    script = (
        "import os, signal, sys\nfrom klamm_spark import launch\nattend = launch.attend\n"
        "def late(*given):\n    os.kill(os.getpid(), signal.SIGTERM)\n    return attend(*given)\n"
        "launch.attend = late\nsys.argv[1:] = ['-m', 'waits']\nsys.exit(launch.main())"
    )
    given = environment(server, modules)
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env=given,
        cwd=modules,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode in {0, -signal.SIGTERM}
    wait_until(lambda: not children(server), "the end of the fork", timeout_s=20)


def test_nothing_stays_of_a_fork_that_has_ended(server: ForkServer, modules: Path) -> None:
    run(server, modules, "-m", "shown")
    wait_until(lambda: not children(server), "the end of its processes")


def test_a_fork_outlives_the_fork_server_and_its_holder_waits_for_it(modules: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ForkServer(Path(folder))
        with told_to_end(server, modules) as process:
            server.stop()
            assert process.poll() is None


def test_a_fork_server_that_stands_still_is_ended_all_the_same(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "_ENDS_S", 0.1)
    with tempfile.TemporaryDirectory() as folder:
        server = ForkServer(Path(folder))
        os.kill(server.pid, signal.SIGSTOP)
        server.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(server.pid, 0)


def test_a_folder_whose_programs_may_not_run_has_no_fork_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a file system with `noexec`
    with pytest.raises(PermissionError, match="cannot be forked"):
        ForkServer(tmp_path)
