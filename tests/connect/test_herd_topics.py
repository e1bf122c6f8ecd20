"""The worker's own topics: made with the settings of its file, and used as they are by who may not make topics."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from klamm.connect.config import WorkerConfig
from klamm.connect.topics.compacted_topics import TopicSettings, ensure_compacted_topics
from klamm.connect.topics.kafka_log import LogError
from klamm_base.errors import ConfigError

Refusals = dict[Any, "Future[Any]"]


class Restricted(AdminClient):
    """A client whose principal may look at topics, and neither make them nor see their settings."""

    def create_topics(self, new_topics: Sequence[NewTopic], **_: Any) -> Refusals:
        return {each.topic: _refused() for each in new_topics}

    def describe_configs(self, resources: Sequence[ConfigResource], **_: Any) -> Refusals:
        return {each: _refused() for each in resources}


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    return future


def settings(**config: str) -> TopicSettings:
    return TopicSettings(
        name=f"t-{uuid.uuid4().hex[:8]}", key="offset.storage.topic", partitions=2, replication_factor=1, config=config
    )  # fmt: skip


def test_herd_topics_that_are_there_need_no_right_to_create(bootstrap: str) -> None:
    client, topic = {"bootstrap.servers": bootstrap}, settings()
    with pytest.raises(
        LogError, match=rf"{topic.name} \(offset\.storage\.topic\).* needs CREATE and DESCRIBE"
    ):
        ensure_compacted_topics(Restricted(client), [topic])
    assert topic.name not in AdminClient(client).list_topics().topics, "asking did not make it"
    ensure_compacted_topics(AdminClient(client), [topic])
    ensure_compacted_topics(Restricted(client), [topic])


def test_herd_topics_are_made_with_the_settings_of_the_workers_file(bootstrap: str) -> None:
    client, topic = {"bootstrap.servers": bootstrap}, settings(**{"segment.bytes": "2097152"})
    admin = AdminClient(client)
    ensure_compacted_topics(admin, [topic])
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    found = admin.describe_configs([resource])[resource].result(60)
    assert (found["segment.bytes"].value, found["cleanup.policy"].value) == ("2097152", "compact")
    with pytest.raises(ConfigError, match=r"offset\.storage\.segment\.bytes=many"):
        ensure_compacted_topics(admin, [settings(**{"segment.bytes": "many"})])


def test_a_cluster_with_too_few_brokers_is_told_the_remedy(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises(LogError, match=r"only 1 broker.* set offset\.storage\.replication\.factor=1"):
        ensure_compacted_topics(admin, [replace(settings(), replication_factor=3)])


def test_herd_settings_of_topics_are_told_from_the_workers_own(caplog: pytest.LogCaptureFixture) -> None:
    config = WorkerConfig.from_properties(
        {
            "bootstrap.servers": "127.0.0.1:9092",
            "group.id": "g",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "c",
            "config.storage.partitions": "3",
            "config.storage.min.insync.replicas": "2",
            "offset.storage.topic": "o",
            "offset.storage.partitions": "7",
            "offset.storage.cleanup.policy": "delete",
            "status.storage.topic": "s",
        }
    )
    assert config.storage_settings("config") == {"min.insync.replicas": "2"}
    assert config.storage_settings("offset") == config.storage_settings("status") == {}
    assert config.storage("config")[1:] == (1, 3)
    warned = [r.getMessage() for r in caplog.records]
    assert any("offset.storage.cleanup.policy has no effect: compaction is always used" in w for w in warned)
    assert any("config.storage.partitions has no effect" in w for w in warned)
    assert not any("min.insync.replicas" in w for w in warned)
