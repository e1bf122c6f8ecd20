"""Reports of idle tasks: nothing new is said seldom, and anything new at once."""

from __future__ import annotations

import itertools
from typing import Any

from klamm.connect.child.control import CALM_S, QUIET_INTERVAL_S, REPORT_INTERVAL_S, Reports
from klamm.connect.child.vitals import Vitals


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
