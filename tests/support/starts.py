"""The processes that a test starts: counted for every test, and forbidden to a pure one.

An audit hook sees `subprocess`, `os.fork`, `os.posix_spawn` and `os.system`. It cannot be taken away again, so there is one for
the life of the test process.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SPAWN = "klamm.spawn"
_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", _SPAWN})
_TESTS = f"{Path(__file__).parents[1]}{os.sep}"


@dataclass(slots=True)
class Starts:
    """The starts of processes while one test runs."""

    count: int = 0
    first: str = ""
    older: frozenset[int] = field(default_factory=lambda: frozenset(_alive()))

    def see(self, event: str) -> None:
        """Counts a start, unless a thread makes it that was there before the test."""
        if threading.get_ident() in self.older:
            return
        self.count += 1
        self.first = self.first or f"{event} in {_where()}"


_now: Starts | None = None
_pid = os.getpid()


def begin() -> Starts:
    """Counts from now on for another test."""
    global _now
    _now = Starts()
    return _now


def watch() -> None:
    """Installs the hook, once."""
    if getattr(sys, "_klamm_starts_watched", False):
        return
    sys._klamm_starts_watched = True  # type: ignore[attr-defined]
    sys.addaudithook(_hook)
    spawn = multiprocessing.util.spawnv_passfds

    def audited(path: bytes, args: Iterable[bytes], passfds: Iterable[int]) -> int:
        """Says of multiprocessing's own way to start a process that it was taken: Python has no audit event for it."""
        sys.audit(_SPAWN)
        return spawn(path, args, passfds)

    multiprocessing.util.spawnv_passfds = audited


def _alive() -> Iterable[int]:
    here = threading.get_ident()
    return (thread.ident for thread in threading.enumerate() if thread.ident and thread.ident != here)


def _hook(event: str, arguments: object) -> None:
    # At the end of the interpreter there is no name of this module left.
    if _now is not None and event in _EVENTS and os.getpid() == _pid:
        _now.see(event)


def _where() -> str:
    """Returns the innermost place in our tests that led to here."""
    frames = [
        f for f in traceback.extract_stack() if f.filename.startswith(_TESTS) and f.filename != __file__
    ]
    return f"{frames[-1].filename.removeprefix(_TESTS)}:{frames[-1].lineno}" if frames else "a thread"
