"""One process for all flows of a file. Each flow is a child of it, which starts again by itself when it
dies.

A flow whose cluster is away waits in its own process and delays no other. Children have a session of
their own, so that Ctrl-C reaches this process alone, which then stops them all at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from klamm.mirror import reload
from klamm.up.forked import ForkedChild, forked
from klamm.up.supervisor import Child, ChildSpec, NotReadyError, restarts
from klamm_base.errors import KlammError
from klamm_base.metrics_server import MetricsServer, url_of
from klamm_base.service_manager import service_manager
from klamm_mirror.settings.mm2_config import Flow, MetricsPlace

log = logging.getLogger(__name__)

EXIT_CONFIG: Final = 2
LOOK_S: Final = 0.5
HANDOVER_S: Final = 10.0
"""The time that servers of a mirror may still have their ports after its last flow has ended."""


class FlowRefused(KlammError):
    """A flow's configuration cannot be used: its process has said why."""


class Side(Protocol):
    """A server beside the flows. `name` is that of its address in the ready line."""

    name: str

    async def start(self) -> str: ...
    async def stop(self) -> None: ...


class MetricsSide:
    """The metrics of all flows on a port of their own."""

    name = "metrics"

    def __init__(self, place: MetricsPlace, server: MetricsServer) -> None:
        self._place = place
        self._server = server

    async def start(self) -> str:
        """Takes the port and serves; returns the address. Raises KlammError."""
        port = await self._server.bind(self._place.host, self._place.port)
        await self._server.serve()
        return url_of(self._place.host, port)

    async def stop(self) -> None:
        """Takes no more connections."""
        self._server.close()


@dataclass(frozen=True, slots=True)
class Begun:
    """The first processes of the flows, and the pipe by whose end they see that this one has ended."""

    specs: Sequence[ChildSpec]
    processes: Mapping[str, ForkedChild]
    read_end: int
    write_end: int


def begin(specs: Sequence[ChildSpec], flows: Iterable[Flow]) -> Begun:
    """Imports what flows and their children need, and forks a process for each flow. Raises OSError.

    So all this is imported once, and its memory is shared. There must be no other thread yet.
    """
    from klamm.connect.child import forkserver
    from klamm.mirror.flow import modules_of

    forkserver.load([module for flow in flows for module in modules_of(flow)])
    read_end, write_end = os.pipe()  # the write end stays here only: its end of file is our death
    processes = {spec.name: forked(spec.args, read_end) for spec in specs}
    return Begun(specs, processes, read_end, write_end)


async def run(
    begun: Begun,
    ready: Callable[[Mapping[str, str]], None],
    sides: Sequence[Side] = (),
    file: tuple[Path, Callable[[], Sequence[ChildSpec]]] | None = None,
    owner: Callable[[], int | None] = lambda: None,
) -> None:
    """Run the flows until SIGTERM or SIGINT. `ready` is called once all of them run, with the addresses of `sides`,
    which serve meanwhile. `file` is the flows' file, and how to read the flows again when it has changed.
    `owner` is a process that runs flows of this file already: while its servers have the ports, this one stands by.

    Raises KlammError when that is impossible, FlowRefused, and KlammError when a second signal killed the
    flows.
    """
    children = {spec.name: Child(spec, begun.read_end, begun.processes[spec.name]) for spec in begun.specs}
    for process in begun.processes.values():
        await process.attach()
    stop, killed = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            killed.set()
            for child in children.values():
                child.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    starting = asyncio.create_task(_start_with(sides, owner, list(children.values()), ready))
    stopping = asyncio.create_task(stop.wait())
    beside: list[asyncio.Task[None]] = []
    if file is not None:
        path, specs_now = file

        async def apply() -> None:
            beside.extend(await _change(children, specs_now(), begun.read_end))

        beside.append(asyncio.create_task(reload.follow(path, apply)))
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stop.wait()
        log.info("stopping")
        service_manager().stopping()
    finally:
        for task in (starting, stopping, *beside):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, KlammError):
                await task
        await _stop_all(children)
        for side in sides:
            await side.stop()
        os.close(begun.read_end)
        os.close(begun.write_end)
    if killed.is_set():
        raise KlammError("killed by a second signal: the next start continues after the last commit")


async def _stop_all(children: Mapping[str, Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children.values()))


async def _change(
    children: dict[str, Child], specs: Sequence[ChildSpec], pipe: int
) -> list[asyncio.Task[None]]:
    """Ends the flows that are not in the file any more. Returns tasks that start those that are new."""
    wanted = {spec.name: spec for spec in specs}
    for name in sorted(children.keys() - wanted.keys()):
        log.info("%s is not in the file any more: stopped", name)
        await children.pop(name).stop()
    started = []
    for name in sorted(wanted.keys() - children.keys()):
        child = children[name] = Child(wanted[name], pipe)
        started.append(asyncio.create_task(_start_one(child)))
    return started


async def _start_one(child: Child) -> None:
    try:
        await _start(child)
    except KlammError as e:
        log.error("%s", e)  # noqa: TRY400 - the sentence says it all


async def _start_with(
    sides: Sequence[Side],
    owner: Callable[[], int | None],
    children: Sequence[Child],
    ready: Callable[[Mapping[str, str]], None],
) -> None:
    urls = {side.name: await _serving(side, owner) for side in sides}
    await _start_all(children, lambda: ready(urls))


async def _serving(side: Side, owner: Callable[[], int | None]) -> str:
    """Starts a server; returns its address. Waits while the mirror's present process may have its port. Raises KlammError."""
    until = time.monotonic()
    said = False
    while True:
        try:
            return await side.start()
        except KlammError as e:
            pid = owner()
            if pid is not None:
                until = time.monotonic() + HANDOVER_S
            elif time.monotonic() >= until:
                raise
            if not said:
                log.warning(
                    "%s. Process %s runs this mirror already: this one takes over when it ends", e, pid
                )
                said = True
            await asyncio.sleep(LOOK_S)


async def _start_all(children: Sequence[Child], ready: Callable[[], None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(_start(child))
    except ExceptionGroup as e:
        raise e.exceptions[0] from None
    ready()


async def _start(child: Child) -> None:
    """Wait until the flow runs; from then on `Child` keeps it running."""
    backoff = restarts()
    while True:
        try:
            await child.start()
        except NotReadyError as e:
            if e.code == EXIT_CONFIG:
                raise FlowRefused(f"{child.spec.name} cannot run as it is configured") from None
            wait_s = backoff.failed(time.monotonic(), str(e))
            log.error("%s; starting it again in %g s", e, wait_s)  # noqa: TRY400 - the sentence says it all
            await asyncio.sleep(wait_s)
        else:
            log.info("%s runs", child.spec.name)
            return
