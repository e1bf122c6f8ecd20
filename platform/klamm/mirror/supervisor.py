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
from collections.abc import Callable, Sequence
from typing import Final

from klamm.up.supervisor import Child, ChildSpec, NotReadyError, restarts
from klamm_base.errors import KlammError
from klamm_base.metrics_server import MetricsServer, url_of
from klamm_mirror.mm2_config import MetricsPlace

log = logging.getLogger(__name__)

EXIT_CONFIG: Final = 2


class FlowRefused(KlammError):
    """A flow's configuration cannot be used: its process has said why."""


async def run(
    specs: Sequence[ChildSpec],
    ready: Callable[[str | None], None],
    *,
    metrics: tuple[MetricsPlace, MetricsServer] | None = None,
) -> None:
    """Run the flows until SIGTERM or SIGINT. `ready` is called once all of them run, with the URL of
    `metrics`, which are served there meanwhile.

    Raises KlammError when that is impossible, FlowRefused, and KlammError when a second signal killed the
    flows.
    """
    url = None if metrics is None else await _serve(*metrics)
    read_end, write_end = os.pipe()  # the write end stays here only: its end of file is our death
    children = [Child(spec, read_end) for spec in specs]
    stop, killed = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            killed.set()
            for child in children:
                child.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    starting = asyncio.create_task(_start_all(children, lambda: ready(url)))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stop.wait()
        log.info("stopping")
    finally:
        for task in (starting, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, KlammError):
                await task
        await asyncio.gather(*(child.stop() for child in children))
        if metrics is not None:
            metrics[1].close()
        os.close(read_end)
        os.close(write_end)
    if killed.is_set():
        raise KlammError("killed by a second signal: the next start continues after the last commit")


async def _serve(place: MetricsPlace, server: MetricsServer) -> str:
    port = await server.bind(place.host, place.port)
    await server.serve()
    return url_of(place.host, port)


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
