"""Listening sockets and the set of connections: accept, limits, idle connections, orderly stop.

Runs on the event loop's thread only. `dispatch` knows what requests mean; this module does not.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from klamm_base.addresses import EVERY_HOST
from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError, KlammError
from klamm_broker.api import registry
from klamm_broker.server import audit
from klamm_broker.server.connection import IDLE_BUFFER_BYTES, Connection, Dispatch
from klamm_broker.server.connection_limits import limited_hosts, limits_of, windows_of
from klamm_broker.server.dispatch import dispatch
from klamm_broker.server.doors import Doors
from klamm_broker.server.few_lines import FewLines
from klamm_broker.server.host_names import Addresses, HostNames
from klamm_broker.server.listener_config import Listener
from klamm_broker.server.metrics import RequestMetrics

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.sasl_config import LoginSettings
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.tls_acceptor import TlsAcceptor
    from klamm_broker.server.tls_contexts import TlsContexts

log = logging.getLogger(__name__)

SWEEP_S_MAX: Final = 10.0
LINGER_S: Final = 0.5
"""The time that peers have to take the last answers and to close their side."""


FAULTS_MAX: Final = 100
"""Lines in ten seconds about connections that are closed for what their peers sent after a login, or where there is none."""


class ListenError(KlammError):
    """An address on which the broker cannot listen."""


class Server:
    """All listening sockets and connections of one broker."""

    def __init__(self, broker: BrokerState, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.apis = registry.load()
        self.connections: set[Connection] = set()
        self.metrics = RequestMetrics()
        self.refusals = FewLines(log, "connections were refused before their login")
        self.faults = FewLines(log, "connections were closed for what their peers sent", FAULTS_MAX)
        self.refused_logins = audit.RefusedLogins(loop.call_later)
        self.dispatch: Dispatch = dispatch
        self._logins: dict[str, LoginSettings] = {}
        self._sockets: list[tuple[socket.socket, Listener]] = []
        config = broker.config
        self._hosts = HostNames()
        limits = limits_of(config, self._hosts)
        self.doors = Doors(loop, self.metrics, limits, windows_of(config, "quota"), self._enter)
        self._idle_s: float = config["connections.max.idle.ms"] / 1000
        self._sweeper: asyncio.TimerHandle | None = None
        self._tls: TlsAcceptor | None = None
        self._ports: dict[str, int] = {}
        self._serving = False
        broker.config_readers.append(self._reading)
        broker.config_checks.append(self._check)
        broker.config_changes.append(self._reconfigure)

    # ---- start and stop

    def bind(self) -> list[Listener]:
        """Listen on every address of `listeners`; returns them with their real ports. Raises ListenError and ConfigError."""
        self._prepare_tls(self.broker.config)
        try:
            for listener in self.broker.config.listeners:
                _check_logins(listener, self.broker.config)
                self._bind_one(listener)
        except BaseException:
            self.close_listeners()
            raise
        self._advertise()
        return [replace(item, port=self._ports[item.name]) for item in self.broker.config.listeners]

    @property
    def tls_contexts(self) -> TlsContexts | None:
        """The TLS settings of the listeners; None where none has TLS."""
        return None if self._tls is None else self._tls.contexts

    @cached_property
    def _own_name(self) -> str:
        """The machine's name, asked for once: a name server may let us wait."""
        return socket.getfqdn()

    def _advertise(self) -> None:
        """Set the addresses that clients are told: `advertised.listeners`, with the real port in place of a 0.

        A listener that is not among them, such as one that was added meanwhile, tells its own address. One that was
        removed tells its last one, for as long as it has connections.
        """
        config, before = self.broker.config, self.broker.listeners
        told = {item.name: item for item in config.advertised}
        told |= {item.name: item for item in config.listeners if item.name not in told}
        self.broker.listeners = {
            name: replace(
                item,
                host=self._own_name if item.host in EVERY_HOST else item.host,
                port=item.port or self._ports[name],
            )
            for name, item in told.items()
            if name in self._ports
        }
        left = {connection.listener for connection in self.connections}.difference(self.broker.listeners)
        self.broker.listeners |= {name: before[name] for name in left}

    def _tls_of(self, config: BrokerConfig) -> TlsAcceptor | None:
        """Returns what TLS listeners need. A broker that has never had such a listener does not load OpenSSL."""
        if self._tls is None and any(listener.protocol.tls for listener in config.listeners):
            from klamm_broker.server.tls_acceptor import TlsAcceptor

            self._tls = TlsAcceptor(self)
        return self._tls

    def _prepare_tls(self, config: BrokerConfig) -> None:
        """Make the settings of TLS listeners. Raises ConfigError."""
        if (tls := self._tls_of(config)) is not None:
            tls.contexts.take(config)

    def _reading(self, config: BrokerConfig) -> Steps[None]:
        """Read and ask for what the check of another configuration looks at, beside the event loop."""
        hosts = (listener.host for listener in config.listeners)
        yield from self._hosts.asking((*hosts, *limited_hosts(config)))
        if (tls := self._tls_of(config)) is not None:
            yield from tls.contexts.reading(config)

    def _check(self, config: BrokerConfig) -> None:
        """Raises ConfigError unless the listeners of another configuration can be opened beside those that stay."""
        if (tls := self._tls_of(config)) is not None:
            tls.contexts.check(config)
        limits_of(config, self._hosts)
        opened = {listener for _, listener in self._sockets}
        freed = {self._ports[listener.name] for listener in opened.difference(config.listeners)}
        for listener in config.listeners:
            _check_logins(listener, config)
            if listener in opened:
                continue
            try:
                if listener.port and listener.port not in freed:
                    for sock in _sockets_of(listener, self._hosts):
                        sock.close()
                else:
                    _resolve(listener, self._hosts)
            except ListenError as e:
                raise invalid("listeners", str(listener), str(e)) from None

    def _reconfigure(self) -> None:
        """Open and close listeners as the configuration says now. Connections of those that are gone end after a moment."""
        config = self.broker.config
        self._prepare_tls(config)
        self.doors.quotas.limits = limits_of(config, self._hosts)
        gone = {listener for _, listener in self._sockets}.difference(config.listeners)
        for sock, listener in [item for item in self._sockets if item[1] in gone]:
            self.doors.close(sock, listener)
            self._sockets.remove((sock, listener))
            self._ports.pop(listener.name, None)
            log.info("listener %s is closed", listener)
        names = {listener.name for listener in gone}
        for connection in [c for c in self.connections if c.listener in names]:
            end = partial(connection.close, "its listener was removed", level=logging.INFO)
            self.loop.call_later(LINGER_S, end)
        for listener in config.listeners:
            if listener.name not in self._ports:
                self._open(listener)
        self._advertise()
        self._make_room()
        self.doors.knock()

    def _open(self, listener: Listener) -> None:
        before = len(self._sockets)
        try:
            if listener.protocol.sasl:
                self.login_settings(listener.name)
            self._bind_one(listener)
        except (ConfigError, ListenError, OSError) as e:
            log.error("listener %s stays closed: %s", listener, e)  # noqa: TRY400
            return
        log.info("listener %s is open", listener)
        if self._serving:
            for sock, _ in self._sockets[before:]:
                self.doors.open(sock, listener)

    def serve(self) -> None:
        """Begin to accept. The broker is open. Raises ConfigError when a listener's logins cannot be had."""
        for _, listener in self._sockets:
            if listener.protocol.sasl:
                self.login_settings(listener.name)
        self._take_ip_rates()
        self.broker.quotas.changes.append(self._take_ip_rates)
        for sock, listener in self._sockets:
            self.doors.open(sock, listener)
        self._serving = True
        self._sweep()

    def close_listeners(self) -> None:
        for sock, listener in self._sockets:
            self.doors.close(sock, listener)
        self.doors.let_go()
        self._sockets.clear()
        for logins in self._logins.values():
            logins.close()
        self._logins.clear()

    def quiesce(self) -> None:
        """Take no more connections and requests; answers still leave."""
        self.close_listeners()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._tls is not None:
            self._tls.stop()
        for connection in self.connections:
            connection.quiesce()

    async def drain(self, timeout_s: float) -> None:
        """Wait until answers have left, then close every connection. Parked group requests end with their connections."""
        deadline = self.loop.time() + timeout_s
        while self.loop.time() < deadline and any(c.sending for c in self.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            _hang_up(connection)
        deadline = min(deadline, self.loop.time() + LINGER_S)
        while self.loop.time() < deadline and self.connections:
            for connection in list(self.connections):
                _discard(connection)
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.close("the broker stops", level=logging.DEBUG)
        self.refused_logins.close()

    def _bind_one(self, listener: Listener) -> None:
        """Listen on all addresses of a listener. Raises ListenError, and then listens on none of them."""
        backlog = self.broker.config["socket.listen.backlog.size"]
        sockets = _sockets_of(listener, self._hosts, backlog=backlog)
        self._sockets += [(sock, listener) for sock in sockets]
        self._ports[listener.name] = sockets[-1].getsockname()[1]

    # ---- connections

    def _enter(self, sock: socket.socket, peer: tuple[str, int], listener: Listener) -> None:
        """Serve a connection that was let in; close it when it cannot be served as its listener says."""
        try:
            connection = self._connect(sock, peer, listener)
        except (ConfigError, OSError) as e:
            log.error("connection %s:%d closed: listener %s cannot serve it: %s", *peer, listener, e)  # noqa: TRY400
        except Exception:  # a defect of ours: nobody may get in by it
            log.exception("connection %s:%d closed: listener %s cannot serve it", *peer, listener)
        else:
            self.connections.add(connection)
            self._make_room()
            return
        self.loop.remove_reader(sock.fileno())
        sock.close()
        self.doors.leave(listener.name, peer[0])

    def _connect(self, sock: socket.socket, peer: tuple[str, int], listener: Listener) -> Connection:
        """Returns a connection that is served. One of a listener with logins gets nothing but its login."""
        logins = self.login_settings(listener.name) if listener.protocol.sasl else None
        first = self.dispatch
        if logins is not None:
            from klamm_broker.server.login import Login, no_login

            first = no_login
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._set_buffer(sock, socket.SO_SNDBUF, "socket.send.buffer.bytes")
        self._set_buffer(sock, socket.SO_RCVBUF, "socket.receive.buffer.bytes")
        if self._tls is not None and listener.protocol.tls:
            connection: Connection = self._tls.connection(sock, peer, listener.name, first)
        else:
            connection = Connection(self, sock, peer, listener.name, first)
        if logins is not None:
            connection.dispatch = Login(connection, logins)
        self.metrics.connections_made += 1
        return connection

    def login_settings(self, listener: str) -> LoginSettings:
        """Returns the logins of a listener as the configuration has them now. Raises ConfigError and OSError for its first ones."""
        known = self._logins.get(listener)
        if known is not None and known.config is self.broker.config:
            return known
        from klamm_broker.server import sasl_config

        try:
            made = sasl_config.make(self.broker, listener, known)
        except (ConfigError, OSError) as e:
            if known is None:
                raise
            log.error("listener %s keeps its logins: %s", listener, e)  # noqa: TRY400
            made = replace(known, config=self.broker.config)
        self._logins[listener] = made
        return made

    def _set_buffer(self, sock: socket.socket, option: int, key: str) -> None:
        """Set a buffer size that the user asked for. Otherwise the system tunes buffers better than a fixed size does."""
        config = self.broker.config
        if key in config.originals and config[key] > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, config[key])

    def _take_ip_rates(self) -> None:
        quotas = self.doors.quotas
        quotas.ip_rates, quotas.ip_default = self.broker.quotas.ip_rates()

    def _make_room(self) -> None:
        """Close those that have said nothing for the longest time, where there are more connections than there may be."""
        protected = self.doors.quotas.limits.protected
        excess = self.doors.quotas.excess
        if not excess:
            return
        others = sorted((c for c in self.connections if c.listener != protected), key=lambda c: c.last_active)
        for connection in others[:excess]:
            connection.close("max.connections is exceeded", level=logging.INFO)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has closed."""
        self.connections.discard(connection)
        telemetry = self.broker.telemetry_taken.made
        if telemetry is not None:
            telemetry.subscriptions.on_disconnect(connection)
        if (shares := self.broker.shares_served.made) is not None:
            shares.on_disconnect(connection)
        self.metrics.connections_closed += 1
        self.doors.leave(connection.listener, connection.host)

    def _sweep(self) -> None:
        """Close idle connections, give back large buffers."""
        now = perf_counter()
        now_ms = int(self.loop.time() * 1000)
        self.broker.quotas.forget_idle(now_ms)
        self.doors.quotas.forget_idle(now_ms)
        for connection in list(self.connections):
            connection.shrink()
            if 0 <= self._idle_s <= now - connection.last_active and not connection.busy:
                connection.close("idle for connections.max.idle.ms", level=logging.DEBUG)
        pause = SWEEP_S_MAX if self._idle_s < 0 else min(SWEEP_S_MAX, max(self._idle_s / 4, 0.05))
        self._sweeper = self.loop.call_later(pause, self._sweep)


def _check_logins(listener: Listener, config: BrokerConfig) -> None:
    """Raises ConfigError when a listener's logins cannot be had. A broker without logins does not load what they need."""
    if listener.protocol.sasl:
        from klamm_broker.server import sasl_config

        sasl_config.check(listener.name, config.of_listener(listener.name))


def _hang_up(connection: Connection) -> None:
    """Send nothing more. `_discard` drops what the peer still sends."""
    try:
        connection.sock.shutdown(socket.SHUT_WR)
    except OSError as e:
        connection.close(f"write failed: {e.strerror or e}", level=logging.DEBUG)


def _discard(connection: Connection) -> None:
    """Drop received bytes, and close once the peer has closed.

    If a socket is closed with unread bytes, the system resets the connection, and answers on their way are lost.
    """
    try:
        n = connection.sock.recv_into(memoryview(bytearray(IDLE_BUFFER_BYTES)))
    except (BlockingIOError, InterruptedError):
        return
    except OSError as e:
        connection.close(f"read failed: {e.strerror or e}", level=logging.DEBUG)
        return
    if n == 0:
        connection.close("the broker stops", level=logging.DEBUG)


def _sockets_of(listener: Listener, hosts: HostNames, *, backlog: int | None = None) -> list[socket.socket]:
    """Returns one socket per address of the host (`localhost` has two); with a `backlog` they listen.

    The first one decides about port 0. Raises ListenError, and then leaves none behind.
    """
    addresses, port = _resolve(listener, hosts), listener.port
    made: list[socket.socket] = []
    for family, host in addresses:
        try:
            sock = _bound(family, host, port)
            made.append(sock)
            if backlog is not None:
                sock.listen(backlog)
        except OSError as e:
            taken = e.errno == errno.EADDRINUSE and listener.port != 0
            if family == socket.AF_INET6 and len(addresses) > 1 and not taken:
                continue  # a name with two addresses on a machine without IPv6: the other one serves
            for sock in made:
                sock.close()
            raise _listen_error(listener, port, e) from e
        port = sock.getsockname()[1]
    return made


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    """Returns a socket at an address. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(listener: Listener, hosts: HostNames) -> Addresses:
    if not listener.host:
        return [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]  # noqa: S104 - Kafka's empty host
    try:
        found = hosts.addresses(listener.host)
    except OSError as e:
        raise ListenError(f"listeners: host {listener.host!r} cannot be resolved: {e.strerror or e}") from e
    return sorted(found, key=lambda item: item[0] != socket.AF_INET)


def _listen_error(listener: Listener, port: int, error: OSError) -> ListenError:
    where = f"{listener.name}://{listener.host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return ListenError(
            f"port {port} is in use: cannot listen on {where}. Stop what uses it or set listeners."
        )
    return ListenError(f"cannot listen on {where}: {error.strerror or error}")
