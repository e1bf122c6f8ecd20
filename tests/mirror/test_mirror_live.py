"""The settings that a source task takes while it runs: pure."""

from __future__ import annotations

from klamm_mirror.source.config import ASSIGNED
from klamm_mirror.source.live import LAYOUT, LOST, live, moved, shares_of
from klamm_mirror.source.placement import Shares, place
from klamm_plugins.contexts import LIVE_SETTINGS


def configs(*shares: str, **more: str) -> list[dict[str, str]]:
    return [{ASSIGNED: share, **more} for share in shares]


def test_partitions_that_come_and_go_move_nothing():
    before = shares_of(configs("a-0,a-1", "b-0"))
    assert before == [[("a", 0), ("a", 1)], [("b", 0)]]
    assert not moved(before, [[("a", 0), ("c", 0)], [("b", 0), ("c", 1)]])
    assert moved(before, [[("a", 0)], [("b", 0), ("a", 1)]])
    assert moved(before, [[("b", 0)]])


def layouts(present: list[dict[str, str]], shares: Shares) -> list[str]:
    return [more[LAYOUT] for more in live(present, shares)]


def test_the_layout_grows_only_where_partitions_move():
    now = configs("a-0", "b-0", **{LAYOUT: "3"})
    assert layouts(now, [[("a", 0)], [("b", 0), ("b", 1)]]) == ["3", "3"]
    assert layouts(now, [[("b", 0)], [("a", 0)]]) == ["4", "4"]
    assert layouts(now, [[("a", 0), ("b", 0)]]) == ["4"]
    assert layouts([], [[("a", 0)]]) == ["1"]


def test_a_partition_that_comes_back_to_another_task_moves():
    """Its first task may be slow to give it up."""
    first = configs("x-0,b-0", "a-0", **{LAYOUT: "3"})
    shares = [[("b", 0)], [("a", 0)]]
    without = [
        {ASSIGNED: share[0][0] + "-0", **more}
        for share, more in zip(shares, live(first, shares), strict=True)
    ]
    assert [config[LAYOUT] for config in without] == ["3", "3"]
    back = place([("a", 0), ("b", 0), ("x", 0)], 2, {("b", 0): 9}, shares_of(without))
    assert back == [[("b", 0), ("x", 0)], [("a", 0)]]
    assert layouts(without, back) == ["3", "3"], "it comes back to its task"
    assert layouts(without, [[("b", 0)], [("a", 0), ("x", 0)]]) == ["4", "4"]
    assert [more[LOST] for more in live(without, shares)] == ["x-0", ""], "it is remembered"


def test_what_clients_or_pipelines_are_made_of_is_not_live():
    named = set(live([], [[("a", 0)]])[0][LIVE_SETTINGS].split(","))
    assert {"topics", "mirror.throttle.bytes", ASSIGNED, "refresh.topics.interval.seconds"} <= named
    assert not {"tasks.max", "transforms", "source.cluster.bootstrap.servers", LAYOUT} & named
