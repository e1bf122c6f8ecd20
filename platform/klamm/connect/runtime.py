"""The worker's engine: the three internal topics, the herder, and the supervisor, tied together.

Decisions are the herder's, what runs here is the group's, and what children do is the supervisor's; this module
carries the herder's actions out and feeds back what happened. Actions on one connector or task run one after the other
in a lane of its own. Statuses that cannot be written while the broker is away are kept (the newest per key) and
written when it is back. Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from klamm.connect.children.usage import Usage
from klamm.connect.config import WorkerConfig
from klamm.connect.events import EventBus
from klamm.connect.herding import actions as do
from klamm.connect.herding.actions import Action, Target
from klamm.connect.herding.announcer import Announcer
from klamm.connect.herding.assignment import Assignment
from klamm.connect.herding.cluster import Cluster, LeaderBusy
from klamm.connect.herding.group_adapter import Place
from klamm.connect.herding.herder import Herder
from klamm.connect.herding.lanes import Lanes
from klamm.connect.herding.loads import Loads
from klamm.connect.herding.status_board import StatusBoard
from klamm.connect.herding.task_requests import TaskRequests
from klamm.connect.model import (
    ConnectorSpec,
    Progress,
    RestartNote,
    State,
    StateEvent,
    TaskId,
    TaskSpec,
)
from klamm.connect.plugins.admin import PluginAdmin
from klamm.connect.plugins.catalog import PluginRegistry, check_converters
from klamm.connect.plugins.records import PLUGINS
from klamm.connect.plugins.search import PluginSearch
from klamm.connect.plugins.settings import directory_of, sources_of
from klamm.connect.plugins.waiting import start_found
from klamm.connect.topics.config_topic import (
    ConfigState,
    LoggerLevel,
    OffsetState,
    Record,
    RestartRequest,
    StatusState,
)
from klamm.connect.topics.config_writer import ConfigWriter
from klamm.connect.topics.kafka_log import (
    make_admin,
)
from klamm.connect.topics.storage import Storage, TopicStorage
from klamm.environments.store import Store
from klamm_base.errors import KlammError
from klamm_plugins.metrics import MetricTable

log = logging.getLogger(__name__)

PLUGINS_RETRY_S: Final = 5.0
REFRESH_S: Final = 5.0  # GET /connector-plugins waits so long for a plugin package that hangs
STATUS_FLUSH_S: Final = 5.0  # how long a stopping worker tries to write its last words


class Children(Protocol):
    """The supervisor as the worker needs it; `klamm.connect.children.supervisor.Supervisor` says what each does."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill_all(self) -> None: ...
    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 30) -> Any: ...
    async def start_connector(self, spec: ConnectorSpec) -> None: ...
    async def stop_connector(self, name: str) -> None: ...
    async def task_configs(self, name: str, max_tasks: int) -> list[dict[str, str]]: ...
    async def start_task(self, spec: TaskSpec) -> None: ...
    async def stop_task(self, task: TaskId) -> None: ...
    async def set_paused(self, target: TaskId | str, paused: bool) -> None: ...
    def progress(self, task: TaskId) -> Progress | None: ...
    def metrics(self, task: TaskId) -> list[MetricTable]: ...
    def restarts(self, target: TaskId | str) -> RestartNote | None: ...
    def usage(self, target: TaskId | str) -> Usage | None: ...
    def pid(self, target: TaskId | str) -> int | None: ...


MakeChildren = Callable[["Runtime"], Children]


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Runtime:
    """See the module. `client` is librdkafka's configuration for reaching the broker."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        client: Mapping[str, Any],
        worker_id: str,
        make_children: MakeChildren,
        url: str = "",
        storage: Storage | None = None,
    ) -> None:
        self.config = config
        self.worker_id = worker_id
        self.lost = False  # its place in the group: nothing runs here, and nobody could be told
        self.url = url
        self.generation = 1
        self.events = EventBus()
        self.configs = ConfigState()
        self.offsets = OffsetState()
        self.statuses = StatusState(worker_id)
        self.announcer = Announcer(self.events, self.configs, self.statuses)
        self.plugin_admin = self._make_plugin_admin(alone=storage is not None)
        self.plugin_search = PluginSearch(self)
        self.task_requests = TaskRequests(self)
        self.children = make_children(self)
        self.admin = make_admin(client)
        self.storage = storage or TopicStorage(config, client)
        self.producer = self.storage.writer
        self.herder = Herder(
            worker=config.for_tasks(),
            find_plugin=self.plugin_search.find,
            seeks=self.plugin_search.seeks,
            current=config.secrets.current,
        )
        self.config_log = self.storage.log("config", self._on_config)
        self.offset_log = self.storage.log("offset", self.offsets.apply)
        self.status_board = StatusBoard(self)
        self.status_log = self.storage.log("status", self.status_board.read)
        self.config_writer = ConfigWriter(self, client)
        self.config_lock = asyncio.Lock()
        self.cluster = Cluster(self)
        self.place = Place(self)
        self.loads = Loads(lambda: self.herder.assigned.tasks, self.children.pid, self.children.progress)
        self.on_logger_level: Callable[[LoggerLevel], None] = lambda _level: None
        self.lanes = Lanes(self._failed)
        self._herding = False
        self._reconcile_soon = False
        self._changed: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    # Life

    async def start(self) -> None:
        """Make and read the internal topics, start the supervisor, and list the plugins."""
        await self.storage.ensure(self.admin, self.config)
        logs = (self.config_log, self.offset_log, self.status_log)
        await asyncio.gather(*(each.start() for each in logs), self.children.start())
        self.storage.check()
        self.announcer.begin()
        self.configs.take_commands()  # said before this worker was there
        self.job(self.status_board.writer.run())
        await self.plugin_admin.start()
        if await self._list_plugins():
            check_converters(self.config, self.plugins)
        else:
            self.job(self._list_plugins_later())

    async def stop(self) -> None:
        """Stop all children (tasks commit their offsets), write the last statuses, close the topics."""
        self._herding = False
        if self._timer is not None:
            self._timer.cancel()
        await self.plugin_admin.stop()
        await self.children.stop()
        await self.lanes.cancel()
        for task in self._jobs:
            task.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for action in self.herder.shut_down():
            if isinstance(action, do.PutStatus):
                self.status_board.put(action)
        if not await self.status_board.writer.flush(STATUS_FLUSH_S):
            log.warning("the last statuses could not be written in %g s", STATUS_FLUSH_S)
        await asyncio.gather(self.config_log.stop(), self.offset_log.stop(), self.status_log.stop())
        await self.cluster.close()
        await self.producer.close()

    @property
    def plugins(self) -> PluginRegistry:
        """The plugins that are there now."""
        return self.plugin_admin.registry

    def _make_plugin_admin(self, *, alone: bool) -> PluginAdmin:
        values = self.config.values
        return PluginAdmin(
            Store(directory_of(values), sources=sources_of(values)),
            group=None if alone else self.config["group.id"],
            list_beside=lambda params, timeout_s: self.children.call(
                "list_plugins", dict(params), timeout_s=timeout_s
            ),
            configs=self._connector_configs,
            worker=self.config.for_tasks(),
            publish=self._publish,
            on_built=self.reconcile,
            on_found=lambda names: start_found(self, names),
        )

    def _connector_configs(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, self.configs.config(name) or {}) for name in self.configs.connectors]

    async def _publish(self, records: Sequence[Record]) -> None:
        async with self.config_lock:
            await self.write_config(records)

    @property
    def herding(self) -> bool:
        """Whether this worker has a place in its group, and runs what that says."""
        return self._herding

    async def refresh_plugins(self) -> None:
        """List the plugins again; when that fails, what was known stays known."""
        await self._list_plugins(timeout_s=REFRESH_S)

    async def _list_plugins(self, timeout_s: float = 30) -> bool:
        """Whether the plugins are known now. A package that hangs or crashes when it is imported hides them all."""
        try:
            await self.plugin_admin.refresh(timeout_s)
        except KlammError as e:
            log.error("the plugins cannot be listed: %s", e)  # noqa: TRY400
            return False
        await self.plugin_search.learn_all()
        return True

    async def _list_plugins_later(self) -> None:
        while True:
            await asyncio.sleep(PLUGINS_RETRY_S)
            if await self._list_plugins():
                self.reconcile()
                return

    async def validate(self, config: Mapping[str, str]) -> dict[str, Any]:
        """The plugin's part of a validate answer, from a child."""
        params = {"config": dict(config), "worker": self.config.for_tasks()}
        answer: dict[str, Any] = await self.children.call("validate", params)
        return answer

    # What the group decides

    async def meet(self) -> None:
        """Before this worker goes to its group: what must not run any more has stopped, and its last words are said."""
        self.act_on_changes()
        await self.lanes.stopped()
        await self.status_board.writer.flush(STATUS_FLUSH_S)
        self.act_on_changes()
        while self.lanes.stopping:  # what was read meanwhile stops, too
            await self.lanes.stopped()
            self.act_on_changes()
        self.herder.meet(self.configs)

    def assign(self, assignment: Assignment, generation: int) -> None:
        """Run exactly this from now on."""
        self.generation = generation
        self.statuses.begin_tenure(generation)
        self._herding, self.lost = True, False
        if self.cluster.is_leader:
            self.perform(self.herder.clean_up(self.configs, self.statuses))
        self.perform(self.herder.assign(assignment, self.configs))
        self._changed.clear()
        self._announce(self.configs.connectors)
        if self.cluster.is_leader:
            self.status_board.unassign(self.cluster.orphans())
        self.config_writer.assigned(leads=self.cluster.is_leader)
        if self.cluster.is_leader:
            self.job(self.config_writer.claim_soon())
        self.cluster.assigned()
        told = {"connectors": sorted(assignment.connectors), "tasks": sorted(map(str, assignment.tasks))}
        self.events.publish(
            "group.rebalance", {"generation": generation, "leader": self.cluster.leader_url, **told}
        )

    async def revoke(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        """Stop these; when it returns they have, and are shown as UNASSIGNED."""
        self.perform(self.herder.revoke(connectors, tasks))
        targets: list[Target] = [*connectors, *tasks]
        await self.lanes.done(targets)
        for target in targets:
            if self._exists(target):
                before = self.statuses.get(target)
                version = before.version if before else None
                self.status_board.put(do.PutStatus(target, State.UNASSIGNED, None, version))
        await self.status_board.writer.flush(STATUS_FLUSH_S)

    async def lose(self) -> None:
        """The place in the group is lost: kill everything, say nothing more."""
        self._herding, self.lost = False, True
        self.config_writer.assigned(leads=False)
        self.status_board.writer.forget()
        self.statuses.end_tenure()
        self.herder.forget()
        await asyncio.gather(self.children.kill_all(), self.lanes.cancel())
        await self.children.kill_all()  # what was being started meanwhile

    def _exists(self, target: Target) -> bool:
        if isinstance(target, str):
            return target in self.configs
        return target.connector in self.configs and target.task < len(self.configs.tasks(target.connector))

    def _announce(self, names: Iterable[str]) -> None:
        """A new connector has a status before anybody runs it; the leader sees to that."""
        if not self.cluster.is_leader or not self._herding:
            return
        for name in names:
            if name in self.configs and self.statuses.get(name) is None:
                plugin = self.plugin_search.find((self.configs.config(name) or {}).get("connector.class", ""))
                version = plugin.version if plugin else None
                self.status_board.put(do.PutStatus(name, State.UNASSIGNED, None, version))

    # Config topic

    async def write_config(self, records: Sequence[Record], *, by_leader: bool = True) -> None:
        """See `ConfigWriter.write`."""
        await self.config_writer.write(records, by_leader=by_leader)

    def _on_config(self, key: str, value: bytes | None, _timestamp_ms: int) -> None:
        if key.startswith(PLUGINS):
            self.plugin_admin.apply(key, value)
            return
        name = self.configs.apply(key, value)
        if not self.config_log.caught_up:
            return
        if name is not None:
            self._changed.add(name)
            self.announcer.config(name)
        for command in self.configs.take_commands():
            self._obey(command)
        if name is not None and self._herding and not self._reconcile_soon and not self.config_writer.busy:
            self._reconcile_soon = True
            asyncio.get_running_loop().call_soon(self.act_on_changes)

    def _obey(self, command: RestartRequest | LoggerLevel) -> None:
        match command:
            case LoggerLevel():
                self.on_logger_level(command)
            case RestartRequest() if self._herding:
                self.restart(command)

    def restart(self, request: RestartRequest) -> None:
        """Restart a connector and its tasks as far as they are asked for and run here."""
        name, include, only = request.connector, request.include_tasks, request.only_failed
        try:
            actions = self.herder.restart(name, include_tasks=include, only_failed=only)
        except KeyError:
            return
        log.info("connector %s: a restart was asked for; here it means %d actions", name, len(actions))
        self.perform(actions)

    def reconcile(self) -> None:
        """Let the herder compare all that should run with what does."""
        self._changed.update(self.configs.connectors)
        self.act_on_changes()

    def act_on_changes(self) -> None:
        """Do what the config topic's news ask for."""
        self._reconcile_soon = False
        if not self._herding:
            return
        changed, self._changed = self._changed, set()
        self.perform(self.herder.reconcile(self.configs, changed))
        self._announce(changed)

    # Offset topic

    async def read_offsets(
        self, connector: str, partitions: list[dict[str, Any]]
    ) -> list[dict[str, Any] | None]:
        """The stored offset of each source partition, as of now."""
        await self.offset_log.read_to_end()
        return [self.offsets.get(connector, p) for p in partitions]

    # What the supervisor says

    def on_event(self, event: StateEvent) -> None:
        """A child's new state; the supervisor calls this."""
        if self._herding:
            self.perform(self.herder.on_event(event))

    def on_progress(self, task: TaskId, progress: Progress) -> None:
        """Progress is asked for when somebody looks (`Children.progress`); nothing to do."""

    def on_task_configs_changed(self, name: str) -> None:
        if self._herding:
            self.perform(self.herder.on_task_configs_changed(name))

    # The herder's actions

    def perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._perform(action)
        self._set_timer()

    def _perform(self, action: Action) -> None:
        children = self.children
        match action:
            case do.PutStatus():
                self.status_board.put(action)
            case do.DropStatus(target=target):
                self.status_board.drop(target)
            case do.SeeTopic():
                self.status_board.see_topic(action)
            case do.DropTopics(name=name):
                self.drop_topics(name)
            case do.StartConnector(spec=spec):
                self.lanes.run(spec.name, lambda: children.start_connector(spec))
            case do.StopConnector(name=name):
                self.lanes.run(name, lambda: children.stop_connector(name))
            case do.StartTask(spec=task):
                self.lanes.start_task(task.id, lambda: children.start_task(task))
            case do.StopTask(id=id):
                self.lanes.stop_task(id, lambda: children.stop_task(id))
            case do.PauseTask(id=id, paused=paused):
                self.lanes.run(id, lambda: children.set_paused(id, paused))
            case do.ComputeTasks():
                self.job(self._compute_tasks(action))
            case do.WriteTasks():
                self.job(self._write_tasks(action))
            case do.Rejoin(reason=reason):
                self.cluster.request_rejoin(reason)

    async def settled(self, name: str) -> None:
        """Wait until everything that was asked of a connector and its tasks is done (a task has stopped)."""
        await self.lanes.settled(name)

    def _failed(self, target: Target, why: str) -> None:
        name, task = target if isinstance(target, TaskId) else (target, None)
        self.on_event(StateEvent(connector=name, task=task, state=State.FAILED, trace=why))

    def job(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside, as long as the worker runs."""
        task = asyncio.create_task(coroutine)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _compute_tasks(self, question: do.ComputeTasks) -> None:
        name, epoch = question.name, question.epoch
        try:
            configs = await self.children.task_configs(name, question.max_tasks)
        except KlammError as e:
            self._tasks_failed(name, epoch, str(e))
        else:
            self.perform(self.herder.on_task_configs(name, epoch, configs, self.configs))

    async def _write_tasks(self, action: do.WriteTasks) -> None:
        """By the leader; a worker that is not sends them there."""
        name, epoch = action.name, action.epoch
        try:
            if self.cluster.is_leader:
                await self.config_writer.put_task_configs(
                    name, action.configs, lambda: self.herder.awaits(name, epoch)
                )
            else:
                await self.cluster.send_task_configs(name, action.configs)
        except LeaderBusy as e:
            log.info("the task configs of %s are sent to the leader again: %s", name, e)
            if self._herding:
                self.herder.on_task_configs_delayed(name, epoch, now_ms())
                self._set_timer()
        except KlammError as e:
            self._tasks_failed(name, epoch, str(e))

    def _tasks_failed(self, name: str, epoch: int, why: str) -> None:
        if self._herding:
            self.perform(self.herder.on_task_configs_failed(name, epoch, why, now_ms()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.herder.next_deadline_ms()
        if deadline is not None and self._herding:
            wait_s = max(0, deadline - now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self.perform(self.herder.tick(now_ms()))

    # Status topic

    def drop_topics(self, name: str) -> None:
        """Forget the topics that a connector used."""
        self.status_board.drop_topics(name)
