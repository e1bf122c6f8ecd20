"""A flow: a Connect worker at the flow's target that runs the connectors of the file, and only those.

Its REST changes no configuration, because the file decides. Connectors are created, changed and removed before
anything starts, so that nothing runs that the file does not name.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.connect.children.server_process import ServerProcess
from klamm.connect.config import WorkerConfig
from klamm.connect.errors import RequestError
from klamm.connect.herding.group_adapter import SoleMember
from klamm.connect.model import State, TaskId
from klamm.connect.runtime import Runtime
from klamm.connect.service.connectors import ConnectService
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.worker import BROKER_ASK_S, Worker, make_supervisor
from klamm.mirror import flow_hold, flow_offsets, orders, reload
from klamm.mirror.flow_status import STATUS_PATH, FlowTold
from klamm.mirror.held_by import follow_holds
from klamm.mirror.owner import Membership
from klamm.mirror.places import Place
from klamm.web.process import serve
from klamm_base.errors import ConfigError
from klamm_base.metrics_server import MetricsServer, url_of
from klamm_mirror.settings.mm2_config import CHECKPOINT, HEARTBEAT, SOURCE, Flow, MirrorConfig, connectors_of

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

log = logging.getLogger(__name__)

PRELOAD: Final = {
    SOURCE: ("klamm_mirror.source.connector", "klamm_mirror.source.task"),
    CHECKPOINT: ("klamm_mirror.checkpoint.connector", "klamm_mirror.checkpoint.task"),
    HEARTBEAT: ("klamm_mirror.heartbeat.connector", "klamm_mirror.heartbeat.task"),
}
"""The modules of each connector and its tasks. The fork server imports them once for all processes of a flow."""
LOOK_S: Final = 0.1
NO_TASKS_S: Final = 2.0


def modules_of(flow: Flow) -> list[str]:
    """Returns the modules that the children of a flow need."""
    return [module for name in connectors_of(flow) for module in PRELOAD[name]]


class FlowWorker(Worker):
    """A worker that takes its connectors from the file. `first` is a fork server that waits already."""

    def __init__(
        self, flow: Flow, place: Place, mirror: MirrorConfig, first: ServerProcess | None = None
    ) -> None:
        super().__init__(
            WorkerConfig.from_properties(flow.worker),
            make_children=partial(make_supervisor, preload=modules_of(flow), first=first),
        )
        self.flow = flow
        self._place = place
        self._owner: Membership | None = None
        self._sole: SoleMember | None = None
        self._orders: asyncio.Server | None = None
        self._service: ConnectService | None = None
        self._holds: asyncio.Task[None] | None = None
        self._metrics_at = mirror.metrics
        self._serves_rest = mirror.rest is not None
        self._servers: list[MetricsServer] = []
        self._runner: AppRunner | None = None
        self.urls: dict[str, str] = {}

    async def start(self) -> None:
        """Wait for the target cluster, join the group, configure, run; returns when the connectors run."""
        runtime, service, told = await self._join(tell=True)
        self._holds = asyncio.create_task(
            follow_holds(
                self.flow, lambda: flow_hold.holds(runtime.configs), lambda why: setattr(told, "held", why)
            )
        )
        # Not past the open transaction of a task that was killed: the task that starts next ends it.
        await runtime.offset_log.read_to_end(past_open=False)
        flow_offsets.say_taken_over(runtime.offsets, self.flow)
        wanted = connectors_of(self.flow)
        if self.flow.enabled and CHECKPOINT not in wanted:
            log.info("neither checkpoints nor group offsets are enabled: %s does not run", CHECKPOINT)
        await configure(service, wanted)
        await flow_offsets.go_on(service, self._place)
        runtime.cluster.group = self._sole = SoleMember(runtime.group_adapter)
        await self._sole.start()
        service.ready = True
        self._orders = await orders.serve(
            self._place.orders,
            {
                flow_offsets.ALTER: lambda changes: flow_offsets.alter(service, self._place, changes),
                flow_hold.STATES: lambda argument: flow_hold.states(service, argument),
                flow_hold.HOLD: lambda argument: flow_hold.hold(service, argument),
                flow_hold.RELEASE: lambda argument: flow_hold.release(service, argument),
            },
        )
        await _until_running(runtime, list(wanted))
        self._service = service

    async def start_at_rest(self) -> ConnectService:
        """Join the group and read its topics, but run nothing: for changes while no mirror runs."""
        _, service, _ = await self._join(tell=False)
        await _put(service, SOURCE, dict(self.flow.connectors[SOURCE]))
        service.ready = True
        return service

    async def apply(self, flow: Flow) -> None:
        """Make the connectors those of a changed file. Connectors whose settings are the same go on. Raises ConfigError."""
        if self._service is None:
            raise ConfigError(f"{flow.name} is still starting: change the file again once it runs")
        other = sorted(
            k for k in {*flow.worker, *self.flow.worker} if flow.worker.get(k) != self.flow.worker.get(k)
        )
        if other:
            log.warning(
                "changed settings of the worker at %s take effect at the next start: %s",
                flow.target,
                ", ".join(other),
            )
        wanted, before = connectors_of(flow), connectors_of(self.flow)
        changed = sorted(name for name in {*wanted, *before} if wanted.get(name) != before.get(name))
        if SOURCE in changed and flow.enabled:
            from klamm.mirror.names_check import check_names  # takes its time, and few mirrors change

            await check_names(flow)
        self.flow = replace(flow, worker=self.flow.worker)
        if changed:
            log.info("the file has changed: %s", ", ".join(changed))
            await configure(self._service, wanted)

    async def _join(self, *, tell: bool) -> tuple[Runtime, ConnectService, FlowTold]:
        worker_id = f"{socket.gethostname()}/{self.flow.name}"
        runtime = self.runtime = Runtime(
            self.config, client=self._client, worker_id=worker_id, make_children=self._make_children
        )
        service = ConnectService(runtime)
        told = FlowTold(self.flow, service)
        if tell:
            await self._tell(service, told)
        service.cluster_id = await self._wait_for_broker(runtime.admin)
        described = await asyncio.wrap_future(runtime.admin.describe_cluster(request_timeout=BROKER_ASK_S))
        self.config = runtime.config = fitting(self.config, len(described.nodes))
        # The place in the group belongs to file and flow: who starts again after a crash takes it over at once
        self._owner = Membership(
            config=self.config,
            worker_id=worker_id,
            url=f"mirror:{self._place.identity}",
            on_generation=lambda generation: setattr(runtime, "generation", generation),
            on_stranger=(lambda said: setattr(told, "stranger", said)) if tell else None,
        )
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._owner.join())
                both.create_task(runtime.start())
        except ExceptionGroup as e:
            raise e.exceptions[0] from None
        return runtime, service, told

    async def _tell(self, service: ConnectService, told: FlowTold) -> None:
        """Serve metrics and status from the first moment, also while the flow waits for its cluster."""
        from klamm.connect.rest.metrics import families

        local = MetricsServer(lambda: families(service), {STATUS_PATH: told.page})
        await local.bind_unix(self._place.socket)
        self._servers.append(local)
        if (where := self._metrics_at).port >= 0:
            server = MetricsServer(lambda: families(service))
            self.urls["metrics"] = url_of(where.host, await server.bind(where.host, where.port))
            self._servers.append(server)
        for server in self._servers:
            await server.serve()
        if self._serves_rest:
            from klamm.mirror.rest import serve_flow  # takes its time: most mirrors do without

            self._runner = await serve_flow(service, self._place.rest)

    async def wait(self) -> None:
        """Wait until another process has taken the flow over; raises the reason."""
        assert self._owner is not None, "started"
        await self._owner.lost()

    async def stop(self) -> None:
        """Drain, then give the flow up."""
        if self._holds is not None:
            self._holds.cancel()
        for server in self._servers:
            server.close()
        if self._orders is not None:
            self._orders.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._sole is not None:
            await self._sole.stop()
        await super().stop()
        if self._owner is not None:
            await self._owner.leave()


def fitting(config: WorkerConfig, brokers: int) -> WorkerConfig:
    """Returns the config with at most as many replicas of the worker's own topics as there are brokers, unless
    the file gives the number.
    """
    values = dict(config.values)
    for kind in ("config", "offset", "status"):
        key = f"{kind}.storage.replication.factor"
        if key not in config.raw and values[key] > brokers:
            values[key] = brokers
    return replace(config, values=values)


async def configure(service: ConnectService, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Make the worker's connectors those of the file. Leaves those alone that are right already.

    A flow that is held stays held: what stopped it is kept by its connectors, so they are not removed, and a new one is
    made stopped.
    """
    held = flow_hold.COPYING if flow_hold.holds(service.runtime.configs) else ()
    for name in service.connectors():
        if name not in wanted and name in held:
            log.info("%s is not in the file any more, but its flow is held: it stays, stopped", name)
        elif name not in wanted:
            log.info("%s is not in the file any more: removed", name)
            await service.delete(name)
    await asyncio.gather(
        *(_put(service, name, dict(config), stopped=name in held) for name, config in wanted.items())
    )


async def _put(service: ConnectService, name: str, config: dict[str, str], *, stopped: bool = False) -> None:
    new = name not in service.connectors()
    if not new and service.config(name) == config:
        return
    try:
        if new and stopped:
            await service.create(name, dict(config), TargetState.STOPPED)
        else:
            await service.put_config(name, config)
    except RequestError as e:
        raise ConfigError(f"{name}: {e}") from None


async def _until_running(runtime: Runtime, names: list[str]) -> None:
    """Wait until the connectors run with their tasks. A connector without tasks never reports any."""
    since: float | None = None
    while True:
        if not all(_runs(runtime, name) for name in names):
            since = None
        elif all(runtime.configs.applied(name) is not None for name in names):
            return
        else:
            since = since or time.monotonic()
            if time.monotonic() - since >= NO_TASKS_S:
                return
        await asyncio.sleep(LOOK_S)


def _runs(runtime: Runtime, name: str) -> bool:
    status = runtime.statuses.get(name)
    tasks = [runtime.statuses.get(TaskId(name, i)) for i in range(len(runtime.configs.tasks(name)))]
    states = [each.state if each is not None else None for each in (status, *tasks)]
    return all(state in {State.RUNNING, State.PAUSED, State.STOPPED} for state in states)


async def run(
    flow: Flow,
    place: Place,
    ready: Callable[[Mapping[str, str]], None],
    mirror: MirrorConfig,
    file: tuple[Path, Callable[[], MirrorConfig]],
    *,
    first: ServerProcess,
) -> None:
    """Run a flow until SIGTERM or SIGINT. Raises what made it stop by itself. `ready` gets the addresses of its
    servers by name: that of its metrics, if the file gives them a port.

    `file` is the flow's file, and how to read it again when it has changed; `first` the fork server that waits.
    """
    worker = FlowWorker(flow, place, mirror, first)
    path, load = file

    async def apply() -> None:
        changed = load()
        if any(f.name == flow.name for f in changed.flows):  # else whoever started this process ends it
            await worker.apply(changed.flow(flow.name))

    following = asyncio.create_task(reload.follow(path, apply))
    try:
        await serve(worker, lambda: ready(worker.urls))
    finally:
        following.cancel()
