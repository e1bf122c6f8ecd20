"""The Python that Spark starts on this machine: a script of the standard library, which asks the job's fork server for the process.

Spark starts a daemon of Python workers for each kind of work (to look formats up, to read, to write, to commit, ...), and a process for each source.
Each of these, and each worker, would import pyspark and pyarrow anew. The fork server makes them of one import; this process stays
for Java to hold and to end. What the fork server does not take becomes an ordinary Python.
"""

import array
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

FORK_SERVER = "KLAMM_SPARK_FORK_SERVER"
"""The environment variable with the fork server's address, a path."""
STREAMS = (0, 1, 2)
ANSWER_S = 30.0
"""The fork server imports for a second at its start, longer on a busy machine."""


def main() -> int:
    """Be the Python with these arguments. Returns the exit code."""
    arguments = sys.argv[1:]
    address = os.environ.get(FORK_SERVER, "")
    pid = forked(address, arguments[1:]) if address and arguments[:1] == ["-m"] else None
    if pid is None:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
    return attend(pid)


def forked(address: str, command: list[str]) -> int | None:
    """Asks the fork server for a process that runs this module with its arguments, with the streams of this process.

    Returns its process id; None without a fork server.
    """
    order = json.dumps({"command": command, "environment": dict(os.environ), "folder": os.getcwd()})  # noqa: PTH109 (imports little)
    with socket.socket(socket.AF_UNIX) as asked, suppress(OSError, ValueError):
        asked.settimeout(ANSWER_S)
        asked.connect(address)
        asked.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STREAMS))])
        asked.sendall(order.encode())
        asked.shutdown(socket.SHUT_WR)
        return int(asked.recv(32))
    return None


def attend(pid: int) -> int:
    """Waits until the process has ended, and passes SIGTERM on to it. Returns 0."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        signal.signal(signal.SIGTERM, lambda *_: signal.pidfd_send_signal(process, signal.SIGTERM))
        waiting = select.poll()
        waiting.register(process, select.POLLIN)
        waiting.poll()
    return 0


if __name__ == "__main__":
    sys.exit(main())
