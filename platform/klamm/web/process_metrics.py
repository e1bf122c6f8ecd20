"""The system's figures of processes: Prometheus' usual process metrics for the worker, CPU and memory of its
tasks.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm_base.metrics_text import Family, Sample
from klamm_base.version import __version__

_PAGE: Final = resource.getpagesize()
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def process_families(started_s: float) -> Iterator[Family]:
    """Yields the figures of this process. Memory and files are known on Linux only."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    build = [Sample({"version": __version__}, 1)]
    yield Family("klamm_build_info", "gauge", "Version of Klamm, as a label.", build)
    seconds = used.ru_utime + used.ru_stime
    yield Family(
        "process_cpu_seconds_total", "counter", "User and system CPU time, s.", [Sample({}, seconds)]
    )
    yield Family(
        "process_start_time_seconds",
        "gauge",
        "Start of the process, s since the epoch.",
        [Sample({}, started_s)],
    )
    found = usage(os.getpid())
    files = Path("/proc/self/fd")
    if found is None or not files.is_dir():
        return
    yield Family("process_resident_memory_bytes", "gauge", "Resident memory.", [Sample({}, found[1])])
    count = len(os.listdir(files))  # noqa: PTH208 - a name each
    yield Family("process_open_fds", "gauge", "Open file descriptors.", [Sample({}, count)])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Family("process_max_fds", "gauge", "Limit of open file descriptors.", [Sample({}, limit)])


def usage(pid: int) -> tuple[float, int] | None:
    """Returns CPU seconds and resident bytes of a process; None when it is gone, or where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before the bracket may contain anything
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE
