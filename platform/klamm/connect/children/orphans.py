"""Finds and kills the processes that are left of a session whose leader has died. Blocks; for a thread.

The fork server leads a session of its own. Everything that its children start is in that session,
unless it makes a session for itself as a daemon does. A session's number is its leader's pid, which no
other process gets before the leader is reaped. So no stranger is killed as long as the caller has not
reaped the leader.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_PROC: Final = Path("/proc")
_ROUNDS_MAX: Final = 100  # what is killed may have started something between the look and the blow
_PAUSE_S: Final = 0.02


def kill_session(leader: int, groups: Sequence[int]) -> None:
    """Wait until our child `leader` has ended, without reaping it, and kill every other process of its session.

    Without /proc (not on Linux) those of the process groups `groups` are killed whose leader still lives.
    """
    os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
    if not (_PROC / "self" / "stat").exists():
        for pid in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == leader:
                    os.killpg(pid, signal.SIGKILL)
        return
    for _ in range(_ROUNDS_MAX):
        left = _members(leader)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    log.error("processes of a fork server (pid %d) that is gone do not die: %s", leader, left)


def _members(session: int) -> list[int]:
    """Returns the running processes of a session, without its leader and without zombies."""
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == session:
            continue
        try:
            # pid (name) state ppid pgrp session ...; the name may hold blanks and brackets.
            state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if int(its_session) == session and state not in {"Z", "X"}:
            found.append(int(entry.name))
    return found
