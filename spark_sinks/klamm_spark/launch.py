"""The Python that Spark starts on this machine: a script of the standard library, which asks the job's fork server for the process.

Spark starts a daemon of Python workers for each kind of work (to look formats up, to read, to write, to commit, ...), and a process for each source.
Each of these, and each worker, would import pyspark and pyarrow anew. The fork server makes them of one import; this process stays
for Java to hold and to end. What the fork server does not take becomes an ordinary Python.
"""

import array
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress

FORK_SERVER = "KLAMM_SPARK_FORK_SERVER"
"""The environment variable with the fork server's address, a path."""
STREAMS = (0, 1, 2)
IGNORED = (signal.SIGINT, signal.SIGHUP)
"""Signals that a process ignores if its starter does."""
_PASSED_ON = frozenset({signal.SIGTERM})
GO = b"go"
ANSWER_S = 30.0
"""The fork server imports for a second at its start, longer on a busy machine."""
LOOK_S = 0.5


def main() -> int:
    """Be the Python with these arguments. Returns the exit code."""
    arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as server:
        address = os.environ.get(FORK_SERVER, "")
        pid = forked(server, address, arguments[1:]) if address and arguments[:1] == ["-m"] else None
        if pid is None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
        return attend(server, pid)


def forked(server: socket.socket, address: str, command: list[str]) -> int | None:
    """Asks the fork server for a process that runs this module with its arguments, with the streams of this process.

    Returns its process id; None without a fork server. The process begins when it is told so here: of one that comes too late, nothing runs.
    From then on SIGTERM waits until `attend` passes it on.
    """
    with suppress(OSError, ValueError):
        order = {
            "command": command,
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 (imports little)
            "ignored": [number for number in IGNORED if signal.getsignal(number) == signal.SIG_IGN],
        }
        data = json.dumps(order).encode()
        server.settimeout(ANSWER_S)
        server.connect(address)
        server.sendmsg(
            [len(data).to_bytes(8, "big")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STREAMS))],
        )
        server.sendall(data)
        pid = int(server.recv(32))
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        server.sendall(GO)
        return pid
    return None


def attend(server: socket.socket, pid: int) -> int:
    """Waits until the process has ended, and passes SIGTERM on to it. Returns its exit code, or ends by the same signal."""

    def pass_on(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    server.settimeout(None)
    try:
        code = int(server.recv(32))
    except (OSError, ValueError):  # the fork server has ended; the process has not
        return outlive(pid)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def outlive(pid: int) -> int:
    """Waits until a process has ended that is nobody's here, or the starter of this one has."""
    starter = os.getppid()
    with suppress(ProcessLookupError):
        while os.getppid() == starter:
            os.kill(pid, 0)
            time.sleep(LOOK_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
