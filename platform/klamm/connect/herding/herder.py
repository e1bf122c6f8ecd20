"""Decides, purely, what this worker should run: config snapshots, assignments, events and commands in, actions out.

The herder has no event loop, no clock and no I/O: the runtime carries its actions out in order per
target and reports back. It is level-triggered: `reconcile` compares what should run here (wanted by the
config topic, assigned by the group) with what it last asked for. So `reconcile` may be called at any
time, any number of times, and a restarted worker just begins with everything to do.

Rules: Nothing runs that is not assigned. A connector's own child runs only while its target state is
STARTED (Kafka, too, stops the connector on pause). A connector's tasks are those that the config topic
has committed. The herder asks for task configs whenever the connector reports RUNNING, and again when
other configs than its last answer are committed (half of a change that failed). It writes them only
when they differ. When a connector's tasks change or go, all of these have ended before any new one
starts, because an old task may still work on what now belongs to another. As tasks may run on several
workers, a rebalance is the barrier: changed tasks are held until the group has met (`Rejoin`, `meet`,
`assign`). The supervisor's policy, not the herder, restarts what failed; the herder only shows what the
supervisor reports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from klamm.connect.herding.actions import (
    Action,
    ComputeTasks,
    DropStatus,
    DropTopics,
    PauseTask,
    PutStatus,
    Rejoin,
    SeeTopic,
    StartConnector,
    StartTask,
    StopConnector,
    StopTask,
    Target,
    UpdateTask,
    WriteTasks,
)
from klamm.connect.herding.assignment import Assignment, view
from klamm.connect.herding.herded import HerdedConnector, HerdedTask, Hold, made_of
from klamm.connect.model import ConnectorSpec, Kind, PluginInfo, State, StateEvent, TaskId, TaskSpec
from klamm.connect.topics.config_topic import ConfigState, StatusState, TargetState
from klamm.connect.validation.definitions import enforce_tasks_max, tasks_max

__all__ = [
    "Action", "Assignment", "ComputeTasks", "DropStatus", "DropTopics", "Herder", "PauseTask", "PutStatus", "Rejoin",
    "SeeTopic", "StartConnector", "StartTask", "StopConnector", "StopTask", "Target", "UpdateTask", "WriteTasks",
]  # fmt: skip

log = logging.getLogger(__name__)

RETRY_MS: Final = 250  # as Kafka: task configs that cannot be had are asked for again after 250 ms,
RETRY_MAX_MS: Final = 60_000  # then twice as long each time, at most a minute

# A restart begins with the end of the old process, which reports UNASSIGNED. RESTARTING says more, so it
# stays.
_OLD_PROCESS_GONE: Final = (State.UNASSIGNED, State.RESTARTING)


class Herder:
    """See the module. `find_plugin` returns the plugin of a `connector.class`, None when it is not installed.
    `seeks` says whether a search for that class still goes on (another `reconcile` follows it), `why_missing` why it
    found nothing. `current` returns a configuration with the last known values of its references.
    """

    def __init__(
        self,
        *,
        worker: Mapping[str, str],
        find_plugin: Callable[[str], PluginInfo | None],
        seeks: Callable[[str], bool] = lambda _class: False,
        why_missing: Callable[[str], str] = lambda name: f"no connector plugin is called {name}",
        current: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda config: config,
    ) -> None:
        self._current = current
        self._worker = dict(worker)
        self._find_plugin = find_plugin
        self._seeks = seeks
        self._why_missing = why_missing
        self._connectors: dict[str, HerdedConnector] = {}
        self._assigned = Assignment()
        self._view: dict[str, int] | None = None  # as the group was last asked to look at
        # Counts questions over all connectors: a connector that was deleted and made again must not get its
        # predecessor's answer.
        self._epoch = 0

    @property
    def assigned(self) -> Assignment:
        return self._assigned

    # The wanted state

    def clean_up(self, config: ConfigState, statuses: StatusState) -> list[Action]:
        """As the leader, after each rebalance, drop the statuses of whatever was deleted while nobody ran it."""
        out: list[Action] = []
        for name in sorted(statuses.connectors()):
            gone = name not in config
            count = 0 if gone else len(config.tasks(name))
            out += [DropStatus(t) for t in statuses.tasks(name) if t.task >= count]
            if gone:
                out += [DropStatus(name), DropTopics(name)]
        return out

    def assign(
        self, assignment: Assignment, config: ConfigState, changed: Collection[str] | None = None
    ) -> list[Action]:
        """Run exactly this from now on, because the group has met. Tasks that were held before the meeting start.

        `changed` as in `reconcile`: what is assigned or starts anew is looked at in any case.
        """
        names = self._assigned.differing(assignment)
        self._assigned = assignment
        for task in self._tasks():
            if task.hold is Hold.MET:
                task.hold = Hold.OVER
                names.add(task.spec.id.connector)
        return self.reconcile(config, None if changed is None else sorted(names.union(changed)))

    def meet(self, config: ConfigState) -> None:
        """Note that the worker joins the group now: the others may rely on what it holds and knows at this moment."""
        self.look(config)
        for task in self._tasks():
            if task.hold in {Hold.NEW, Hold.CALLED}:
                task.hold = Hold.MET

    def look(self, config: ConfigState) -> None:
        """Record the current view so that it triggers no rejoin."""
        self._view = view(config)

    def _tasks(self) -> Iterator[HerdedTask]:
        for found in self._connectors.values():
            yield from found.tasks.values()

    def revoke(self, connectors: Collection[str], tasks: Collection[TaskId]) -> list[Action]:
        """Stop what other workers shall run. Later reports on it are not shown; the runtime shows it as
        UNASSIGNED.
        """
        self._assigned = self._assigned.without(connectors, tasks)
        out: list[Action] = []
        for each in tasks:
            found = self._connectors.get(each.connector)
            if found is not None and found.tasks.pop(each.task, None) is not None:
                out.append(StopTask(each))
        for name in connectors:
            found = self._connectors.get(name)
            if found is not None and found.runs:
                out.append(StopConnector(name))
        for name in {*connectors, *(each.connector for each in tasks)} & self._connectors.keys():
            found = self._connectors[name]
            if name in connectors:
                found.runs, found.state = False, None
                self._forget_question(found)
            if name not in self._assigned.connectors and not found.tasks:
                del self._connectors[name]
        return out

    def forget(self) -> None:
        """Forget everything: contact with the group is lost, and everything that ran is dead."""
        self._assigned, self._view = Assignment(), None
        self._connectors.clear()

    def reconcile(self, config: ConfigState, changed: Collection[str] | None = None) -> list[Action]:
        """Returns the actions after which exactly that runs which `config` wants and the group has assigned here.
        `changed` are the connectors that may differ from the last call; None means all.
        """
        out: list[Action] = []
        for name in [n for n in (self._connectors if changed is None else changed) if n not in config]:
            if name in self._connectors:
                out += self._remove(name)
        names = self._assigned.names()
        for name in config.connectors if changed is None else changed:
            if name in names and name in config:
                self._meet_connector(name, config)
                if name in self._assigned.connectors:
                    out += self._settle_connector(name, config)
                out += self._settle_tasks(name, config)
                if name in self._assigned.connectors:
                    out += self._recompute_foreign_tasks(name, config)
        out += self._request_rejoin(config)
        return out

    def _request_rejoin(self, config: ConfigState) -> list[Action]:
        """Returns one Rejoin for every change of what there is to assign, and for tasks that wait for the barrier."""
        now = view(config)
        if self._view is not None and now != self._view:
            self._view = now
            return [Rejoin("connectors or their numbers of tasks have changed")]
        new = [task for task in self._tasks() if task.hold is Hold.NEW]
        for task in new:
            task.hold = Hold.CALLED
        return [Rejoin("task configs have changed")] if new else []

    def _meet_connector(self, name: str, config: ConfigState) -> None:
        wanted = config.config(name)
        assert wanted is not None, "only existing connectors are settled"
        if name not in self._connectors:
            plugin = self._find_plugin(wanted.get("connector.class", ""))
            self._connectors[name] = HerdedConnector(config=wanted, plugin=plugin)
        elif name not in self._assigned.connectors:
            found = self._connectors[name]
            found.config, found.plugin = wanted, self._find_plugin(wanted.get("connector.class", ""))

    def _recompute_foreign_tasks(self, name: str, config: ConfigState) -> list[Action]:
        """Ask the connector again when other tasks were committed than it answered. A deletion begins with none."""
        found = self._connectors[name]
        before, found.committed = found.committed, list(config.tasks(name))
        if found.answer is None or found.committed in (before, found.answer):
            return []
        return self._ask(name, found)

    def _remove(self, name: str) -> list[Action]:
        found = self._connectors.pop(name)
        tasks = [TaskId(name, i) for i in found.tasks]
        own = [task for task in self._assigned.tasks if task.connector == name]
        self._assigned = self._assigned.without([name], own)
        return [
            *(StopTask(task) for task in tasks),
            *([StopConnector(name)] if found.runs else []),
            *(DropStatus(task) for task in tasks),
            DropTopics(name),
            DropStatus(name),
        ]

    def _settle_connector(self, name: str, config: ConfigState) -> list[Action]:
        wanted = config.config(name)
        assert wanted is not None, "only existing connectors are settled"
        out: list[Action] = []
        found = self._connectors[name]
        changed = found.config != wanted
        if changed or found.plugin is None:
            found.config = wanted
            found.plugin = self._find_plugin(wanted.get("connector.class", ""))
        starts = config.target(name) is TargetState.STARTED and found.plugin is not None
        if found.runs and (changed or not starts):
            out.append(StopConnector(name))
            found.runs = False
            self._forget_question(found)
        if starts:
            if not found.runs:
                spec = ConnectorSpec(name=name, config=wanted, worker=self._worker)
                out += [*self._show(name, State.UNASSIGNED), StartConnector(spec)]
                found.runs = True
        elif found.plugin is None:
            if self._seeks(wanted.get("connector.class", "")):
                out += self._show(name, State.UNASSIGNED) if changed or found.state is None else []
            elif changed or found.state in {None, State.UNASSIGNED}:
                out += self._fail(name, self._why_missing(wanted.get("connector.class", "")))
        else:
            out += self._show(name, State(config.target(name)))
        return out

    def _settle_tasks(self, name: str, config: ConfigState) -> list[Action]:
        found = self._connectors[name]
        wanted = self._task_specs(name, config) if found.plugin is not None else {}
        out: list[Action] = []
        for i in sorted(found.tasks.keys() - wanted.keys()):
            del found.tasks[i]
            # If the task is wanted again, the group decides anew: other workers may not have stopped theirs yet.
            self._assigned = self._assigned.without((), [TaskId(name, i)])
            out.append(StopTask(TaskId(name, i)))
            if i >= len(config.tasks(name)) or config.target(name) is TargetState.STOPPED:
                out.append(DropStatus(TaskId(name, i)))
        starts: list[Action] = []
        for i, spec in wanted.items():
            task = found.tasks.get(i)
            if task is None:
                found.tasks[i] = HerdedTask(spec)
                starts += [PutStatus(spec.id, State.UNASSIGNED, None, found.version), StartTask(spec)]
            elif made_of(task.spec) != made_of(spec):
                if task.hold is Hold.NO:
                    out.append(StopTask(spec.id))
                task.spec, task.hold = spec, Hold.NEW
            elif task.hold is Hold.OVER:
                task.spec, task.hold = spec, Hold.NO
                starts.append(StartTask(spec))
            elif task.hold is not Hold.NO:
                task.spec = spec
            else:
                if task.spec.task_config != spec.task_config:
                    starts.append(UpdateTask(spec.id, spec))
                if task.spec.paused != spec.paused:
                    starts.append(PauseTask(spec.id, spec.paused))
                task.spec = spec
        return [*out, *starts]

    def _task_specs(self, name: str, config: ConfigState) -> dict[int, TaskSpec]:
        """Returns the committed tasks. They run with the connector config that they were made from until new ones
        are committed, so half of a change never runs.
        """
        found = self._connectors[name]
        if config.target(name) is TargetState.STOPPED or found.plugin is None:
            return {}
        kind = Kind.SINK if found.plugin.type == Kind.SINK else Kind.SOURCE
        fenced = self._worker.get("exactly.once.source.support") == "enabled"
        return {
            i: TaskSpec(
                id=TaskId(name, i),
                kind=kind,
                connector_config=config.applied(name) or found.config,
                task_config=task_config,
                worker=self._worker,
                paused=config.target(name) is TargetState.PAUSED,
                generation=config.generation(name) if fenced and kind is Kind.SOURCE else 0,
            )
            for i, task_config in enumerate(config.tasks(name))
            if TaskId(name, i) in self._assigned.tasks
        }

    def _show(self, name: str, state: State, trace: str | None = None) -> list[Action]:
        """Set a connector's own state; returns no action when that state is already shown."""
        found = self._connectors[name]
        if found.state is state and trace is None:
            return []
        found.state, found.trace = state, trace
        return [PutStatus(name, state, trace, found.version)]

    def _fail(self, name: str, why: str) -> list[Action]:
        log.error("connector %s: %s", name, why)
        return self._show(name, State.FAILED, why)

    # The supervisor's reports

    def on_event(self, event: StateEvent) -> list[Action]:
        """Take in a child's new state. Reports about what is no longer wanted are ignored."""
        found = self._connectors.get(event.connector)
        if found is None:
            return []
        if event.task is None:
            return self._on_connector_event(event, found)
        task = found.tasks.get(event.task)
        if task is None or (event.state, task.state) == _OLD_PROCESS_GONE:
            return []
        task.version = event.version or task.version or found.version
        target = TaskId(event.connector, event.task)
        topics = [SeeTopic(target, topic) for topic in event.topics]
        if (event.state, event.trace) == (task.state, task.trace) and task.shown_version == task.version:
            return [*topics]
        task.state, task.trace, task.shown_version = event.state, event.trace, task.version
        return [PutStatus(target, event.state, event.trace, task.version), *topics]

    def _on_connector_event(self, event: StateEvent, found: HerdedConnector) -> list[Action]:
        # These are the last words of a connector that is no longer wanted; the shown status is newer.
        if not found.runs or (event.state, found.state) == _OLD_PROCESS_GONE:
            return []
        found.state, found.trace = event.state, event.trace
        out: list[Action] = [
            PutStatus(event.connector, event.state, event.trace, event.version or found.version)
        ]
        if event.state is State.RUNNING:
            found.retries = 0
            out += self._ask(event.connector, found)
        else:
            self._forget_question(found)
        return out

    def on_task_configs_changed(self, name: str) -> list[Action]:
        """Take in that the connector asks for new task configs (its context's request_task_reconfiguration)."""
        found = self._connectors.get(name)
        return self._ask(name, found) if found is not None and found.runs else []

    def _ask(self, name: str, found: HerdedConnector) -> list[Action]:
        self._forget_question(found)
        return [ComputeTasks(name, tasks_max(self._current(found.config)), found.epoch)]

    def _forget_question(self, found: HerdedConnector) -> None:
        self._epoch += 1
        found.epoch = self._epoch
        found.retry_at_ms = None
        found.answer = None

    def on_task_configs(
        self, name: str, epoch: int, configs: Sequence[Mapping[str, str]], config: ConfigState
    ) -> list[Action]:
        """Take in the connector's answer; returns a write when the answer differs from the committed configs."""
        found = self._connectors.get(name)
        if found is None or found.epoch != epoch or name not in config:
            return []  # deleted, to be reconciled in a moment
        values = self._current(found.config)
        limit = tasks_max(values)
        if len(configs) > limit:
            why = f"the connector made {len(configs)} task configs, but tasks.max is {limit}"
            if enforce_tasks_max(values):
                return self._fail(name, f"{why}. Raise tasks.max, or set tasks.max.enforce=false to allow it")
            log.warning("connector %s: %s; tasks.max.enforce=false allows it", name, why)
        found.retries = 0
        found.answer = [dict(c) for c in configs]
        out = self._show(name, State.RUNNING)
        applied = config.applied(name)
        same = list(config.tasks(name)) == found.answer
        if not same or config.inconsistent(name) or (applied is not None and applied != found.config):
            out.append(WriteTasks(name, tuple(configs), epoch))
        return out

    def awaits(self, name: str, epoch: int) -> bool:
        """Returns whether the question of this epoch is still the newest, so that its answer counts."""
        found = self._connectors.get(name)
        return found is not None and found.epoch == epoch

    def on_task_configs_delayed(self, name: str, epoch: int, now_ms: int) -> None:
        """Ask the connector again later, without showing a failure: a rebalance keeps the leader from being told."""
        found = self._connectors.get(name)
        if found is not None and found.epoch == epoch:
            self._retry(found, now_ms)

    def _retry(self, found: HerdedConnector, now_ms: int) -> int:
        """Schedule the next question, each time later; returns the wait in ms."""
        wait_ms = min(RETRY_MS << min(found.retries, 16), RETRY_MAX_MS)
        found.retries += 1
        found.retry_at_ms = now_ms + wait_ms
        return wait_ms

    def on_task_configs_failed(self, name: str, epoch: int, error: str, now_ms: int) -> list[Action]:
        """Show that the connector has no answer, or that its answer could not be written, and ask again later."""
        found = self._connectors.get(name)
        if found is None or found.epoch != epoch:
            return []
        wait_ms = self._retry(found, now_ms)
        return self._fail(name, f"cannot make task configs (next try in {wait_ms / 1000:g} s): {error}")

    def tick(self, now_ms: int) -> list[Action]:
        """Returns the actions that are due."""
        out: list[Action] = []
        for name, found in self._connectors.items():
            if found.retry_at_ms is not None and found.retry_at_ms <= now_ms:
                out += self._ask(name, found)
        return out

    def next_deadline_ms(self) -> int | None:
        """Returns the time at which `tick` has something to do; None when nothing is scheduled."""
        return min(
            (c.retry_at_ms for c in self._connectors.values() if c.retry_at_ms is not None), default=None
        )

    # The user's requests

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> list[Action]:
        """Restart a connector and its tasks as far as asked. Raises KeyError when there is no such connector.

        A connector that is paused or stopped does not run and is not restarted.
        """
        found = self._connectors[name]
        targets: list[Target] = []
        if found.runs and (not only_failed or found.state is State.FAILED):
            targets.append(name)
        if include_tasks:
            targets += [
                TaskId(name, i)
                for i, task in found.tasks.items()
                if task.hold is Hold.NO and (not only_failed or task.state is State.FAILED)
            ]
        return [a for t in targets for a in self._restart(t)]

    def restart_task(self, id: TaskId) -> list[Action]:
        """Restart one task. Raises KeyError when there is no such task."""
        task = self._connectors[id.connector].tasks[id.task]
        return self._restart(id) if task.hold is Hold.NO else []

    def _restart(self, target: Target) -> list[Action]:
        """Start the target anew. So a child starts that the supervisor has given up on, and also one that it never
        had.
        """
        if isinstance(target, TaskId):
            task = self._connectors[target.connector].tasks[target.task]
            task.state = State.RESTARTING
            # The trace stays: it says why there was something to restart.
            return [PutStatus(target, State.RESTARTING, task.trace, task.version), StartTask(task.spec)]
        found = self._connectors[target]
        found.state = State.RESTARTING
        self._forget_question(found)
        spec = ConnectorSpec(name=target, config=found.config, worker=self._worker)
        return [PutStatus(target, State.RESTARTING, found.trace, found.version), StartConnector(spec)]

    def shown(self, target: Target) -> PutStatus | None:
        """Returns this worker's status of something that runs here; None when it does not run here or has no
        status yet.
        """
        if isinstance(target, TaskId):
            found = self._connectors.get(target.connector)
            task = found.tasks.get(target.task) if found is not None else None
            return None if task is None else PutStatus(target, task.state, task.trace, task.version)
        here = self._connectors.get(target) if target in self._assigned.connectors else None
        if here is None or here.state is None:
            return None
        return PutStatus(target, here.state, here.trace, here.version)

    def shut_down(self) -> list[Action]:
        """Returns the last statuses, after everything was stopped: UNASSIGNED, as nobody runs it now."""
        out: list[Action] = []
        for name, found in self._connectors.items():
            if found.runs:
                out.append(PutStatus(name, State.UNASSIGNED, None, found.version))
            out += [
                PutStatus(TaskId(name, i), State.UNASSIGNED, None, t.version) for i, t in found.tasks.items()
            ]
        self._connectors.clear()
        return out
