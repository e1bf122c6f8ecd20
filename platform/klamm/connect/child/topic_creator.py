"""Makes the topics that a source's records go to, by the connector's topic creation rules (KIP-158).

Without rules, or with the worker's `topic.creation.enable=false`, the broker creates topics. Each topic is
checked once, before its first record is sent. The task waits for a broker that is away; a refusal of the
broker fails the task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.connect.child import clients
from klamm.connect.model import TaskSpec
from klamm.connect.validation.topic_creation import Group, TopicRules, rules
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

_ADMIN_S: Final = 10.0
# Errors that a restart of the task would not change.
_MISCONFIGURED: Final = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)


class TopicCreator:
    """Creates missing topics. `wait` is called between tries, and raises when the task must stop."""

    def __init__(self, topic_rules: TopicRules, admin: AdminClient, wait: Callable[[], None]) -> None:
        self._rules = topic_rules
        self._admin = admin
        self._wait = wait
        self._seen: set[str] = set()

    def __call__(self, topic: str) -> None:
        """Makes sure that a topic exists. Raises ConnectError."""
        while topic not in self._seen:
            try:
                self._ensure(topic)
            except KafkaException as e:
                error: KafkaError = e.args[0]
                if not clients.is_away(error):
                    raise self._refused(topic, error) from e
                log.warning("cannot check whether topic %s exists, trying again: %s", topic, error.str())
                self._wait()
            else:
                self._seen.add(topic)

    def _refused(self, topic: str, error: KafkaError) -> ConnectError | ConfigError:
        text = (
            f"Task failed to create new topic {topic} by the topic creation group {self._rules.group_of(topic).name}: "
            f"{error.str()} ({error.name()}). Ensure that the task is authorized to create topics or that the topic "
            "exists and restart the task"
        )
        return ConfigError(text) if error.code() in _MISCONFIGURED else ConnectError(text)

    def _ensure(self, topic: str) -> None:
        # Asks for the metadata of all topics: a request for one name would create that topic with the
        # broker's defaults. The other names are remembered, since a source may have thousands of topics.
        self._seen |= self._admin.list_topics(timeout=_ADMIN_S).topics.keys()
        if topic in self._seen:
            return
        group = self._rules.group_of(topic)
        try:
            self._admin.create_topics([_new_topic(topic, group)], request_timeout=_ADMIN_S)[topic].result()
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        else:
            log.info("created topic %s by the topic creation group %s", topic, group.name)


def _new_topic(topic: str, group: Group) -> NewTopic:
    return NewTopic(
        topic,
        num_partitions=group.partitions,
        replication_factor=group.replication_factor,
        config=dict(group.configs),
    )


def ensure_topics(spec: TaskSpec, wait: Callable[[], None]) -> Callable[[str], None]:
    """Returns the creator of a task's topics; it does nothing where the broker creates them."""
    found = rules(spec.connector_config)
    if found is None or spec.worker.get("topic.creation.enable", "true").strip().lower() == "false":
        return lambda _topic: None
    admin = clients.make_admin(clients.admin_config(spec, f"connector-adminclient-{spec.id}"))
    return TopicCreator(found, admin, wait)
