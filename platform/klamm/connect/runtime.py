"""The worker's engine: the three internal topics, the herder, and the supervisor, tied together.

Decisions are the herder's and what children do is the supervisor's; this module carries the herder's actions
out and feeds back what happened. Actions on one connector or task run one after the other in a lane of its
own, so that a child that takes its time to stop delays nobody else; only the tasks of its own connector wait for
it before they start. Statuses that cannot be written while the broker is away are kept (the newest per key) and
written when it is back. Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from klamm.connect import herder as do
from klamm.connect.announcer import Announcer
from klamm.connect.config import WorkerConfig
from klamm.connect.events import EventBus
from klamm.connect.herder import Action, Herder, Target
from klamm.connect.kafka_log import (
    KafkaBasedLog,
    LogError,
    LogProducer,
    RecordTooLarge,
    TopicSettings,
    ensure_compacted_topic,
    make_admin,
    record_limit,
)
from klamm.connect.model import (
    ConnectorSpec,
    PluginInfo,
    Progress,
    RestartNote,
    State,
    StateEvent,
    TaskId,
    TaskSpec,
)
from klamm.connect.plugin_admin import PluginAdmin
from klamm.connect.plugin_config import directory_of, sources_of
from klamm.connect.plugin_records import PLUGINS
from klamm.connect.plugins import PluginRegistry, check_converters
from klamm.connect.status_state import status_target
from klamm.connect.stores import (
    ActiveTopic,
    ConfigState,
    OffsetState,
    Record,
    Status,
    StatusState,
    task_records,
)
from klamm.environments.store import Store
from klamm.connect.usage import Usage
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

STATUS_RETRY_S: Final = 1.0
PLUGINS_RETRY_S: Final = 5.0
REFRESH_S: Final = 5.0  # GET /connector-plugins waits so long for a plugin package that hangs
STATUS_FLUSH_S: Final = 5.0  # how long a stopping worker tries to write its last words


class Children(Protocol):
    """The supervisor as the worker needs it; `klamm.connect.supervisor.Supervisor` says what each does."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 30) -> Any: ...
    async def start_connector(self, spec: ConnectorSpec) -> None: ...
    async def stop_connector(self, name: str) -> None: ...
    async def task_configs(self, name: str, max_tasks: int) -> list[dict[str, str]]: ...
    async def start_task(self, spec: TaskSpec) -> None: ...
    async def stop_task(self, task: TaskId) -> None: ...
    async def set_paused(self, target: TaskId | str, paused: bool) -> None: ...
    def progress(self, task: TaskId) -> Progress | None: ...
    def restarts(self, target: TaskId | str) -> RestartNote | None: ...
    def usage(self, target: TaskId | str) -> Usage | None: ...
    def pid(self, target: TaskId | str) -> int | None: ...


MakeChildren = Callable[["Runtime"], Children]


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Runtime:
    """See the module. `client` is librdkafka's configuration for reaching the broker."""

    def __init__(
        self, config: WorkerConfig, *, client: Mapping[str, Any], worker_id: str, make_children: MakeChildren
    ) -> None:
        self.config = config
        self.worker_id = worker_id
        self.generation = 1
        self.events = EventBus()
        self.configs = ConfigState()
        self.offsets = OffsetState()
        self.statuses = StatusState(worker_id)
        self.announcer = Announcer(self.events, self.configs, self.statuses)
        self.plugin_admin = self._make_plugin_admin()
        self.children = make_children(self)
        self.admin = make_admin(client)
        self.producer = LogProducer(client)
        self.herder = Herder(worker=config.for_tasks(), find_plugin=self._find_plugin)
        self.config_log = KafkaBasedLog(config["config.storage.topic"], client, self._on_config)
        self.offset_log = KafkaBasedLog(config["offset.storage.topic"], client, self.offsets.apply)
        self.status_log = KafkaBasedLog(config["status.storage.topic"], client, self._on_status)
        self.config_lock = asyncio.Lock()
        self._herding = False
        self._reconcile_soon = False
        self._writing_config = False
        self._lanes: dict[Target, asyncio.Task[None]] = {}
        self._stops: dict[str, set[asyncio.Task[None]]] = {}  # of a connector's tasks, those that go on
        self._jobs: set[asyncio.Task[None]] = set()
        self._statuses_to_write: dict[str, bytes | None] = {}
        self._status_news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # Life

    async def start(self) -> None:
        """Make and read the internal topics, start the supervisor, and list the plugins."""
        await asyncio.to_thread(self._ensure_topics)
        logs = (self.config_log, self.offset_log, self.status_log)
        await asyncio.gather(*(each.start() for each in logs), self.children.start())
        if self.config_log.partition_count != 1:
            raise LogError(
                f"Topic '{self.config_log.topic}' supplied via the 'config.storage.topic' property is required "
                f"to have a single partition, but it has {self.config_log.partition_count}"
            )
        await self.plugin_admin.start()
        if await self._list_plugins():
            check_converters(self.config, self.plugins)
        else:
            self._job(self._list_plugins_later())

    def herd(self) -> None:
        """From now on what should run does run (the worker is the only member of its group)."""
        self._herding = True
        self.announcer.begin()
        self._job(self._write_statuses())
        self.perform(self.herder.clean_up(self.configs, self.statuses))
        self.reconcile()

    async def stop(self) -> None:
        """Stop all children (tasks commit their offsets), write the last statuses, close the topics."""
        self._herding = False
        if self._timer is not None:
            self._timer.cancel()
        await self.plugin_admin.stop()
        await self.children.stop()
        for task in (*self._lanes.values(), *self._jobs):
            task.cancel()
        await asyncio.gather(*self._lanes.values(), *self._jobs, return_exceptions=True)
        for action in self.herder.shut_down():
            if isinstance(action, do.PutStatus) and self.statuses.may_write(action.target, self.generation):
                self._put_status(action)
        try:
            async with asyncio.timeout(STATUS_FLUSH_S):
                await self._write_statuses_once()
        except TimeoutError:
            log.warning("the last statuses could not be written in %g s", STATUS_FLUSH_S)
        await asyncio.gather(self.config_log.stop(), self.offset_log.stop(), self.status_log.stop())
        await self.producer.close()

    def _ensure_topics(self) -> None:
        for prefix in ("config", "offset", "status"):
            name, partitions, replication_factor = self.config.storage(prefix)
            ensure_compacted_topic(
                self.admin,
                TopicSettings(
                    name=name,
                    key=f"{prefix}.storage.topic",
                    partitions=partitions,
                    replication_factor=replication_factor,
                ),
            )

    @property
    def plugins(self) -> PluginRegistry:
        """The plugins that are there now."""
        return self.plugin_admin.registry

    def _make_plugin_admin(self) -> PluginAdmin:
        values = self.config.values
        return PluginAdmin(
            Store(directory_of(values), sources=sources_of(values)),
            group=self.config["group.id"],
            list_beside=lambda timeout_s: self.children.call("list_plugins", {}, timeout_s=timeout_s),
            configs=self._connector_configs,
            worker=self.config.for_tasks(),
            publish=self._publish,
        )

    def _connector_configs(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, self.configs.config(name) or {}) for name in self.configs.connectors]

    async def _publish(self, records: Sequence[Record]) -> None:
        async with self.config_lock:
            await self.write_config(records)

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
        for name in self.configs.connectors:
            await self._learn_plugin((self.configs.config(name) or {}).get("connector.class", ""))
        return True

    async def _list_plugins_later(self) -> None:
        while True:
            await asyncio.sleep(PLUGINS_RETRY_S)
            if await self._list_plugins():
                self.reconcile()
                return

    async def _learn_plugin(self, connector_class: str) -> None:
        """Find a plugin that the list does not show under this name (a Python path) by asking a child."""
        if self.plugins.connector(connector_class) is not None:
            return
        try:
            answer = await self.validate({"connector.class": connector_class})
        except KlammError as e:
            log.warning("connector.class %s: %s", connector_class, e)
        else:
            self.plugins.learn(connector_class, PluginInfo(answer["name"], answer["kind"], answer["version"]))

    def _find_plugin(self, connector_class: str) -> PluginInfo | None:
        return self.plugins.connector(connector_class)

    async def validate(self, config: Mapping[str, str]) -> dict[str, Any]:
        """The plugin's part of a validate answer, from a child."""
        params = {"config": dict(config), "worker": self.config.for_tasks()}
        answer: dict[str, Any] = await self.children.call("validate", params)
        return answer

    def set_generation(self, generation: int) -> None:
        """The group's generation, which statuses carry."""
        self.generation = generation

    # Config topic

    async def write_config(self, records: Sequence[Record]) -> None:
        """Write records to the config topic in order, read them back, and act on them. Raises LogError.

        The last record (the commit of task configs, the tombstone) follows when the others are acknowledged.
        They are acted on together; when some could not be written, on those that were.
        """
        *first, last = records
        topic = self.config_log.topic
        self._writing_config = True
        try:
            await asyncio.gather(*(self.producer.send(topic, key, value) for key, value in first))
            await self.producer.send(topic, *last)
            await self.config_log.read_to_end()
        except RecordTooLarge:
            raise await self._too_large(records) from None
        finally:
            self._writing_config = False
            self.reconcile()

    async def _too_large(self, records: Sequence[Record]) -> RecordTooLarge:
        """The sentence for records of which one is larger than the config topic takes."""
        topic = self.config_log.topic
        limit, setting = await asyncio.to_thread(record_limit, self.admin, topic, self.producer.record_max)
        key, value = max(records, key=lambda record: len(record[1] or b""))
        size = len(key.encode()) + len(value or b"")
        return RecordTooLarge(
            f"The record {key} is too large for the config topic {topic}: {size} bytes (and some 100 around them), "
            f"where {setting} allows {limit}"
        )

    def _on_config(self, key: str, value: bytes | None, _timestamp_ms: int) -> None:
        if key.startswith(PLUGINS):
            self.plugin_admin.apply(key, value)
            return
        name = self.configs.apply(key, value)
        if name is not None:
            self.announcer.config(name)
        if name is not None and self._herding and not self._reconcile_soon and not self._writing_config:
            self._reconcile_soon = True
            asyncio.get_running_loop().call_soon(self.reconcile)

    def reconcile(self) -> None:
        """Let the herder compare what should run with what does."""
        self._reconcile_soon = False
        if self._herding:
            self.perform(self.herder.reconcile(self.configs))

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
                self._put_status(action)
            case do.DropStatus(target=target):
                self._write_status(self.statuses.drop(target))
            case do.SeeTopic():
                self._see_topic(action)
            case do.DropTopics(name=name):
                self.drop_topics(name)
            case do.StartConnector(spec=spec):
                self._in_lane(spec.name, lambda: children.start_connector(spec))
            case do.StopConnector(name=name):
                self._in_lane(name, lambda: children.stop_connector(name))
            case do.StartTask(spec=task):
                stops = frozenset(self._stops.get(task.id.connector, ()))
                self._in_lane(task.id, lambda: children.start_task(task), after=stops)
            case do.StopTask(id=id):
                stop = self._in_lane(id, lambda: children.stop_task(id))
                self._note_stop(id.connector, stop)
            case do.PauseTask(id=id, paused=paused):
                self._in_lane(id, lambda: children.set_paused(id, paused))
            case do.ComputeTasks():
                self._job(self._compute_tasks(action))
            case do.WriteTasks():
                self._job(self._write_tasks(action))

    def _in_lane(
        self,
        target: Target,
        call: Callable[[], Awaitable[None]],
        after: frozenset[asyncio.Task[None]] = frozenset(),
    ) -> asyncio.Task[None]:
        """Run `call` after everything that was asked of the same target before, and after `after`.

        Both are older than what waits for them: nobody waits in a circle.
        """
        before = self._lanes.get(target)
        wait_for = after if before is None else after | {before}

        async def run() -> None:
            if wait_for:
                await asyncio.wait(wait_for)
            try:
                await call()
            except Exception as e:
                log.exception("%s", target)
                self._failed(target, f"{type(e).__name__}: {e}")
            finally:
                if self._lanes.get(target) is asyncio.current_task():
                    del self._lanes[target]

        self._lanes[target] = asyncio.create_task(run(), name=f"lane {target}")
        return self._lanes[target]

    def _note_stop(self, connector: str, stop: asyncio.Task[None]) -> None:
        """The connector's tasks that start from now on wait for this one's end."""
        stops = self._stops.setdefault(connector, set())
        stops.add(stop)

        def ended(_: asyncio.Task[None]) -> None:
            stops.discard(stop)
            if not stops and self._stops.get(connector) is stops:
                del self._stops[connector]

        stop.add_done_callback(ended)

    async def settled(self, name: str) -> None:
        """Wait until everything that was asked of a connector and its tasks is done (a task has stopped)."""
        while lanes := [t for k, t in self._lanes.items() if name in (k, getattr(k, "connector", None))]:
            await asyncio.wait(lanes)

    def _failed(self, target: Target, why: str) -> None:
        name, task = target if isinstance(target, TaskId) else (target, None)
        self.on_event(StateEvent(connector=name, task=task, state=State.FAILED, trace=why))

    def _job(self, coroutine: Coroutine[Any, Any, None]) -> None:
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
        try:
            async with self.config_lock:
                if action.name in self.configs:  # it may have been deleted while we waited
                    await self.write_config(task_records(action.name, action.configs))
        except LogError as e:
            self._tasks_failed(action.name, action.epoch, str(e))

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

    def _on_status(self, key: str, value: bytes | None, _timestamp_ms: int) -> None:
        self.statuses.apply(key, value)
        if (target := status_target(key)) is not None:
            self.announcer.status(target)

    def _put_status(self, action: do.PutStatus) -> None:
        status = Status(
            state=action.state,
            trace=action.trace,
            worker_id=self.worker_id,
            generation=self.generation,
            version=action.version,
        )
        self._write_status(self.statuses.put(action.target, status))
        self.announcer.status(action.target)

    def _see_topic(self, action: do.SeeTopic) -> None:
        if not self.config["topic.tracking.enable"]:
            return
        topic = ActiveTopic(
            topic=action.topic,
            connector=action.task.connector,
            task=action.task.task,
            discovered_ms=time.time_ns() // 1_000_000,
        )
        record = self.statuses.see_topic(topic)
        if record is not None:
            self._write_status(record)

    def drop_topics(self, name: str) -> None:
        """Forget the topics that a connector used."""
        for record in self.statuses.drop_topics(name):
            self._write_status(record)

    def _write_status(self, record: Record) -> None:
        key, value = record
        # The newest word per key last: a key that waits already moves to the end.
        self._statuses_to_write.pop(key, None)
        self._statuses_to_write[key] = value
        self._status_news.set()

    async def _write_statuses(self) -> None:
        while True:
            await self._status_news.wait()
            self._status_news.clear()
            if not await self._write_statuses_once():
                await asyncio.sleep(STATUS_RETRY_S)
                self._status_news.set()

    async def _write_statuses_once(self) -> bool:
        batch, self._statuses_to_write = self._statuses_to_write, {}
        topic = self.status_log.topic
        sent = [self.producer.send(topic, key, value) for key, value in batch.items()]
        results = await asyncio.gather(*sent, return_exceptions=True)
        failed = [(k, r) for k, r in zip(batch, results, strict=True) if isinstance(r, BaseException)]
        for key, error in failed:
            log.warning("status %s is written later: %s", key, error)
            self._statuses_to_write.setdefault(key, batch[key])
        return not failed
