"""One thing that there can be more and more of, and the process that holds it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import psutil

SETTLE_S = 5.0
IDLE_S = 20.0


@dataclass(frozen=True, slots=True)
class Figures:
    """A process that holds `count` units: seconds and CPU seconds to get there, memory, and what it uses while nothing happens."""

    count: int
    ready_s: float
    ready_cpu_s: float
    memory_mb: float
    idle_percent: float
    """Percent of a core."""
    again_s: float = 0.0
    """Seconds until it is ready after an orderly stop and a start; 0 where nothing is kept."""


class Unit(ABC):
    """A unit to have many of. Use with `with`: it stops what it started."""

    name: ClassVar[str]
    counts: ClassVar[tuple[int, ...]]
    holder: ClassVar[str]
    """The process that is measured, in words."""

    def __init__(self, work: Path) -> None:
        self.work = work
        work.mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Starts the process without units."""

    @abstractmethod
    def grow(self, count: int) -> None:
        """Makes `count` units, and waits until all are there."""

    @abstractmethod
    def pid(self) -> int:
        """Returns the id of the process that holds the units; its children count, too."""

    @abstractmethod
    def stop(self) -> None:
        """Stops all that was started."""

    def again(self) -> float:
        """Stops and starts the process with its units; seconds until it is ready. 0: nothing is kept."""
        return 0.0

    def measure(self, count: int) -> Figures:
        """Starts, grows to `count`, waits until it is calm, and measures."""
        self.start()
        before, began = self._cpu_s(), time.monotonic()
        self.grow(count)
        ready_s, ready_cpu_s = time.monotonic() - began, self._cpu_s() - before
        time.sleep(SETTLE_S)
        calm = self._cpu_s()
        time.sleep(IDLE_S)
        idle = (self._cpu_s() - calm) / IDLE_S * 100
        memory = self._memory_mb()
        return Figures(count, ready_s, ready_cpu_s, memory, idle, self.again())

    def _family(self) -> list[psutil.Process]:
        process = psutil.Process(self.pid())
        return [process, *process.children(recursive=True)]

    def _cpu_s(self) -> float:
        total = 0.0
        for process in self._family():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total

    def _memory_mb(self) -> float:
        total = 0
        for process in self._family():
            try:
                memory = process.memory_full_info()
            except psutil.Error:
                continue
            total += int(getattr(memory, "pss", memory.uss))
        return total / 1e6
