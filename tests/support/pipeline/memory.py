"""Memory and CPU of the pipeline's stages, each with all processes below it, sampled in a thread.

Memory is the proportional set size: Spark's Python processes are forks of each other, and what they share would count in
each of them. A process that Java is about to start is left out: until it has a program of its own, it has Java's memory, and Linux
gives it all of that.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine()) if platform.system() == "Linux" else None
_KCMP_VM = 1
_LIBC = ctypes.CDLL(None)
Pids = Callable[[], Mapping[str, int | None]]


@dataclass(slots=True)
class Usage:
    """The usage of one stage: least and most MB of all looks, and CPU seconds over all its processes."""

    most_mb: float = 0.0
    last_mb: float = 0.0
    cpu_s: float = 0.0


class Watch:
    """Looks every `every_s` at the processes that `pids` names by stage; None: it is down now. Use with `with`."""

    def __init__(self, pids: Pids, every_s: float = 1.0) -> None:
        self._pids = pids
        self._every_s = every_s
        self._stop = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="memory")
        self._spent: dict[tuple[str, int, float], float] = {}
        self.usage: dict[str, Usage] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.look()

    def look(self) -> None:
        """Looks once, now."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        for stage, pid in self._pids().items():
            if pid is None:
                continue
            usage = self.usage.setdefault(stage, Usage())
            size = 0
            for process in _family(pid):
                try:
                    with process.oneshot():
                        if process.pid != pid and _same_memory(process.pid, process.ppid()):
                            continue
                        size += _held(process)
                        times = process.cpu_times()
                        # A child that ended is in its parent's account; nobody else's is
                        spent = times.user + times.system
                        self._spent[stage, process.pid, process.create_time()] = spent
                except psutil.Error:
                    continue  # it has ended since
            usage.last_mb = size / 1e6
            usage.most_mb = max(usage.most_mb, usage.last_mb)
            usage.cpu_s = sum(s for (name, _, _), s in self._spent.items() if name == stage)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.look()


def _held(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.uss))  # macOS does not say it


def _same_memory(one: int, other: int) -> bool:
    """Returns True if two processes have one memory, as a child has between vfork and exec. False where that cannot be asked."""
    if _KCMP is None:
        return False
    return _LIBC.syscall(_KCMP, one, other, _KCMP_VM, 0, 0) == 0


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []
