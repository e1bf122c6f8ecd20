"""A broker process from start to stop: event loop, signals, the `ready` line, orderly shutdown.

`klamm broker start` calls `run`. Standard output carries the `ready` line only; everything else is logged.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.extras import how_to_install
from klamm_base.metrics_server import MetricsServer
from klamm_base.service_manager import say_ready, service_manager
from klamm_broker.server import metrics_families, metrics_listener
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_broker.server.listener_config import Listener

log = logging.getLogger(__name__)

FILES_MAX: Final = 1 << 20
GC_THRESHOLDS: Final = (50_000, 20, 20)
"""A fetch of thousands of partitions is ten thousand objects that live until its answer. They leave no cycle of references,
so the collector need not look at them, nor at all topics that were made since the start.
"""
DRAIN_S: Final = 2.0
"""The time that a stop waits for peers to take their last answers: a dead peer must not delay it."""


def run(config: BrokerConfig, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly. Raises KlammError when it cannot start.

    `ready` gets the line `ready broker=HOST:PORT` once the broker serves; it is printed by default.
    """
    gc.disable()  # until it serves: what is opened stays, and collecting it again and again takes a fifth of the start
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        runner.run(_serve(config, ready or say_ready))


async def _serve(config: BrokerConfig, ready: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    broker = Broker(config, loop)
    broker.on_failure = stop.set
    server = Server(broker, loop)
    bound = server.bind()  # before recovery: a taken port must not cost a minute of it
    metrics: MetricsServer | None = None
    try:
        if config["klamm.metrics.port"] >= 0:
            families = partial(metrics_families.families, broker, server)
            metrics, metrics_url = await metrics_listener.bind(families, config, server.tls_contexts)
        broker.open()
        # Topics, codecs and modules stay: collections need not look at them again. Nor does one now: it takes a tenth of the
        # start, and finds 500 objects.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
    except BaseException:
        server.close_listeners()
        raise
    try:
        server.serve()
        first = bound[0]
        line = f"ready broker={_address(first)}"
        if metrics is not None:
            await metrics.serve()
            line += f" metrics={metrics_url}"
        ready(line)
        log.info("broker %d serves %s, cluster %s", broker.node_id, _address(first), broker.cluster_id)
        await stop.wait()
        if broker.failure is not None:
            server.quiesce()
            await server.drain(0)
            raise broker.failure
        log.info("stopping")
        service_manager().stopping()
        broker.groups.drain()
        server.quiesce()
        broker.waiting.finish_all()
        if not await broker.commits.settle(DRAIN_S):
            log.warning("appends of the last %d s are not committed and not answered", DRAIN_S)
        await server.drain(DRAIN_S)
    finally:
        if metrics is not None:
            metrics.close()
        server.close_listeners()
        await broker.close()
    log.info("stopped")


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as the system permits: each partition and each connection holds a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as e:
        log.warning("the limit of open files stays at %d: %s", soft, e)


def _address(listener: Listener) -> str:
    host = listener.host or "0.0.0.0"  # noqa: S104 - shown, not bound
    if host == "localhost":
        host = "127.0.0.1"
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


def _loop_factory(config: BrokerConfig) -> Callable[[], asyncio.AbstractEventLoop]:
    if config["klamm.event.loop"] != "uvloop":
        return asyncio.SelectorEventLoop
    try:
        import uvloop
    except ImportError:
        raise ConfigError(
            f"klamm.event.loop=uvloop, but uvloop is not installed: {how_to_install('uvloop')}, or set asyncio",
            key="klamm.event.loop",
        ) from None
    # uvloop has the type Any where it is not installed
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
