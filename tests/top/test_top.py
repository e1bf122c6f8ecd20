"""Figures and page of `klamm top`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from klamm.admin.model import TopicPartition
from klamm.top.figures import GroupLook, Look, figures
from klamm.top.page import duration, number, page

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def _look(
    at: float, ends: dict[TopicPartition, int], read: dict[TopicPartition, int], **more: object
) -> Look:
    group = GroupLook(state="Stable", members=1, offsets=read)
    return Look(at=at, brokers=1, ends=ends, groups={"g": group}, **more)  # type: ignore[arg-type]


BEFORE = _look(10, {A0: 100, A1: 100, B0: 5}, {A0: 50, B0: 5}, metrics={"bytesin": 0.0})
NOW = _look(12, {A0: 300, A1: 200, B0: 5}, {A0: 290, B0: 5}, metrics={"bytesin": 2000.0})


def test_rates_lag_and_time_left() -> None:
    shown = figures(NOW, BEFORE)
    assert [(t.topic, t.partitions, t.records, t.rate) for t in shown.topics] == [
        ("a", 2, 500, 150.0),
        ("b", 1, 5, 0.0),
    ]
    (group,) = shown.groups
    assert (group.lag, group.rate) == (10, 120.0)
    assert group.left_s == pytest.approx(10 / 20)  # it reads 120 a second, and 100 arrive
    assert (shown.rate, shown.bytes_in, shown.bytes_out) == (150.0, 1000.0, None)


def test_a_first_look_has_no_rates() -> None:
    shown = figures(BEFORE, None)
    assert (shown.rate, shown.bytes_in, shown.topics[0].rate, shown.groups[0].rate) == (
        None,
        None,
        None,
        None,
    )


def test_a_group_that_falls_behind_never_catches_up() -> None:
    (group,) = figures(_look(12, {A0: 1000}, {A0: 60}), BEFORE).groups
    assert group.left_s is None


def test_a_topic_that_was_made_anew_does_not_run_backwards() -> None:
    shown = figures(_look(12, {A0: 3}, {}), BEFORE)
    assert shown.topics[0].rate == 0.0


def test_an_offset_beyond_the_end_is_no_negative_lag() -> None:
    (group,) = figures(_look(12, {A0: 3}, {A0: 9}), None).groups
    assert group.lag == 0


def _status(state: str, *tasks: str) -> dict[str, object]:
    return {
        "status": {
            "type": "sink", "connector": {"state": state},
            "tasks": [{"state": s, "trace": "Boom: no\n  at x" if s == "FAILED" else ""} for s in tasks],
        }
    }  # fmt: skip


def test_connectors_that_failed_come_first_with_their_reason() -> None:
    connectors = {"fine": _status("RUNNING", "RUNNING"), "ill": _status("RUNNING", "RUNNING", "FAILED")}
    rows = figures(_look(12, {}, {}, connectors=connectors), None).connectors
    assert rows is not None
    assert [(r.connector, r.running, r.failed, r.tasks, r.said) for r in rows] == [
        ("ill", 1, 1, 2, "Boom: no"), ("fine", 1, 0, 1, ""),
    ]  # fmt: skip


@pytest.mark.parametrize("height", [10, 24, 60])
def test_the_page_fits_and_says_what_it_leaves_out(height: int) -> None:
    ends = {TopicPartition(f"topic-{i}", 0): i for i in range(500)}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(page(figures(_look(1, ends, {}, connectors={}), None), height=height, title="x"))
    lines = console.export_text().splitlines()
    assert any("more" in line for line in lines)
    assert len(lines) <= max(height, 16)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.5, "0.5"), (7, "7"), (99.94, "99.9"), (999.4, "999"), (1234, "1.2k"), (5.6e6, "5.6M")],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0s"), (59.7, "1m 0s"), (200, "3m 20s"), (7260, "2h 1m"), (90000, "1d 1h")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown
