"""A bound for regular expressions that would run for ever on some text: CPU time is bounded, by block and then by event.

A pattern such as `(a+)+$` may take longer than anybody can wait on thirty characters that do not fit, and one such line would stop
the agent. Python's engine looks for signals now and then: a timer of CPU time interrupts it. That works in the main thread alone,
so `enable`, called there, switches it on. Without it, and in other threads, nothing is bounded.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

BLOCK_S: Final = 5.0
EVENT_S: Final = 1.0
"""Seconds of CPU time. Usual patterns need 10 to 100 µs for an event, and a block has some thousand events."""

T = TypeVar("T")


class _OverlongError(Exception):
    pass


class _Timer:
    """The process's one timer of CPU time."""

    def __init__(self) -> None:
        self.enabled = self._armed = False

    def rung(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise _OverlongError

    def run(self, seconds: float, work: Callable[[list[str]], list[T]], texts: list[str]) -> list[T]:
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            return work(texts)
        finally:
            self._armed = False  # first, so that a signal that comes now is ignored
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


_timer: Final = _Timer()


def enable() -> None:
    """Bounds the patterns of the main thread; call it there, once."""
    signal.signal(signal.SIGVTALRM, _timer.rung)
    _timer.enabled = True


def each(texts: list[str], work: Callable[[list[str]], list[T]], otherwise: Callable[[str], T]) -> list[T]:
    """Returns `work(texts)`, one result per text, and `otherwise(text)` for a text that takes too long. `work` has no side effects."""
    if not _timer.enabled or threading.current_thread() is not threading.main_thread():
        return work(texts)
    try:
        return _timer.run(BLOCK_S, work, texts)
    except _OverlongError:
        found: list[T] = []
    for text in texts:
        try:
            found += _timer.run(EVENT_S, work, [text])
        except _OverlongError:
            found.append(otherwise(text))
    return found
