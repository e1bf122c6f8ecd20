"""The sockets of an HTTP server, and the applications that they serve.

`bind` takes the ports before anything else starts, so that a taken port costs no time; `serve` serves. HTTPS takes over changed
key and trust stores while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from klamm.web.callers import USERS
from klamm.web.listeners import Listener, is_loopback
from klamm.web.reload import Reloadable
from klamm.web.tls_reload import TlsReload
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

SHUTDOWN_S: Final = 2.0
IDLE_S: Final = 30.0
"""A connection without a request is closed after this time, as Jetty does."""
BACKLOG: Final = 128


class HttpServer:
    """A server at these listeners. `tls` are the ssl.* properties of HTTPS, `key` is the property that lists the listeners.
    Raises ConfigError and KlammError.
    """

    def __init__(
        self, listeners: Sequence[Listener], *, tls: Mapping[str, str] | None = None, key: str = "listeners"
    ) -> None:
        self.listeners = list(listeners)
        self._key = key
        self._properties = dict(tls or {})
        secure = any(each.scheme == "https" for each in listeners)
        self._tls = TlsReload(self._properties) if secure else None
        self.reloadable: dict[str, Reloadable] = {"certificates": self._tls} if self._tls is not None else {}
        """What can be read again while the server runs."""
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._runners: list[web.AppRunner] = []

    def bind(self, *, leave_out: Collection[str] = ()) -> None:
        """Takes the ports, except of listeners whose text is in `leave_out`; nothing is answered before `serve`."""
        try:
            for each in self.listeners:
                if str(each) not in leave_out:
                    self._sockets.append((each, _bind(each, self._key)))
        except BaseException:
            self.close()
            raise

    @property
    def bound(self) -> list[tuple[Listener, Listener]]:
        """The listeners, each with the address that its socket really has."""
        return [(each, _bound(each, taken)) for each, taken in self._sockets]

    @property
    def printed(self) -> Listener:
        """The address of the ready line."""
        return self.bound[0][1]

    @property
    def open_address(self) -> str | None:
        """The first bound address at which others reach this server without a client certificate; None: there is none."""
        for listener, bound in self.bound:
            by_certificate = (
                listener.scheme == "https" and self._properties.get("ssl.client.auth") == "required"
            )
            if not is_loopback(bound.host) and not by_certificate:
                return str(bound)
        return None

    def warn_of_clear_text(self) -> None:
        """Logs the listeners over which passwords and tokens travel readably."""
        for each in self.listeners:
            if each.scheme == "http" and not is_loopback(each.host):
                log.warning("%s: passwords and tokens travel in clear text; use https", each)

    async def serve(self, app: web.Application) -> None:
        """Begins to serve an application at all sockets."""
        settings: dict[str, Any] = {"access_log": None, "handle_signals": False, "logger": _http_log()}
        runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, keepalive_timeout=IDLE_S, **settings)
        await runner.setup()
        self._runners.append(runner)
        for listener, taken in self._sockets:
            context = self._tls.context if self._tls is not None and listener.scheme == "https" else None
            await web.SockSite(runner, taken, ssl_context=context, backlog=BACKLOG).start()
        if self._tls is not None:
            self._tls.watch()
        if USERS in app:
            self.reloadable["users"] = app[USERS]

    async def stop(self) -> None:
        """Accepts no new requests; gives those under way a moment."""
        if self._tls is not None:
            self._tls.close()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        self.close()

    def close(self) -> None:
        for _, taken in self._sockets:
            taken.close()


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

    http = logging.getLogger("klamm.web.http")
    if not http.filters:
        http.addFilter(shorten)
    return http


def _bound(listener: Listener, taken: socket.socket) -> Listener:
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
