"""The latest values that clients pushed, with limits: the source of `klamm_client_*` at /metrics. Pure.

A name or label comes from a client, which may be anybody: a client has at most `SERIES_PER_CLIENT` series, all together
`SERIES_MAX`; what is above is counted. Whoever makes up many clients (an owner: the user, or the address of one who has not logged
in) does not take the room of all: then the oldest client of the owner with most series gives way to one with less than half. Series go when their client has not pushed for a while (`expire`), so that a
client that has ended is still seen by the next scrape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_base.metrics_text import Family, Sample
from klamm_broker.coordinator.timers import Timers
from klamm_broker.telemetry.otlp import Point

SERIES_PER_CLIENT: Final = 1_000
"""A Java producer with all metrics pushes about 100, and 10 for each node and topic."""
SERIES_MAX: Final = 20_000
"""A scrape of as many takes about 0.1 s, in pieces."""
_TEXT_MAX: Final = 200
"""Characters of a name or label value."""
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_]")
_PREFIX: Final = "org.apache.kafka."
_OWN: Final = frozenset({"client_instance_id", "client_id"})

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Series:
    """One metric of one client."""

    value: int | float
    is_monotonic: bool


@dataclass(slots=True)
class ClientSeries:
    """The series of one client, by family name and labels."""

    client_id: str
    owner: str
    values: dict[tuple[str, Labels], Series] = field(default_factory=dict)


@dataclass(slots=True)
class _Owner:
    """The clients of an owner, the first one first, and the number of their series."""

    clients: dict[str, None] = field(default_factory=dict)
    count: int = 0


class PushedSeries:
    """All series by client instance. `dropped` counts points that found no room, `left_out` those of other kinds."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientSeries] = {}
        self._owners: dict[str, _Owner] = {}
        self._timers = Timers()
        self._count = 0
        self.dropped = 0
        self.left_out = 0

    def __len__(self) -> int:
        return self._count

    def take(
        self,
        instance_id: str,
        client_id: str,
        points: Sequence[Point],
        *,
        owner: str = "",
        now_ms: int,
        keep_ms: int,
    ) -> None:
        """Take in a push; the client's series are kept for `keep_ms` from now on. `owner` is who makes up instance ids.

        A client that gets no series is not kept.
        """
        self.expire(now_ms)
        self._make_room(owner, len(points))
        client = self._clients.get(instance_id) or ClientSeries(client_id, owner)
        client.client_id = client_id
        before = len(client.values)
        for point in points:
            key = _family(point), _labels(point)
            known = client.values.get(key)
            if known is not None:
                known.value = known.value + point.value if point.is_delta else point.value
            elif len(client.values) >= SERIES_PER_CLIENT or self._count >= SERIES_MAX:
                self.dropped += 1
            else:
                client.values[key] = Series(point.value, point.is_monotonic)
                self._count += 1
        if client.values:
            self._clients[instance_id] = client
            owned = self._owners.setdefault(client.owner, _Owner())
            owned.clients[instance_id] = None
            owned.count += len(client.values) - before
            self._timers.set((instance_id,), now_ms + keep_ms)

    def _make_room(self, owner: str, wanted: int) -> None:
        """Makes room for so many series of an owner at the cost of the one who has most, if that has twice as many."""
        short = self._count + wanted - SERIES_MAX
        if short <= 0 or not self._owners:
            return
        most = max(self._owners.values(), key=lambda each: each.count)
        own = self._owners[owner].count if owner in self._owners else 0
        while short > 0 and most.count > 2 * own + SERIES_PER_CLIENT:
            first = next(iter(most.clients))
            gone = len(self._clients[first].values)
            self._forget(first)
            self._timers.cancel((first,))
            self.dropped += gone
            short -= gone

    def _forget(self, instance_id: str) -> None:
        client = self._clients.pop(instance_id)
        self._count -= len(client.values)
        owned = self._owners[client.owner]
        del owned.clients[instance_id]
        owned.count -= len(client.values)
        if not owned.clients:
            del self._owners[client.owner]

    def expire(self, now_ms: int) -> None:
        """Forget the series of clients that have not pushed for too long."""
        while (key := self._timers.pop_due(now_ms)) is not None:
            self._forget(key[0])

    def families(self) -> Iterator[Family]:
        """Yields a family for each name: a counter if all of its series only grow."""
        by_name: dict[str, list[tuple[str, str, Labels, Series]]] = {}
        for instance_id, client in self._clients.items():
            for (name, labels), series in client.values.items():
                by_name.setdefault(name, []).append((instance_id, client.client_id, labels, series))
        for name, rows in sorted(by_name.items()):
            monotonic = all(series.is_monotonic for *_, series in rows)
            yield Family(
                f"klamm_client_{name}",
                "counter" if monotonic else "gauge",
                "Pushed by clients (KIP-714).",
                [
                    Sample(
                        {"client_instance_id": instance_id, "client_id": client_id, **dict(labels)},
                        series.value,
                    )
                    for instance_id, client_id, labels, series in rows
                ],
            )


def _family(point: Point) -> str:
    """Returns `producer_request_latency_avg` for `org.apache.kafka.producer.request.latency.avg`."""
    name = _FOREIGN.sub("_", point.name[: _TEXT_MAX + len(_PREFIX)].removeprefix(_PREFIX))
    return f"{name}_total" if point.is_monotonic and not name.endswith("_total") else name


def _labels(point: Point) -> Labels:
    """Returns the labels, sorted; a label that the broker itself sets is left out."""
    named = {_label(key): value[:_TEXT_MAX] for key, value in point.labels.items()}
    return tuple(sorted((key, value) for key, value in named.items() if key not in _OWN))


def _label(key: str) -> str:
    """Returns a name that Prometheus takes: no digit in front, and not its own `__`."""
    name = _FOREIGN.sub("_", key[:_TEXT_MAX])
    return f"x_{name}" if not name or name[0].isdigit() or name.startswith("__") else name
