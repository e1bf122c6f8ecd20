"""Accepts connections at all listeners, within the limits of connections (`quota/connections.py`).

A listener whose limit is reached accepts one more connection, which waits, and then none: the system's queue holds the
others. Who comes too fast from one address is closed after the delay, so that an impatient client is slowed down. Event
loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_broker.quota.connections import ConnectionQuotas, Refusal
from klamm_broker.quota.rate import SlidingSum, Windows

if TYPE_CHECKING:
    from klamm_broker.quota.connections import ConnectionLimits
    from klamm_broker.server.listener_config import Listener
    from klamm_broker.server.metrics import RequestMetrics

log = logging.getLogger(__name__)

ACCEPTS_PER_WAKEUP: Final = 16
"""New connections taken at a time, so that a storm of them does not starve the others."""
ACCEPT_PAUSE_S: Final = 0.5
"""The pause after the process ran out of file descriptors: accepting at once would spin."""
HELD_MAX: Final = 1000
"""Connections that are kept open only to slow their clients down. Each takes a file descriptor."""
TELL_S: Final = 10.0
"""The least time between two lines about a listener whose connections wait."""
_AVERAGED: Final = Windows(count=2, length_ms=30_000)
Peer = tuple[str, int]
Enter = Callable[[socket.socket, Peer, "Listener"], None]


class Door:
    """One listener: its sockets, and the connection that waits to be let in. `delays` are averaged for the metrics."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.socks: list[socket.socket] = []
        self.waiting: tuple[socket.socket, Peer] | None = None
        self.delayed = False
        self.told_s = -TELL_S
        self.delays = SlidingSum(_AVERAGED)
        self.ip_delays = SlidingSum(_AVERAGED)


class Doors:
    """All listeners that are open. `enter` takes a connection that is let in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: RequestMetrics,
        limits: ConnectionLimits,
        windows: Windows,
        enter: Enter,
    ) -> None:
        self.quotas = ConnectionQuotas(limits, windows)
        self.doors: dict[str, Door] = {}
        self._loop = loop
        self._metrics = metrics
        self._enter = enter
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}

    def open(self, sock: socket.socket, listener: Listener) -> None:
        """Begin to accept at a socket."""
        door = self.doors.setdefault(listener.name, Door(listener))
        door.socks.append(sock)
        if door.waiting is None:
            self._loop.add_reader(sock.fileno(), self._accept, sock, door)

    def close(self, sock: socket.socket, listener: Listener) -> None:
        """Close a listening socket. A connection that waits there is closed with the last one."""
        self._loop.remove_reader(sock.fileno())
        sock.close()
        door = self.doors.get(listener.name)
        if door is None or sock not in door.socks:
            return
        door.socks.remove(sock)
        if not door.socks:
            del self.doors[listener.name]
            if door.waiting is not None:
                door.waiting[0].close()

    def let_go(self) -> None:
        """Close the connections that are kept open to slow their clients down."""
        for sock, timer in self._held.items():
            timer.cancel()
            sock.close()
        self._held.clear()

    def leave(self, listener: str, ip: str) -> None:
        """Note that a connection that was let in has ended."""
        self.quotas.leave(listener, ip)
        self.knock()

    def knock(self) -> None:
        """Let those in who wait, if they can come now."""
        for door in list(self.doors.values()):
            self._knock(door)

    # ---- accept

    def _accept(self, sock: socket.socket, door: Door) -> None:
        for _ in range(ACCEPTS_PER_WAKEUP):
            try:
                peer, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                log.error("cannot accept on port %d: %s", door.listener.port, e.strerror or e)  # noqa: TRY400
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(ACCEPT_PAUSE_S, self._go_on, sock, door)
                return
            if not self._arrive(door, peer, (address[0], address[1])):
                return

    def _go_on(self, sock: socket.socket, door: Door) -> None:
        if sock.fileno() >= 0 and door.waiting is None:
            self._loop.add_reader(sock.fileno(), self._accept, sock, door)

    def _arrive(self, door: Door, sock: socket.socket, peer: Peer) -> bool:
        """Let a connection in, or have it wait. Returns False if the listener accepts no more for now."""
        now_ms = self._now_ms()
        delay_ms = self.quotas.arrive(door.listener.name, now_ms)
        if not delay_ms and self.quotas.has_room(door.listener.name):
            self._admit(door, sock, peer, now_ms)
            return True
        door.waiting, door.delayed = (sock, peer), delay_ms > 0
        for listening in door.socks:
            self._loop.remove_reader(listening.fileno())
        if delay_ms:
            door.delays.record(delay_ms, now_ms)
            self._loop.call_later(delay_ms / 1000, self._delay_over, door)
        elif self._loop.time() - door.told_s >= TELL_S:
            door.told_s = self._loop.time()
            log.warning(
                "listener %s has as many connections as it may have: further ones wait", door.listener.name
            )
        return False

    def _delay_over(self, door: Door) -> None:
        door.delayed = False
        self._knock(door)

    def _knock(self, door: Door) -> None:
        if door.waiting is None or door.delayed or not self.quotas.has_room(door.listener.name):
            return
        (sock, peer), door.waiting = door.waiting, None
        self._admit(door, sock, peer, self._now_ms())
        for listening in door.socks:
            self._loop.add_reader(listening.fileno(), self._accept, listening, door)

    def _admit(self, door: Door, sock: socket.socket, peer: Peer, now_ms: int) -> None:
        refusal = self.quotas.admit(door.listener.name, peer[0], now_ms)
        if refusal is None:
            self._enter(sock, peer, door.listener)
            return
        self._metrics.connections_refused += 1
        level = logging.DEBUG if refusal.after_ms else logging.WARNING
        log.log(level, "connection %s:%d refused: %s", *peer, refusal.why)
        if refusal.after_ms:
            door.ip_delays.record(refusal.after_ms, now_ms)
        self._turn_away(sock, refusal)

    def _turn_away(self, sock: socket.socket, refusal: Refusal) -> None:
        if not refusal.after_ms or len(self._held) >= HELD_MAX:
            sock.close()
            return

        def end() -> None:
            del self._held[sock]
            sock.close()

        self._held[sock] = self._loop.call_later(refusal.after_ms / 1000, end)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
