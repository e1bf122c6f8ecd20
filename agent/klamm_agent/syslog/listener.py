"""Sockets that take syslog (UDP, TCP, TLS and unix datagrams), read by one thread into a bounded queue.

The thread only receives and frames; it does not parse messages. While the queue is full it reads no socket. TCP and unix senders
wait; the kernel drops UDP datagrams that its buffer has no room for, and counts them (`drops`).
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm_agent.syslog.addresses import Address, bind, udp_drops
from klamm_agent.syslog.frames import Frames
from klamm_base.sparing import Sparing

log = logging.getLogger(__name__)

_CHUNK: Final = 256 * 1024  # bytes of one read of a stream
_DATAGRAM: Final = 65_536
_TURN: Final = 500  # datagrams of one socket before the others have their turn
_TICK_S: Final = 1.0
_HANDSHAKE_S: Final = 30.0
_LAST_S: Final = 2.0  # the end may take so long to read what has arrived
_SAID_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a listener; times are in seconds."""

    message_bytes: int = 65_536
    connections: int = 1000
    idle: float | None = None
    queue_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class Received:
    """Messages that were received and framed; `peers` has the sender of each."""

    path: str
    messages: list[bytes]
    peers: list[str]
    at: float
    size: int


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    path: str
    peer: str
    frames: Frames
    heard_at: float
    handshaking: bool = False
    writing: bool = False
    """True while TLS has to write before it reads on."""


class Listener:
    """A listener, which listens from construction on. `take` is for one thread. Raises ConfigError for an address that cannot be bound."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        *,
        framing: str,
        limits: Limits,
        tls: ssl.SSLContext | None,
        buffer: int,
    ) -> None:
        self._framing, self._limits, self._tls = framing, limits, tls
        self._selector = selectors.DefaultSelector()
        self._queue: deque[Received] = deque()
        self._size = 0
        self._most = limits.queue_bytes
        self._room = threading.Condition()
        self._stopping = self._stopped = False
        self._dropped: dict[str, int] = {}
        self._bound: list[str] = []
        self._connections: dict[_Connection, None] = {}
        self._peers: dict[object, str] = {}
        self._said = Sparing(_SAID_AGAIN_S)
        self.refused = self.errors = self.splits = self.messages = self.bytes = self.failed = 0
        self._sockets: list[tuple[Address, socket.socket]] = []
        try:
            for address in addresses:
                self._sockets.append((address, bind(address, buffer)))
        except BaseException:
            self._close_sockets()
            raise
        self._bound = [address.shown(sock) for address, sock in self._sockets]
        for address, sock in self._sockets:
            self._selector.register(sock, selectors.EVENT_READ, self._on(address, sock))
        self._wake, woken = socket.socketpair()
        self._woken = woken
        self._selector.register(woken, selectors.EVENT_READ, lambda: None)
        self._thread = threading.Thread(target=self._run, name="syslog", daemon=True)
        self._thread.start()

    @property
    def bound(self) -> list[str]:
        """The addresses that it listens on, with the ports that were chosen."""
        return self._bound

    @property
    def connections(self) -> int:
        return len(self._connections)

    def drops(self) -> dict[str, int]:
        """Returns the datagrams that the kernel dropped since the start, by address, as far as the kernel tells."""
        if not self._stopped:
            for address, sock in self._sockets:
                if address.kind == "udp" and (count := udp_drops(sock)) is not None:
                    self._dropped[address.shown(sock)] = count
        return self._dropped

    def take(self) -> Received | None:
        """Takes the oldest messages; None when there are none."""
        try:
            received = self._queue.popleft()
        except IndexError:
            return None
        with self._room:
            self._size -= received.size
            self._room.notify()
        return received

    def stop(self) -> None:
        """Takes no new connection, reads what has arrived, and ends the thread. `take` gives the rest."""
        if self._stopping:
            return
        with self._room:
            self._stopping = True
            self._room.notify()
        self._wake.send(b"x")
        self._thread.join(_LAST_S + 5)
        self.drops()  # the last chance to ask
        self._stopped = True
        for address, sock in self._sockets:
            address.remove(sock)
        self._close_sockets()
        self._wake.close()
        self._woken.close()
        self._selector.close()

    def _close_sockets(self) -> None:
        for _, sock in self._sockets:
            sock.close()
        for connection in self._connections:
            connection.socket.close()

    def _on(self, address: Address, sock: socket.socket) -> Callable[[], None]:
        path = f"syslog://{address.kind}:{address.shown_port(sock)}"
        if address.kind in {"udp", "unix"}:
            return lambda: self._receive(sock, path)
        return lambda: self._accept(sock, path, tls=address.kind == "tls")

    def _run(self) -> None:
        tick_at = time.monotonic() + _TICK_S
        while not self._stopping:
            self._serve(_TICK_S)
            if time.monotonic() >= tick_at:
                self._close_idle(time.monotonic())
                tick_at = time.monotonic() + _TICK_S
            with self._room:
                while self._size >= self._limits.queue_bytes and not self._stopping:
                    self._room.wait()
        self._read_the_rest()

    def _serve(self, timeout: float) -> bool:
        """Serves each socket that has something; returns whether any had."""
        found = self._selector.select(timeout)
        for key, _ in found:
            if self._size >= self._most:
                break  # a thousand connections would overfill the queue: the next round reads the others
            try:
                key.data()
            except Exception:  # one sender's fault: the others are still served
                self.failed += 1
                log.exception("syslog: a socket could not be served")
        return bool(found)

    def _read_the_rest(self) -> None:
        """Reads what has arrived, for a while at most, as more may come at any time."""
        for address, sock in self._sockets:
            if address.kind in {"tcp", "tls"}:
                self._selector.unregister(sock)
        self._selector.unregister(self._woken)
        deadline = time.monotonic() + _LAST_S
        self._most += self._size
        while time.monotonic() < deadline and self._size < self._most and self._serve(0):
            pass
        for connection in list(self._connections):
            self._end(connection)

    def _put(self, path: str, messages: list[bytes], peers: list[str]) -> None:
        size = sum(map(len, messages)) + 100 * len(messages)
        self.messages += len(messages)
        with self._room:
            self._size += size
        self._queue.append(Received(path, messages, peers, time.time(), size))

    def _receive(self, sock: socket.socket, path: str) -> None:
        messages, peers = [], []
        names = self._peers
        for _ in range(_TURN):
            try:
                data, sender = sock.recvfrom(_DATAGRAM)
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:
                continue  # an ICMP answer to something sent from this port before
            self.bytes += len(data)
            data = data.rstrip(b"\r\n\0")
            if data:
                messages.append(data)
                peers.append(names.get(sender) or self._peer(sender))
        if messages:
            self._put(path, messages, peers)

    def _peer(self, sender: object) -> str:
        if len(self._peers) > 10_000:
            self._peers.clear()
        name = ""
        if isinstance(sender, tuple):
            host, port = str(sender[0]).removeprefix("::ffff:"), sender[1]
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._peers[sender] = name
        return name

    def _accept(self, sock: socket.socket, path: str, *, tls: bool) -> None:
        try:
            conn, sender = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as e:  # no descriptors are left: the sender waits in the backlog
            self._say("accept", f"{path}: a connection cannot be taken: {e.strerror}")
            time.sleep(0.05)
            return
        if len(self._connections) >= self._limits.connections:
            self.refused += 1
            conn.close()
            self._say(
                "full", f"{path}: {self._limits.connections} connections (max_connections): more are refused"
            )
            return
        conn.setblocking(False)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls:
            assert self._tls is not None, "the configuration was checked"
            try:
                conn = self._tls.wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
            except OSError:  # the sender is gone already
                conn.close()
                return
        connection = _Connection(
            conn,
            path,
            self._peer(sender),
            Frames(self._framing, self._limits.message_bytes),
            time.monotonic(),
            tls,
        )
        self._connections[connection] = None
        self._selector.register(conn, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: _Connection) -> None:
        try:
            data = self._received(connection)
        except ssl.SSLWantWriteError:
            self._wait_for(connection, writing=True)
            return
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            self._wait_for(connection, writing=False)
            return
        except OSError as e:
            if connection.handshaking:
                self.failed += 1
                self._say("tls", f"{connection.path}: {connection.peer} makes no TLS connection: {e}")
            data = b""
        if not data:
            self._end(connection)
            return
        connection.heard_at = time.monotonic()
        self.bytes += len(data)
        self._framed(connection, connection.frames.feed(data))

    @staticmethod
    def _received(connection: _Connection) -> bytes:
        sock = connection.socket
        if not isinstance(sock, ssl.SSLSocket):
            return sock.recv(_CHUNK)
        if connection.handshaking:
            sock.do_handshake()
            connection.handshaking = False
        data = sock.recv(_CHUNK)
        while data and sock.pending():  # bytes that are decrypted already do not wake the selector
            data += sock.recv(_CHUNK)
        return data

    def _wait_for(self, connection: _Connection, *, writing: bool) -> None:
        if writing != connection.writing:
            connection.writing = writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(connection.socket, events, lambda: self._read(connection))

    def _framed(self, connection: _Connection, messages: list[bytes]) -> None:
        frames = connection.frames
        if frames.errors or frames.splits:
            self.errors, self.splits = self.errors + frames.errors, self.splits + frames.splits
            if frames.errors:
                self._say(
                    "framing",
                    f"{connection.path}: {connection.peer} counts octets wrongly: reading lines instead",
                )
            frames.errors = frames.splits = 0
        if messages:
            self._put(connection.path, messages, [connection.peer] * len(messages))

    def _end(self, connection: _Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.pop(connection, None)
        self._framed(connection, connection.frames.finish())

    def _close_idle(self, now: float) -> None:
        for connection in list(self._connections):
            limit = _HANDSHAKE_S if connection.handshaking else self._limits.idle
            if limit is None or now - connection.heard_at <= limit:
                continue
            self._read(connection)  # nobody listened while the queue was full: data may have come
            if connection in self._connections and now - connection.heard_at > limit:
                self._end(connection)

    def _say(self, about: str, what: str) -> None:
        self._said.warning(log, about, what)
