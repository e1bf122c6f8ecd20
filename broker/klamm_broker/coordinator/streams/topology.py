"""The topology of a Streams application against the topics that exist: partitions of its internal topics, tasks, what is missing.

Pure: a stored topology and partition counts in, `Configured` out. The rules and sentences are Kafka's. A subtopology has as
many tasks as its widest source topic has partitions. Repartition topics get the count of the sources above them, or
one that the application set, or that of the topics they are joined with; changelogs have one partition for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.streams.model import (
    NewTopic,
    Status,
    StatusDetail,
    SubtopologyDescription,
    TopicDescription,
    Topology,
)
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.streams_group_records import Subtopology, TopicInfo

Count = Callable[[str], int | None]
"""Returns the partitions of a topic; None when it is not known."""
_SHOWN_MAX: Final = 3
TASKS_MAX: Final = 10_000
"""Tasks of a group: an assignment of as many takes some 40 ms, in which nobody else is served."""


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredSubtopology:
    """A subtopology with known numbers of partitions."""

    tasks: int
    sources: Sequence[str]
    repartition_sinks: Sequence[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A topology with known numbers of partitions, or the reason why they are not known."""

    topology_epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    """By id, sorted; None while sources are missing or do not fit."""
    missing: Sequence[NewTopic] = field(default_factory=tuple)
    """Internal topics that do not exist yet."""
    problem: StatusDetail | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    @property
    def stateful(self) -> list[tuple[str, int, bool]]:
        """Returns each subtopology with the number of its tasks, and whether it has state."""
        found = self.subtopologies or {}
        return [(name, s.tasks, bool(s.changelogs)) for name, s in found.items()]


class _Unfit(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.detail = StatusDetail(status, detail)


def required_topics(topology: Topology) -> set[str]:
    """Returns the names of all topics that the application reads or keeps its state in."""
    return {
        name
        for s in topology.subtopologies
        for name in (
            *s.source_topics,
            *(t.name for t in s.repartition_source_topics),
            *(t.name for t in s.state_changelog_topics),
        )
    }


def source_topics(topology: Topology) -> dict[str, str]:
    """Returns the subtopology that reads a topic, by the topic's name."""
    return {
        name: s.subtopology_id
        for s in topology.subtopologies
        for name in (*s.source_topics, *(t.name for t in s.repartition_source_topics))
    }


def configure(topology: Topology, existing: Count) -> Configured:
    """Returns the topology with the numbers that follow from the existing topics.

    Raises GroupError (STREAMS_INVALID_TOPOLOGY) for one that no topics can fit.
    """
    subtopologies = _in_order(topology)
    try:
        missing_sources = sorted({t for s in subtopologies for t in s.source_topics if existing(t) is None})
        if missing_sources:
            text = f"Source topics {_summary(missing_sources)} are missing."
            raise _Unfit(Status.MISSING_SOURCE_TOPICS, text)
        counts = _decided(subtopologies, existing)
        configured = {
            s.subtopology_id: _configured(s, _known(existing, counts), counts)
            for s in sorted(subtopologies, key=lambda s: s.subtopology_id)
        }
        _check_tasks({name: s.tasks for name, s in configured.items()})
        missing = _missing(configured, existing)
    except _Unfit as e:
        return Configured(topology_epoch=topology.epoch, problem=e.detail)
    problem = None
    if missing:
        names = _summary([t.name for t in missing])
        problem = StatusDetail(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return Configured(
        topology_epoch=topology.epoch, subtopologies=configured, missing=missing, problem=problem
    )


def _in_order(topology: Topology) -> list[Subtopology]:
    """Returns the subtopologies in the order in which Kafka walks over them."""
    by_id = {s.subtopology_id: s for s in topology.subtopologies}
    return [by_id[name] for name in java_order.strings(by_id)]


def _known(existing: Count, decided: Mapping[str, int]) -> Count:
    def count(topic: str) -> int | None:
        found = existing(topic)
        return decided.get(topic) if found is None else found

    return count


def _summary(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:_SHOWN_MAX])
    more = len(topics) - _SHOWN_MAX
    return f"{shown} and {more} additional topics" if more > 0 else shown


# Partition counts


def _decided(subtopologies: Sequence[Subtopology], existing: Count) -> dict[str, int]:
    """Returns the number of partitions that each internal topic should have."""
    decided: dict[str, int] = {}
    count = _known(existing, decided)
    decided |= _repartition_counts(subtopologies, count)
    fixed = {t.name for s in subtopologies for t in s.repartition_source_topics if t.partitions}
    flexible = {t.name for s in subtopologies for t in s.repartition_source_topics if not t.partitions}
    for subtopology in subtopologies:
        for group in _copartition_groups(subtopology):
            decided |= _joined_counts(group, fixed, flexible, count)
    for subtopology in subtopologies:
        tasks = _tasks(subtopology, count)
        decided |= {t.name: tasks for t in subtopology.state_changelog_topics}
    return decided


def _repartition_counts(subtopologies: Sequence[Subtopology], count: Count) -> dict[str, int]:
    """Returns counts of repartition topics: as set by the application, or the most of the sources of who writes there."""
    found = {t.name: t.partitions for s in subtopologies for t in s.repartition_source_topics if t.partitions}
    open_ = True
    while open_:
        open_ = progress = False
        for subtopology in subtopologies:
            for sink in subtopology.repartition_sink_topics:
                if sink in found:
                    continue
                most = _most(subtopology, found, count)
                if most is None:
                    open_ = True
                else:
                    found[sink] = most
                    progress = True
        if open_ and not progress:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
    if any(t.name not in found for s in subtopologies for t in s.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
            "is never used as a sink topic."
        )
    return found


def _most(subtopology: Subtopology, found: Mapping[str, int], count: Count) -> int | None:
    candidates = [found.get(t.name) for t in subtopology.repartition_source_topics]
    candidates += [count(t) for t in subtopology.source_topics]
    return max((c for c in candidates if c is not None), default=None)


def _copartition_groups(subtopology: Subtopology) -> list[set[str]]:
    sources, repartitions = subtopology.source_topics, subtopology.repartition_source_topics
    try:
        return [
            {
                *(sources[i] for i in g.source_topics),
                *(repartitions[i].name for i in g.repartition_source_topics),
            }
            for g in subtopology.copartition_groups
        ]
    except IndexError:
        raise _invalid(
            f"A copartition group of subtopology {subtopology.subtopology_id} names a source topic that is not there."
        ) from None


def _joined_counts(
    group: AbstractSet[str], fixed: AbstractSet[str], flexible: AbstractSet[str], count: Count
) -> dict[str, int]:
    """Returns the counts of the repartition topics that are joined with other topics: all of one join have the same."""
    if not group:
        return {}
    counts = {topic: count(topic) or 0 for topic in java_order.strings(group)}
    repartitions = {t: n for t, n in counts.items() if t in fixed or t in flexible}
    others = {t: n for t, n in counts.items() if t not in repartitions}
    if others:
        wanted = _same(others, others.values())
    elif fixed:
        wanted = _same(repartitions, [count(t) or 0 for t in java_order.strings(fixed)])
    else:
        wanted = max(repartitions.values())
    for topic, partitions in repartitions.items():
        if topic in fixed and partitions != wanted:
            raise _Unfit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{partitions}] of repartition topic [{topic}] doesn't match number of "
                f"partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(repartitions, wanted)


def _same(named: Mapping[str, int], counts: Iterable[int]) -> int:
    """Returns the count that all have. Raises _Unfit with the topics that are `named`."""
    distinct = list(dict.fromkeys(counts))
    if len(distinct) > 1:
        text = ", ".join(f"{topic}={n}" for topic, n in sorted(named.items()))
        raise _Unfit(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{text}}}]",
        )
    return distinct[0]


def _tasks(subtopology: Subtopology, count: Count) -> int:
    topics = [*subtopology.source_topics, *(t.name for t in subtopology.repartition_source_topics)]
    if not topics:
        raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return max(count(topic) or 0 for topic in topics)


def _check_tasks(tasks: Mapping[str, int]) -> None:
    total = sum(tasks.values())
    if total > TASKS_MAX:
        raise _invalid(
            f"The topology has {total} tasks in {len(tasks)} subtopologies: a group may have at most {TASKS_MAX}."
        )


def _invalid(text: str) -> GroupError:
    return GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


# The configured topology


def _configured(subtopology: Subtopology, count: Count, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    def internal(topics: Sequence[TopicInfo]) -> dict[str, InternalTopic]:
        return {
            t.name: InternalTopic(
                t.name,
                t.partitions or decided[t.name],
                t.replication_factor,
                [(c.key, c.value) for c in t.topic_configs],
            )
            for t in topics
        }

    return ConfiguredSubtopology(
        tasks=_tasks(subtopology, count),
        sources=subtopology.source_topics,
        repartition_sinks=subtopology.repartition_sink_topics,
        repartition_sources=internal(subtopology.repartition_source_topics),
        changelogs=internal(subtopology.state_changelog_topics),
    )


def _missing(configured: Mapping[str, ConfiguredSubtopology], existing: Count) -> list[NewTopic]:
    """Returns the internal topics that do not exist. Raises _Unfit when one has another number of partitions."""
    wanted = {
        t.name: t
        for s in configured.values()
        for t in (*s.repartition_sources.values(), *s.changelogs.values())
    }
    missing = []
    for name in java_order.strings(wanted):
        topic, found = wanted[name], existing(name)
        if found is None:
            factor = topic.replication_factor or -1
            missing.append(NewTopic(name, topic.partitions, factor, dict(topic.configs)))
        elif found != topic.partitions:
            raise _Unfit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {found}",
            )
    return missing


def describe(topology: Topology, configured: Configured | None) -> list[SubtopologyDescription]:
    """Returns what administrators see: the configured topology if it is ready, the stored one otherwise."""
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        return [
            SubtopologyDescription(
                name,
                sorted(set(s.sources)),
                sorted(set(s.repartition_sinks)),
                [TopicDescription(*t) for _, t in sorted(s.repartition_sources.items())],
                [TopicDescription(*t) for _, t in sorted(s.changelogs.items())],
            )
            for name, s in configured.subtopologies.items()
        ]
    return [
        SubtopologyDescription(
            s.subtopology_id,
            sorted(s.source_topics),
            sorted(s.repartition_sink_topics),
            _described(s.repartition_source_topics),
            _described(s.state_changelog_topics),
        )
        for s in sorted(topology.subtopologies, key=lambda s: s.subtopology_id)
    ]


def _described(topics: Sequence[TopicInfo]) -> list[TopicDescription]:
    return [
        TopicDescription(
            t.name, t.partitions, t.replication_factor, [(c.key, c.value) for c in t.topic_configs]
        )
        for t in sorted(topics, key=lambda t: t.name)
    ]
