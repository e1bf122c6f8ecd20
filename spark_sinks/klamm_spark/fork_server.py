"""The fork server of a job on this machine: it imports what Spark's Python processes need once, and forks them.

`python -m klamm_spark.fork_server LISTENER_FD` ends when its standard input does, so with the job. `launch` sends its standard streams and an
order, the length of a JSON object (8 bytes) and the object: `command` (a module and its arguments), `environment`, `folder`, `ignored` (signals). The answer
is the process id of a process that runs it as soon as the asker says `go`, and at its end its exit code, negative for a signal. Without an answer the asker runs the
command itself.

Linux only: on macOS libraries of the system may not be used after a fork.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import logging
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.forking import set_command_line
from klamm_spark import launch

log = logging.getLogger(__name__)

PRELOAD: Final = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "klamm_spark.datasource.source",
    "klamm_spark.elasticsearch",
    "klamm_spark.sql",
)
PYTHON: Final = "python"
"""The name of the program that Java starts as Python."""
_SEED: Final = "PYTHONHASHSEED"
_TUNED: Final = {
    # numpy starts threads when it is imported, unless it is told not to
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # and so does pyarrow's jemalloc, which it does not use by default
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # By default glibc keeps more and more of what is freed, the larger the fetched buffers are
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
}
_READ_ONCE: Final = frozenset({"TZ", "LANG", "LANGUAGE"})
_READ_HERE: Final = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED"})
"""Variables that `Order.run` takes."""
_CHUNK_BYTES: Final = 64 << 10
_LENGTH_BYTES: Final = 8
_ENDS_S: Final = 5.0
_ORDER_S: Final = 5.0


class ForkServer:
    """A running fork server. A Java with this `environment` starts its Python processes by it."""

    def __init__(self, folder: Path) -> None:
        """Starts it, with its address in this folder. It imports meanwhile, and askers wait.

        Raises OSError where there can be none: not on Linux, or programs in the folder may not be run (`noexec`).
        """
        self._address, python = folder / "forks", folder / PYTHON
        command = [sys.executable, "-I", "-S", launch.__file__]
        python.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        python.chmod(0o700)
        if not (sys.platform.startswith("linux") and os.access(python, os.X_OK)):
            raise PermissionError(errno.EACCES, "Python processes cannot be forked", str(python))
        self.environment: Final = {
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),  # Java takes this one to look formats up
            launch.FORK_SERVER: str(self._address),
        }
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._address))
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "klamm_spark.fork_server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env=os.environ
                | _TUNED
                | {_SEED: os.environ.get(_SEED, "0")},  # as Spark does for its workers
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End it. The processes that it forked end with Java."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._address.unlink(missing_ok=True)


def is_left(file: Path) -> bool:
    """Returns whether a file in a folder of sockets is one that a killed job leaves there."""
    return file.is_socket() or file.name == PYTHON


def preload() -> None:
    """Imports what the processes need. Each fork of them gets random numbers of its own, as an import after the fork would give it."""
    for name in PRELOAD:
        importlib.import_module(name)
    from numpy import random

    os.register_at_fork(after_in_child=random.seed)
    gc.collect()
    gc.freeze()  # the collector leaves frozen objects alone, so their memory stays shared


class Server:
    """The fork server's loop. The process has no other threads, so that a fork never copies a lock that another holds."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._askers: dict[int, socket.socket] = {}
        """Who waits for the end of a process, by its id."""
        self._ended, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the loop does the reaping
        for number in launch.IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._own = (self._ended, told)

    def run(self) -> Order | None:
        """Serves until standard input ends; then returns None. Returns also in each process that it forks, with its order."""
        waiting = select.poll()
        for fd in (0, self._ended, self._listener.fileno()):
            waiting.register(fd, select.POLLIN)
        while 0 not in (ready := [fd for fd, _ in waiting.poll()]):
            if self._ended in ready:
                os.read(self._ended, _CHUNK_BYTES)
                self._reap()
            if self._listener.fileno() in ready:
                asker, _ = self._listener.accept()
                if (forked := self._serve(asker)) is not None:
                    return forked
        return None

    def _serve(self, asker: socket.socket) -> Order | None:
        """Forks the process that is asked for, if it may be one. Returns its order in that process, else None."""
        order = Order()
        try:
            asker.settimeout(_ORDER_S)
            order.receive(asker)
            if order.starts_alike():
                if not (pid := os.fork()):
                    self._leave()
                    order.wait(asker)
                    return order
                self._askers[pid] = asker
                asker.sendall(str(pid).encode())
                order.close()
                return None
        except (OSError, ValueError, KeyError) as e:
            log.warning("a Python process of Spark is not forked: %s", e)
        order.close()
        asker.close()
        return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._askers.pop(ended[0]) as asker, contextlib.suppress(OSError):
                    asker.sendall(str(os.waitstatus_to_exitcode(ended[1])).encode())

    def _leave(self) -> None:
        """Makes a fork of this process one of its own: nothing is left open of what the fork server needs."""
        signal.set_wakeup_fd(-1)
        for fd in self._own:
            os.close(fd)
        for one in (self._listener, *self._askers.values()):
            one.close()


class Order:
    """An asker's order, with its streams."""

    def __init__(self) -> None:
        self._streams: list[int] = []
        self._told: dict[str, Any] = {}

    def receive(self, asker: socket.socket) -> None:
        """Takes the order. Raises OSError and ValueError; `close` is due all the same."""
        length, self._streams, _, _ = socket.recv_fds(asker, _LENGTH_BYTES, len(launch.STREAMS))
        length += _exactly(asker, _LENGTH_BYTES - len(length))
        self._told = json.loads(_exactly(asker, int.from_bytes(length, "big")))

    def close(self) -> None:
        for fd in self._streams:
            os.close(fd)

    def starts_alike(self) -> bool:
        """Returns whether a Python with the order's environment would begin as this one did: the same hashes, time zone, encodings."""
        return _at_start(self._told["environment"]) == _at_start(os.environ)

    def wait(self, asker: socket.socket) -> None:
        """Waits in the process that was forked for the order until the asker says `go`. Ends it if the asker went away: it does the work itself."""
        with asker:
            asker.settimeout(None)
            try:
                _exactly(asker, len(launch.GO))
            except OSError:
                os._exit(1)

    def run(self) -> None:
        """Runs the command as a Python of its own would. Raises what it raises."""
        for fd, stream in zip(self._streams, launch.STREAMS, strict=True):
            os.dup2(fd, stream)
            os.close(fd)
        os.chdir(self._told["folder"])
        os.environ.clear()
        os.environ.update(self._told["environment"])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in launch.IGNORED:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in self._told["ignored"] else usual)
        if os.environ.get("PYTHONUNBUFFERED"):
            for output in (sys.stdout, sys.stderr):
                output.reconfigure(write_through=True)  # type: ignore[union-attr]
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [p for p in path if p and p not in sys.path]
        module, *_ = sys.argv = self._told["command"]
        set_command_line(shlex.join(["python", "-m", *sys.argv]).encode())
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that Python and the C library read at their start only. Those with `PYTHON_` are Spark's."""
    return {
        name: value
        for name, value in environment.items()
        if name in _READ_ONCE
        or name.startswith(("LC_", "LD_"))
        or (name.startswith("PYTHON") and not name.startswith("PYTHON_") and name not in _READ_HERE)
    }


def _exactly(asker: socket.socket, size: int) -> bytes:
    """Returns so many bytes. Raises ConnectionError if fewer come."""
    data = bytearray()
    while len(data) < size:
        if not (chunk := asker.recv(min(size - len(data), _CHUNK_BYTES))):
            raise ConnectionError("the asker went away")
        data += chunk
    return bytes(data)


if __name__ == "__main__":
    preload()
    if (order := Server(socket.socket(fileno=int(sys.argv[1]))).run()) is not None:
        order.run()
