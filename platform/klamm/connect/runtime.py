"""The worker's engine: ties the three internal topics, the herder and the supervisor together.

The group decides what runs here, the herder what to do for that, and the supervisor what children do.
This module carries the herder's actions out and reports back what happened. Actions on one connector or
task run one after the other in a lane of its own. While the broker is away, statuses are kept (the
newest per key) and written when it is back. Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from klamm.connect.children.interface import Callbacks, MakeChildren
from klamm.connect.config import WorkerConfig
from klamm.connect.events import EventBus
from klamm.connect.herding import actions as do
from klamm.connect.herding.actions import Action, Target
from klamm.connect.herding.announcer import Announcer
from klamm.connect.herding.assignment import Assignment
from klamm.connect.herding.cluster import Cluster, LeaderDuties
from klamm.connect.herding.fencing import ZombieFencing
from klamm.connect.herding.group_adapter import GroupAdapter
from klamm.connect.herding.herder import Herder
from klamm.connect.herding.lanes import Lanes
from klamm.connect.herding.loads import Loads
from klamm.connect.herding.status_board import StatusBoard
from klamm.connect.herding.task_configs import TaskConfigs, now_ms
from klamm.connect.herding.task_requests import TaskRequests
from klamm.connect.model import Progress, State, StateEvent, TaskId
from klamm.connect.plugins.admin import PluginAdmin
from klamm.connect.plugins.catalog import PluginRegistry, check_converters
from klamm.connect.plugins.listing import PluginListing
from klamm.connect.plugins.records import PLUGINS
from klamm.connect.plugins.search import PluginSearch
from klamm.connect.settings.plugins import directory_of, sources_of
from klamm.connect.topics.config_topic import (
    ConfigState,
    LoggerLevel,
    OffsetState,
    Record,
    RestartRequest,
    StatusState,
)
from klamm.connect.topics.config_writer import ConfigWriter
from klamm.connect.topics.fenced_writer import FencedWriter
from klamm.connect.topics.kafka_log import make_admin
from klamm.connect.topics.status_writer import StatusWriter
from klamm.connect.topics.storage import Storage, TopicStorage
from klamm.environments.store import Store

log = logging.getLogger(__name__)

STATUS_FLUSH_S: Final = 5.0  # how long a stopping worker tries to write its last words


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
        self.lost = False  # contact with the group: nothing runs here, and nobody could be told
        self.url = url
        self.generation = 1
        self.events = EventBus()
        self.configs = ConfigState()
        self.offsets = OffsetState()
        self.statuses = StatusState(worker_id)
        self.announcer = Announcer(self.events, self.configs, self.statuses)
        self.plugin_search = PluginSearch(
            lambda: self.plugins, self.validate, self._run_search, active=self._is_herding
        )
        self.admin = make_admin(client)
        self.storage = storage or TopicStorage(config, client, self.admin)
        self.producer = self.storage.writer
        self.herder = Herder(
            worker=config.for_tasks(),
            find_plugin=self.plugin_search.find,
            seeks=self.plugin_search.seeks,
            why_missing=self.plugin_search.why_missing,
            current=config.secrets.current,
        )
        self.config_log = self.storage.log("config", self._on_config)
        self.offset_log = self.storage.log("offset", self.offsets.apply)
        self._connect_parts(client, make_children, alone=storage is not None)
        self.on_logger_level: Callable[[LoggerLevel], None] = lambda _level: None
        self.lanes = Lanes(self._failed)
        self._herding = False
        self._reconcile_soon = False
        self._changed: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def _connect_parts(self, client: Mapping[str, Any], make_children: MakeChildren, *, alone: bool) -> None:
        """Make the collaborators that need each other."""
        config = self.config
        self.cluster = Cluster(
            config,
            url=self.url,
            configs=self.configs,
            config_log=self.config_log,
            assigned_here=self._assigned,
        )
        self.config_writer = ConfigWriter(
            FencedWriter(client, config["group.id"]) if config.transactional_leader else None,
            configs=self.configs,
            log=self.config_log,
            producer=self.producer,
            admin=self.admin,
            leadership=self.cluster,
            on_written=self.act_on_changes,
        )
        self.config_lock = self.config_writer.lock
        self.plugin_admin = self._make_plugin_admin(alone=alone)
        self.plugin_listing = PluginListing(self.plugin_admin, self.plugin_search, self._connector_configs)
        self.fencing = ZombieFencing(config, self.config_writer, lambda: self.plugins)
        self.cluster.duties = LeaderDuties(
            prepare=self.config_writer.prepare,
            put_session_key=self.config_writer.put_session_key,
            fence=self.fencing.fence,
        )
        self.task_requests = TaskRequests(
            configs=self.configs,
            config_log=self.config_log,
            offset_log=self.offset_log,
            producer=self.producer,
            fence=self.cluster.fence,
            assigned=self._assigned,
        )
        self.status_board = self._make_status_board()
        self.status_log = self.storage.log("status", self.status_board.read)
        self.children = make_children(
            config,
            Callbacks(
                on_event=self.on_event,
                on_progress=self.on_progress,
                on_task_configs_changed=self.on_task_configs_changed,
                read_offsets=self.read_offsets,
                requests=self.task_requests.answers,
                environment_of=self.plugin_admin.environment_of,
            ),
        )
        self.task_configs = TaskConfigs(
            self.herder,
            self.children,
            writer=self.config_writer,
            cluster=self.cluster,
            perform=self.perform,
            active=self._is_herding,
        )
        loads = Loads(lambda: self._assigned().tasks, self.children.pid, self.children.progress)
        self.group_adapter = GroupAdapter(
            self,
            configs=self.configs,
            config_log=self.config_log,
            loads=loads.measure,
            sync_timeout_s=config["worker.sync.timeout.ms"] / 1000,
        )

    def _make_status_board(self) -> StatusBoard:
        return StatusBoard(
            self.statuses,
            StatusWriter(self.producer, lambda: self.status_log.topic, lambda: self.cluster.alive),
            self.announcer,
            shown=self.herder.shown,
            alive=lambda: self.cluster.alive,
            generation=lambda: self.generation,
            tracks_topics=self.config["topic.tracking.enable"],
        )

    # Life

    async def start(self) -> None:
        """Create and read the internal topics, start the supervisor, and list the plugins."""
        await asyncio.gather(self._read_topics(), self.children.start())
        self.storage.check()
        self.announcer.begin()
        self.configs.take_commands()  # said before this worker was there
        self.job(self.status_board.writer.run())
        await self.plugin_admin.start()
        if await self.plugin_listing.refresh(30):
            check_converters(self.config, self.plugins)
        else:
            self.job(self.plugin_listing.retry(self.reconcile))

    async def _read_topics(self) -> None:
        await self.storage.ensure(self.admin, self.config)
        logs = (self.config_log, self.offset_log, self.status_log)
        await asyncio.gather(*(each.start() for each in logs))

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
            publish=self.config_writer.publish,
            on_built=self.reconcile,
            misses=self.plugin_search.misses,
            on_found=self._restart_with_plugins,
        )

    def _connector_configs(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, self.configs.config(name) or {}) for name in self.configs.connectors]

    def _is_herding(self) -> bool:
        return self._herding

    def _assigned(self) -> Assignment:
        return self.herder.assigned

    def _run_search(self, search: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            await search
            self.reconcile()

        self.job(run())

    def _restart_with_plugins(self, names: Sequence[str]) -> None:
        """Start again what has failed because it lacked a plugin that is there now."""
        if not self._herding:
            return
        self.reconcile()
        for name in names:
            with contextlib.suppress(KeyError):  # it does not run here
                actions = self.herder.restart(name, include_tasks=True, only_failed=True)
                if actions:
                    log.info("connector %s restarts: its missing plugins are installed now", name)
                    self.perform(actions)

    async def validate(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Returns the plugin's part of a validate answer, from a child."""
        params = {"config": dict(config), "worker": self.config.for_tasks()}
        answer: dict[str, Any] = await self.children.call("validate", params)
        return answer

    # The group's decisions

    async def meet(self) -> None:
        """Prepare to join the group: stop what must not run any more, and write the last statuses of that."""
        self.act_on_changes()
        await self.lanes.stopped()
        await self.status_board.writer.flush(STATUS_FLUSH_S)
        self.act_on_changes()
        while self.lanes.stopping:  # what was read meanwhile stops, too
            await self.lanes.stopped()
            self.act_on_changes()
        self.herder.meet(self.configs)

    def look(self) -> None:
        """Record the configs as they are now, so that they trigger no rejoin."""
        self.herder.look(self.configs)

    def assign(self, assignment: Assignment, generation: int) -> None:
        """Run exactly this from now on."""
        self.generation = generation
        self.statuses.begin_tenure(generation)
        self._herding, self.lost = True, False
        if self.cluster.is_leader:
            self.perform(self.herder.clean_up(self.configs, self.statuses))
        changed, self._changed = self._changed, set()
        self.perform(self.herder.assign(assignment, self.configs, changed))
        self._announce(self.configs.connectors)
        if self.cluster.is_leader:
            self.status_board.unassign(self.cluster.orphans())
        self.config_writer.assigned(leads=self.cluster.is_leader)
        if self.cluster.is_leader:
            self.job(self.config_writer.claim_soon())
        self.cluster.assigned()
        self.job(self.cluster.check_addresses())
        told = {"connectors": sorted(assignment.connectors), "tasks": sorted(map(str, assignment.tasks))}
        self.events.publish(
            "group.rebalance", {"generation": generation, "leader": self.cluster.leader_url, **told}
        )

    async def revoke(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        """Stop these; returns when they have stopped and are shown as UNASSIGNED."""
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
        """Kill everything and write no more statuses, because contact with the group is lost."""
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
        """As the leader, give new connectors a status before any worker runs them."""
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
            self.plugin_admin.note_users_soon()
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
        """Restart a connector and its tasks as far as the request names them and they run here."""
        name, include, only = request.connector, request.include_tasks, request.only_failed
        try:
            actions = self.herder.restart(name, include_tasks=include, only_failed=only)
        except KeyError:
            return
        log.info("connector %s: restart requested: %d actions on this worker", name, len(actions))
        self.perform(actions)

    def reconcile(self) -> None:
        """Let the herder compare all that should run with what does."""
        self._changed.update(self.configs.connectors)
        self.act_on_changes()

    def act_on_changes(self) -> None:
        """Do what the news in the config topic ask for."""
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
        """Returns the stored offset of each source partition, as of now."""
        await self.offset_log.read_to_end()
        return [self.offsets.get(connector, p) for p in partitions]

    # The supervisor's reports

    def on_event(self, event: StateEvent) -> None:
        """Take in a child's new state; the supervisor calls this."""
        if self._herding:
            self.perform(self.herder.on_event(event))

    def on_progress(self, task: TaskId, progress: Progress) -> None:
        """Does nothing: readers of progress ask for it (`Children.progress`)."""

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
            case do.UpdateTask(id=id, spec=task):
                self.lanes.run(id, lambda: children.update_task(task))
            case do.ComputeTasks():
                self.job(self.task_configs.compute(action))
            case do.WriteTasks():
                self.job(self.task_configs.write(action))
            case do.Rejoin(reason=reason):
                self.cluster.request_rejoin(reason)

    async def settled(self, name: str) -> None:
        """Wait until all calls for a connector and its tasks have ended (a task has stopped)."""
        await self.lanes.settled(name)

    def _failed(self, target: Target, why: str) -> None:
        name, task = target if isinstance(target, TaskId) else (target, None)
        self.on_event(StateEvent(connector=name, task=task, state=State.FAILED, trace=why))

    def job(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside, as long as the worker runs."""
        task = asyncio.create_task(coroutine)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

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
