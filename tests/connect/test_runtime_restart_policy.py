"""The restart policy: which errors are retried, how long it waits, when it gives up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.settings.restart_policy import (
    PERMANENT,
    ErrorClass,
    GiveUp,
    History,
    Restart,
    RestartPolicy,
)
from klamm_base.errors import ConfigError

POLICY = RestartPolicy(
    max_restarts=3, window_ms=60_000, backoff_ms=1_000, backoff_max_ms=3_000, healthy_after_ms=30_000
)
TRANSIENT = sorted(set(ErrorClass) - PERMANENT - {ErrorClass.LOST})


@pytest.mark.parametrize("error", sorted(PERMANENT))
def test_permanent_errors_are_never_retried(error):
    decision = POLICY.decide(History(), error, now_ms=0, random=0)
    assert decision == GiveUp(why=f"a {error} error is permanent")


@pytest.mark.parametrize("error", TRANSIENT)
def test_transient_errors_are_retried_with_growing_waits_until_the_budget_is_used(error):
    history = History()
    decisions = [POLICY.decide(history, error, now_ms=at, random=0) for at in (0, 5_000, 10_000, 15_000)]
    assert decisions[:3] == [
        Restart(attempt=1, delay_ms=1_000),
        Restart(attempt=2, delay_ms=2_000),
        Restart(attempt=3, delay_ms=3_000),
    ]
    assert decisions[3] == GiveUp(why="task.restart.max=3 within 60 s is used up")


def test_losses_of_the_fork_server_use_up_nothing_and_pause_longer_each_time():
    history = History()
    losses = [POLICY.decide(history, ErrorClass.LOST, now_ms=at, random=0) for at in range(20)]
    assert [d.delay_ms for d in losses[:4]] == [250, 500, 1_000, 2_000]
    assert losses[-1] == Restart(attempt=20, delay_ms=30_000)
    crash = POLICY.decide(history, ErrorClass.CRASH, now_ms=30, random=0)
    assert crash == Restart(attempt=1, delay_ms=1_000)
    for at in (31, 32):
        POLICY.decide(history, ErrorClass.CRASH, now_ms=at, random=0)
    assert isinstance(POLICY.decide(history, ErrorClass.CRASH, now_ms=33, random=0), GiveUp)


def test_a_fork_server_that_goes_on_dying_is_paused_for_also_when_tasks_are_not():
    policy = RestartPolicy(backoff_ms=0, backoff_max_ms=0, window_ms=1)
    history = History()
    waits = [policy.decide(history, ErrorClass.LOST, now_ms=at * 1_000, random=0).delay_ms for at in range(5)]
    assert waits == [250, 500, 1_000, 2_000, 4_000]
    history.running(5_000)
    later = policy.decide(history, ErrorClass.LOST, now_ms=5_000 + policy.healthy_after_ms, random=0)
    assert later == Restart(attempt=1, delay_ms=250), "a healthy period forgets losses, too"


def test_restarts_that_leave_the_window_count_no_more():
    history = History()
    for at in (0, 1, 2):
        POLICY.decide(history, ErrorClass.CRASH, now_ms=at, random=0)
    assert isinstance(POLICY.decide(history, ErrorClass.CRASH, now_ms=59_999, random=0), GiveUp)
    assert POLICY.decide(history, ErrorClass.CRASH, now_ms=60_002, random=0) == Restart(
        attempt=1, delay_ms=1_000
    )


def test_a_healthy_period_forgets_the_past():
    history = History()
    for at in (0, 1, 2):
        POLICY.decide(history, ErrorClass.CRASH, now_ms=at, random=0)
    history.running(5_000)
    assert isinstance(POLICY.decide(history, ErrorClass.CRASH, now_ms=34_999, random=0), GiveUp)
    history.running(5_000)
    assert POLICY.decide(history, ErrorClass.CRASH, now_ms=35_000, random=0) == Restart(
        attempt=1, delay_ms=1_000
    )


def test_the_time_that_it_hung_was_not_healthy():
    """This holds where a hang takes longer to be seen than healthy tasks take to be forgiven, as by default."""
    history, at = History(), 0
    for attempt in (1, 2, 3):
        history.running(at)
        decision = POLICY.decide(history, ErrorClass.HANG, now_ms=at + 15_000, alive_ms=at, random=0)
        assert decision == Restart(attempt=attempt, delay_ms=1_000 * min(3, 2 ** (attempt - 1)))
        at += 15_000
    policy = RestartPolicy(max_restarts=1)
    history = History()
    history.running(0)
    assert isinstance(policy.decide(history, ErrorClass.HANG, now_ms=300_000, alive_ms=0, random=0), Restart)
    history.running(301_000)
    last = policy.decide(history, ErrorClass.HANG, now_ms=601_000, alive_ms=301_000, random=0)
    assert isinstance(last, GiveUp)


def test_no_restarts_at_all_is_kafkas_behaviour():
    policy = RestartPolicy.from_props({"task.restart.max": "0"})
    assert isinstance(policy.decide(History(), ErrorClass.CRASH, now_ms=0, random=0), GiveUp)


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match=r"Invalid value -1 for configuration task.restart.max"):
        RestartPolicy.from_props({"task.restart.max": "-1"})


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_jittered_below_the_doubled_backoff_and_never_above_the_maximum(attempt, random):
    policy = RestartPolicy()
    full = min(60_000, 1_000 * 2 ** (attempt - 1))
    assert full * 0.8 - 1 <= policy.delay_ms(attempt, random) <= full


@given(
    st.lists(
        st.tuples(st.integers(0, 40_000), st.sampled_from(TRANSIENT)),
        max_size=60,
    ),
    st.booleans(),
)
def test_no_window_ever_holds_more_restarts_than_the_budget(steps, reports_running):
    history, now, restarts = History(), 0, []
    for passed, error in steps:
        now += passed
        if isinstance(POLICY.decide(history, error, now_ms=now, random=0.5), Restart):
            restarts.append(now)
            if reports_running:
                history.running(now)
    for start in restarts:
        inside = [at for at in restarts if start <= at < start + POLICY.healthy_after_ms]
        assert len(inside) <= POLICY.max_restarts
