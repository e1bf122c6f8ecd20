"""The process of `klamm lag start`: the monitor, and HTTP over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from klamm.lag import burrow
from klamm.lag.keys import server_config
from klamm.lag.monitor import Monitor
from klamm.lag.settings import parse, unknown
from klamm.web.application import make_app
from klamm.web.openapi import Title
from klamm.web.process import serve
from klamm.web.request_counts import RequestCounts
from klamm.web.roles import Realm
from klamm.web.server import HttpServer
from klamm.web.settings import Web, web_config
from klamm_base.configdef import ConfigDef
from klamm_base.properties import Properties, is_from_environment

log = logging.getLogger(__name__)

PORT: Final = 8000
REALM: Final = Realm(title="Klamm lag", server="lag server", thing="cluster")
_NAMES: Final = {
    "cluster": "A cluster's name", "topic": "A topic's name", "consumer": "A group's name",
    "kind": "storage, evaluator, cluster, consumer or notifier", "name": "A module's name",
}  # fmt: skip
TITLE: Final = Title(
    title="Klamm lag",
    about="Lag of groups: Burrow's API v3, the course of groups, metrics.",
    parameters={name: (about, {"type": "string"}) for name, about in _NAMES.items()},
)


class _Notifiers:
    """The notifiers of `monitor`, which `read` knows."""

    def __init__(self, monitor: Monitor, read: Callable[[], Properties]) -> None:
        self._monitor = monitor
        self._read = read

    def reload(self) -> None:
        props = self._read()
        self._monitor.change_notifiers(parse(props).notifiers)
        _warn_of_unknown(props)


def _warn_of_unknown(props: Properties) -> None:
    for key in unknown(props, http_config()):
        # All processes share the environment: a name there may be meant for another one.
        if not is_from_environment(props.source(key)):
            log.warning("%s: %s has no effect here", props.source(key) or "properties", key)


class LagServer:
    """The server of the properties that `read` returns; SIGHUP reads those of notifiers again. Raises ConfigError, and KlammError for a
    port or a history that cannot be used.
    """

    def __init__(self, read: Callable[[], Properties]) -> None:
        props = read()
        _warn_of_unknown(props)
        settings = parse(props)
        self._web = Web.of(http_config().parse(props), props, REALM)
        self.http = HttpServer(self._web.listeners, tls=self._web.tls)
        if self._web.auth is not None:
            self.http.warn_of_clear_text()
        self.http.bind()
        try:
            self.monitor = Monitor(settings)
        except BaseException:
            self.http.close()
            raise
        self._read = read
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address of the ready line."""
        return str(self.http.printed)

    async def start(self) -> None:
        if self._web.auth is None and (address := self.http.open_address) is not None:
            log.warning(
                "%s: everybody who reaches it may see and forget groups; rest.auth.file asks for a login",
                address,
            )
        counts = RequestCounts()
        app = make_app(self._web, burrow.ENDPOINTS, title=TITLE, counts=counts, form=burrow.burrows_form)
        app[burrow.MONITOR], app[burrow.COUNTS] = self.monitor, counts
        self._watching = asyncio.create_task(self.monitor.run(), name="watch lag")
        await self.http.serve(app)
        self.http.reloadable["notifiers"] = _Notifiers(self.monitor, self._read)

    async def wait(self) -> None:
        assert self._watching is not None, "start comes first"
        await self._watching

    async def stop(self) -> None:
        await self.http.stop()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.monitor.close()


def http_config() -> ConfigDef:
    """Returns the properties of HTTP."""
    return web_config(PORT)


def all_config() -> ConfigDef:
    """Returns all properties of the server, without those of clusters and notifiers."""
    return server_config().merged(http_config())


async def run(read: Callable[[], Properties], ready: Callable[[str], None]) -> None:
    """Run the server of the properties that `read` returns until SIGTERM or SIGINT; `ready` is called with its address. Raises
    KlammError.
    """
    server = LagServer(read)
    await serve(server, lambda: ready(server.address), server.http.reloadable)
