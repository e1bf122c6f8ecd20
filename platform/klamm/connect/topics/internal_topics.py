"""Creates the three topics in which a group of workers keeps its state, at the first start."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from klamm.connect.config import WorkerConfig
from klamm.connect.topics.compacted_topics import TopicSettings, ensure_compacted_topics


def ensure_topics(admin: AdminClient, config: WorkerConfig) -> None:
    """Create the topics that are missing. Blocks. Raises LogError, ConfigError."""
    topics = []
    for prefix in ("config", "offset", "status"):
        name, partitions, replication_factor = config.storage(prefix)
        topics.append(
            TopicSettings(
                name=name,
                key=f"{prefix}.storage.topic",
                partitions=partitions,
                replication_factor=replication_factor,
                config=config.storage_settings(prefix),
            )
        )
    ensure_compacted_topics(admin, topics)
