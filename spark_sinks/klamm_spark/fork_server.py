"""The fork server of a job on this machine: it imports what Spark's Python processes need once, and forks them.

`python -m klamm_spark.fork_server LISTENER_FD` ends when its standard input does, so with the job. `launch` sends its standard streams and an
order, one JSON object: `command` (a module and its arguments), `environment`, `folder`. The answer is the process id of the process
that runs it, or nothing: then the asker runs it itself.

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
from pathlib import Path
from typing import Any, Final, NoReturn

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
    # By default glibc keeps more and more of what is freed, the larger the fetched buffers are
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
}
_CHUNK_BYTES: Final = 64 << 10
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
        self._process.wait()
        self._address.unlink(missing_ok=True)


def is_left(file: Path) -> bool:
    """Returns whether a file in a folder of sockets is one that a killed job leaves there."""
    return file.is_socket() or file.name == PYTHON


def serve(listener: socket.socket) -> None:
    """Serves until standard input ends."""
    for name in PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector leaves frozen objects alone, so their memory stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waiting = select.poll()
    for source in (0, listener.fileno()):
        waiting.register(source, select.POLLIN)
    while 0 not in (ready := [fd for fd, _ in waiting.poll()]):
        if listener.fileno() in ready:
            _serve_one(listener)


def _serve_one(listener: socket.socket) -> None:
    asker, _ = listener.accept()
    streams: list[int] = []
    with asker:
        try:
            asker.settimeout(_ORDER_S)
            order, streams = _received(asker)
            if order["environment"].get(_SEED, "") != os.environ[_SEED]:
                return  # hashes would not be those of the job's other processes
            pid = os.fork()
            if not pid:
                listener.close()
                asker.close()
                _become(order, streams)
            asker.sendall(str(pid).encode())
        except (OSError, ValueError, KeyError) as e:
            log.warning("a Python process of Spark is not forked: %s", e)
        finally:
            for fd in streams:
                os.close(fd)


def _received(asker: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns an order and its streams."""
    data, streams, _, _ = socket.recv_fds(asker, 1, len(launch.STREAMS))
    while chunk := asker.recv(_CHUNK_BYTES):
        data += chunk
    return json.loads(data), streams


def _become(order: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs an order's command in this process, which was forked for it."""
    code = 1
    try:
        for fd, stream in zip(streams, launch.STREAMS, strict=True):
            os.dup2(fd, stream)
            os.close(fd)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        sys.path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p not in sys.path]
        module, *_ = sys.argv = order["command"]
        set_command_line(shlex.join(["python", "-m", *sys.argv]).encode())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if code and not isinstance(e.code, int):
            sys.stderr.write(f"{e.code}\n")
    except BaseException:
        log.exception("a Python process of Spark ended")
    finally:
        for stream_ in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream_.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
