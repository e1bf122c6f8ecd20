"""The shell around the group coordinator: its timer on the event loop, and the way to `__consumer_offsets`.

The `EffectRunner` does requests and effects: a handler calls `ask` and returns its result, the message or the Future of
a message that has to wait. All calls come from the loop's thread. The shell decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import GroupConfig, TopicPartition
from klamm_broker.server.consumer_groups import ServedTopics, consumer_config, share_config
from klamm_broker.server.coordinator_timer import CoordinatorTimer
from klamm_broker.server.effects import EffectRunner
from klamm_broker.server.group_loading import load
from klamm_broker.server.streams_groups import InternalTopics, streams_config

if TYPE_CHECKING:
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.share_states import ShareStateShell
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topic_changes import TopicChanges
    from klamm_broker.server.topics import Partition


class GroupShell:
    """Connects the group coordinator to the broker. Handlers use `coordinator` only to read."""

    def __init__(
        self,
        storage: Storage,
        topic_changes: TopicChanges,
        cluster_config: ClusterConfig,
        share_states: Callable[[], ShareStateShell],
    ) -> None:
        config = storage.config
        self._storage = storage
        self._loop = storage.loop
        self._topic_changes = topic_changes
        self.topics = ServedTopics(storage.topics, config["broker.rack"])
        self.coordinator = GroupCoordinator(
            _group_config(config, storage.topics.partition_count(OFFSETS_TOPIC)),
            consumer=consumer_config(storage, cluster_config),
            streams=streams_config(lambda: storage.config, cluster_config),
            share=share_config(storage, cluster_config),
            topics=self.topics,
        )
        self.internal_topics = InternalTopics()
        self.timer = CoordinatorTimer(
            self._loop,
            next_deadline_ms=self.coordinator.next_deadline_ms,
            tick=lambda: self.run(self.coordinator.tick(self.now())),
        )
        self.runner = EffectRunner(
            storage,
            partition=self._partition,
            recover=self.coordinator.tick,
            settled=self.timer.set,
            change_share_states=lambda changes, done: share_states().change(changes, done),
        )
        self.ask, self.ask_all, self.run, self.now = (
            self.runner.ask, self.runner.ask_all, self.runner.run, self.runner.now
        )  # fmt: skip
        self._loading: asyncio.Task[None] | None = None

    # Life

    def open(self) -> None:
        """Start to load `__consumer_offsets`; until that is done, its groups answer that they load."""
        self._loading = load(self.coordinator, self.runner, self._storage.topics, self._loop)
        self.timer.set()

    def drain(self) -> None:
        """Answer all parked requests, so that a stop does not wait for rebalances."""
        self.run(self.coordinator.close(self.now()))

    def close(self) -> None:
        """Stop the timer and the loading."""
        self.timer.cancel()
        if self._loading is not None:
            self._loading.cancel()

    # Requests

    def on_partitions_deleted(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Remove the committed offsets of deleted partitions."""
        self.on_topics_changed({topic for topic, _ in partitions})
        gone = [TopicPartition(topic, index) for topic, index in partitions]
        self.run(self.coordinator.on_partitions_deleted(gone, self.now()))

    def on_topics_changed(self, names: Iterable[str], *, created: bool = False) -> None:
        """Tell the coordinator that these topics were created or deleted, or have more partitions."""
        self.topics.version += 1
        self.coordinator.on_topics_changed(names, created=created)

    def serves_streams(self) -> bool:
        """Returns whether Streams groups are enabled by property and feature."""
        return self.coordinator.serves_streams()

    # The topic

    def _partition(self, index: int) -> Partition | None:
        return self.offsets_partition(index) if self.ensure_topic() else None

    def offsets_partition(self, index: int) -> Partition | None:
        return self._storage.partition(OFFSETS_TOPIC, index)

    def ensure_topic(self) -> bool:
        """Create `__consumer_offsets` unless it exists. Returns whether it exists now."""
        config = self._storage.config
        return self._topic_changes.ensure_internal(
            OFFSETS_TOPIC,
            partitions=self.coordinator.config.offsets_topic_partitions,
            overrides={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )


def _group_config(config: BrokerConfig, existing_partitions: int | None) -> GroupConfig:
    """Returns the coordinator's settings. An existing topic determines the number of partitions."""
    return GroupConfig(
        offsets_topic_partitions=existing_partitions or config["offsets.topic.num.partitions"],
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )
