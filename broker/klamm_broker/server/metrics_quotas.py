"""The metrics of quotas: what those who have one use, how long they wait, and who is held up now.

The names are Kafka's (`kafka.server:type=Produce,user=,client-id=` and so on). Those who share a quota are one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klamm_base.metrics_text import Family, Sample
from klamm_broker.quota.limits import QuotaKey

if TYPE_CHECKING:
    from klamm_broker.quota.meters import Quota
    from klamm_broker.server.listener import Server
    from klamm_broker.server.state import BrokerState

_KINDS: Final[dict[QuotaKey, tuple[str, str, str]]] = {
    QuotaKey.PRODUCE: ("produce", "byte_rate", "Bytes per second of produce requests, of those with a quota."),
    QuotaKey.FETCH: ("fetch", "byte_rate", "Bytes per second of answers to fetches, of those with a quota."),
    QuotaKey.REQUEST: ("request", "request_time", "Percentage of the event loop's time, of those with a quota."),
    QuotaKey.MUTATION: (
        "controllermutation", "mutation_rate",
        "Partitions created and deleted per second, of those with a quota.",
    ),
}  # fmt: skip
"""The type in the names, the measure and its meaning."""


def families(broker: BrokerState, server: Server) -> Iterator[Family]:
    now_ms = int(broker.loop.time() * 1000)
    for quota in broker.quotas.kinds:
        yield from _kind(quota, now_ms)
    for name, about, delays in (
        ("", "the broker's or the listener's connection rate", "delays"),
        ("ip_", "the connection rate of an address", "ip_delays"),
    ):
        yield Family(
            f"kafka_server_socket_server_metrics_{name}connection_accept_throttle_time",
            "gauge",
            f"Average delay in milliseconds of those who were held up by {about}.",
            [
                Sample({"listener": listener}, getattr(door, delays).average(now_ms) or 0)
                for listener, door in server.doors.doors.items()
            ],
        )


def _kind(quota: Quota, now_ms: int) -> Iterator[Family]:
    kind, measure, about = _KINDS[quota.key]
    prefix = f"kafka_server_{kind}"
    used, waits, tokens = [], [], []
    for (user, client_id), meter, value in quota.figures():
        labels = {"user": user, "client_id": client_id}
        used.append(Sample(labels, meter.rate.value(now_ms)))
        waits.append(Sample(labels, meter.throttled.average(now_ms) or 0))
        if meter.bucket is not None and value is not None:
            tokens.append(Sample(labels, meter.bucket.tokens(value, now_ms)))
    yield Family(f"{prefix}_{measure}", "gauge", about, used)
    yield Family(f"{prefix}_throttle_time", "gauge", "Average delay in milliseconds of the throttled.", waits)
    if quota.key is QuotaKey.MUTATION:
        yield Family(
            f"{prefix}_tokens", "gauge", "Partitions that may be created or deleted at once.", tokens
        )
    yield Family(f"{prefix}_queue_size", "gauge", "Delays that are not over.", [Sample({}, quota.queued)])
