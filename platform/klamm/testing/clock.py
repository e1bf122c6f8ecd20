"""`FakeClock`: time that passes only when somebody waits or the test says so.

    clock = FakeClock()
    clock.install(monkeypatch, "acme_klamm.tickets")  # that module's `time` is the clock now
    context = MemorySourceContext(props, stopping=clock.event())  # `stopping.wait(s)` passes s seconds

It has the functions of `time` that modules use: `time`, `time_ns`, `monotonic`, `monotonic_ns`, `perf_counter`,
`perf_counter_ns` and `sleep`; everything else is the real module's. It is thread-safe. It counts in this process only: tasks in
a worker have real time.
"""

from __future__ import annotations

import importlib
import threading
import time as real
from types import ModuleType
from typing import Any, Final, Protocol

START_S: Final = 1_700_000_000  # a wall clock that says 1970 hides mistakes
_NS: Final = 1_000_000_000


class _Patches(Protocol):
    """The part of pytest's `monkeypatch` that the clock needs."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...


class FakeClock:
    """See the module. `waits` are the lengths, in seconds, of all waits so far."""

    def __init__(self, start_s: float = START_S) -> None:
        self._lock = threading.Lock()
        self._wall_ns = int(start_s * _NS)
        self._passed_ns = 0
        self.waits: list[float] = []

    def advance(self, seconds: float) -> None:
        """Lets time pass. Raises ValueError for a negative time: `set_wall` sets a clock back."""
        if seconds < 0:
            raise ValueError(f"time cannot pass by {seconds} s")
        with self._lock:
            self._passed_ns += int(seconds * _NS)

    def set_wall(self, wall_s: float) -> None:
        """Sets the time of day, also back, as an administrator might. `monotonic` does not change."""
        with self._lock:
            self._wall_ns = int(wall_s * _NS) - self._passed_ns

    def sleep(self, seconds: float) -> None:
        """Passes the time at once."""
        self.waits.append(seconds)
        self.advance(seconds)

    def time_ns(self) -> int:
        with self._lock:
            return self._wall_ns + self._passed_ns

    def monotonic_ns(self) -> int:
        with self._lock:
            return self._passed_ns

    def time(self) -> float:
        return self.time_ns() / _NS

    def monotonic(self) -> float:
        return self.monotonic_ns() / _NS

    perf_counter = monotonic
    perf_counter_ns = monotonic_ns

    def now_ms(self) -> int:
        """Returns the wall clock in milliseconds, for parts of Klamm that take `clock=…`."""
        return self.time_ns() // 1_000_000

    def event(self) -> FakeEvent:
        """Returns an event that waits by this clock, for the `stopping` of a context."""
        return FakeEvent(self)

    def install(self, monkeypatch: _Patches, *modules: ModuleType | str) -> None:
        """Makes it the `time` of these modules, which have `import time`, until the end of the test.

        Raises ValueError for a module that imports names from `time` instead: those cannot be replaced.
        """
        for given in modules:
            module = importlib.import_module(given) if isinstance(given, str) else given
            if vars(module).get("time") is not real:
                raise ValueError(f"{module.__name__} has no `import time`; its clock cannot be replaced")
            monkeypatch.setattr(module, "time", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


class FakeEvent(threading.Event):
    """An event whose `wait` with a timeout passes that time on the clock instead of waiting."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or self.is_set():
            return super().wait(timeout)
        self._clock.sleep(max(timeout, 0))
        return self.is_set()
