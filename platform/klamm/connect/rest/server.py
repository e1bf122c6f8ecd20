"""The REST server of one worker: its listening sockets, TLS, and the paths that each socket serves.

`bind` takes the ports before anything else starts, so that a taken port costs no time; `start` serves. With
`admin.listeners`, their sockets serve /admin alone, and no other socket serves it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from klamm.connect.config import WorkerConfig
from klamm.connect.rest import foreign_code
from klamm.connect.rest.access import REALM, authenticator, has_basic_auth, unsigned
from klamm.connect.rest.app import ENDPOINTS_OF_WORKERS, make_app
from klamm.connect.rest.extensions import Extensions
from klamm.connect.rest.keys import OPEN_ADDRESS
from klamm.connect.rest.metrics import families
from klamm.connect.service.connectors import ConnectService
from klamm.web.access import access_check, foreign_pages
from klamm.web.answer_headers import HEADERS_CONFIG, Cors, answer_headers, parse_rules
from klamm.web.endpoint import Endpoint
from klamm.web.listeners import Listener, is_loopback, parse_listeners, tls_properties
from klamm.web.server import HttpServer
from klamm_base.addresses import EVERY_HOST
from klamm_base.errors import ConfigError
from klamm_base.metrics_server import MetricsServer

log = logging.getLogger(__name__)

ADMIN_PREFIX: Final = "admin.listeners.https."

MakeApp = Callable[[tuple[Endpoint, ...], Sequence[Middleware]], web.Application]
"""Makes an application of endpoints, with middlewares that may refuse a request before anything else looks at it."""


class RestServer:
    """The REST server. `inner` are the last middlewares before a handler. Raises ConfigError and KlammError."""

    def __init__(self, config: WorkerConfig, *, inner: Sequence[Middleware] = ()) -> None:
        self._config = config
        self._inner = inner
        self._usual = HttpServer(
            parse_listeners("listeners", config["listeners"]), tls=tls_properties(config.raw)
        )
        self._admin = _admin_server(config)
        self._asks = authenticator(config)
        if self._asks is not None:
            for server in filter(None, (self._usual, self._admin)):
                server.warn_of_clear_text()
            if config["connect.protocol"].lower() != "sessioned":
                log.warning(
                    "connect.protocol=%s: workers do not sign what they send to each other; %s",
                    config["connect.protocol"],
                    "anybody may send it" if has_basic_auth(config) else "it is refused (rest.auth.file)",
                )
        self._extensions = Extensions(config)
        self._metrics: MetricsServer | None = None
        self.metrics_port: int | None = None

    def bind(self) -> None:
        """Takes the ports; nothing is answered before `start`."""
        self._usual.bind()
        if self._admin is None:
            return
        # A listener has the same address: one socket serves both.
        shared = {str(each) for each in self._usual.listeners if each.port}
        self._admin_shares = any(str(each) in shared for each in self._admin.listeners)
        try:
            self._admin.bind(leave_out=shared)
        except BaseException:
            self.close()
            raise

    @property
    def advertised(self) -> Listener:
        """The address for others: `rest.advertised.*`, else the first listener of the advertised kind."""
        return self._advertised()[0]

    @property
    def printed(self) -> Listener:
        """The address of the ready line: the advertised one, or the bound one if only that shows that others
        reach the worker.
        """
        told, bound = self._advertised()
        return bound if is_loopback(told.host) and not is_loopback(bound.host) else told

    def _advertised(self) -> tuple[Listener, Listener]:
        """Returns the advertised address, and the bound one that it stands for. Raises ConfigError."""
        config = self._config
        wanted = (config["rest.advertised.listener"] or "").lower()
        schemes = [each.scheme for each, _ in self._usual.bound]
        scheme = wanted or ("http" if "http" in schemes else schemes[0])
        found = next((pair for pair in self._usual.bound if pair[0].scheme == scheme), None)
        if found is None:
            raise ConfigError(
                f"rest.advertised.listener={wanted}, but listeners has no {wanted}://HOST:PORT",
                key="rest.advertised.listener",
            )
        listener, bound = found
        host = config["rest.advertised.host.name"] or listener.host
        if host in EVERY_HOST:
            host = socket.getfqdn()
        return Listener(scheme, host, config["rest.advertised.port"] or bound.port), bound

    async def start(self, service: ConnectService) -> None:
        """Starts to serve."""
        if (address := self.open_address) is not None:
            log.warning("%s", foreign_code.warning(address))
        separate = self._admin is not None and not self._admin_shares
        usual = tuple(e for e in ENDPOINTS_OF_WORKERS if not (separate and e.admin))
        self._extensions.register(service, str(self.advertised), ENDPOINTS_OF_WORKERS)

        def make(endpoints: tuple[Endpoint, ...], checks: Sequence[Middleware]) -> web.Application:
            return make_app(
                service, str(self.advertised), endpoints=endpoints, checks=checks, inner=self._inner
            )

        await self._serve(make, usual, self._usual, extended=True)
        if self._admin is not None and self._admin.bound:
            admin = tuple(e for e in ENDPOINTS_OF_WORKERS if e.admin)
            await self._serve(make, admin, self._admin)
        port = self._config["klamm.metrics.port"]
        if port >= 0:
            self._metrics = MetricsServer(lambda: families(service))
            self.metrics_port = await self._metrics.bind(self._config["klamm.metrics.host"], port)
            await self._metrics.serve()

    async def start_with(self, make: MakeApp, endpoints: tuple[Endpoint, ...]) -> None:
        """Starts to serve another application than a worker's, to the same callers, at the same addresses."""
        await self._serve(make, endpoints, self._usual)

    @property
    def open_address(self) -> str | None:
        """Returns the first bound address at which others reach this worker without credentials; None: there is none."""
        return None if self._asks is not None else self._usual.open_address

    async def stop(self) -> None:
        """Accepts no new requests; gives those under way a moment."""
        if self._metrics is not None:
            self._metrics.close()
        await asyncio.gather(*(server.stop() for server in filter(None, (self._usual, self._admin))))
        await self._extensions.close()

    def close(self) -> None:
        for server in filter(None, (self._usual, self._admin)):
            server.close()

    async def _serve(
        self,
        make: MakeApp,
        endpoints: tuple[Endpoint, ...],
        server: HttpServer,
        *,
        extended: bool = False,
    ) -> None:
        """Serves one application at the addresses of this server. `extended`: with the extensions' paths; all have their
        middlewares.
        """
        config, extensions = self._config, self._extensions
        origins = config["access.control.allow.origin"]
        cors = Cors(origins, config["access.control.allow.methods"] or "") if origins else None
        checks: list[Middleware] = [foreign_pages(cors)]
        if self._asks is not None:
            kafkas = has_basic_auth(config)
            checks.append(
                access_check(
                    self._asks,
                    endpoints,
                    REALM,
                    open_too=kafkas,
                    refuse_peer=unsigned,
                    others=extensions.access_of,
                )
            )
        checks += extensions.middlewares(endpoints)
        app = make(endpoints, checks)
        if (address := self.open_address) is not None:
            app[OPEN_ADDRESS] = address
        if extended:
            extensions.mount(app)
        rules = parse_rules(config[HEADERS_CONFIG] or "")
        if rules or cors:
            app.on_response_prepare.append(answer_headers(rules, cors))
        await server.serve(app)


def _admin_server(config: WorkerConfig) -> HttpServer | None:
    """Returns the server of `admin.listeners`; None where they are not set."""
    key = "admin.listeners"
    if config[key] is None:
        return None
    return HttpServer(
        parse_listeners(key, config[key]), tls=tls_properties(config.raw, ADMIN_PREFIX), key=key
    )
