"""Reports of idle tasks: nothing new is said seldom, and anything new at once."""

from __future__ import annotations

import fcntl
import itertools
import os
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.connect.child.control import CALM_S, QUIET_INTERVAL_S, REPORT_INTERVAL_S, Control, Reports
from klamm.connect.child.vitals import Vitals
from klamm.connect.children.channel import BlockingChannel


def report(beats: int, **more: Any) -> dict[str, Any]:
    return {"beats": beats, "records": 0, "lag": 0, "details": {}} | more


def test_child_reports_without_news_come_seldom_but_they_come() -> None:
    """The worker takes the silence of a task for a plugin that holds the interpreter."""
    reports, sent, now = Reports(), [], 100.0
    for beat in range(40):
        if reports.news(report(beat), now, QUIET_INTERVAL_S):
            sent.append(now)
        now += REPORT_INTERVAL_S
    assert len(sent) == 40 * REPORT_INTERVAL_S / QUIET_INTERVAL_S
    assert max(b - a for a, b in itertools.pairwise(sent)) == QUIET_INTERVAL_S


def test_child_reports_with_news_come_at_once() -> None:
    reports = Reports()
    assert reports.news(report(1), 100.0, QUIET_INTERVAL_S)
    assert reports.news(report(2), 100.5, QUIET_INTERVAL_S) is None
    assert reports.news(report(3, records=1), 101.0, QUIET_INTERVAL_S) == report(3, records=1)
    assert reports.news(report(4, records=1, details={"skipped": 1}), 101.5, QUIET_INTERVAL_S)


def test_child_reports_calm_down_and_a_record_wakes_them() -> None:
    """Thousands of idle tasks need not look at their figures twice a second; the next record is reported as soon as ever."""
    reports, now = Reports(), 100.0
    reports.news(report(1), now, QUIET_INTERVAL_S)
    assert not reports.calm(now + CALM_S)
    assert reports.calm(now + CALM_S + 0.1)
    reports.news(report(2), now + 7, QUIET_INTERVAL_S)
    assert reports.calm(now + 7), "beats are no news"
    reports.news(report(3, records=1), now + 8, QUIET_INTERVAL_S)
    assert not reports.calm(now + 8)

    woken = []
    vitals = Vitals()
    vitals.wake = lambda: woken.append(vitals.records)
    vitals.acknowledged(0)
    assert woken == [], "nothing was acknowledged"
    vitals.acknowledged(3)
    vitals.acknowledged(4)
    assert woken == [3], "once: the control thread asks again when it is calm"


@pytest.fixture
def channel() -> Iterator[tuple[BlockingChannel, socket.socket]]:
    ours, worker = socket.socketpair()
    with ours, worker:
        yield BlockingChannel(ours), worker


def test_a_member_that_has_left_a_shared_process_writes_to_nobody_else(
    channel: tuple[BlockingChannel, socket.socket],
) -> None:
    """A thread of its plugin may go on; the next member has the descriptor."""
    control = Control(channel[0])
    control.start()
    control.vitals.wake = control._wake
    control.close()
    pipes = [os.pipe() for _ in range(4)]
    control.vitals.acknowledged(1)
    for reading, writing in pipes:
        os.set_blocking(reading, False)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
        os.close(reading)
        os.close(writing)


def test_tasks_of_a_shared_process_may_have_more_descriptors_than_select_takes(
    channel: tuple[BlockingChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("the system permits too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, worker = channel
    try:
        high = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, 1100))
        control = Control(BlockingChannel(high))
        control.start()
        worker.settimeout(10)
        assert worker.recv(1 << 16), "a report"
        control.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ended == []
