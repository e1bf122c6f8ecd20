"""Forks this process to run something else: the fork imports nothing again, and shares the memory of what is imported.

A lock that another thread holds stays locked in the fork for ever. So a process forks before it starts threads that take
locks.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

_STAT_ARG_START: Final = 45  # field 48 of /proc/PID/stat, counted from the state, which is field 3


class Forked:
    """A forked process, with the part of `subprocess.Popen` that its owners use. One thread waits for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Waits for the end. Returns the exit code, or a signal's number as a negative one."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def fork(body: Callable[[], None], *, title: str, output: int, keep: Collection[int]) -> Forked:
    """Forks a process that runs `body` in a session of its own, and ends with it.

    It has no standard input, `output` as its standard output, our standard error, and of our other descriptors those in
    `keep`. `ps` shows it as `title`.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.freeze()  # the collector leaves frozen objects alone, so their memory stays shared
    if pid := os.fork():
        return Forked(pid)
    code = 1
    try:
        os.setsid()
        _only(output, keep)
        set_command_line(title.encode())
        code = _code_of(body)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)  # the callers' frames are those of another process


def _code_of(body: Callable[[], None]) -> int:
    """Runs it. Returns the exit code that an interpreter would leave with."""
    try:
        body()
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return e.code or 0
        sys.stderr.write(f"{e.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _only(output: int, keep: Collection[int]) -> None:
    """Closes all descriptors but the standard ones and those in `keep`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, max(int(fd.name) for fd in Path("/dev/fd").iterdir()) + 1)


def set_command_line(title: bytes) -> None:
    """Overwrites the arguments that the process was started with, as far as their space goes. Linux only."""
    with suppress(OSError, ValueError, IndexError):
        fields = (
            Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
        start, end = int(fields[_STAT_ARG_START]), int(fields[_STAT_ARG_START + 1])
        if start and end - start > 1:
            room = end - start
            ctypes.memmove(start, title[: room - 1].ljust(room, b"\0"), room)
