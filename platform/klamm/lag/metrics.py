"""The metrics of lag: Burrow's names, for dashboards that exist, and ours for what Burrow does not know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klamm.lag.model import GroupStatus, PartitionStatus
from klamm.web.process_metrics import process_families
from klamm_base.metrics_text import Family, Labels, Number, Sample

if TYPE_CHECKING:
    from klamm.lag.monitor import Monitor

STARTED_S: Final = time.time()
_STATES: Final = "1 OK, 2 WARN, 3 ERR, 4 STOP, 5 STALL, 6 REWIND"


def families(monitor: Monitor) -> Iterator[Family]:
    """Yields all families of now."""
    yield from process_families(STARTED_S)
    statuses = list(monitor.statuses())
    yield from _groups(statuses)
    yield from _partitions(statuses)
    yield from _logs(monitor)
    yield from _ourselves(monitor)


def _groups(statuses: list[GroupStatus]) -> Iterator[Family]:
    def gauge(name: str, about: str, values: list[tuple[GroupStatus, Number | None]]) -> Family:
        samples = [
            Sample({"cluster": s.cluster, "consumer_group": s.group, "kind": s.kind}, value)
            for s, value in values
            if value is not None
        ]
        return Family(name, "gauge", about, samples)

    yield gauge(
        "burrow_kafka_consumer_lag_total",
        "The sum of the lag of all partitions of a group.",
        [(s, s.total_lag) for s in statuses],
    )
    yield gauge("burrow_kafka_consumer_status", f"{_STATES}.", [(s, int(s.status)) for s in statuses])
    yield gauge(
        "klamm_lag_group_seconds",
        "How old the oldest record is that a group has still to read.",
        [(s, None if s.time_lag_ms is None else s.time_lag_ms / 1000) for s in statuses],
    )
    yield gauge(
        "klamm_lag_group_max",
        "The largest lag of a partition of a group.",
        [(s, s.max_lag.lag if s.max_lag is not None else 0) for s in statuses],
    )
    yield gauge(
        "klamm_lag_group_complete",
        "The part of a group's partitions whose windows are full.",
        [(s, s.complete) for s in statuses],
    )


def _partitions(statuses: list[GroupStatus]) -> Iterator[Family]:
    rows = [(_labels(s, p), p) for s in statuses for p in s.partitions if p.end is not None]

    def gauge(name: str, about: str, values: list[tuple[Labels, Number]]) -> Family:
        return Family(name, "gauge", about, [Sample(labels, value) for labels, value in values])

    yield gauge("burrow_kafka_consumer_partition_lag", "Lag of a partition.", [(n, p.lag) for n, p in rows])
    yield gauge(
        "burrow_kafka_consumer_current_offset",
        "The last offset that was committed.",
        [(n, p.end.offset) for n, p in rows if p.end is not None],
    )
    yield gauge("burrow_kafka_topic_partition_status", f"{_STATES}.", [(n, int(p.status)) for n, p in rows])
    yield gauge(
        "klamm_lag_seconds",
        "How old the next record is that a group has to read of a partition.",
        [(n, p.time_lag_ms / 1000) for n, p in rows if p.time_lag_ms is not None],
    )


def _labels(status: GroupStatus, partition: PartitionStatus) -> Labels:
    return {
        "cluster": status.cluster,
        "consumer_group": status.group,
        "topic": partition.partition.topic,
        "partition": partition.partition.partition,
    }


def _logs(monitor: Monitor) -> Iterator[Family]:
    samples = [
        Sample({"cluster": state.name, "topic": tp.topic, "partition": tp.partition}, history.end)
        for state in monitor.states.values()
        for tp, history in state.ends.items()
        if history.end is not None
    ]
    about = "The end of a partition's log, where a group reads it."
    yield Family("burrow_kafka_topic_partition_offset", "gauge", about, samples)


def _ourselves(monitor: Monitor) -> Iterator[Family]:
    watches = monitor.watches.items()
    yield Family(
        "klamm_lag_cluster_up",
        "gauge",
        "1 while all that is asked of a cluster is answered.",
        [Sample({"cluster": name}, int(watch.looked and not watch.trouble)) for name, watch in watches],
    )
    yield Family(
        "klamm_lag_errors_total",
        "counter",
        "Questions to a cluster that failed.",
        [
            Sample({"cluster": name, "what": what}, count)
            for name, watch in watches
            for what, count in watch.errors.items()
        ],
    )
    yield Family(
        "klamm_lag_incidents", "gauge", "Groups that are not OK.", [Sample({}, len(monitor.incidents.open))]
    )
    yield Family(
        "klamm_lag_notices_total",
        "counter",
        "Notices by notifier, event and result.",
        [
            Sample({"notifier": name, "event": event, "result": result}, count)
            for name, notifier in monitor.notifiers.items()
            for (event, result), count in notifier.counts.items()
        ],
    )
    failing = int(monitor.history_trouble is not None)
    yield Family(
        "klamm_lag_history_failing", "gauge", "1 while the history cannot be written.", [Sample({}, failing)]
    )
