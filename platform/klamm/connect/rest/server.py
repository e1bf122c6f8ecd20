"""The REST server of one worker: its listening sockets, TLS, and the paths that each socket serves.

`bind` takes the ports before anything else starts, so that a taken port costs no time; `start` serves. With
`admin.listeners`, their sockets serve /admin alone, and no other socket serves it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from klamm.connect.config import WorkerConfig
from klamm.connect.herding.addresses import is_loopback
from klamm.connect.rest import foreign_code
from klamm.connect.rest.access import access_check, authenticator, foreign_pages, has_basic_auth
from klamm.connect.rest.app import ENDPOINTS_OF_WORKERS, make_app
from klamm.connect.rest.endpoint import Endpoint
from klamm.connect.rest.extensions import Extensions
from klamm.connect.rest.keys import OPEN_ADDRESS
from klamm.connect.rest.metrics import families
from klamm.connect.service.connectors import ConnectService
from klamm.connect.settings.answer_headers import HEADERS_CONFIG, Cors, answer_headers, parse_rules
from klamm.connect.settings.rest import HTTPS_PREFIX, Listener, parse_listeners, tls_properties
from klamm_base.errors import ConfigError, KlammError
from klamm_base.metrics_server import MetricsServer
from klamm_base.tls import TlsSettings

log = logging.getLogger(__name__)

SHUTDOWN_S: Final = 2.0
IDLE_S: Final = 30.0
"""A connection without a request is closed after this time, as Jetty does."""
BACKLOG: Final = 128
ADMIN_PREFIX: Final = "admin.listeners.https."

MakeApp = Callable[[tuple[Endpoint, ...], Sequence[Middleware]], web.Application]
"""Makes an application of endpoints, with middlewares that may refuse a request before anything else looks at it."""


class RestServer:
    """The REST server. `inner` are the last middlewares before a handler. Raises ConfigError and KlammError."""

    def __init__(self, config: WorkerConfig, *, inner: Sequence[Middleware] = ()) -> None:
        self._config = config
        self._inner = inner
        self._listeners = parse_listeners("listeners", config["listeners"])
        given = config["admin.listeners"]
        self._admin = None if given is None else parse_listeners("admin.listeners", given)
        self._asks = authenticator(config)
        if self._asks is not None:
            self._warn_of_clear_text()
            if config["connect.protocol"].lower() != "sessioned":
                log.warning(
                    "connect.protocol=%s: workers do not sign what they send to each other; %s",
                    config["connect.protocol"],
                    "anybody may send it" if has_basic_auth(config) else "it is refused (rest.auth.file)",
                )
        self._extensions = Extensions(config)
        self._tls = _context(config, self._listeners, HTTPS_PREFIX)
        self._admin_tls = _context(config, self._admin or [], ADMIN_PREFIX)
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._admin_sockets: list[tuple[Listener, socket.socket]] = []
        self._runners: list[web.AppRunner] = []
        self._metrics: MetricsServer | None = None
        self.metrics_port: int | None = None

    def _warn_of_clear_text(self) -> None:
        for each in (*self._listeners, *(self._admin or ())):
            if each.scheme == "http" and not is_loopback(each.host):
                log.warning("%s: passwords and tokens travel in clear text; use https", each)

    def bind(self) -> None:
        """Takes the ports; nothing is answered before `start`."""
        self._admin_sockets = []
        try:
            self._sockets = [(each, _bind(each, "listeners")) for each in self._listeners]
            shared = {str(each): taken for each, taken in self._sockets if each.port}
            for each in self._admin or ():
                # A listener has the same address: one socket serves both.
                if str(each) not in shared:
                    self._admin_sockets.append((each, _bind(each, "admin.listeners")))
            self._admin_shares = any(str(each) in shared for each in self._admin or ())
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
        schemes = [each.scheme for each, _ in self._sockets]
        scheme = wanted or ("http" if "http" in schemes else schemes[0])
        found = next(((each, taken) for each, taken in self._sockets if each.scheme == scheme), None)
        if found is None:
            raise ConfigError(
                f"rest.advertised.listener={wanted}, but listeners has no {wanted}://HOST:PORT",
                key="rest.advertised.listener",
            )
        listener, taken = found
        host = config["rest.advertised.host.name"] or listener.host
        if host in {"", "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = socket.getfqdn()
        bound = _bound(listener, taken)
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

        await self._serve(make, usual, self._sockets, self._tls, extended=True)
        if self._admin_sockets:
            admin = tuple(e for e in ENDPOINTS_OF_WORKERS if e.admin)
            await self._serve(make, admin, self._admin_sockets, self._admin_tls)
        port = self._config["klamm.metrics.port"]
        if port >= 0:
            self._metrics = MetricsServer(lambda: families(service))
            self.metrics_port = await self._metrics.bind(self._config["klamm.metrics.host"], port)
            await self._metrics.serve()

    async def start_with(self, make: MakeApp, endpoints: tuple[Endpoint, ...]) -> None:
        """Starts to serve another application than a worker's, to the same callers, at the same addresses."""
        await self._serve(make, endpoints, self._sockets, self._tls)

    @property
    def open_address(self) -> str | None:
        """Returns the first bound address at which others reach this worker without credentials; None: there is none."""
        if self._asks is not None:
            return None
        tls = tls_properties(self._config.raw)
        for listener, taken in self._sockets:
            bound = _bound(listener, taken)
            by_certificate = listener.scheme == "https" and tls.get("ssl.client.auth") == "required"
            if not is_loopback(bound.host) and not by_certificate:
                return str(bound)
        return None

    async def stop(self) -> None:
        """Accepts no new requests; gives those under way a moment."""
        if self._metrics is not None:
            self._metrics.close()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        await self._extensions.close()
        self.close()

    def close(self) -> None:
        for _, taken in (*self._sockets, *self._admin_sockets):
            taken.close()

    async def _serve(
        self,
        make: MakeApp,
        endpoints: tuple[Endpoint, ...],
        sockets: list[tuple[Listener, socket.socket]],
        tls: ssl.SSLContext | None,
        *,
        extended: bool = False,
    ) -> None:
        """Serves one application on these sockets. `extended`: with the extensions' paths; all have their
        middlewares.
        """
        config, extensions = self._config, self._extensions
        origins = config["access.control.allow.origin"]
        cors = Cors(origins, config["access.control.allow.methods"] or "") if origins else None
        checks: list[Middleware] = [foreign_pages(cors)]
        if self._asks is not None:
            kafkas = has_basic_auth(config)
            checks.append(access_check(self._asks, endpoints, open_too=kafkas, others=extensions.access_of))
        checks += extensions.middlewares(endpoints)
        app = make(endpoints, checks)
        if (address := self.open_address) is not None:
            app[OPEN_ADDRESS] = address
        if extended:
            extensions.mount(app)
        rules = parse_rules(config[HEADERS_CONFIG] or "")
        if rules or cors:
            app.on_response_prepare.append(answer_headers(rules, cors))
        settings: dict[str, Any] = {"access_log": None, "handle_signals": False, "logger": _http_log()}
        runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, keepalive_timeout=IDLE_S, **settings)
        await runner.setup()
        self._runners.append(runner)
        for listener, taken in sockets:
            context = tls if listener.scheme == "https" else None
            await web.SockSite(runner, taken, ssl_context=context, backlog=BACKLOG).start()


def _context(config: WorkerConfig, listeners: list[Listener], prefix: str) -> ssl.SSLContext | None:
    """Returns the TLS context of the HTTPS listeners among these; None when there are none."""
    if not any(each.scheme == "https" for each in listeners):
        return None
    return TlsSettings.from_properties(tls_properties(config.raw, prefix)).server_context()


def _http_log() -> logging.Logger:
    """Returns aiohttp's log. A request that is not HTTP is its sender's fault: it gets 400, and the log no
    traceback.
    """

    def shorten(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            record.msg, record.args, record.exc_info = "a request is not HTTP: %s", (error.code,), None
            return http.isEnabledFor(logging.DEBUG)
        return True

    http = logging.getLogger("klamm.connect.http")
    if not http.filters:
        http.addFilter(shorten)
    return http


def _bound(listener: Listener, taken: socket.socket) -> Listener:
    """Returns where a socket really listens."""
    host, port = taken.getsockname()[:2]
    return Listener(listener.scheme, host, port)


def _bind(listener: Listener, key: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((listener.host, listener.port))
    except OSError as e:
        server.close()
        raise KlammError(
            f"cannot listen on {listener.host}:{listener.port}: {e.strerror}; set {key} to a free address"
        ) from None
    return server
