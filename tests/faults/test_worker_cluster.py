"""Three Connect workers under kills, pauses and cuts of their network: a hundred rebalances, nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from support.workers.judge import (
    Number,
    judge_delivery,
    judge_lines,
    judge_numbers,
    judge_tenure,
)
from support.workers.soak import run_round

REBALANCES = 50


@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
def test_a_group_of_workers_survives_faults(exactly_once, tmp_path):
    seed = 20 + exactly_once
    result = run_round(seed, REBALANCES, exactly_once=exactly_once, keep=tmp_path)
    print(result)
    assert not result.violations
    assert result.rebalances >= REBALANCES
    assert result.checked["lines"] > 1000
    assert result.checked["lives of tasks"] > 10


def rules(violations):
    return [v.rule for v in violations]


@pytest.mark.parametrize(
    ("found", "exactly_once", "expected"),
    [
        ([("a", 0), ("a", 1), ("b", 2)], True, []),
        ([("a", 0), ("a", 1), ("b", 1), ("b", 2)], False, []),
        ([("a", 0), ("a", 1), ("b", 1), ("b", 2)], True, ["twice"]),
        ([("a", 0), ("a", 2)], False, ["lost"]),
        ([("a", 1)], True, ["lost"]),
        ([("a", 0), ("b", 1), ("a", 2)], True, ["zombie"]),
        ([("a", 0), ("b", 1), ("a", 2)], False, []),
    ],
)
def test_numbers_are_judged(found, exactly_once, expected):
    assert rules(judge_numbers("0", [Number(*n) for n in found], exactly_once=exactly_once)) == expected


@pytest.mark.parametrize(
    ("found", "exactly_once", "expected"),
    [
        (["a", "b", "c"], True, []),
        (["a", "b", "b", "c"], False, []),
        (["a", "b", "b", "c"], True, ["twice"]),
        (["a", "c", "b"], True, ["twice"]),
        (["a", "c"], True, ["lost"]),
        (["a", "c"], False, ["lost"]),
    ],
)
def test_lines_are_judged(found, exactly_once, expected):
    assert rules(judge_lines("f", ["a", "b", "c"], found, exactly_once=exactly_once)) == expected


def test_what_does_not_reach_the_sink_is_lost():
    assert judge_delivery({"t": 2}, [("t", 0), ("t", 0), ("t", 5)]) == []
    assert rules(judge_delivery({"t": 3, "u": 0}, [("t", 0), ("t", 0), ("t", 5)])) == ["lost"]


def test_two_lives_at_once_are_found():
    apart = [("0", "a", 1), ("0", "a", 5), ("0", "b", 6), ("0", "b", 9), ("1", "c", 2)]
    assert judge_tenure(apart) == []
    assert rules(judge_tenure([*apart, ("0", "a", 7)])) == ["overlap"]
    assert judge_tenure([*apart, ("0", "a", 7)], excused=[(3, 6)], slack_ms=2) == []
    long_ago = [("0", "a", 1), ("0", "a", 20), ("0", "b", 2), ("0", "b", 3), ("0", "c", 15)]
    assert rules(judge_tenure(long_ago)) == ["overlap", "overlap"]
