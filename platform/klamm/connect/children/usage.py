"""Reads from the kernel (Linux: /proc) how much CPU and memory a process uses: some 10 µs a process."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

_TICKS_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Fields of /proc/PID/stat, counted from the state, which is field 3.
_UTIME: Final = 11
_STIME: Final = 12
_RSS_PAGES: Final = 21


class Usage(NamedTuple):
    """CPU seconds (user and system) since the process started, and the bytes that it has in memory now."""

    cpu_s: float
    memory_bytes: int


def usage_of(pid: int) -> Usage | None:
    """Returns the usage of a process; None when there is no such process, or the system does not say."""
    try:
        stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(stat, 4096)
    except OSError:  # it has just ended
        return None
    finally:
        os.close(stat)
    fields = text.rpartition(b")")[2].split()
    ticks = int(fields[_UTIME]) + int(fields[_STIME])
    return Usage(ticks / _TICKS_S, int(fields[_RSS_PAGES]) * _PAGE)


def size_text(count: int) -> str:
    """Returns a size in words: 1610612736 -> "1.5 GiB"."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
