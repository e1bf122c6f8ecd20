"""Burrow's rules: the examples of its documentation and tests, and properties that no example shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.admin.model import TopicPartition
from klamm.lag.ends import EndHistory
from klamm.lag.model import Commit, Status
from klamm.lag.rules import group_status, partition_status, rewound, stopped
from klamm.lag.state import ClusterState, Judging
from klamm.lag.window import Window

TP = TopicPartition("t", 0)


def commits(*rows: tuple[int, int, int | None]) -> list[Commit]:
    """Makes commits of (offset, seconds, lag)."""
    return [Commit(offset, at * 1000, at * 1000, lag, n) for n, (offset, at, lag) in enumerate(rows)]


MOVING = commits((1000, 100, 0), (2000, 200, 50), (3000, 300, 100), (4000, 400, 150), (5000, 500, 200))
SLOW = commits((1000, 100, 50), (2000, 200, 100), (3000, 300, 150), (4000, 400, 200), (5000, 500, 250))
STANDING = commits((1000, 100, 100), (1000, 200, 150), (1000, 300, 200), (1000, 400, 250), (1000, 500, 300))
RECOVERED = commits((1000, 100, 100), (2000, 200, 150), (3000, 300, 200), (2000, 400, 1250), (4000, 500, 300))
BACK = commits((1000, 100, 100), (2000, 200, 150), (3000, 300, 200), (2000, 400, 1250), (2500, 500, 300))
TWICE = commits((1000, 100, 100), (900, 200, 400), (3000, 300, 200), (2000, 400, 1250), (2500, 500, 300))
AT_END = commits(*((9000 + n, 10 + n, 0) for n in range(15)))


@pytest.mark.parametrize(
    ("window", "ends", "lag", "now_s", "allowed", "wanted"),
    [
        pytest.param(MOVING, [5200], 200, 600, 0, Status.OK, id="the lag was zero in the window"),
        pytest.param(SLOW, [5250], 250, 600, 0, Status.WARN, id="the lag grows at every commit"),
        pytest.param(STANDING, [1300], 300, 600, 0, Status.STALL, id="one offset, growing lag"),
        pytest.param(STANDING, [1300], 300, 600, 99, Status.STALL, id="one offset, with an allowed lag"),
        pytest.param(SLOW, [5250], 250, 1000, 0, Status.STOP, id="the last commit is old"),
        pytest.param(SLOW, [5250], 0, 1000, 0, Status.OK, id="old, but there is no lag now"),
        pytest.param(RECOVERED, [4300], 300, 600, 0, Status.OK, id="went back and caught up"),
        pytest.param(BACK, [4300], 300, 600, 0, Status.REWIND, id="went back and is not there yet"),
        pytest.param(TWICE, [4300], 300, 600, 0, Status.REWIND, id="went back again after it had made up for it"),
        pytest.param(AT_END, [9945, 9300], 931, 60, 0, Status.STOP, id="never had lag, then stopped"),
        pytest.param(AT_END, [9015, 9014], 1, 60, 0, Status.OK, id="was at the end at a recent look"),
        pytest.param(
            commits((1000, 100, 2), (2000, 200, 1), (2000, 300, 1)), [2001], 1, 550, 1, Status.OK,
            id="the allowed lag is none",
        ),
        pytest.param(
            commits((1000, 100, 9), (1500, 150, None), (2000, 200, 50), (2500, 250, None), (3000, 300, 60)),
            [3060], 60, 400, 0, Status.WARN, id="unknown lags decide nothing",
        ),
    ],
)  # fmt: skip
def test_rules(window, ends, lag, now_s, allowed, wanted):
    assert partition_status(window, ends, lag, now_s * 1000, allowed_lag=allowed) is wanted


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 50))), min_size=1
    ),
    st.lists(st.integers(0, 60), max_size=3),
    st.integers(0, 40),
    st.integers(0, 200),
    st.integers(0, 3),
)
def test_rules_hold_for_any_window(rows, ends, lag, later_s, allowed):
    at, window = 0, []
    for n, (offset, pause, known) in enumerate(rows):
        at += pause
        window.append(Commit(offset, at * 1000, at * 1000, known, n))
    now_ms = (at + later_s) * 1000
    found = partition_status(window, ends, lag, now_ms, allowed_lag=allowed)
    offsets = [c.offset for c in window]
    if lag <= allowed:
        assert found is Status.OK
    match found:
        case Status.STOP:
            assert stopped(window, now_ms)
            assert all(end > offsets[-1] for end in ends)
        case Status.REWIND:
            assert rewound(window)
            assert min(offsets[1:]) < max(offsets)
            assert sorted(offsets) != offsets
        case Status.STALL:
            assert len(set(offsets)) == 1
        case Status.WARN:
            assert offsets[-1] >= offsets[0] or sorted(offsets) != offsets
            assert all(c.lag is None or c.lag > allowed for c in window)
    # More patience never makes a stopped consumer better.
    if found is Status.STOP:
        assert partition_status(window, ends, lag, now_ms + 1, allowed_lag=allowed) is Status.STOP
    # A consumer that never went back, and whose lag fell, is OK or has stopped.
    assert found in Status
    assert found not in {Status.NOTFOUND, Status.ERR}


@given(st.lists(st.sampled_from([s for s in Status if s not in {Status.NOTFOUND, Status.ERR}])))
def test_a_group_is_as_bad_as_its_worst_partition(statuses):
    found = group_status(statuses)
    worst = max(statuses, default=Status.OK)
    assert found is (worst if worst <= Status.WARN else Status.ERR)


def test_commits_that_come_too_fast_replace_each_other():
    window = Window(3, 1000)
    for n in range(40):  # one every 0.1 s
        assert window.add(Commit(n, 100 * n, 0, 0, n))
    assert [c.timestamp for c in window.commits] == [1000, 2000, 3000]
    assert [c.offset for c in window.commits] == [19, 29, 39], "the newest offset counts"


def test_commits_that_come_late_go_to_their_place():
    window = Window(3, 0)
    window.add(Commit(10, 1000, 0, 5, 10))
    window.add(Commit(30, 3000, 0, 5, 30))
    assert not window.add(Commit(20, 2000, 0, 5, 20))
    assert not window.add(Commit(20, 2000, 0, 5, 20)), "twice the same commit"
    assert [(c.offset, c.lag) for c in window.commits] == [(10, 5), (20, None), (30, 5)]
    assert not window.add(Commit(15, 1500, 0, 5, 15)), "the window is full"
    assert len(window.commits) == 3


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 100)), min_size=2, max_size=400))
def test_a_record_is_as_old_as_the_look_at_which_it_was_there(steps):
    history, now, end, written = EndHistory(10), 0, 0, []
    history.look(0, 0)
    for pause, count in steps:
        before, now = now, now + pause * 1000
        written += [(before, now)] * count
        end += count
        history.look(end, now)
    assert history.age(end, now) is None
    assert len(history.points) <= 96
    if len(steps) < 90:  # nothing was thinned: the look before and the look after enclose the time
        for offset in range(0, end, max(end // 7, 1)):
            age = history.age(offset, now)
            low, high = written[offset]
            assert age is not None
            assert age.exact
            assert now - high <= age.ms <= now - low


def test_a_log_that_became_shorter_is_another_log():
    history = EndHistory(10)
    history.look(100, 1000)
    history.look(5, 2000)
    assert list(history.recent) == [5]
    assert history.age(3, 3000) == (1000, False), "at least as old as our first look"


def watched(**judging: int) -> ClusterState:
    return ClusterState("c", Judging(**judging))


def test_a_commit_waits_until_the_log_is_known():
    state = watched()
    state.commit("g", TP, 7, at_ms=1000, order=1, now_ms=1000)
    assert state.status("g", 1000) is None
    assert state.partitions() == {TP}
    state.look(TP, 10, 2000)
    assert state.status("g", 61_000).status is Status.OK, "one commit can only be too old"
    status = state.status("g", 61_001)
    assert (status.total_lag, status.status, status.complete) == (3, Status.ERR, 0.0)
    assert status.partitions[0].status is Status.STOP, "behind at every look"


def test_a_group_has_all_partitions_of_its_topics():
    state = watched(intervals=2, distance_ms=0)
    for n in range(3):
        state.look(TopicPartition("t", n), 10, 0)
    for order in (1, 2):
        state.commit("g", TP, 10, at_ms=order * 1000, order=order, now_ms=order * 1000)
    status = state.status("g", 2000)
    assert [p.complete for p in status.partitions] == [1.0, 0.0, 0.0]
    assert status.complete == pytest.approx(1 / 3)
    assert status.status is Status.OK
    assert status.shown(every=False)["partitions"] == []
    assert status.shown()["partition_count"] == 3
    assert status.shown()["maxlag"]["current_lag"] == 0


def test_groups_and_topics_are_forgotten():
    state = watched(expire_ms=10_000)
    other = TopicPartition("u", 0)
    for tp in (TP, other):
        state.look(tp, 10, 0)
        state.commit("g", tp, 5, at_ms=1000, order=1, now_ms=1000)
    state.commit("h", TP, 5, at_ms=5000, order=1, now_ms=5000)
    assert state.readers("t") == ["g", "h"]
    assert state.forget("g", topic="t")
    assert state.readers("t") == ["h"]
    state.expire(11_500)
    assert state.groups() == ["h"]
    state.forget_partitions({TP})
    assert state.groups() == []
    assert not state.forget("h")
    state.commit("late", TP, 5, at_ms=1000, order=1, now_ms=20_000)
    assert state.partitions() == set(), "older than a group may be"


def test_time_lag_is_the_age_of_the_record_where_it_is_known():
    state = watched()
    state.look(TP, 0, 0)
    state.look(TP, 100, 10_000)
    state.commit("g", TP, 50, at_ms=10_000, order=1, now_ms=10_000)
    assert list(state.behind()) == [(TP, 50)]
    assert state.status("g", 20_000).time_lag_ms == pytest.approx(14_900, abs=100), "half of the ten seconds"
    state.wrote(TP, 50, 3000)
    assert state.status("g", 20_000).time_lag_ms == 17_000
    assert not list(state.behind())
    state.commit("g", TP, 100, at_ms=11_000, order=2, now_ms=11_000)
    assert state.status("g", 20_000).time_lag_ms == 0


def test_each_group_has_the_time_of_its_own_next_record():
    state = ClusterState("c", Judging())
    state.look(TP, 100, 0)
    for n, offset in enumerate((10, 20)):
        state.commit(f"g{n}", TP, offset, at_ms=0, order=n, now_ms=0)
    assert sorted(state.behind()) == [(TP, 10), (TP, 20)]
    state.wrote(TP, 10, -5000)
    state.wrote(TP, 20, -3000)
    assert list(state.behind()) == []
    assert [state.status(f"g{n}", 0).time_lag_ms for n in (0, 1)] == [5000, 3000]
    state.commit("g0", TP, 11, at_ms=1, order=2, now_ms=1)
    state.expire(1)
    assert list(state.behind()) == [(TP, 11)]
    state.look(TP, 50, 2)
    assert sorted(state.behind()) == [(TP, 11), (TP, 20)], "the log is another one"


def test_nobody_has_stopped_whose_next_record_has_just_come():
    """A server that starts again has looked at the log's end once."""
    judging = Judging(patience_ms=60_000)
    state, hour = ClusterState("c", judging), 3_600_000
    state.restore("g", "consumer", TP, commits((99, 1, 0), (100, 2, 0)))
    state.look(TP, 101, hour)
    state.wrote(TP, 100, hour - 1000)
    assert state.status("g", hour).status is Status.OK
    assert state.status("g", hour + 58_000).status is Status.OK
    assert state.status("g", hour + 60_000).status is Status.ERR
    state.wrote(TP, 100, 9 * hour)  # a producer's clock says nothing
    assert state.status("g", hour).status is Status.ERR
