"""A supervised connector or task: its present process, and what follows when that ends.

`Supervised` is a coroutine around one child after another. Its state events are: RUNNING and PAUSED
when the child says so, RESTARTING with trace and attempt while it waits for its next process, FAILED
when the policy gives up, UNASSIGNED when it was stopped. Lives in the event loop; calls no plugin code.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm.connect.children.channel import Message
from klamm.connect.children.failures import Failure, failure_of
from klamm.connect.children.fork_servers import ForkServers
from klamm.connect.children.launcher import Child, Exit, LaunchError
from klamm.connect.children.needs import needs_of
from klamm.connect.children.usage import Usage, size_text, usage_of
from klamm.connect.model import Progress, RestartNote, State, StateEvent, TaskId
from klamm.connect.secrets import Resolved, Secrets
from klamm.connect.settings.limits import Limits
from klamm.connect.settings.restart_policy import ErrorClass, GiveUp, History, Restart, RestartPolicy
from klamm_base.errors import ConfigError, KlammError
from klamm_plugins.metrics import MetricTable, tables_of

log = logging.getLogger(__name__)

# Reports come every five seconds or sooner; without any for this long, plugin code holds the whole interpreter.
REPORT_OVERDUE_MS: Final = 10_000
# The pause between two looks at the usage of a process that has no limit.
_USAGE_EVERY_MS: Final = 5_000
# After SIGKILL a process is gone within milliseconds, unless it sits in the kernel (a dead NFS mount).
_KILL_TIMEOUT_S: Final = 5.0
# The time that a hung process has to say where it hangs, before it is killed.
_STACKS_S: Final = 2.0

# The shortest life of a resolved value, whatever its provider says: a process must get something done
# between two starts.
_RELOAD_MIN_S: Final = 1.0

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Answers a child's request: (method, params) -> result. Raises KlammError."""


class PluginCallError(KlammError):
    """A plugin did not answer: its own sentence, an exit code or signal, or a timeout.

    `kind` is the class of the plugin's error (`ErrorClass`), or "timeout" or "exit"; `trace` its trace.
    """

    def __init__(self, message: str, *, kind: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace

    @classmethod
    def from_notice(cls, notice: Message) -> PluginCallError:
        """Makes the error from the fields of `child.failure.notice`."""
        return cls(notice["message"], kind=notice["error"], trace=notice["trace"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The collaborators that everything supervised by one supervisor shares."""

    servers: ForkServers
    policy: RestartPolicy
    clock: Callable[[], int]
    ask: Ask
    on_event: Callable[[StateEvent], None]
    on_progress: Callable[[TaskId, Progress], None]
    on_task_configs_changed: Callable[[str], None]
    secrets: Secrets
    on_expired: Callable[[TaskId | str], None]
    """Called when the life of a resolved value is over."""


class Supervised:
    """See the module. `order` is the child's first message; `key` names it: a task, or a connector; `site` is the
    folder of its environment (None: the worker's own packages).
    """

    def __init__(
        self,
        key: TaskId | str,
        order: Message,
        around: Surroundings,
        limits: Limits,
        *,
        site: str | None = None,
    ) -> None:
        self.key = key
        self.site = site
        self.progress: Progress | None = None
        self.metrics: list[MetricTable] = []  # of a driver task
        self.restart: RestartNote | None = None  # of its last failure
        self.usage: Usage | None = None  # of its process
        self._order = order
        self._resolved = Resolved(config={}, raw={})
        self._around = around
        self._policy = limits.policy or around.policy
        self._limits = limits
        self._history = History()
        self._state: State | None = None
        self._version: str | None = None
        self._topics: list[str] = []
        self._child: Child | None = None
        self._failure: Failure | None = None
        self._final: Failure | None = None
        self._stopping = False
        self._settled = asyncio.Event()  # RUNNING, PAUSED or FAILED: somebody may wait to ask
        self._beats = -1
        self._beat_ms = self._report_ms = self._used_ms = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._next_call = 0
        self._asked: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None  # of a process that hangs
        self._task: asyncio.Task[None] | None = None

    @property
    def _share(self) -> str | None:
        """The name of the process that it shares, if it does: that of its connector."""
        name = self.key.connector if isinstance(self.key, TaskId) else self.key
        return name if self._limits.shared else None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"supervised {self.key}")

    @property
    def order(self) -> Message:
        """The first message to each of its processes, with the present pause state."""
        return self._order

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def spec(self) -> dict[str, Any]:
        """The ConnectorSpec or TaskSpec in it."""
        spec: dict[str, Any] = self._order["spec"]
        return spec

    async def stop(self, timeout_s: float) -> None:
        """Stop the process gracefully, after `timeout_s` by force; returns when it is gone."""
        self._stopping = True
        assert self._task is not None
        if self._child is None:
            self._task.cancel()
        else:
            self._child.send({"method": "stop", "params": {"timeout_s": timeout_s}})
        _, late = await asyncio.wait({self._task}, timeout=timeout_s)
        if late and self._child is not None:
            if timeout_s:
                log.warning("[%s] did not stop within %g s, killing it", self.key, timeout_s)
            else:  # it was given no time; who stops it has said why
                log.info("[%s] is killed", self.key)
            self._child.kill()
            _, late = await asyncio.wait({self._task}, timeout=_KILL_TIMEOUT_S)
        if late:
            log.error("[%s] pid %s does not die", self.key, self.pid)
            self._task.cancel()
        await asyncio.gather(self._task, *self._asked, return_exceptions=True)
        self._emit(State.UNASSIGNED)

    def kill(self) -> None:
        """Kill the present process and start no more; `stop` waits for its end."""
        self._stopping = True
        if self._child is not None:
            self._child.kill()

    def set_paused(self, paused: bool) -> None:
        """Pause or resume the present process and those that follow it."""
        spec = self._order["spec"]
        if spec["paused"] == paused:
            return
        self._order = self._order | {"spec": spec | {"paused": paused}}
        if self._child is not None:
            self._child.send({"method": "pause", "params": {"paused": paused}})

    async def update(self, spec: dict[str, Any]) -> None:
        """Give the present process, and those that follow it, settings that a task takes while it runs."""
        made = self._order = self._order | {"spec": spec | {"paused": self.spec["paused"]}}
        order, _ = await self._around.secrets.order(made)
        if self._child is not None and self._order is made:
            self._child.send({"method": "update", "params": {"task_config": order["spec"]["task_config"]}})

    async def request(self, method: str, params: dict[str, Any], timeout_s: float) -> Any:
        """Ask the child, once it runs. Raises PluginCallError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
                if self._final is not None:
                    final = self._final
                    raise PluginCallError(final.message, kind=final.error, trace=final.trace)
                return await self._ask_child(method, params)
        except TimeoutError:
            raise PluginCallError(
                f"{self.key} did not answer {method} within {timeout_s:g} s", kind="timeout"
            ) from None

    def watch(self, now_ms: int) -> None:
        """Checks regularly that the main loop still runs and that the process keeps to its memory limit."""
        child = self._child
        if child is None or self._ending is not None:
            return
        limit = self._limits.memory_bytes
        if limit or self.usage is None or now_ms - self._used_ms >= _USAGE_EVERY_MS:
            self._used_ms = now_ms
            self.usage = usage_of(child.pid) if child.pid else None
        if limit and self.usage and self.usage.memory_bytes > limit:
            self._end_greedy(child, self.usage.memory_bytes, limit)
        elif now_ms - self._beat_ms > self._limits.heartbeat_ms:
            self._ending = asyncio.create_task(self._end_hung(child))
        elif now_ms - self._report_ms > REPORT_OVERDUE_MS:
            last = self.progress or Progress()
            self._progressed(replace(last, waiting_for="plugin"))

    def excuse(self, silent_ms: int, now_ms: int) -> None:
        """Count the last `silent_ms` as no silence: nobody listened then, or the process was stopped with its
        worker.
        """
        self._beat_ms = min(now_ms, self._beat_ms + silent_ms)
        self._report_ms = min(now_ms, self._report_ms + silent_ms)

    def _end_greedy(self, child: Child, used: int, limit: int) -> None:
        text = f"{size_text(used)} of memory are more than task.memory.max.bytes={limit} ({size_text(limit)}) allows"
        log.error("[%s] %s, killing it", self.key, text)
        self._failure = Failure.of(ErrorClass.MEMORY, text)
        child.kill()

    async def _end_hung(self, child: Child) -> None:
        """Ask the child where it hangs, then kill it."""
        text = f"No sign of life for {self._limits.heartbeat_ms / 1000:g} s (task.heartbeat.timeout.ms)"
        waiting = self.progress.waiting_for if self.progress else None
        if waiting:
            text += f", while waiting for {waiting}"
        log.error("[%s] %s, killing it; its threads:", self.key, text)
        stacks = await child.stacks(_STACKS_S)
        if self._child is child:
            trace = f"{text}\n{stacks}" if stacks else f"{text} (it did not say where its threads are)"
            self._failure = Failure(error=ErrorClass.HANG, message=text, trace=trace)
            child.kill()

    async def _run(self) -> None:
        try:
            await self._live_and_restart()
        except Exception as e:
            log.exception("[%s] cannot be supervised", self.key)
            self._fail(Failure.of(ErrorClass.UNKNOWN, f"{type(e).__name__}: {e}"))

    def _fail(self, failure: Failure) -> None:
        self._final = failure
        self._emit(State.FAILED, trace=failure.trace)
        self._settled.set()

    async def _live_and_restart(self) -> None:
        while True:
            failure = await self._live()
            if self._stopping:
                return
            now_ms = self._around.clock()
            alive_ms = self._beat_ms if failure.error is ErrorClass.HANG else now_ms
            decision = self._policy.decide(
                self._history, failure.error, now_ms=now_ms, random=random.random(), alive_ms=alive_ms
            )
            match decision:
                case GiveUp(why=why):
                    log.error("[%s] failed and is not restarted (%s): %s", self.key, why, failure.message)
                    self.restart = self._note(failure, why=why)
                    self._fail(failure)
                    return
                case Restart(attempt=attempt, delay_ms=delay_ms):
                    log.warning(
                        "[%s] failed, restart %d in %.1f s: %s",
                        self.key, attempt, delay_ms / 1000, failure.message,
                    )  # fmt: skip
                    self.restart = self._note(failure, attempt=attempt, delay_ms=delay_ms)
                    self._emit(State.RESTARTING, trace=failure.trace, attempt=attempt)
                    await asyncio.sleep(delay_ms / 1000)

    async def _live(self) -> Failure:
        """Run one process, from fork to exit; returns why it ended."""
        self._failure = None
        self._beats = -1
        self._beat_ms = self._report_ms = self._around.clock()
        try:
            # Each process gets the values of its moment.
            order, self._resolved = await self._around.secrets.order(made := self._order)
        except ConfigError as e:
            return Failure.of(ErrorClass.CONFIG, str(e))
        try:
            child = await self._around.servers.spawn(
                self.site, str(self.key), self._on_message, needs_of(order), self._share
            )
        except LaunchError as e:
            return Failure.of(ErrorClass.LOST, str(e))
        self._child = child
        self._give(child, order)
        if self._order is not made:
            await self.update(self.spec)
        with self._expiring():
            how = await child.exited
        # The child's last words and the news of its end come on two sockets: read the words to their end.
        await asyncio.wait({child.closed}, timeout=1)
        self._child = self._ending = self.usage = None
        self._settled.clear()
        self._fail_calls(how)
        return self._failure or failure_of(how, child.last_words())

    def _give(self, child: Child, order: Message) -> None:
        """Send the child its order, and whatever has changed since the order was made."""
        if self._stopping:
            child.kill()
            return
        child.send(order)
        if (paused := self._order["spec"]["paused"]) != order["spec"]["paused"]:
            child.send({"method": "pause", "params": {"paused": paused}})

    @contextmanager
    def _expiring(self) -> Iterator[None]:
        """Call `on_expired` when the values that the process was given must be asked for again."""
        ttl_ms = self._resolved.ttl_ms
        if ttl_ms is None or not self._resolved.reloads:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(ttl_ms / 1000, _RELOAD_MIN_S), self._around.on_expired, self.key)
        try:
            yield
        finally:
            timer.cancel()

    def references(self, configs: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """Returns the task configs that the connector made, with references again where it was given their values."""
        return self._resolved.references(configs)

    def _note(
        self, failure: Failure, *, attempt: int = 0, delay_ms: int = 0, why: str | None = None
    ) -> RestartNote:
        policy, now_ms = self._policy, time.time_ns() // 1_000_000
        return RestartNote(
            error=failure.error.value,
            failed_ms=now_ms,
            budget=policy.max_restarts,
            window_ms=policy.window_ms,
            left=policy.left(self._history),
            attempt=attempt,
            next_try_ms=now_ms + delay_ms if attempt else None,
            why=why,
        )

    def _on_message(self, message: Message) -> None:
        if "event" not in message:
            self._on_call(message)
            return
        match message["event"]:
            case "progress":
                self._on_report(message)
            case "metrics":
                self.metrics = tables_of(message["tables"])
            case "state":
                self._on_state(State(message["state"]))
            case "version":
                self._version = message["version"]
            case "topics":
                self._topics = message["topics"]
                if self._state is State.RUNNING:
                    self._emit(State.RUNNING)
            case "secrets":
                self._around.secrets.redactor.add(message["values"])
            case "reconfigure":
                self._tell(self._around.on_task_configs_changed, str(self.key))
            case "failed":
                self._failure = Failure(
                    error=ErrorClass(message["error"]), trace=message["trace"], message=message["message"]
                )

    def _on_state(self, state: State) -> None:
        self._history.running(self._around.clock())
        self._emit(state)
        self._settled.set()

    def _on_report(self, message: Message) -> None:
        now_ms = self._around.clock()
        self._report_ms = now_ms
        if message["beats"] != self._beats:
            self._beats = message["beats"]
            self._beat_ms = now_ms
        self._progressed(
            Progress(
                records=message["records"],
                last_ack_ms=message["last_ack_ms"],
                lag=message["lag"],
                waiting_for=message["waiting_for"],
                details=self._hidden(message["details"]),
            )
        )

    def _hidden(self, details: dict[str, Any]) -> dict[str, Any]:
        """Returns `details` without secrets, which the errors of a retried operation may quote as traces do.
        Figures are numbers.
        """
        retrying = details.get("retrying")
        return (
            details if retrying is None else {**details, "retrying": self._around.secrets.redacted(retrying)}
        )

    def _progressed(self, progress: Progress) -> None:
        self.progress = progress
        if isinstance(self.key, TaskId):
            self._tell(self._around.on_progress, self.key, progress)

    def _on_call(self, message: Message) -> None:
        if "method" in message:
            task = asyncio.create_task(self._answer(message, self._child))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)
            return
        future = self._calls.pop(message["id"], None)
        if future is None or future.done():
            return  # it came after its time limit
        if "error" in message:
            future.set_exception(PluginCallError.from_notice(message["error"]))
        else:
            future.set_result(message["result"])

    async def _answer(self, request: Message, child: Child | None) -> None:
        outcome: Message
        try:
            outcome = {"result": await self._around.ask(request["method"], request["params"])}
        except Exception as e:
            log.exception("[%s] %s failed", self.key, request["method"])
            outcome = {"error": {"message": str(e) or type(e).__name__}}
        if child is not None:
            child.send({"id": request["id"], **outcome})

    async def _ask_child(self, method: str, params: dict[str, Any]) -> Any:
        if self._child is None:
            raise PluginCallError(f"{self.key} is being restarted", kind="exit")
        self._next_call += 1
        number = self._next_call
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        self._child.send({"id": number, "method": method, "params": params})
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    def _fail_calls(self, how: Exit) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(PluginCallError(f"{self.key}: {how}", kind="exit"))
        self._calls.clear()

    def _emit(self, state: State, *, trace: str | None = None, attempt: int = 0) -> None:
        self._state = state
        self._tell(self._around.on_event, self._event(state, trace, attempt))

    def _tell(self, hear: Callable[..., None], *said: Any) -> None:
        """Call a listener; its errors are logged, as they must not end a task."""
        try:
            hear(*said)
        except Exception:
            log.exception("[%s] an event could not be recorded", self.key)

    def _event(self, state: State, trace: str | None, attempt: int) -> StateEvent:
        name, number = (
            (self.key.connector, self.key.task) if isinstance(self.key, TaskId) else (self.key, None)
        )
        return StateEvent(
            connector=name,
            task=number,
            state=state,
            trace=trace,
            attempt=attempt,
            version=self._version,
            topics=self._topics,
            restart=self.restart,
        )
