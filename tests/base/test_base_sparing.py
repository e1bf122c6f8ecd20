"""Messages that are logged now and then only."""

from __future__ import annotations

import logging

import pytest

from klamm_base import sparing
from klamm_base.sparing import Sparing


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(sparing.time, "monotonic", lambda: now[0])
    return now


def test_a_subject_is_due_once_in_an_interval_and_others_do_not_matter():
    said = Sparing(60)
    assert [said.left_out("a", at) for at in (0, 1, 59.9)] == [0, None, None]
    assert said.left_out("b", 30) == 0
    assert said.left_out("a", 60) == 2
    assert said.left_out("a", 119) is None
    assert said.left_out("a", 500) == 1


def test_the_first_is_due_whatever_the_clock_says():
    assert Sparing(60).left_out("a", 0.5) == 0


def test_a_subject_that_is_forgotten_is_due_at_once():
    said = Sparing(60)
    assert said.left_out("a", 0) == 0
    said.forget("a")
    said.forget("never seen")
    assert said.left_out("a", 1) == 0


def test_subjects_without_a_word_for_long_take_no_memory():
    said = Sparing(1)
    for n in range(1000):
        said.left_out(f"file {n}", float(n))
    assert len(said._said) <= 10


def test_a_warning_says_how_many_were_left_out(clock, caplog):
    log, said = logging.getLogger("sparing"), Sparing(60)
    for second in range(125):
        clock[0] = 1000.0 + second
        said.warning(log, "path", f"broken at {second}, 100 %s")
    assert [r.getMessage() for r in caplog.records] == [
        "broken at 0, 100 %s",
        "broken at 60, 100 %s (59 more like this since the last time)",
        "broken at 120, 100 %s (59 more like this since the last time)",
    ]
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
