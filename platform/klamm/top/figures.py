"""Rates, lags and states from two looks at a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.admin.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A group at one moment. `offsets`: committed ones."""

    state: str
    members: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A cluster at one moment, `at` seconds of a clock that only goes forward.

    `ends`: log end offsets. `connectors`: answers of `GET /connectors?expand=status`; None without a worker. `said`: parts that could
    not be asked, and why.
    """

    at: float
    brokers: int
    ends: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupLook]
    connectors: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic. `rate`: records a second; None before the second look."""

    topic: str
    partitions: int
    records: int
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group. `rate`: records a second that it commits. `left_s`: seconds until it has caught up at the rates of now; None where
    it never will, or that is not known.
    """

    group: str
    state: str
    members: int
    lag: int
    rate: float | None
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorRow:
    """A connector with the states of its tasks. `said`: the first line of the first failure."""

    connector: str
    kind: str
    state: str
    running: int
    failed: int
    tasks: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that the page shows."""

    brokers: int
    partitions: int
    rate: float | None
    bytes_in: float | None
    bytes_out: float | None
    topics: list[TopicRow]
    groups: list[GroupRow]
    connectors: list[ConnectorRow] | None
    said: tuple[str, ...]


def figures(now: Look, before: Look | None) -> Figures:
    """Returns what happened between two looks. Busy topics and late groups come first, and connectors that failed."""
    topics = sorted(_topics(now, before), key=lambda t: (-(t.rate or 0), t.topic))
    groups = sorted(_groups(now, before), key=lambda g: (-g.lag, g.group))
    connectors = None
    if now.connectors is not None:
        rows = [_connector(name, answer["status"]) for name, answer in now.connectors.items()]
        connectors = sorted(rows, key=lambda c: (-c.failed, c.state != "FAILED", c.connector))
    rates = [t.rate for t in topics if t.rate is not None]
    return Figures(
        brokers=now.brokers,
        partitions=len(now.ends),
        rate=sum(rates) if before is not None else None,
        bytes_in=_metric(now, before, "bytesin"),
        bytes_out=_metric(now, before, "bytesout"),
        topics=topics,
        groups=groups,
        connectors=connectors,
        said=now.said,
    )


def _per_second(now: Look, before: Look | None, grown: float) -> float | None:
    if before is None or now.at <= before.at:
        return None
    return max(0.0, grown) / (now.at - before.at)


def _metric(now: Look, before: Look | None, name: str) -> float | None:
    if before is None or name not in now.metrics or name not in before.metrics:
        return None
    return _per_second(now, before, now.metrics[name] - before.metrics[name])


def _topics(now: Look, before: Look | None) -> Iterator[TopicRow]:
    names: dict[str, list[TopicPartition]] = {}
    for tp in now.ends:
        names.setdefault(tp.topic, []).append(tp)
    for topic, partitions in names.items():
        grown = sum(now.ends[tp] - before.ends.get(tp, 0) for tp in partitions) if before else 0
        yield TopicRow(
            topic=topic,
            partitions=len(partitions),
            records=sum(now.ends[tp] for tp in partitions),
            rate=_per_second(now, before, grown),
        )


def _groups(now: Look, before: Look | None) -> Iterator[GroupRow]:
    for name, group in now.groups.items():
        lag = sum(max(0, now.ends[tp] - offset) for tp, offset in group.offsets.items() if tp in now.ends)
        earlier = before.groups.get(name) if before else None
        moved = arrived = 0
        if before is not None and earlier is not None:
            both = [tp for tp in group.offsets if tp in earlier.offsets]
            moved = sum(group.offsets[tp] - earlier.offsets[tp] for tp in both)
            arrived = sum(
                now.ends[tp] - before.ends[tp] for tp in both if tp in now.ends and tp in before.ends
            )
        rate = _per_second(now, before, moved) if earlier is not None else None
        gain = _per_second(now, before, moved - arrived) if earlier is not None else None
        yield GroupRow(
            group=name,
            state=group.state,
            members=group.members,
            lag=lag,
            rate=rate,
            left_s=0.0 if not lag else lag / gain if gain else None,
        )


def _connector(name: str, status: Mapping[str, Any]) -> ConnectorRow:
    states = [task["state"] for task in status["tasks"]]
    traces = [part.get("trace") or "" for part in (status["connector"], *status["tasks"])]
    return ConnectorRow(
        connector=name,
        kind=status.get("type", ""),
        state=status["connector"]["state"],
        running=states.count("RUNNING"),
        failed=states.count("FAILED"),
        tasks=len(states),
        said=next((trace.strip().splitlines()[0] for trace in traces if trace.strip()), ""),
    )
