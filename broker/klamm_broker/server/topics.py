"""Topics and partitions as they are served: the log of each partition, and the readers that wait for its records.

The log directory's registry (`log.topic_registry`) holds names, ids, counts and own properties, and has each change on
the disk before it is answered. This module holds what a request looks up. Event loop's thread only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.server.metrics import TopicMetrics

if TYPE_CHECKING:
    from klamm_broker.log.config import LogConfig
    from klamm_broker.log.errors import StorageError
    from klamm_broker.log.partition_log import PartitionLog
    from klamm_broker.log.topic_registry import Topic as Entry

log = logging.getLogger(__name__)

NAME_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class Watcher(Protocol):
    """A reader that stands in a partition's `waiters`: a parked fetch, or a partition of a fetch session."""

    def advanced(self, size: int) -> None:
        """Note that `size` readable bytes have come (0: only the log start has moved)."""

    def gone(self) -> None:
        """Note that the partition is deleted."""


class Partition:
    """One partition that this broker leads: its log, and the readers that watch it.

    `deleted` is for readers that kept it while they waited: its topic is gone, even if a new one has the same name.
    """

    __slots__ = ("deleted", "index", "log", "topic", "trouble", "waiters")

    def __init__(self, topic: Topic, index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.deleted = False
        self.trouble = False  # the last append failed because of the disk, which was logged once
        self.waiters: dict[Watcher, None] = {}

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def not_written(self, error: StorageError, what: str) -> None:
        """Tell the operator that the disk refused an append, unless that was told already."""
        if not self.trouble:
            self.trouble = True
            log.error("%s: %s failed: %s. Each further append tries again", self, what, error)

    def written_again(self) -> None:
        """End `trouble`: the disk takes records again."""
        self.trouble = False
        log.warning("%s: appends succeed again", self)


@dataclass(slots=True, kw_only=True, eq=False)
class Topic:
    """A topic. The registry owns `entry`, and only the registry changes it."""

    name: str
    id: bytes
    entry: Entry
    partitions: list[Partition] = field(default_factory=list)
    metrics: TopicMetrics = field(default_factory=TopicMetrics)
    internal: bool = field(init=False)

    def __post_init__(self) -> None:
        self.internal = self.name in INTERNAL_TOPICS

    @property
    def overrides(self) -> Mapping[str, str]:
        """Its own properties, as texts."""
        return self.entry.configs

    @property
    def config(self) -> LogConfig:
        """The configuration that its own properties and the broker's defaults make."""
        return self.partitions[0].log.config


class TopicTable:
    """The topics that are served, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._by_metric: dict[str, set[str]] = {}
        self.gone = TopicMetrics()  # the counts of deleted topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def partition_count(self, name: str) -> int | None:
        """Returns the number of a topic's partitions; None when there is no such topic."""
        topic = self.by_name.get(name)
        return None if topic is None else len(topic.partitions)

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        self._by_metric.setdefault(metric_name(topic.name), set()).add(topic.name)

    def remove(self, topic: Topic) -> None:
        del self.by_name[topic.name]
        del self.by_id[topic.id]
        self.gone.add(topic.metrics)
        namesakes = self._by_metric[metric_name(topic.name)]
        namesakes.discard(topic.name)
        if not namesakes:
            del self._by_metric[metric_name(topic.name)]

    def colliding(self, name: str) -> str | None:
        """Returns a topic with the same name in metrics, where `.` and `_` are the same. Kafka refuses such a name."""
        namesakes = self._by_metric.get(metric_name(name), ())
        return min((n for n in namesakes if n != name), default=None)


def metric_name(topic: str) -> str:
    """Returns a topic's name in Kafka's metrics."""
    return topic.replace(".", "_")


def why_invalid(name: str) -> str | None:
    """Returns what is wrong with a topic name, in a sentence; None for a good name."""
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return "the topic name cannot be '.' or '..'"
    if len(name) > NAME_MAX:
        return f"the topic name is {len(name)} characters long, at most {NAME_MAX} are possible"
    if not _LEGAL.fullmatch(name):
        return (
            f"the topic name {name!r} contains characters other than ASCII letters, digits, '.', '_' and '-'"
        )
    return None
