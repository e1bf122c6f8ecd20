"""Lines that clients cause are few: ten in ten seconds, then a count."""

from __future__ import annotations

import logging

from klamm_broker.server.few_lines import LINES_S, FewLines


class Loop:
    """A loop whose time a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay, call):
        self.timers.append((self.now + delay, call))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.timers if at <= self.now]
        self.timers = [(at, call) for at, call in self.timers if at > self.now]
        for call in due:
            call()


def test_ten_lines_are_told_and_the_others_counted(caplog):
    loop, lines = Loop(), FewLines(logging.getLogger("x"), "connections were refused")
    assert [lines.level(loop) for _ in range(12)] == [logging.WARNING] * 10 + [logging.DEBUG] * 2
    loop.sleep(LINES_S)
    assert caplog.messages == ["2 more connections were refused within 10 s"]
    assert lines.level(loop, logging.INFO) == logging.INFO
    loop.sleep(LINES_S)
    assert len(caplog.messages) == 1


def test_a_kind_may_have_more_lines(caplog):
    loop, lines = Loop(), FewLines(logging.getLogger("x"), "were closed", 100)
    assert [lines.level(loop) for _ in range(101)] == [logging.WARNING] * 100 + [logging.DEBUG]
    loop.sleep(LINES_S)
    assert caplog.messages == ["1 more were closed within 10 s"]
