"""Starts, watches, restarts and stops the children that run plugin code. Runs none itself.

Lives in the worker's event loop, where every method is called. `Supervised` is one connector or task
with its processes; `restart_policy` decides what follows a failure; processes come from the fork
servers (`launcher`). State events say what a child does now; the herder decides what should run.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from klamm.connect.children.channel import Message
from klamm.connect.children.fork_servers import ForkServers
from klamm.connect.children.interface import Answer, FindEnvironment, OffsetReader
from klamm.connect.children.launcher import LaunchError
from klamm.connect.children.needs import needs_of
from klamm.connect.children.server_process import ServerProcess
from klamm.connect.children.supervised import PluginCallError, Supervised, Surroundings
from klamm.connect.children.usage import Usage
from klamm.connect.model import (
    ConnectorSpec,
    Kind,
    Progress,
    RestartNote,
    State,
    StateEvent,
    TaskId,
    TaskSpec,
)
from klamm.connect.plugins.requirements import ChildEnvironment
from klamm.connect.secrets import Secrets, conceal
from klamm.connect.settings.limits import Limits
from klamm.connect.settings.restart_policy import ErrorClass, RestartPolicy
from klamm_base.errors import ConfigError, KlammError
from klamm_plugins.metrics import MetricTable

__all__ = ["PluginCallError", "Supervisor"]

log = logging.getLogger(__name__)


async def beside_the_worker(
    config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool = True
) -> ChildEnvironment:
    """Finds every plugin in the worker's own packages."""
    return ChildEnvironment()


GRACEFUL_S: Final = 5.0  # the default of task.shutdown.graceful.timeout.ms
_WATCH_INTERVAL_S: Final = 0.5
_SIGNAL_S: Final = 10.0  # a child takes a signal at once, also while its plugin works
# A watch that comes round later than this was asleep.
_ASLEEP_MS: Final = 2_000
# The most one-shot children at a time: validation by many clients at once must not exhaust the machine,
# and a plugin that hangs must only take its own few slots.
_CALLS_MAX: Final = 12
_CALLS_PER_PLUGIN_MAX: Final = 3
_CHANGES_NOTHING: Final = frozenset({"list_plugins", "plugin_config", "validate"})
"""Calls that are made again when their process ended with its fork server."""


class Supervisor:
    """See the module. `clock` gives monotonic milliseconds.

    `on_event` and `on_progress` are called in the event loop and must not block. `read_offsets` reads the
    offset topic to its end first; `requests` answer everything else that children ask.
    `on_task_configs_changed` gets the name of the connector that asked. A child that is stopped and does
    not end within `graceful_s` is killed. `environment_of` finds the environment of a connector's
    processes, and may take its time to build it. `secrets` puts values in place of references, and hides
    them. `preload` are modules that most children need.
    """

    def __init__(
        self,
        *,
        on_event: Callable[[StateEvent], None],
        on_progress: Callable[[TaskId, Progress], None],
        on_task_configs_changed: Callable[[str], None],
        read_offsets: OffsetReader,
        policy: RestartPolicy,
        clock: Callable[[], int],
        graceful_s: float = GRACEFUL_S,
        requests: Mapping[str, Answer] | None = None,
        environment_of: FindEnvironment = beside_the_worker,
        secrets: Secrets | None = None,
        preload: Sequence[str] = (),
        first: ServerProcess | None = None,
    ) -> None:
        self._graceful_s = graceful_s
        self._requests = dict(requests or {})
        self._environment_of = environment_of
        self._read_offsets = read_offsets
        self._clock = clock
        self._servers = ForkServers(preload=preload, first=first)
        self._supervised: dict[TaskId | str, Supervised] = {}
        # An entry lives as long as somebody holds or awaits the lock.
        self._locks: weakref.WeakValueDictionary[TaskId | str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._stopping = False
        self._call_slots = asyncio.Semaphore(_CALLS_MAX)
        self._plugin_slots: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )
        self._watching: asyncio.Task[None] | None = None
        self._looked_ms = 0
        self._secrets = secrets if secrets is not None else Secrets()
        self._tell = on_event
        self._reloads: set[asyncio.Task[None]] = set()
        self._around = Surroundings(
            servers=self._servers,
            policy=policy,
            clock=clock,
            ask=self._ask,
            on_event=self._on_event,
            on_progress=on_progress,
            on_task_configs_changed=on_task_configs_changed,
            secrets=self._secrets,
            on_expired=self._on_expired,
        )

    @property
    def fork_server_pid(self) -> int | None:
        return self._servers.pid

    def pid(self, target: TaskId | str) -> int | None:
        """The pid of a task or, by name, a connector; None while it has no process."""
        supervised = self._supervised.get(target)
        return supervised.pid if supervised else None

    async def start(self) -> None:
        """Start the fork server. Raises LaunchError."""
        await self._servers.start()
        self._watching = asyncio.create_task(self._watch(), name="supervisor")

    async def stop(self) -> None:
        """Stop every child gracefully (in parallel), then the fork server. Nothing is started afterwards."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await asyncio.gather(*(self._stop(key, self._graceful_s) for key in list(self._supervised)))
        await self._servers.stop()

    async def kill_all(self) -> None:
        """Kill every child at once, without a last word, as other workers may run the same already. Returns when
        they are gone.
        """
        for reload in self._reloads:  # one that is between two processes would start another
            reload.cancel()
        await asyncio.gather(*self._reloads, return_exceptions=True)
        for reload in list(self._reloads):
            reload.cancel()  # it may be between the old process and the new one
        await asyncio.gather(*self._reloads, return_exceptions=True)
        everything = list(self._supervised.values())
        for supervised in everything:
            supervised.kill()
        await asyncio.gather(*(self._stop(supervised.key, 0) for supervised in everything))

    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 30) -> Any:
        """Run one plugin call in a child of its own. Raises PluginCallError; never hangs.

        - "list_plugins" {} -> {"plugins": [[class, type, version, names, entry point], ...] (PluginInfo), "broken":
          [[entry point, error, trace], ...], "files": sources}: those beside the worker; {"entry_points": [[name,
          module], ...]}: of these alone
        - "plugin_config" {"plugin": name, "version": range (may be absent)} -> list of config key dicts (Kafka's names: name, type, required,
          default_value, importance, documentation, group, order_in_group, width, display_name, dependents)
        - "validate" {"config": {...}, "worker": {...}} -> {"name": class, "kind", "version", "groups": [...],
          "values": [{"definition": {...}, "value": {name, value, recommended_values, errors, visible}}]}
        - "alter_offsets" {"config": {...}, "offsets": [[partition, offset | None], ...]} -> bool
        """
        plugin = params.get("plugin") or params.get("config", {}).get("connector.class", method)
        own_slots = self._plugin_slots.setdefault(plugin, asyncio.Semaphore(_CALLS_PER_PLUGIN_MAX))
        try:
            async with asyncio.timeout(timeout_s), own_slots, self._call_slots:
                return await self._call(method, params)
        except TimeoutError:
            raise PluginCallError(
                f"The plugin did not answer {method} within {timeout_s:g} s", kind="timeout"
            ) from None

    async def start_connector(self, spec: ConnectorSpec) -> None:
        """Start a connector's child, after stopping a running child of that name. States come as events."""
        order = {"run": "connector", "label": spec.name, "spec": spec.to_json()}
        await self._start(spec.name, order, spec.config, spec.worker)

    async def stop_connector(self, name: str) -> None:
        """Stop a connector; returns when its process is gone. Does nothing when there is none."""
        await self._stop(name, self._graceful_s)

    async def task_configs(
        self, name: str, max_tasks: int, present: Sequence[Mapping[str, str]] = ()
    ) -> list[dict[str, str]]:
        """Ask the connector for its tasks' configs, once it runs; `present` are those of now. Raises PluginCallError."""
        supervised = self._supervised.get(name)
        if supervised is None:
            raise PluginCallError(f"Connector {name} is not running here", kind="exit")
        configs: list[dict[str, str]] = await supervised.request(
            "task_configs", {"max_tasks": max_tasks, "present": list(present)}, timeout_s=60
        )
        return supervised.references(configs)

    async def start_task(self, spec: TaskSpec) -> None:
        """Start a task's child, after stopping a running child of that id. States come as events."""
        if spec.kind is Kind.CONNECTOR:
            raise ValueError("a connector is not a task")
        order = {"run": spec.kind.value, "label": str(spec.id), "spec": spec.to_json()}
        await self._start(spec.id, order, spec.connector_config, spec.worker)

    async def stop_task(self, task: TaskId) -> None:
        """Stop a task gracefully (offsets committed), after a while by force; returns when it is gone."""
        await self._stop(task, self._graceful_s)

    async def set_paused(self, target: TaskId | str, paused: bool) -> None:
        """Pause or resume a task, or (by name) a connector; PAUSED or RUNNING comes as an event."""
        if (supervised := self._supervised.get(target)) is not None:
            supervised.set_paused(paused)

    async def update_task(self, spec: TaskSpec) -> None:
        """Give a task changed settings that it takes while it runs."""
        if (supervised := self._supervised.get(spec.id)) is not None:
            await supervised.update(spec.to_json())

    async def signal_task(self, task: TaskId, signal: Mapping[str, Any]) -> bool:
        """Hand a signal to a running task. Returns False when its plugin takes none. Raises PluginCallError."""
        if (supervised := self._supervised.get(task)) is None:
            raise PluginCallError(f"Task {task} is not running here", kind="exit")
        return bool(await supervised.request("signal", dict(signal), timeout_s=_SIGNAL_S))

    async def restart(self, target: TaskId | str) -> None:
        """Stop a task, or (by name) a connector, and start it in the present environment of its packages with a
        full restart budget.
        """
        async with self._lock(target):
            if (supervised := self._supervised.get(target)) is None:
                return
            await self._end(supervised, self._graceful_s)
            raw: Mapping[str, str] = supervised.spec.get("connector_config") or supervised.spec["config"]
            try:
                config = (await self._secrets.resolve_soon(raw)).config
                self._begin(
                    await self._in_environment(
                        target, supervised.order, supervised.limits, config, supervised.spec["worker"]
                    )
                )
            except KlammError as e:
                self._not_started(target, e)

    def progress(self, task: TaskId) -> Progress | None:
        """Returns a task's last report of its progress, None when there is none."""
        supervised = self._supervised.get(task)
        return supervised.progress if supervised else None

    def metrics(self, task: TaskId) -> list[MetricTable]:
        """Returns the tables that a driver task keeps for /metrics."""
        supervised = self._supervised.get(task)
        return supervised.metrics if supervised else []

    def restarts(self, target: TaskId | str) -> RestartNote | None:
        """Returns the restart policy's note on the last failure of a task or, by name, a connector; None without a
        failure.
        """
        supervised = self._supervised.get(target)
        return supervised.restart if supervised else None

    def usage(self, target: TaskId | str) -> Usage | None:
        """Returns CPU seconds and memory of a target's process, half a second old at most; None while it has no
        process.
        """
        supervised = self._supervised.get(target)
        return supervised.usage if supervised else None

    async def _start(
        self, key: TaskId | str, order: Message, config: Mapping[str, str], worker: Mapping[str, str]
    ) -> None:
        try:
            config = (await self._secrets.resolve_soon(config)).config
            limits = Limits.of(worker, config)
            async with self._lock(key):
                if (running := self._supervised.get(key)) is not None:
                    await self._end(running, self._graceful_s)
                self._begin(await self._in_environment(key, order, limits, config, worker))
        except KlammError as e:
            self._not_started(key, e)

    def _not_started(self, key: TaskId | str, error: KlammError) -> None:
        name, number = key if isinstance(key, TaskId) else (key, None)
        trace = f"{type(error).__name__}: {error}"
        self._around.on_event(StateEvent(connector=name, task=number, state=State.FAILED, trace=trace))

    async def _in_environment(
        self,
        key: TaskId | str,
        order: Message,
        limits: Limits,
        config: Mapping[str, str],
        worker: Mapping[str, str],
    ) -> Supervised:
        """Returns a `Supervised` in the environment of its packages. A connector's process imports the connector
        alone.
        """
        environment = await self._environment_of(config, worker)
        wanted = environment.entry_points if isinstance(key, TaskId) else environment.entry_points[:1]
        return Supervised(key, order | {"entry_points": wanted}, self._around, limits, site=environment.site)

    def _lock(self, key: TaskId | str) -> asyncio.Lock:
        """Returns the lock of a target. Its starts and stops follow each other, because two processes of one task
        would write twice.
        """
        return self._locks.setdefault(key, asyncio.Lock())

    def _begin(self, supervised: Supervised) -> None:
        if self._stopping:
            log.info("[%s] is not started: the worker is stopping", supervised.key)
            return
        self._supervised[supervised.key] = supervised
        supervised.start()

    async def _stop(self, key: TaskId | str, timeout_s: float) -> None:
        async with self._lock(key):
            if (supervised := self._supervised.get(key)) is not None:
                await self._end(supervised, timeout_s)

    async def _end(self, supervised: Supervised, timeout_s: float) -> None:
        await supervised.stop(timeout_s)
        del self._supervised[supervised.key]

    def _on_event(self, event: StateEvent) -> None:
        if event.trace is not None:
            event = replace(event, trace=self._secrets.redact(event.trace))
        self._tell(event)

    def _on_expired(self, target: TaskId | str) -> None:
        """Start a new process, which gets the new values (`config.action.reload`)."""
        log.info("[%s] restarts: a value from its config provider has expired", target)
        task = asyncio.create_task(self.restart(target), name=f"reload {target}")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _watch(self) -> None:
        self._looked_ms = self._clock()
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            self._look()

    def _look(self) -> None:
        """Watch everything supervised. When this worker itself was stopped (SIGSTOP, a frozen container, a paused
        machine), nobody's silence of that time counts as a hang.
        """
        now_ms = self._clock()
        slept_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        for supervised in list(self._supervised.values()):
            if slept_ms > _ASLEEP_MS:
                supervised.excuse(slept_ms, now_ms)
            supervised.watch(now_ms)

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """Answer a child's request."""
        if method == "read_offsets":
            return await self._read_offsets(params["connector"], params["partitions"])
        answer = self._requests.get(method)
        if answer is None:
            raise KlammError(f"The worker does not answer {method}")
        return await answer(params)

    async def _call(self, method: str, params: dict[str, Any], *, again: bool = True) -> Any:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_message(message: Message) -> None:
            if message["event"] == "secrets":
                self._secrets.redactor.add(message["values"])
            elif message["event"] in {"result", "failed"} and not answer.done():
                answer.set_result(message)

        label = f"call {method}"
        environment = await self._environment_of_call(method, params)
        order: Message = {"run": "call", "label": label, "method": method, "params": params}
        try:
            order, resolved = await self._secrets.order(order)
        except ConfigError as e:
            raise PluginCallError(str(e), kind=ErrorClass.CONFIG) from e
        order["entry_points"] = environment.entry_points
        try:
            child = await self._servers.spawn(environment.site, label, on_message, needs_of(order))
        except LaunchError as e:
            raise PluginCallError(str(e), kind="exit") from e
        try:
            child.send(order)
            # The channel ends after the child's last word, if it had one, and in any case with its process.
            ends: set[asyncio.Future[Any]] = {answer, child.closed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                how = await child.exited
                if how.lost and again and method in _CHANGES_NOTHING and not self._stopping:
                    return await self._call(method, params, again=False)
                raise PluginCallError(f"The plugin did not answer {method}: {how}", kind="exit")
        finally:
            child.kill()
        message = answer.result()
        if message["event"] == "failed":
            raise PluginCallError.from_notice(message)
        result = message["result"]
        if method == "validate":
            conceal(result["values"], resolved, self._secrets)
        return self._secrets.redacted(result) if method == "dry_run" else result

    async def _environment_of_call(self, method: str, params: dict[str, Any]) -> ChildEnvironment:
        """Returns the environment with the plugins that a call is about."""
        if method == "list_plugins":
            return ChildEnvironment()
        try:
            config = params.get("config", params)
            return await self._environment_of(config, params.get("worker", {}), strict=method != "validate")
        except ConfigError as e:
            raise PluginCallError(str(e), kind=ErrorClass.CONFIG) from e
        except KlammError as e:
            raise PluginCallError(str(e), kind="exit") from e
