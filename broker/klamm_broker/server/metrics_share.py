"""Metrics of share groups, under Kafka's names: sessions, records in flight, acknowledgements, locks that ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from klamm_base.metrics_text import Family, Sample

if TYPE_CHECKING:
    from klamm_broker.server.share_groups import Served, ShareServing
    from klamm_broker.server.state import BrokerState

_ACK_TYPES: Final = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}
_CACHE: Final = "kafka_server_sharesessioncache"
_PARTITION: Final = "kafka_server_sharepartitionmetrics"


def families(broker: BrokerState) -> Iterator[Family]:
    """Yields numbers on share groups: zeros before the first use."""
    serving: ShareServing | None = broker.shares_served.made
    sessions = None if serving is None else serving.sessions
    yield _one(f"{_CACHE}_sharesessionscount", "gauge", "Share sessions.", len(sessions or ()))
    yield _one(
        f"{_CACHE}_sharepartitionscount",
        "gauge",
        "Partitions in share sessions.",
        0 if sessions is None else sessions.partitions,
    )
    yield _one(
        f"{_CACHE}_sharesessionevictions_total",
        "counter",
        "Share sessions that ended with their connection.",
        0 if sessions is None else sessions.evictions,
    )
    yield Family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        "counter",
        "Records that share consumers reported on, by what they said.",
        [
            Sample({"acktype": name}, 0 if serving is None else serving.acknowledged[type_])
            for type_, name in _ACK_TYPES.items()
        ],
    )
    served = [] if serving is None else serving.served()
    yield _one(
        "klamm_share_partitions_served", "gauge", "Partitions that share groups read here.", len(served)
    )
    yield from _partitions(served)


def _partitions(served: list[Served]) -> Iterator[Family]:
    loaded = [(_labels(s), s, s.core) for s in served if s.core is not None]
    yield Family(
        f"{_PARTITION}_inflightmessagecount",
        "gauge",
        "Records between the first that is not done and the last that was delivered.",
        [Sample(labels, core.in_flight) for labels, _, core in loaded],
    )
    yield Family(
        f"{_PARTITION}_inflightbatchcount",
        "gauge",
        "Batches of records in flight.",
        [Sample(labels, len(core.batches)) for labels, _, core in loaded],
    )
    yield Family(
        f"{_PARTITION}_acquisitionlocktimeout_total",
        "counter",
        "Records whose lock ended before they were reported on.",
        [Sample(labels, s.timed_out) for labels, s, _ in loaded],
    )


def _labels(served: Served) -> dict[str, str | int]:
    partition = served.partition
    return {"group": served.key.group_id, "topic": partition.topic.name, "partition": served.key.partition}


def _one(name: str, kind: Literal["counter", "gauge"], what: str, value: int) -> Family:
    return Family(name, kind, what, [Sample({}, value)])
