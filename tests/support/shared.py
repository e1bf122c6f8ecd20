"""A server that all test processes of a run share.

The first test process that needs it starts a host: a process that runs the server and says where it is. Each user holds
the writing end of a FIFO whose reading end is the host's standard input. The host ends with the last of them, however
they end. Whoever comes after that starts another host.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
_HOSTS: list[subprocess.Popen[bytes]] = []
"""Those that this process has started: they may outlive its use of them."""


def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that all processes of this run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def use(place: Path, module: str) -> Iterator[dict[str, Any]]:
    """Yields what the host says of its server. `module` is a module of the tests that calls `serve`."""
    fifo, said = place / f"{module}.fifo", place / f"{module}.json"
    with _locked(fifo):
        held = _join(fifo)
        if held is None:
            held = _start(fifo, said, module)
    try:
        yield json.loads(said.read_text())
    finally:
        os.close(held)


def serve(**said: Any) -> None:
    """Runs in the host, when its server answers: says where it is, and returns when nobody uses it any more."""
    fifo = Path(sys.argv[1])
    print(json.dumps(said), flush=True)
    users = select.poll()
    users.register(sys.stdin.fileno(), select.POLLHUP)
    while True:
        users.poll()
        with _locked(fifo):
            if users.poll(0):
                fifo.unlink()
                return


@contextlib.contextmanager
def _locked(fifo: Path) -> Iterator[None]:
    with fifo.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _join(fifo: Path) -> int | None:
    """Returns the writing end, or None where no host reads."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as e:
        if e.errno not in {errno.ENOENT, errno.ENXIO}:
            raise
        return None


def _start(fifo: Path, said: Path, module: str) -> int:
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(fifo, os.O_WRONLY)
    output = fifo.with_suffix(".log")
    with output.open("ab") as log:
        host = subprocess.Popen(
            [sys.executable, "-m", module, str(fifo)],
            cwd=TESTS,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a Ctrl-C ends its users, and they let go of it
        )
    os.close(reading)
    _HOSTS.append(host)
    assert host.stdout is not None
    with host.stdout:
        line = host.stdout.readline()
    if not line:
        os.close(held)
        raise RuntimeError(f"{module} ended with {host.wait()}:\n{output.read_text()[-5000:]}")
    said.write_bytes(line)
    return held
