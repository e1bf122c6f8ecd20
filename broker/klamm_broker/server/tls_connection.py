"""Connections of TLS listeners: the handshake, then a connection like any other over a `TlsSocket`.

A handshake takes up to a millisecond of CPU. So connections queue for it (`Handshakes`), and between two turns of the
event loop only as many are served as fit into `TURN_S`: a storm of new clients delays nobody else. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final

from klamm_base.tls import reason
from klamm_broker.security.distinguished_name import BadCertificate, subject_of
from klamm_broker.security.principal import USER, KafkaPrincipal
from klamm_broker.security.principal_rules import NoRule
from klamm_broker.server import audit, tls_socket
from klamm_broker.server.connection import Connection, Dispatch, Owner
from klamm_broker.server.few_lines import FewLines
from klamm_broker.server.tls_socket import TlsSocket

if TYPE_CHECKING:
    import socket

    from klamm_broker.server.metrics import RequestMetrics
    from klamm_broker.server.outgoing import Send
    from klamm_broker.server.tls_contexts import TlsSetup

log = logging.getLogger(__name__)

TURN_S: Final = 0.001
"""The time for handshakes between two turns of the event loop. One that was begun is finished."""
_NONE_SHOWN: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class Handshakes:
    """The connections whose handshakes can go on, in order, and the log of those that fail."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: RequestMetrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._ready: deque[TlsConnection] = deque()
        self._failures = FewLines(log, "TLS handshakes failed")

    def go_on(self, connection: TlsConnection) -> None:
        """Serve a connection's handshake when it is its turn."""
        self._ready.append(connection)
        if len(self._ready) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        end = perf_counter() + TURN_S
        try:
            while self._ready:
                try:
                    self._ready[0].shake()
                finally:
                    self._ready.popleft()
                if perf_counter() >= end:
                    break
        finally:
            if self._ready:
                self._loop.call_soon(self._turn)

    def done(self) -> None:
        self._metrics.handshakes += 1

    def failed(self) -> int:
        """Count a failed handshake. Returns the level for its line: few failures are told, many are counted."""
        self._metrics.handshakes_failed += 1
        return self._failures.level(self._loop)


class TlsConnection(Connection):
    """A connection whose bytes are encrypted. It handles no request before its handshake is done.

    Its `principal` is then the user that the peer's certificate names, if the peer has shown one.
    """

    __slots__ = ("_handshakes", "_late", "_setup", "_shaking", "_tls")
    _plain_send: Send = staticmethod(tls_socket.send)

    def __init__(
        self,
        server: Owner,
        sock: socket.socket,
        peer: tuple[str, int],
        listener: str,
        dispatch: Dispatch,
        *,
        setup: TlsSetup,
        handshakes: Handshakes,
    ) -> None:
        self._tls = TlsSocket(sock, setup.context)
        self._setup = setup
        self._handshakes = handshakes
        self._shaking = True
        super().__init__(server, self._tls, peer, listener, dispatch)
        allowed_ms = server.broker.config["klamm.tls.handshake.timeout.ms"]
        self._late = self.loop.call_later(allowed_ms / 1000, self._too_slow, allowed_ms)

    # ---- handshake

    def shake(self) -> None:
        """Go on with the handshake."""
        if self.closed:
            return
        try:
            done = self._tls.handshake()
            if done:
                self._identify()
        except (OSError, BadCertificate, NoRule) as e:
            self._refuse(e)
            return
        except Exception as e:  # a defect of ours: nobody may get in by it
            log.exception("a handshake with %s failed", self)
            self._refuse(e)
            return
        if done:
            self._shaking = False
            self._late.cancel()
            self._handshakes.done()
        self._update_reading()

    def _identify(self) -> None:
        certificate, rules = self._tls.certificate(), self._setup.rules
        if certificate is not None and rules is not None:
            self.principal = KafkaPrincipal(USER, rules.name_of(subject_of(certificate)))
            log.debug("connection %s is %s", self, self.principal)
            self._report("ok", principal=self.principal)

    def _report(self, outcome: str, **said: object) -> None:
        audit.write("login", outcome=outcome, mechanism="TLS", listener=self.listener, peer=str(self), **said)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLError):
            why = reason(error)
        else:
            why = str(getattr(error, "strerror", None) or error)
        level = self._handshakes.failed()
        about_certificate = isinstance(error, (ssl.SSLCertVerificationError, BadCertificate, NoRule))
        if level >= logging.WARNING and (about_certificate or getattr(error, "reason", None) == _NONE_SHOWN):
            self._report("refused", why=audit.cut(why))
        self.close(f"TLS handshake failed: {why}", level=level)

    def _too_slow(self, allowed_ms: int) -> None:
        if self._shaking and not self.closed:
            why = f"TLS handshake failed: not done within klamm.tls.handshake.timeout.ms={allowed_ms}"
            self.close(why, level=self._handshakes.failed())

    # ---- as a connection

    def _on_readable(self) -> None:
        if self._shaking:
            self.loop.remove_reader(self._fd)
            self._reading = False
            self._handshakes.go_on(self)
            return
        if self.closed or not self._reading:
            return
        end = perf_counter() + tls_socket.TURN_S
        super()._on_readable()
        while self._tls.more and self._reading and not self.closed:
            if perf_counter() >= end:
                self.loop.call_soon(self._on_readable)
                return
            super()._on_readable()

    def _update_reading(self) -> None:
        super()._update_reading()
        if self._reading and self._tls.more:  # for which the socket does not become readable
            self.loop.call_soon(self._on_readable)

    def _read_failed(self, error: OSError) -> None:
        if not isinstance(error, ssl.SSLError):
            super()._read_failed(error)
            return
        with suppress(OSError):
            self._tls.flush()  # the alert
        self.close(f"TLS failed: {reason(error)}")

    def close(self, why: str, *, level: int | None = None) -> None:
        if not self.closed:
            self._late.cancel()
        super().close(why, level=level)
