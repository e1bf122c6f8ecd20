"""The leader's decisions: nothing lost, nothing twice, balanced, few moves; delays; loads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.connect.group.assignor import Claim, Plan, Sharing, Work, share_eagerly
from klamm.connect.group.load_watch import AVERAGE_MS, CORES, INTERVAL_MS, LASTING_MS, WARM_UP_MS, LoadWatch
from klamm.connect.group.weights import IDLE, Weights
from klamm.connect.model import TaskId

ROUNDS_MAX = 3
"""This number of rounds is enough from any state: revoke, give out, and one that finds nothing to do."""


def tasks(connector: str, *numbers: int) -> frozenset[TaskId]:
    return frozenset(TaskId(connector, n) for n in numbers)


def claim(name: str, work: Work = Work(), loads: Mapping[str, float] | None = None) -> Claim:  # noqa: B008
    return Claim(url=f"http://{name}", work=work, loads=loads or {})


class SimulatedGroup:
    """Workers that do what they are told, and a leader that remembers as long as it leads."""

    def __init__(self, max_delay_ms: int = 0) -> None:
        self.workers: dict[str, Claim] = {}
        self.configured: dict[str, int] = {}
        self.sharing = Sharing(max_delay_ms=max_delay_ms)
        self.now_ms = 0
        self.revoked = 0
        self.given = 0

    def round(self) -> Plan:
        plan, memory = self.sharing.share(self.configured, self.workers, self.now_ms)
        self.check(plan)
        for name, share in plan.shares.items():
            self.workers[name] = replace(self.workers[name], work=share.all)
            self.revoked += len(share.revoked.tasks) + len(share.revoked.connectors)
            self.given += len(share.new.tasks) + len(share.new.connectors)
        self.sharing = memory
        return plan

    def check(self, plan: Plan) -> None:
        assert plan.shares.keys() == self.workers.keys()
        for name, share in plan.shares.items():
            had = self.workers[name].work
            assert share.all == (had - share.revoked) | share.new
            assert share.revoked - had == Work()
            for other, theirs in self.workers.items():
                assert other == name or not share.new & theirs.work, "given away while another runs it"
            for other, theirs_ in plan.shares.items():
                assert other == name or not share.new & theirs_.new, "given to two"

    def settle(self) -> int:
        """Rounds until nothing changes any more."""
        for done in range(ROUNDS_MAX + 1):
            plan = self.round()
            if not any(s.new or s.revoked for s in plan.shares.values()):
                return done
        raise AssertionError("does not settle")

    def check_all_run_once(self) -> None:
        running = Counter(item for w in self.workers.values() for item in (*w.work.connectors, *w.work.tasks))
        wanted = Work.of(self.configured)
        assert running == Counter([*wanted.connectors, *wanted.tasks])

    def check_level(self) -> None:
        for counts in (
            [len(w.work.connectors) for w in self.workers.values()],
            [len(w.work.tasks) for w in self.workers.values()],
        ):
            assert max(counts) - min(counts) <= 1


class Life(RuleBasedStateMachine):
    """Workers come, go, crash and forget; connectors come, go and change; leaders change."""

    def __init__(self) -> None:
        super().__init__()
        self.group = SimulatedGroup()
        self.group.workers["w0"] = claim("w0")
        self.names = 1

    @rule()
    def join(self) -> None:
        name = f"w{self.names}"
        self.names += 1
        self.group.workers[name] = claim(name)

    @precondition(lambda self: len(self.group.workers) > 1)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        del self.group.workers[data.draw(st.sampled_from(sorted(self.group.workers)))]

    @rule(data=st.data())
    def lose_session(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.group.workers)))
        self.group.workers[name] = claim(name)

    @rule(connector=st.sampled_from("abcd"), count=st.integers(0, 9))
    def configure(self, connector: str, count: int) -> None:
        self.group.configured[connector] = count

    @precondition(lambda self: self.group.configured)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        del self.group.configured[data.draw(st.sampled_from(sorted(self.group.configured)))]

    @rule(data=st.data())
    def claim_too_much(self, data: st.DataObject) -> None:
        """Lets a worker of another make still run what another one runs."""
        thief, victim = (data.draw(st.sampled_from(sorted(self.group.workers))) for _ in range(2))
        mine, theirs = self.group.workers[thief], self.group.workers[victim]
        self.group.workers[thief] = replace(mine, work=mine.work | theirs.work)

    @rule()
    def another_leader(self) -> None:
        self.group.sharing = Sharing()

    @rule()
    def meet(self) -> None:
        self.group.round()

    @invariant()
    def settles_well(self) -> None:
        copy = SimulatedGroup()
        copy.workers, copy.configured = dict(self.group.workers), dict(self.group.configured)
        copy.sharing = self.group.sharing
        copy.settle()
        copy.check_all_run_once()
        copy.check_level()


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
test_group_assignor_life = Life.TestCase


@given(
    counts=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 12), min_size=1),
    before=st.integers(1, 6),
    after=st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_group_assignor_moves_no_more_than_needed(counts: dict[str, int], before: int, after: int) -> None:
    """When workers come, each old one gives up what is above its new share, and nothing else; when workers go,
    only their work moves.
    """
    group = SimulatedGroup()
    group.configured = counts
    group.workers = {f"w{i}": claim(f"w{i}") for i in range(before)}
    group.settle()
    group.given = group.revoked = 0
    gone = 0
    had = {name: (len(w.work.connectors), len(w.work.tasks)) for name, w in group.workers.items()}
    for i in range(after, before):
        gone += sum(had[f"w{i}"])
        del group.workers[f"w{i}"]
    for i in range(before, after):
        group.workers[f"w{i}"] = claim(f"w{i}")
    group.settle()
    group.check_all_run_once()
    if after <= before:
        assert (group.given, group.revoked) == (gone, 0)
        return
    totals = len(counts), sum(counts.values())
    needed = 0
    for kind in (0, 1):
        spare, extra = divmod(totals[kind], after)
        sizes = sorted((sizes[kind] for sizes in had.values()), reverse=True)
        needed += sum(max(0, n - spare - (i < extra)) for i, n in enumerate(sizes))
    assert group.given == group.revoked == needed


def test_group_assignor_eager_deals_in_turn_as_kafka_does() -> None:
    plan = share_eagerly({"b": 2, "a": 3}, ["w2", "w1"])
    assert plan.shares["w1"].all == Work(connectors=frozenset("a"), tasks=tasks("a", 0, 2) | tasks("b", 1))
    assert plan.shares["w2"].all == Work(connectors=frozenset("b"), tasks=tasks("a", 1) | tasks("b", 0))
    assert plan.shares["w1"].new == plan.shares["w1"].all


# scheduled.rebalance.max.delay.ms


@pytest.fixture
def patient() -> SimulatedGroup:
    """Returns three workers with two tasks each; what is lost waits for 60 s."""
    group = SimulatedGroup(max_delay_ms=60_000)
    group.configured = {"c": 6}
    group.workers = {name: claim(name) for name in ("one", "two", "three")}
    group.settle()
    group.now_ms = 1_000_000
    return group


def test_group_assignor_lost_work_waits(patient: SimulatedGroup) -> None:
    away = patient.workers.pop("two")
    plan = patient.round()
    assert plan.delay_ms == 60_000
    patient.now_ms += 20_000
    assert patient.round().delay_ms == 40_000
    assert not any(away.work & w.work for w in patient.workers.values())
    patient.now_ms += 40_000
    assert patient.round().delay_ms == 0
    patient.check_all_run_once()


def test_group_assignor_who_comes_back_in_time_gets_what_it_had(patient: SimulatedGroup) -> None:
    away = patient.workers.pop("two")
    patient.round()
    patient.now_ms += 10_000
    patient.workers["two-again"] = claim("two")
    patient.given = patient.revoked = 0
    plan = patient.round()
    assert plan.delay_ms == 0
    assert patient.workers["two-again"].work == away.work
    assert patient.revoked == 0
    patient.settle()
    patient.check_all_run_once()
    assert patient.given == len(away.work.tasks) + len(away.work.connectors)


def test_group_assignor_a_restart_within_one_round_gets_what_it_had_too(patient: SimulatedGroup) -> None:
    """The worker left and joined before the others did: nobody saw it away, and its work goes to who has least: it."""
    away = patient.workers.pop("two")
    patient.workers["two-again"] = claim("two")
    assert patient.round().delay_ms == 0
    assert patient.workers["two-again"].work == away.work


def test_group_assignor_a_new_worker_does_not_get_what_waits(patient: SimulatedGroup) -> None:
    away = patient.workers.pop("two")
    patient.round()
    patient.workers["new"] = claim("new")
    plan = patient.round()
    assert plan.delay_ms == 60_000
    assert patient.workers["new"].work == Work()
    patient.now_ms += 60_000
    patient.round()
    assert patient.workers["new"].work == away.work


def test_group_assignor_new_connectors_do_not_wait(patient: SimulatedGroup) -> None:
    patient.workers.pop("two")
    patient.round()
    patient.configured["d"] = 2
    assert patient.round().delay_ms == 60_000
    assert Work.of({"d": 2}) == Work.of({"d": 2}) & (
        patient.workers["one"].work | patient.workers["three"].work
    )


def test_group_assignor_what_is_deleted_is_not_waited_for(patient: SimulatedGroup) -> None:
    patient.workers.pop("two")
    patient.round()
    patient.configured = {}
    assert patient.round().delay_ms == 0


def test_group_assignor_a_new_leader_knows_of_no_delay(patient: SimulatedGroup) -> None:
    patient.workers.pop("two")
    patient.round()
    patient.sharing = Sharing(max_delay_ms=60_000)
    assert patient.round().delay_ms == 0
    patient.check_all_run_once()


# Loads


def loaded(group: SimulatedGroup, loads: Mapping[str, float]) -> None:
    """Lets each worker tell the loads of what it runs."""
    for name, w in group.workers.items():
        mine = {str(t): loads[str(t)] for t in w.work.tasks if str(t) in loads}
        group.workers[name] = replace(w, loads=mine)


def load_of(group: SimulatedGroup, name: str, loads: Mapping[str, float]) -> float:
    return sum(loads.get(str(t), 0.0) for t in group.workers[name].work.tasks)


def two_workers(count: int) -> SimulatedGroup:
    group = SimulatedGroup()
    group.configured = {"c": count}
    group.workers = {name: claim(name) for name in ("one", "two")}
    group.settle()
    return group


def test_group_assignor_heavy_tasks_are_spread() -> None:
    group = two_workers(8)
    heavy = {str(t): 0.9 for t in group.workers["one"].work.tasks}
    light = {str(t): 0.0 for t in group.workers["two"].work.tasks}
    loads = heavy | light
    loaded(group, loads)
    group.settle()
    group.check_all_run_once()
    assert load_of(group, "one", loads) == pytest.approx(load_of(group, "two", loads))
    assert group.revoked <= 4


def test_group_assignor_one_heavy_task_has_its_worker_to_itself() -> None:
    group = two_workers(8)
    loads = {f"c-{i}": 0.01 for i in range(8)} | {"c-0": 1.0}
    loaded(group, loads)
    group.settle()
    owner = next(n for n, w in group.workers.items() if TaskId("c", 0) in w.work.tasks)
    assert len(group.workers[owner].work.tasks) == 1


def test_group_assignor_small_differences_move_nothing() -> None:
    group = two_workers(10)
    ones = {str(t) for t in group.workers["one"].work.tasks}
    loads = {f"c-{i}": 0.30 if f"c-{i}" in ones else 0.26 for i in range(10)}
    group.revoked = 0
    loaded(group, loads)
    group.settle()
    assert group.revoked == 0


def test_group_assignor_an_idle_worker_is_used_in_a_large_group() -> None:
    group = SimulatedGroup()
    group.configured = {f"c{i}": 4 for i in range(50)}
    group.workers = {f"w{i:02}": claim(f"w{i:02}") for i in range(50)}
    group.settle()
    loaded(group, {f"c{i}-{n}": 0.2 for i in range(50) for n in range(4)})
    group.workers["new"] = claim("new")
    group.settle()
    group.check_all_run_once()
    assert len(group.workers["new"].work.tasks) >= 3


def test_group_assignor_the_second_busiest_helps_where_the_busiest_cannot() -> None:
    group = SimulatedGroup()
    group.configured = {"c": 21}
    group.workers = {
        "heavy": claim("heavy", Work(tasks=tasks("c", 0)), {"c-0": 1.5}),
        "many": claim("many", Work(tasks=tasks("c", *range(1, 21))), {f"c-{i}": 0.0 for i in range(1, 21)}),
        "idle": claim("idle"),
    }
    group.settle()
    group.check_all_run_once()
    assert len(group.workers["idle"].work.tasks) == 10


@given(
    data=st.data(),
    workers=st.integers(1, 5),
    loads=st.lists(st.floats(0, 4), max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_group_assignor_settles_with_any_loads(data: st.DataObject, workers: int, loads: list[float]) -> None:
    group = SimulatedGroup()
    group.configured = {"c": len(loads)}
    names = [f"w{i}" for i in range(workers)]
    having = [data.draw(st.sampled_from([*names, ""])) for _ in loads]
    told = {f"c-{i}": load for i, load in enumerate(loads)}
    for name in names:
        mine = [i for i, owner in enumerate(having) if owner == name]
        group.workers[name] = claim(name, Work(tasks=tasks("c", *mine)), {f"c-{i}": loads[i] for i in mine})
    for _ in range(ROUNDS_MAX):
        group.round()
        loaded(group, told)
    group.check_all_run_once()
    assert group.settle() == 0, "it keeps moving tasks"
    assert group.revoked <= len(loads) + 1


def test_group_assignor_weights() -> None:
    everything = [TaskId("a", 0), TaskId("a", 1), TaskId("b", 0)]
    known = Weights(everything, {"a-0": 0.5, "x-0": 3.0, "b-1": math.pi})
    assert known.measured
    assert [known[t] for t in everything] == pytest.approx([0.5 + IDLE] * 3)
    both = Weights([*everything, TaskId("c", 0)], {"a-0": 0.4, "b-0": 0.2})
    assert both[TaskId("a", 1)] == pytest.approx(0.4 + IDLE)
    assert both[TaskId("c", 0)] == pytest.approx(0.3 + IDLE)
    nothing = Weights(everything, {})
    assert not nothing.measured
    assert nothing[TaskId("a", 0)] == IDLE


class Watched:
    """A load watch that is asked every ten seconds."""

    def __init__(self) -> None:
        self.watch = LoadWatch()
        self.now_ms = 0

    def steadily(self, measured: Mapping[str, float], ms: int) -> bool:
        """Returns whether it wants a rebalance at the end."""
        wants = False
        for _ in range(0, ms, 10_000):
            self.now_ms += 10_000
            self.watch.observe(measured, self.now_ms)
            wants = self.watch.wants_rebalance(self.now_ms)
        return wants


LONG = INTERVAL_MS + LASTING_MS + 5 * AVERAGE_MS


def test_group_load_watch_wants_a_rebalance_for_great_changes_that_last() -> None:
    w = Watched()
    assert not w.steadily({"a-0": 0.1}, LONG), "nothing was told yet"
    assert w.watch.tell(w.now_ms) == pytest.approx({"a-0": 0.1})
    assert not w.steadily({"a-0": 0.1 + CORES / 2}, LONG), "no great change"
    assert not w.steadily({"a-0": 2.0}, 20_000), "it may be a burst"
    assert not w.steadily({"a-0": 0.1}, LONG), "it was one"
    assert w.steadily({"a-0": 2.0}, LONG)
    assert w.watch.tell(w.now_ms) == pytest.approx({"a-0": 2.0}, rel=0.01)
    assert not w.steadily({}, INTERVAL_MS - 10_000), "the last rebalance is not long ago"
    assert w.steadily({}, 20_000)


def test_group_load_watch_takes_half_of_a_large_load_for_a_great_change() -> None:
    w = Watched()
    w.steadily({"a-0": 8.0}, LONG)
    w.watch.tell(w.now_ms)
    assert not w.steadily({"a-0": 5.0}, LONG)
    assert w.steadily({"a-0": 3.0}, LONG)


def test_group_load_watch_leaves_out_how_a_task_starts() -> None:
    w = Watched()
    w.steadily({"a-0": 3.0}, WARM_UP_MS)
    assert w.watch.loads() == {}
    w.steadily({"a-0": 0.2}, 10_000)
    assert w.watch.loads()["a-0"] < 3.0
    w.steadily({"a-0": 0.2, "b-0": 1.0}, 5 * AVERAGE_MS)
    assert w.watch.loads() == pytest.approx({"a-0": 0.2, "b-0": 1.0}, abs=0.03)
    w.steadily({"b-0": 1.0}, 10_000)
    assert w.watch.loads().keys() == {"b-0"}
