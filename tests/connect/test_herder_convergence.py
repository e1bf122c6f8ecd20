"""The herder ends up running exactly what the config topic wants, whatever happens in whatever order.

A model world carries out the herder's actions; Hypothesis chooses changes, events, failures and when questions
are answered. Invariants hold at every step, and at rest the world equals the config topic.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.connect.herding import herder as do
from klamm.connect.herding.assignment import Assignment, everything
from klamm.connect.herding.herder import Action, Herder
from klamm.connect.model import PluginInfo, State, StateEvent, TaskId, TaskSpec
from klamm.connect.topics.config_topic import (
    ConfigState,
    Status,
    StatusState,
    TargetState,
    connector_record,
    delete_records,
    target_state_record,
    task_records,
)

NAMES = st.sampled_from(["a", "b"])
PLUGIN = PluginInfo("Src", "source", "1")


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.config = ConfigState()
        self.new_worker()
        self.statuses = StatusState("me")

    def new_worker(self) -> None:
        self.herder = Herder(worker={}, find_plugin=lambda _name: PLUGIN)
        self.connectors: dict[str, dict[str, str]] = {}
        self.said: dict[str, State] = {}  # by the connector that runs now
        self.tasks: dict[TaskId, TaskSpec] = {}
        self.paused: set[TaskId] = set()
        self.questions: list[tuple[do.ComputeTasks, dict[str, str]]] = []
        self.writes: list[do.WriteTasks] = []
        self.called = True  # the group is to meet
        self.met: dict[TaskId, dict[str, str]] = {}  # tasks as all workers knew them when they met

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case do.StartConnector(spec=spec):
                    self.connectors[spec.name] = spec.config
                    self.said.pop(spec.name, None)
                case do.StopConnector(name=name):
                    del self.connectors[name]  # only what runs is stopped
                case do.StartTask(spec=task):
                    self.tasks[task.id] = task
                    self.paused.discard(task.id)
                    if task.paused:
                        self.paused.add(task.id)
                case do.StopTask(id=id):
                    del self.tasks[id]
                    self.paused.discard(id)
                case do.PauseTask(id=id, paused=paused):
                    assert id in self.tasks
                    assert (id in self.paused) is not paused
                    (self.paused.add if paused else self.paused.discard)(id)
                case do.ComputeTasks(name=name):
                    self.questions.append((action, self.connectors[name]))
                case do.WriteTasks():
                    self.writes.append(action)
                case do.Rejoin():
                    self.called = True
                case do.PutStatus(target=target, state=state):
                    self.statuses.put(target, Status(state=state, worker_id="me"))
                case do.DropStatus(target=target):
                    self.statuses.drop(target)

    def write(self, records: list[tuple[str, bytes | None]]) -> None:
        changed = {name for record in records if (name := self.config.apply(*record)) is not None}
        self.perform(self.herder.reconcile(self.config, changed))

    # What users do

    @rule(name=NAMES, version=st.integers(0, 2), tasks=st.integers(0, 3))
    def put(self, name: str, version: int, tasks: int) -> None:
        config = {"connector.class": "Src", "v": str(version), "n": str(tasks), "tasks.max": "3"}
        self.write([connector_record(name, config)])

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.write(delete_records(name))

    @rule(name=NAMES)
    def half_a_delete(self, name: str) -> None:
        if name in self.config:
            self.write(delete_records(name)[:1])

    @rule(name=NAMES, state=st.sampled_from(list(TargetState)))
    def target(self, name: str, state: TargetState) -> None:
        if name in self.config:
            stop = task_records(name, []) if state is TargetState.STOPPED else []
            self.write([*stop, target_state_record(name, state)])

    @rule(name=NAMES, include=st.booleans(), failed=st.booleans())
    def restart(self, name: str, include: bool, failed: bool) -> None:
        if name in self.config and name in self.herder.assigned.names():
            self.perform(self.herder.restart(name, include_tasks=include, only_failed=failed))

    # What children do

    @rule(name=NAMES, task=st.none() | st.integers(0, 3), state=st.sampled_from(list(State)))
    def event(self, name: str, task: int | None, state: State) -> None:
        """Says any word at any time, even of processes that are gone."""
        if task is None:
            self.said[name] = state
        self.perform(self.herder.on_event(StateEvent(connector=name, task=task, state=state)))

    @rule(name=NAMES)
    def comes_up(self, name: str) -> None:
        if name in self.connectors:
            self.event(name, None, State.RUNNING)

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        question, config = self.questions.pop(data.draw(st.integers(0, len(self.questions) - 1)))
        if data.draw(st.booleans()):
            failed = self.herder.on_task_configs_failed(question.name, question.epoch, "why", self.now_ms)
            self.perform(failed)
        else:
            self.reply(question, config)

    def reply(self, question: do.ComputeTasks, config: dict[str, str]) -> None:
        """Gives the answer of the connector that was asked, which may have been replaced since."""
        made = [{"task": str(i), "v": config["v"]} for i in range(int(config["n"]))]
        self.perform(self.herder.on_task_configs(question.name, question.epoch, made, self.config))

    @precondition(lambda self: self.writes)
    @rule(lost=st.booleans())
    def commit(self, lost: bool) -> None:
        action = self.writes.pop(0)
        if lost:
            self.perform(self.herder.on_task_configs_failed(action.name, action.epoch, "broker", self.now_ms))
        elif action.name in self.config:
            self.write(task_records(action.name, action.configs))

    @rule(ms=st.integers(1, 100_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.perform(self.herder.tick(self.now_ms))

    @rule()
    def worker_is_killed_and_restarted(self) -> None:
        self.new_worker()
        self.perform(self.herder.clean_up(self.config, self.statuses))

    @rule()
    def place_is_lost(self) -> None:
        self.herder.forget()
        self.connectors.clear()
        self.tasks.clear()
        self.paused.clear()
        self.called = True

    # What the group does

    @rule()
    def goes_to_the_group(self) -> None:
        self.herder.meet(self.config)
        self.called = False
        self.met = self.committed()

    @rule(data=st.data())
    def is_assigned(self, data: st.DataObject) -> None:
        """Assigns anything of what there is; what goes elsewhere is revoked first."""
        there = everything(self.config)
        connectors = (
            data.draw(st.frozensets(st.sampled_from(sorted(there.connectors)))) if there.connectors else ()
        )
        tasks = data.draw(st.frozensets(st.sampled_from(sorted(there.tasks)))) if there.tasks else ()
        wanted = Assignment(connectors=frozenset(connectors), tasks=frozenset(tasks))
        had = self.herder.assigned
        self.perform(self.herder.revoke(had.connectors - wanted.connectors, had.tasks - wanted.tasks))
        self.perform(self.herder.clean_up(self.config, self.statuses))
        self.perform(self.herder.assign(wanted, self.config, ()))

    def committed(self) -> dict[TaskId, dict[str, str]]:
        return {
            TaskId(n, i): c
            for n in self.config.connectors
            if self.config.target(n) is not TargetState.STOPPED
            for i, c in enumerate(self.config.tasks(n))
        }

    # What must hold

    @invariant()
    def runs_the_connectors_that_are_wanted(self) -> None:
        started = {n for n in self.config.connectors if self.config.target(n) is TargetState.STARTED}
        assert self.connectors.keys() == started & self.herder.assigned.connectors
        assert all(c == self.config.config(n) for n, c in self.connectors.items())

    @invariant()
    def runs_committed_tasks_only(self) -> None:
        wanted = {t: c for t, c in self.committed().items() if t in self.herder.assigned.tasks}
        running = {task: spec.task_config for task, spec in self.tasks.items()}
        assert running.items() <= wanted.items()
        held = wanted.keys() - running.keys()
        assert not held or self.called or held <= self.met.keys(), "what is held waits for a meeting"
        paused = {t for t in running if self.config.target(t.connector) is TargetState.PAUSED}
        assert self.paused == paused

    @invariant()
    def shows_nothing_that_is_gone(self) -> None:
        here = self.herder.assigned.names()
        assert here <= self.statuses.connectors() | {n for n in here if n not in self.config}
        shown = {t for n in self.config.connectors for t in self.statuses.tasks(n)}
        assert self.tasks.keys() <= shown

    def teardown(self) -> None:
        """Brings all to rest: the group meets when it is called, connectors run, all questions are answered, the oldest last, and all answers committed."""
        self.settle()
        for name in self.connectors:
            if self.said.get(name) is not State.RUNNING:  # who says so already is not asked again for it
                self.event(name, None, State.RUNNING)
        self.perform(self.herder.tick(self.now_ms + 1_000_000))
        while self.questions or self.writes:
            while self.questions:
                self.reply(*self.questions.pop())
            while self.writes:
                action = self.writes.pop(0)
                if action.name in self.config:
                    self.write(task_records(action.name, action.configs))
            self.settle()
            self.perform(self.herder.tick(self.now_ms + 1_000_000))
        assert {t: s.task_config for t, s in self.tasks.items()} == self.committed()
        for name, config in self.connectors.items():
            specs = [self.tasks[TaskId(name, i)] for i in range(int(config["n"]))]
            assert [s.task_config["v"] for s in specs] == [config["v"]] * len(specs)
            assert len([t for t in self.tasks if t.connector == name]) == len(specs)
        assert self.herder.reconcile(self.config) == []

    def settle(self) -> None:
        """Lets the group meet as often as it is called; this worker runs everything."""
        self.called = True
        while self.called:
            self.goes_to_the_group()
            self.perform(self.herder.assign(everything(self.config), self.config, ()))
            for name in self.connectors:
                if name not in self.said:
                    self.event(name, None, State.RUNNING)


TestHerderConverges = World.TestCase
TestHerderConverges.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
