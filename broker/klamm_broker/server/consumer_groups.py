"""The group coordinator's view of the broker for consumer and share groups: topics, and properties of broker and group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm_broker.coordinator.consumer.model import ConsumerConfig, GroupSettings, MigrationPolicy
from klamm_broker.coordinator.consumer.topics import TopicInfo
from klamm_broker.coordinator.share.config import ShareConfig, ShareSettings
from klamm_broker.server.cluster_config import ResourceType
from klamm_broker.server.consumer_group_keys import TIMES, assignor_name

if TYPE_CHECKING:
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Topic, TopicTable


class ServedTopics:
    """The broker's topics as the coordinator sees them. `version` grows with every change since the start."""

    def __init__(self, topics: TopicTable, rack: str | None) -> None:
        self._topics = topics
        self._racks = () if rack is None else (rack,)
        self.version = 0

    def by_name(self, name: str) -> TopicInfo | None:
        return self._info(self._topics.by_name.get(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._info(self._topics.by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        return self._topics.by_name

    def _info(self, topic: Topic | None) -> TopicInfo | None:
        if topic is None:
            return None
        return TopicInfo(topic.name, topic.id, len(topic.partitions), self._racks)


def consumer_config(storage: Storage, cluster_config: ClusterConfig) -> ConsumerConfig:
    """The coordinator's settings. Properties that can change are read each time."""
    config = storage.config

    def settings(group_id: str) -> GroupSettings:
        own, broker = cluster_config.get(ResourceType.GROUP, group_id), storage.config
        return GroupSettings(
            *(int(own.get(f"consumer.{name}.ms", broker[f"group.consumer.{name}.ms"])) for name in TIMES)
        )

    return ConsumerConfig(
        enabled="consumer" in config["group.coordinator.rebalance.protocols"],
        assignors=[assignor_name(text) for text in config["group.consumer.assignors"]],
        max_size=config["group.consumer.max.size"],
        migration=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
        settings=settings,
    )


_SHARE_TIMES: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def share_config(storage: Storage, cluster_config: ClusterConfig) -> ShareConfig:
    """The coordinator's settings of share groups. Properties that can change are read each time."""
    config = storage.config

    def settings(group_id: str) -> ShareSettings:
        own, broker = cluster_config.get(ResourceType.GROUP, group_id), storage.config
        return ShareSettings(
            *(int(own.get(f"share.{name}", broker[f"group.share.{name}"])) for name in _SHARE_TIMES)
        )

    return ShareConfig(
        max_size=config["group.share.max.size"],
        retry_initialize_ms=config["group.share.initialize.retry.interval.ms"],
        settings=settings,
    )
