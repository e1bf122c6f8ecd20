"""Makes the compacted topics in which workers keep their state, and checks those that are there."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from klamm.connect.topics.kafka_log import ADMIN_TIMEOUT_S, RETRY_S, LogError
from klamm_base.errors import ConfigError

log = logging.getLogger(__name__)

_FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - spelled so by librdkafka
        KafkaError.UNSUPPORTED_VERSION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings with which a missing topic is created. `key` is the worker property that names it."""

    name: str
    key: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


def ensure_compacted_topics(admin: AdminClient, topics: Sequence[TopicSettings]) -> None:
    """Create those topics that are missing; refuse a topic that deletes records by age or size.

    A worker that may not create topics, or not see their settings, uses an existing topic as it is, as
    Kafka's workers do. Blocks; call it in a thread. Raises LogError (broker) or ConfigError (the topic is
    not compacted, its settings cannot be used).
    """
    new = {
        topic.name: NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config={**topic.config, "cleanup.policy": "compact"},
        )
        for topic in topics
    }
    made = admin.create_topics(list(new.values()), request_timeout=ADMIN_TIMEOUT_S)
    for topic in topics:
        _ensure_made(admin, topic, made[topic.name])


def _ensure_made(admin: AdminClient, topic: TopicSettings, made: Future[None]) -> None:
    try:
        made.result(ADMIN_TIMEOUT_S)
    except KafkaException as e:
        _check_there(admin, topic, e.args[0])
    else:
        log.info("created topic %s with %d partitions", topic.name, topic.partitions)
        return
    policy = _cleanup_policy(admin, topic.name)
    if policy not in {None, "compact"}:
        raise ConfigError(
            f"Topic '{topic.name}' supplied via the '{topic.key}' property is required to have "
            f"'cleanup.policy=compact' to guarantee consistency and durability of source connector offsets, "
            f"connector configurations and statuses, but found the topic currently has "
            f"'cleanup.policy={policy}'. Change it with: klamm topic alter {topic.name} "
            f"--config cleanup.policy=compact",
            key=topic.key,
        )


def _check_there(admin: AdminClient, topic: TopicSettings, error: KafkaError) -> None:
    """Check that the topic exists all the same, after it could not be created. Raises LogError, ConfigError."""
    code, why = error.code(), f"cannot create topic {topic.name} ({topic.key}): {error.str()}"
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return
    if code == KafkaError.INVALID_CONFIG:
        prefix = topic.key.removesuffix("topic")
        given = ", ".join(f"{prefix}{name}={value}" for name, value in topic.config.items())
        raise ConfigError(f"{why}. The settings for the new topic are {given}", key=topic.key)
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        factor = f"{topic.key.removesuffix('topic')}replication.factor"
        raise LogError(f"{why} If the cluster has one broker, set {factor}=1")
    if code not in _FORBIDDEN:
        raise LogError(why)
    # This lists all topics: asking for one by name could create it, with settings that nobody wants.
    try:
        there = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    except KafkaException as e:
        raise LogError(f"{why}, and the worker cannot see whether it exists: {e.args[0].str()}") from None
    if topic.name not in there:
        raise LogError(
            f"{why}. The worker's principal needs CREATE and DESCRIBE on it, or somebody else must create it, with "
            "cleanup.policy=compact"
        )
    log.info("topic %s exists; this worker's principal may not create topics", topic.name)


def _cleanup_policy(admin: AdminClient, topic: str) -> str | None:
    """Returns the cleanup policy; None when this worker may not see it. A new topic may be unknown to some brokers."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            found = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
        except KafkaException as e:
            error = e.args[0]
            if error.code() in _FORBIDDEN:
                log.warning(
                    "cannot check whether topic %s has cleanup.policy=compact, as it must (%s)",
                    topic,
                    error.str(),
                )
                return None
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise LogError(f"cannot read the configuration of topic {topic}: {error.str()}") from None
            time.sleep(RETRY_S)
        else:
            policy: str | None = found["cleanup.policy"].value
            return policy
