"""Whatever happens in whatever order, the herder ends up running exactly what the config topic wants.

A model world carries out the herder's actions; Hypothesis chooses changes, events, failures and when questions
are answered. Invariants hold at every step, and at rest the world equals the config topic.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.connect import herder as do
from klamm.connect.herder import Action, Herder
from klamm.connect.model import PluginInfo, State, StateEvent, TaskId, TaskSpec
from klamm.connect.stores import (
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
                case do.PutStatus(target=target, state=state):
                    self.statuses.put(target, Status(state=state, worker_id="me"))
                case do.DropStatus(target=target):
                    self.statuses.drop(target)

    def write(self, records: list[tuple[str, bytes | None]]) -> None:
        for record in records:
            self.config.apply(*record)
        self.perform(self.herder.reconcile(self.config))

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
        if name in self.config:
            self.perform(self.herder.restart(name, include_tasks=include, only_failed=failed))

    # What children do

    @rule(name=NAMES, task=st.none() | st.integers(0, 3), state=st.sampled_from(list(State)))
    def event(self, name: str, task: int | None, state: State) -> None:
        """Any word at any time, even of processes that are gone."""
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
        """The answer of the connector that was asked, which may have been replaced since."""
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
        self.perform(self.herder.reconcile(self.config))

    # What must hold

    @invariant()
    def runs_what_is_wanted(self) -> None:
        wanted = {n for n in self.config.connectors if self.config.target(n) is TargetState.STARTED}
        assert self.connectors.keys() == wanted
        assert all(self.connectors[n] == self.config.config(n) for n in wanted)

    @invariant()
    def runs_committed_tasks_only(self) -> None:
        wanted = {
            TaskId(n, i): c
            for n in self.config.connectors
            if self.config.target(n) is not TargetState.STOPPED
            for i, c in enumerate(self.config.tasks(n))
        }
        assert {task: spec.task_config for task, spec in self.tasks.items()} == wanted
        assert self.paused == {t for t in wanted if self.config.target(t.connector) is TargetState.PAUSED}

    @invariant()
    def shows_what_exists(self) -> None:
        assert self.statuses.connectors() == set(self.config.connectors)
        shown = {t for n in self.config.connectors for t in self.statuses.tasks(n)}
        assert shown == self.tasks.keys()

    def teardown(self) -> None:
        """At rest: connectors run, all questions are answered, the oldest last, and all answers committed."""
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
            self.perform(self.herder.tick(self.now_ms + 1_000_000))
        for name, config in self.connectors.items():
            specs = [self.tasks[TaskId(name, i)] for i in range(int(config["n"]))]
            assert [s.task_config["v"] for s in specs] == [config["v"]] * len(specs)
            assert len([t for t in self.tasks if t.connector == name]) == len(specs)
        assert self.herder.reconcile(self.config) == []


TestHerderConverges = World.TestCase
TestHerderConverges.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
