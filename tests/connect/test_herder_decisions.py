"""The herder's decisions, step by step: what it asks for after each change, event and command."""

from __future__ import annotations

import pytest

from klamm.connect.herding import herder as do
from klamm.connect.herding.assignment import Assignment, everything
from klamm.connect.herding.herder import Action, Herder
from klamm.connect.model import ConnectorSpec, Kind, PluginInfo, State, StateEvent, TaskId
from klamm.connect.topics.config_topic import (
    ConfigState,
    Record,
    Status,
    StatusState,
    TargetState,
    connector_record,
    delete_records,
    target_state_record,
    task_records,
)

PLUGINS = {"Src": PluginInfo("Src", "source", "1.0"), "Snk": PluginInfo("Snk", "sink", "1.0")}
CONFIG = {"connector.class": "Src", "tasks.max": "2"}
A0, A1 = TaskId("a", 0), TaskId("a", 1)


class Bench:
    """A herder with its config topic."""

    def __init__(self) -> None:
        self.config = ConfigState()
        self.herder = Herder(worker={"w": "1"}, find_plugin=PLUGINS.get)
        self.meet()

    def read(self, *records: Record) -> list[Action]:
        """Puts these into the config topic; the group has not met since."""
        for record in records:
            self.config.apply(*record)
        return self.herder.reconcile(self.config)

    def meet(self, assignment: Assignment | None = None) -> list[Action]:
        """Lets the group meet; without another assignment this worker runs everything."""
        self.herder.meet(self.config)
        wanted = everything(self.config) if assignment is None else assignment
        return self.herder.assign(wanted, self.config)

    def write(self, *records: Record) -> list[Action]:
        """Puts these into the topic, and lets the group meet if it has to."""
        actions = self.read(*records)
        while any(isinstance(a, do.Rejoin) for a in actions):
            actions = [a for a in actions if not isinstance(a, do.Rejoin)] + self.meet()
        return actions

    def event(self, task: int | None, state: State, trace: str | None = None) -> list[Action]:
        return self.herder.on_event(
            StateEvent(connector="a", task=task, state=state, trace=trace, version="1.0")
        )

    def running(self, tasks: int = 1) -> Bench:
        """Connector `a` with committed tasks, everything RUNNING."""
        self.write(connector_record("a", CONFIG))
        question = self.question(self.event(None, State.RUNNING))
        self.answer(question, [{"n": str(i)} for i in range(tasks)])
        self.write(*task_records("a", [{"n": str(i)} for i in range(tasks)]))
        for i in range(tasks):
            self.event(i, State.RUNNING)
        return self

    def remake(self, configs: list[dict[str, str]]) -> list[Action]:
        """Connector `a` asks for new task configs, and they are committed."""
        self.answer(self.question(self.herder.on_task_configs_changed("a")), configs)
        return self.write(*task_records("a", configs))

    def answered(self, configs: list[dict[str, str]]) -> list[Action]:
        """Connector `a` has made other task configs, and they are in the topic."""
        self.answer(self.question(self.herder.on_task_configs_changed("a")), configs)
        return self.read(*task_records("a", configs))

    @staticmethod
    def question(actions: list[Action]) -> do.ComputeTasks:
        (found,) = [a for a in actions if isinstance(a, do.ComputeTasks)]
        return found

    def answer(self, question: do.ComputeTasks, configs: list[dict[str, str]]) -> list[Action]:
        return self.herder.on_task_configs("a", question.epoch, configs, self.config)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def kinds(actions: list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions]


def test_herder_a_new_connector_is_started_then_asked_then_its_tasks_are_committed_and_started(
    bench: Bench,
) -> None:
    spec = ConnectorSpec(name="a", config=CONFIG, worker={"w": "1"})
    assert bench.write(connector_record("a", CONFIG)) == [
        do.PutStatus("a", State.UNASSIGNED, None, "1.0"),
        do.StartConnector(spec),
    ]
    actions = bench.event(None, State.RUNNING)
    assert actions[0] == do.PutStatus("a", State.RUNNING, None, "1.0")
    question = bench.question(actions)
    assert question.max_tasks == 2
    (write,) = bench.answer(question, [{"n": "0"}, {"n": "1"}])
    assert write == do.WriteTasks("a", ({"n": "0"}, {"n": "1"}), question.epoch)
    started = bench.write(*task_records("a", [{"n": "0"}, {"n": "1"}]))
    specs = [a.spec for a in started if isinstance(a, do.StartTask)]
    assert [(s.id, s.kind, s.task_config, s.connector_config) for s in specs] == [
        (A0, Kind.SOURCE, {"n": "0"}, CONFIG),
        (A1, Kind.SOURCE, {"n": "1"}, CONFIG),
    ]


def test_herder_reconcile_without_a_change_does_nothing(bench: Bench) -> None:
    bench.running()
    assert bench.write() == []


def test_herder_a_meeting_looks_only_at_what_it_brings_what_has_changed_and_what_was_held(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hundreds of connectors, each new one makes the group meet twice."""
    bench.running()
    for name in "bcd":
        bench.write(connector_record(name, CONFIG), *task_records(name, [{}]))
    looked: list[str] = []
    applied = ConfigState.applied
    monkeypatch.setattr(ConfigState, "applied", lambda self, name: looked.append(name) or applied(self, name))

    def meet(*, without: str = "", changed: tuple[str, ...] = ()) -> set[str]:
        looked.clear()
        tasks = frozenset(t for t in everything(bench.config).tasks if t.connector != without)
        wanted = Assignment(connectors=everything(bench.config).connectors, tasks=tasks)
        bench.herder.meet(bench.config)
        bench.herder.assign(wanted, bench.config, changed)
        return set(looked)

    assert meet() == set()
    assert meet(changed=("c",)) == {"c"}
    bench.herder.revoke((), [TaskId("d", 0)])
    assert meet(without="d") == set()
    assert meet() == {"d"}
    bench.read(*task_records("b", [{"n": "new"}]))  # held until the group has met
    assert meet() == {"b"}


def test_herder_settings_that_a_running_task_takes_start_nothing_again(bench: Bench) -> None:
    bench.running()
    live = {"n": "0", "task.live.settings": "limit,rate", "limit": "1"}
    assert "StopTask" in kinds(bench.remake([live]))  # which settings are live is none of them
    bench.event(0, State.UNASSIGNED)
    bench.meet()
    (action,) = bench.remake([live | {"limit": "2", "rate": "3"}])
    assert isinstance(action, do.UpdateTask)
    assert action.spec.task_config["limit"] == "2"
    assert "StopTask" in kinds(bench.remake([live | {"limit": "2", "n": "1"}]))


def test_herder_equal_task_configs_are_not_written_again(bench: Bench) -> None:
    bench.running()
    question = bench.question(bench.herder.on_task_configs_changed("a"))
    assert bench.answer(question, [{"n": "0"}]) == []


def test_herder_changed_connector_config_restarts_it_and_commits_tasks_even_when_theirs_look_equal(
    bench: Bench,
) -> None:
    bench.running()
    changed = CONFIG | {"value.converter": "Other"}
    actions = bench.write(connector_record("a", changed))
    assert kinds(actions) == ["StopConnector", "PutStatus", "StartConnector"]
    question = bench.question(bench.event(None, State.RUNNING))
    assert kinds(bench.answer(question, [{"n": "0"}])) == ["WriteTasks"]
    stop, start = bench.write(*task_records("a", [{"n": "0"}]))
    assert stop == do.StopTask(A0)
    assert isinstance(start, do.StartTask)
    assert start.spec.connector_config == changed


def test_herder_only_changed_tasks_are_restarted(bench: Bench) -> None:
    bench.running(tasks=2)
    stop, start = bench.remake([{"n": "0"}, {"n": "new"}])
    assert stop == do.StopTask(A1)
    assert isinstance(start, do.StartTask)
    assert start.spec.id == A1


def test_herder_all_tasks_that_change_or_go_are_stopped_before_a_new_one_starts(bench: Bench) -> None:
    bench.running(tasks=2)
    actions = bench.remake([{"n": "all"}])
    assert kinds(actions) == ["StopTask", "DropStatus", "StopTask", "StartTask"]
    assert [a.id for a in actions if isinstance(a, do.StopTask)] == [A1, A0]


def test_herder_half_a_deletion_is_made_good(bench: Bench) -> None:
    bench.running()
    no_tasks, *_tombstones = delete_records("a")
    actions = bench.write(no_tasks)
    assert kinds(actions) == ["StopTask", "DropStatus", "ComputeTasks"]
    assert bench.write() == [], "asked once"
    assert kinds(bench.answer(bench.question(actions), [{"n": "0"}])) == ["WriteTasks"]
    assert kinds(bench.write(*task_records("a", [{"n": "0"}]))) == ["PutStatus", "StartTask"]
    assert bench.write() == []


def test_herder_an_answer_that_was_there_before_half_a_deletion_does_not_hide_it(bench: Bench) -> None:
    bench.running()
    question = bench.question(bench.herder.on_task_configs_changed("a"))
    assert bench.answer(question, [{"n": "0"}]) == [], "the half is not read yet"
    assert "ComputeTasks" in kinds(bench.write(delete_records("a")[0]))


def test_herder_fewer_tasks_stop_and_their_status_goes(bench: Bench) -> None:
    bench.running(tasks=2)
    assert bench.remake([{"n": "0"}]) == [do.StopTask(A1), do.DropStatus(A1)]


def test_herder_an_answer_to_an_old_question_does_not_count(bench: Bench) -> None:
    bench.write(connector_record("a", CONFIG))
    old = bench.question(bench.event(None, State.RUNNING))
    bench.write(connector_record("a", CONFIG | {"x": "1"}))
    assert bench.answer(old, [{"n": "0"}]) == []
    assert bench.herder.on_task_configs_failed("a", old.epoch, "why", 0) == []


def test_herder_too_many_tasks_fail_the_connector_unless_allowed(bench: Bench) -> None:
    bench.write(connector_record("a", CONFIG))
    question = bench.question(bench.event(None, State.RUNNING))
    (shown,) = bench.answer(question, [{}, {}, {}])
    assert isinstance(shown, do.PutStatus)
    assert shown.state is State.FAILED
    assert "3 task configs, but tasks.max is 2" in str(shown.trace)

    bench.write(connector_record("a", CONFIG | {"tasks.max.enforce": "false"}))
    question = bench.question(bench.event(None, State.RUNNING))
    assert kinds(bench.answer(question, [{}, {}, {}])) == ["WriteTasks"]


def test_herder_task_configs_that_fail_are_asked_for_again_later_and_later(bench: Bench) -> None:
    bench.write(connector_record("a", CONFIG))
    question = bench.question(bench.event(None, State.RUNNING))
    (shown,) = bench.herder.on_task_configs_failed("a", question.epoch, "no table", 1_000)
    assert isinstance(shown, do.PutStatus)
    assert "no table" in str(shown.trace)
    assert bench.herder.next_deadline_ms() == 1_250
    assert bench.herder.tick(1_249) == []
    again = bench.question(bench.herder.tick(1_250))
    assert bench.herder.next_deadline_ms() is None
    bench.herder.on_task_configs_failed("a", again.epoch, "no table", 2_000)
    assert bench.herder.next_deadline_ms() == 2_500
    third = bench.question(bench.herder.tick(2_500))
    actions = bench.answer(third, [{"n": "0"}])
    assert actions[0] == do.PutStatus("a", State.RUNNING, None, "1.0")
    assert kinds(actions) == ["PutStatus", "WriteTasks"]


def test_herder_pause_stops_the_connector_and_pauses_tasks_and_resume_undoes_it(bench: Bench) -> None:
    bench.running()
    assert bench.write(target_state_record("a", TargetState.PAUSED)) == [
        do.StopConnector("a"),
        do.PutStatus("a", State.PAUSED, None, "1.0"),
        do.PauseTask(A0, paused=True),
    ]
    assert bench.event(None, State.UNASSIGNED) == []  # the last word of the connector's child
    actions = bench.write(target_state_record("a", TargetState.STARTED))
    assert kinds(actions) == ["PutStatus", "StartConnector", "PauseTask"]


def test_herder_stop_drops_tasks_and_keeps_the_connector(bench: Bench) -> None:
    bench.running()
    actions = bench.write(*task_records("a", []), target_state_record("a", TargetState.STOPPED))
    assert actions == [
        do.StopConnector("a"),
        do.PutStatus("a", State.STOPPED, None, "1.0"),
        do.StopTask(A0),
        do.DropStatus(A0),
    ]


def test_herder_a_connector_born_stopped_does_not_run(bench: Bench) -> None:
    actions = bench.write(target_state_record("a", TargetState.STOPPED), connector_record("a", CONFIG))
    assert actions == [do.PutStatus("a", State.STOPPED, None, "1.0")]


def test_herder_delete_stops_all_and_leaves_no_status(bench: Bench) -> None:
    bench.running()
    assert kinds(bench.write(*delete_records("a"))) == [
        "StopTask",
        "StopConnector",
        "DropStatus",
        "DropTopics",
        "DropStatus",
    ]
    assert bench.event(0, State.FAILED, "late") == []
    assert bench.event(None, State.UNASSIGNED) == []


def test_herder_a_plugin_that_is_gone_fails_the_connector_only_once(bench: Bench) -> None:
    (shown,) = bench.write(connector_record("a", {"connector.class": "Gone"}))
    assert isinstance(shown, do.PutStatus)
    assert (shown.state, shown.trace) == (State.FAILED, "no connector plugin is called Gone")
    assert bench.write() == []


def test_herder_a_plugin_that_comes_back_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(connector_record("a", {"connector.class": "Late"}))
    monkeypatch.setitem(PLUGINS, "Late", PluginInfo("Late", "sink", "2.0"))
    actions = bench.write()
    assert actions[0] == do.PutStatus("a", State.UNASSIGNED, None, "2.0")
    assert kinds(actions) == ["PutStatus", "StartConnector"]


def test_herder_restart_takes_what_was_asked_for(bench: Bench) -> None:
    bench.running(tasks=2)
    bench.event(1, State.FAILED, "boom")

    def restarted(*, include_tasks: bool, only_failed: bool) -> list[str]:
        actions = bench.herder.restart("a", include_tasks=include_tasks, only_failed=only_failed)
        assert all(a.state is State.RESTARTING for a in actions if isinstance(a, do.PutStatus))
        return [
            str(a.spec.id) if isinstance(a, do.StartTask) else a.spec.name
            for a in actions
            if hasattr(a, "spec")
        ]

    assert restarted(include_tasks=False, only_failed=True) == []
    assert restarted(include_tasks=True, only_failed=True) == ["a-1"]
    bench.event(1, State.RUNNING)
    assert restarted(include_tasks=False, only_failed=False) == ["a"]
    assert restarted(include_tasks=True, only_failed=False) == ["a", "a-0", "a-1"]


def test_herder_restarting_shows_until_the_new_process_speaks(bench: Bench) -> None:
    bench.running()
    bench.herder.restart_task(A0)
    assert bench.event(0, State.UNASSIGNED) == []
    assert bench.event(0, State.RUNNING) == [do.PutStatus(A0, State.RUNNING, None, "1.0")]


def test_herder_unknown_targets_cannot_be_restarted(bench: Bench) -> None:
    with pytest.raises(KeyError):
        bench.herder.restart("a", include_tasks=False, only_failed=False)
    bench.running()
    with pytest.raises(KeyError):
        bench.herder.restart_task(A1)


def test_herder_topics_of_a_task_are_seen(bench: Bench) -> None:
    bench.running()
    event = StateEvent(connector="a", task=0, state=State.RUNNING, version="1.0", topics=["t", "u"])
    assert bench.herder.on_event(event) == [do.SeeTopic(A0, "t"), do.SeeTopic(A0, "u")]


def test_herder_at_start_forgets_what_was_deleted_meanwhile() -> None:
    config, statuses = ConfigState(), StatusState("me")
    for record in [connector_record("a", CONFIG), *task_records("a", [{}])]:
        config.apply(*record)
    for key in ("a", A0, A1, "gone", TaskId("gone", 0)):
        statuses.put(key, Status(state=State.RUNNING, worker_id="old"))
    actions = Herder(worker={}, find_plugin=PLUGINS.get).clean_up(config, statuses)
    assert actions == [
        do.DropStatus(A1),
        do.DropStatus(TaskId("gone", 0)),
        do.DropStatus("gone"),
        do.DropTopics("gone"),
    ]


def test_herder_last_words_are_unassigned_for_what_ran(bench: Bench) -> None:
    bench.running()
    assert bench.herder.shut_down() == [
        do.PutStatus("a", State.UNASSIGNED, None, "1.0"),
        do.PutStatus(A0, State.UNASSIGNED, None, "1.0"),
    ]


def test_an_answer_to_the_connector_that_was_deleted_is_not_its_successors():
    bench = Bench()
    bench.write(connector_record("a", CONFIG))
    old = bench.question(bench.event(None, State.RUNNING))
    bench.write(*delete_records("a"))
    bench.write(connector_record("a", CONFIG))
    new = bench.question(bench.event(None, State.RUNNING))
    assert bench.herder.on_task_configs_failed("a", old.epoch, "gone", 0) == []
    assert bench.answer(old, [{"n": "old"}]) == []
    assert [type(a) for a in bench.answer(new, [{"n": "0"}])] == [do.WriteTasks]


def test_herder_runs_only_what_is_assigned(bench: Bench) -> None:
    bench.read(connector_record("a", CONFIG), *task_records("a", [{"n": "0"}, {"n": "1"}]))
    assert kinds(bench.meet(Assignment(tasks=frozenset({A1})))) == ["PutStatus", "StartTask"]
    actions = bench.meet(Assignment(connectors=frozenset({"a"}), tasks=frozenset({A1})))
    assert kinds(actions) == ["PutStatus", "StartConnector"]
    assert bench.meet(Assignment(connectors=frozenset({"a"}), tasks=frozenset({A1}))) == []


def test_herder_calls_the_group_once_for_what_there_is_to_assign(bench: Bench) -> None:
    assert kinds(bench.read(connector_record("a", CONFIG))) == ["Rejoin"]
    assert bench.read() == []
    assert kinds(bench.read(connector_record("b", CONFIG))) == ["Rejoin"]
    assert bench.read(connector_record("b", CONFIG | {"x": "1"})) == [], "as many as before"


def test_herder_holds_a_task_with_a_new_config_until_the_group_has_met(bench: Bench) -> None:
    """Its old self may still be at work elsewhere, on what is now this one's."""
    bench.running(tasks=2)
    actions = bench.answered([{"n": "0"}, {"n": "new"}])
    assert kinds(actions) == ["StopTask", "Rejoin"]
    # A meeting that began before the change says nothing about the others.
    assert bench.herder.assign(everything(bench.config), bench.config) == []
    assert bench.herder.restart_task(A1) == [], "it does not slip through"
    (start,) = bench.meet()
    assert isinstance(start, do.StartTask)
    assert start.spec.task_config == {"n": "new"}


def test_herder_a_config_that_changes_twice_while_it_is_held_starts_once_with_the_last(bench: Bench) -> None:
    bench.running()
    assert kinds(bench.answered([{"n": "1"}])) == ["StopTask", "Rejoin"]
    bench.herder.meet(bench.config)
    assert kinds(bench.answered([{"n": "2"}])) == ["Rejoin"]
    assert bench.herder.assign(everything(bench.config), bench.config) == [], "the others met before that"
    (start,) = bench.meet()
    assert isinstance(start, do.StartTask)
    assert start.spec.task_config == {"n": "2"}


def test_herder_what_is_revoked_stops_and_says_nothing_more(bench: Bench) -> None:
    bench.running(tasks=2)
    assert bench.herder.revoke(["a"], [A0]) == [do.StopTask(A0), do.StopConnector("a")]
    assert bench.event(0, State.FAILED, "late") == []
    assert bench.event(None, State.RUNNING) == []
    assert bench.herder.assigned == Assignment(tasks=frozenset({A1}))
    assert bench.read() == [], "and does not come back by itself"
    assert kinds(bench.meet()) == ["PutStatus", "StartConnector", "PutStatus", "StartTask"]


def test_herder_that_lost_its_place_has_nothing(bench: Bench) -> None:
    bench.running()
    bench.herder.forget()
    assert bench.herder.assigned == Assignment()
    assert bench.read() == []
    assert bench.event(0, State.RUNNING) == []
    assert kinds(bench.meet()) == ["PutStatus", "StartConnector", "PutStatus", "StartTask"]


def test_herder_a_connector_that_was_made_again_waits_for_the_group(bench: Bench) -> None:
    bench.running()
    actions = bench.read(*delete_records("a"), connector_record("a", CONFIG))
    assert "StartTask" not in kinds(actions)
    bench.read(*delete_records("a"))
    assert bench.read(connector_record("a", CONFIG), *task_records("a", [{"n": "0"}]))[-1:] == [
        do.Rejoin("connectors or their numbers of tasks have changed")
    ]


def test_herder_task_configs_that_the_leader_could_not_take_are_asked_for_again_without_a_word(
    bench: Bench,
) -> None:
    bench.write(connector_record("a", CONFIG))
    question = bench.question(bench.event(None, State.RUNNING))
    bench.answer(question, [{"n": "0"}])
    bench.herder.on_task_configs_delayed("a", question.epoch, 1_000)
    assert bench.herder.next_deadline_ms() == 1_250
    assert kinds(bench.herder.tick(1_250)) == ["ComputeTasks"]
