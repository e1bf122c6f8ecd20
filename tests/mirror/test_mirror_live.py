"""The settings that a source task takes while it runs: pure."""

from __future__ import annotations

from klamm_mirror.source.config import ASSIGNED
from klamm_mirror.source.live import LAYOUT, live, moved, shares_of
from klamm_plugins.contexts import LIVE_SETTINGS


def configs(*shares: str, **more: str) -> list[dict[str, str]]:
    return [{ASSIGNED: share, **more} for share in shares]


def test_partitions_that_come_and_go_move_nothing():
    before = shares_of(configs("a-0,a-1", "b-0"))
    assert before == [[("a", 0), ("a", 1)], [("b", 0)]]
    assert not moved(before, [[("a", 0), ("c", 0)], [("b", 0), ("c", 1)]])
    assert moved(before, [[("a", 0)], [("b", 0), ("a", 1)]])
    assert moved(before, [[("b", 0)]])


def test_the_layout_grows_only_where_partitions_move():
    now = configs("a-0", "b-0", **{LAYOUT: "3"})
    assert live(now, [[("a", 0)], [("b", 0), ("b", 1)]])[LAYOUT] == "3"
    assert live(now, [[("b", 0)], [("a", 0)]])[LAYOUT] == "4"
    assert live([], [[("a", 0)]])[LAYOUT] == "1"


def test_what_clients_or_pipelines_are_made_of_is_not_live():
    named = set(live([], [])[LIVE_SETTINGS].split(","))
    assert {"topics", "mirror.throttle.bytes", ASSIGNED, "refresh.topics.interval.seconds"} <= named
    assert not {"tasks.max", "transforms", "source.cluster.bootstrap.servers", LAYOUT} & named
