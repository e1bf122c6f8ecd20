"""The limits of connections: how many there may be, and how fast they may come. Pure; time is passed in.

Whoever accepts asks in this order: `arrive`, then (once the delay is over and `has_room`) `admit`, and `leave` when the
connection ends. What exceeds the broker's or the listener's limits waits to be accepted; what exceeds those of its
address is turned away. The listener of other brokers is let in even when the broker is full, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm_broker.quota.rate import INT_MAX, Rate, Windows

UNLIMITED: Final = INT_MAX
IDLE_MS: Final = 3_600_000


class ListenerLimits(NamedTuple):
    """The limits of one listener."""

    connections: int = UNLIMITED
    per_second: int = UNLIMITED


class ConnectionLimits(NamedTuple):
    """Limits of connections at a time and per second: of all together, by listener, and by address."""

    connections: int = UNLIMITED
    per_second: int = UNLIMITED
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = {}
    listeners: Mapping[str, ListenerLimits] = {}
    protected: str | None = None
    """The listener of other brokers, if there are others beside it."""


class Refusal(NamedTuple):
    """A connection that is turned away, after a delay if it came too fast."""

    why: str
    after_ms: int = 0


class ConnectionQuotas:
    """The connections of one broker. `ip_rates` are quotas of addresses, and `ip_default` that of all others."""

    def __init__(self, limits: ConnectionLimits, windows: Windows) -> None:
        self.limits = limits
        self.ip_rates: Mapping[str, float] = {}
        self.ip_default: float | None = None
        self.total = 0
        self._windows = windows
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._rate = Rate(windows)
        self._listener_rates: dict[str, Rate] = {}
        self._ip_rates: dict[str, tuple[Rate, list[int]]] = {}

    def arrive(self, listener: str, now_ms: int) -> int:
        """Count a new connection. Returns the delay in milliseconds before it may be admitted."""
        return max((self._delay(*held, now_ms) for held in self._rates(listener)), default=0)

    def has_room(self, listener: str) -> bool:
        """Decides whether one more connection is possible now."""
        if self._by_listener[listener] >= self.limits.listeners.get(listener, ListenerLimits()).connections:
            return False
        return listener == self.limits.protected or self.total < self.limits.connections

    @property
    def excess(self) -> int:
        """The number of connections that are too many. One of another listener than the protected one must go for each."""
        return max(0, self.total - self.limits.connections)

    def admit(self, listener: str, ip: str, now_ms: int) -> Refusal | None:
        """Count a connection in, unless its address has too many or they come too fast."""
        refusal = self._too_fast(listener, ip, now_ms)
        if refusal is not None:
            return refusal
        most = self.limits.per_ip_overrides.get(ip, self.limits.per_ip)
        if self._by_ip[ip] >= most:
            if not self._by_ip[ip]:
                del self._by_ip[ip]
            return Refusal(f"address already has the configured maximum of {most} connections")
        self._by_ip[ip] += 1
        self._by_listener[listener] += 1
        self.total += 1
        return None

    def leave(self, listener: str, ip: str) -> None:
        """Count a connection out."""
        self.total -= 1
        self._by_listener[listener] -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def forget_idle(self, now_ms: int) -> None:
        for ip in [ip for ip, (_, used) in self._ip_rates.items() if now_ms - used[0] >= IDLE_MS]:
            del self._ip_rates[ip]

    def _too_fast(self, listener: str, ip: str, now_ms: int) -> Refusal | None:
        bound = self.ip_rates.get(ip, self.ip_default)
        if bound is None:
            return None
        rate, used = self._ip_rates.setdefault(ip, (Rate(self._windows), [now_ms]))
        used[0] = now_ms
        delay = self._delay(rate, bound, now_ms)
        if delay == 0:
            return None
        rate.record(-1, now_ms)  # it is not let in, and the others must not wait for it
        for passed, _ in self._rates(listener):
            passed.record(-1, now_ms)
        return Refusal(f"connection_creation_rate={bound:g} of its address", delay)

    def _delay(self, rate: Rate, bound: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        return min(rate.throttle_ms(bound, now_ms), self._windows.max_throttle_ms)

    def _rates(self, listener: str) -> list[tuple[Rate, int]]:
        """Returns the rates that bound a listener, with their bounds."""
        found = []
        if listener != self.limits.protected and self.limits.per_second != UNLIMITED:
            found.append((self._rate, self.limits.per_second))
        per_second = self.limits.listeners.get(listener, ListenerLimits()).per_second
        if per_second != UNLIMITED:
            found.append((self._listener_rates.setdefault(listener, Rate(self._windows)), per_second))
        return found
