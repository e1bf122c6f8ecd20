"""Starts a process in a terminal of its own, which a test can close."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

# Whoever runs the tests may ignore hang-ups (nohup), which a child inherits.
_IN_TERMINAL: Final = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(os.open(sys.argv[1], os.O_RDWR), termios.TIOCSCTTY, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""


def in_terminal(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Returns the process, whose standard error is the terminal, and the terminal's other end: closed, it hangs up."""
    leader, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, os.ttyname(terminal), *command],
        stdout=subprocess.PIPE,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    return process, leader
