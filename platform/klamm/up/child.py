"""A child of `klamm up`: an ordinary `klamm` command that ends when its parent is gone.

    python -m klamm.up.child FD broker start …

FD is the read end of a pipe; only the parent holds the other end. End of file means that the parent died, however it
died, on every platform. Then this process stops as on SIGTERM. A thread waits there and does nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

GRACE_S: Final = 20.0
"""The time for an orderly stop after the parent died; then the process ends itself."""


def _watch(fd: int) -> None:
    os.read(fd, 1)  # nothing is ever written: this returns at end of file
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def run(fd: int, args: Sequence[str]) -> None:
    """Watch the parent's pipe, and run a command line as `klamm` would."""
    threading.Thread(target=_watch, args=(fd,), daemon=True, name="parent-watch").start()
    sys.argv[:] = ["klamm", *args]
    from klamm.cli.main import main as klamm

    klamm()


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
