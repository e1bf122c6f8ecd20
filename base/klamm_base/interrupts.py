"""Ends of a command by Ctrl-C or SIGTERM, at a place where nothing is half done.

An exception of a signal may come up in librdkafka's callbacks, which lose it: the call fails with a SystemError. So
the signals are noted, and a command asks for them between two records, or takes them as an exception while it waits
for something else. A command that works without librdkafka is ended at once: by `interruptible`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self

from klamm_base.errors import KlammError

INTERRUPTED: Final = 128 + signal.SIGINT


class Interrupted(KlammError):
    """Ended by a signal. The exit code is 128 and the signal's number, as shells have it."""

    def __init__(self, number: int) -> None:
        super().__init__("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        self.code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted where Ctrl-C or SIGTERM ends the block; asyncio cancels its tasks for both."""
    number = signal.SIGINT

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal number
        number = signal.SIGTERM
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell's script starts it with `&`
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(number) from None
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupts:
    """SIGINT and SIGTERM are noted while this is used as a context. A second one ends the command at once."""

    def __init__(self) -> None:
        self.count = 0
        self._number = 0
        self._raising = self._flushing = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._number = number
        if self._raising:
            self.check()
        if self.count > 1 and not self._flushing:
            raise KeyboardInterrupt  # nobody asked for the first one

    @property
    def code(self) -> int:
        """The exit code; 0 where no signal came."""
        return 128 + self._number if self.count else 0

    def check(self) -> None:
        """Raise Interrupted where a signal came."""
        if self.count:
            self._raising = False
            raise Interrupted(self._number)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal raise Interrupted at once. Nothing of librdkafka may be called meanwhile."""
        self._raising = True
        try:
            self.check()
            yield
        finally:
            self._raising = False

    def flush(self, producer: Any, seconds: float) -> int:
        """Wait for acknowledgements until another signal comes. Returns how many are missing."""
        before, left = self.count, 0
        self._flushing = True
        try:
            for _ in range(max(int(seconds / _SLICE_S), 1)):
                left = producer.flush(_SLICE_S)
                if not left or self.count > before:
                    break
        finally:
            self._flushing = False
        return int(left)


_SLICE_S: Final = 0.25
