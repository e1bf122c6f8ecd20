"""Plugins of the mirror: filters, replication policies and forwarding admins, with Kafka's names in Python's style.

A mirror connector names one by `topic.filter.class`, `group.filter.class`, `config.property.filter.class`,
`replication.policy.class` or `forwarding.admin.class`. The connector and each of its tasks make objects of their
own, in their processes. Life: constructor (no arguments), `configure` once, the other methods again and again from
one thread at a time, `close`. A method that raises fails the connector or task; RetriableError lets a
ForwardingAdmin's caller try again later. Every answer must depend on the arguments and the configuration alone:
the connector and its tasks ask at different times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from klamm_plugins.connector import Plugin

HEARTBEATS: Final = "heartbeats"


class MirrorPlugin(Plugin, ABC):
    """The common part of the mirror's plugins. Subclass one of the five kinds below."""

    def configure(self, props: Mapping[str, Any]) -> None:
        """Takes the connector's whole configuration. Keys of the plugin's own `config()` are typed, with defaults;
        all others are texts. Raises ConfigError for settings that cannot be used together.
        """

    def close(self) -> None:
        """Releases what `configure` took."""


class TopicFilter(MirrorPlugin):
    """A plugin that selects the topics to mirror (Kafka: TopicFilter). It takes the place of `topics` and
    `topics.exclude`. Internal topics, and those that came from the target, are left out before it is asked.
    """

    @abstractmethod
    def should_replicate_topic(self, topic: str) -> bool:
        """Returns whether to mirror a topic of the source."""


class GroupFilter(MirrorPlugin):
    """A plugin that selects the consumer groups to follow (Kafka: GroupFilter). It takes the place of `groups` and
    `groups.exclude`.
    """

    @abstractmethod
    def should_replicate_group(self, group: str) -> bool:
        """Returns whether to write checkpoints of a group of the source."""


class ConfigPropertyFilter(MirrorPlugin):
    """A plugin that selects the settings of topics to copy (Kafka: ConfigPropertyFilter). It takes the place of
    `config.properties.exclude` and `use.defaults.from`.
    """

    @abstractmethod
    def should_replicate_config_property(self, prop: str) -> bool:
        """Returns whether to copy a setting, such as `retention.ms`."""

    def should_replicate_source_default(self, prop: str) -> bool:
        """Returns whether to copy a setting's value also where it is the source's default. The default is no: the
        remote topic then has the target's default.
        """
        return False


class ReplicationPolicy(MirrorPlugin):
    """A plugin that names remote topics (Kafka: ReplicationPolicy). Two names of one source must never become one."""

    @abstractmethod
    def format_remote_topic(self, source_cluster_alias: str, topic: str) -> str:
        """Returns the target's name for a topic of the source."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """Returns the alias of the cluster that a topic was mirrored from; None for a local topic. A flow leaves out
        topics that came from its target.
        """

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """Returns the topic's name at the cluster that it was mirrored from; None for a local topic."""

    def original_topic(self, topic: str) -> str:
        """Returns the topic's name where it was first created, across any number of mirrors."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def heartbeats_topic(self) -> str:
        """Returns the target's topic of heartbeats."""
        return HEARTBEATS

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        """Returns the topic of offset syncs, named after the other cluster (usually the target)."""
        return f"mm2-offset-syncs.{cluster_alias}.internal"

    def checkpoints_topic(self, cluster_alias: str) -> str:
        """Returns the target's topic of checkpoints for the groups of the source with this alias."""
        return f"{cluster_alias}.checkpoints.internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Returns True for a topic of heartbeats, local or mirrored."""
        return self.original_topic(topic) == self.heartbeats_topic()

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Returns True for a topic of checkpoints."""
        return topic.endswith(".checkpoints.internal")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Returns True for a topic of a mirror's own data (offset syncs, checkpoints, its workers' topics)."""
        return (topic.startswith("mm2") and topic.endswith(".internal")) or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        """Returns True for a topic that is never mirrored: a mirror's own, Kafka's own (`__`), or hidden (`.`)."""
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. `replication_factor` -1: the cluster's default."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """A right on one topic (pattern type LITERAL). `operation` and `permission` have Kafka's names: `READ`, `ALLOW`."""

    topic: str
    principal: str
    host: str
    operation: str
    permission: str


Refused = Mapping[str, str]
"""The reasons why changes were refused, by topic; empty when all are done."""


class TopicAdmin(Protocol):
    """The changes that a mirror makes at its target."""

    def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        """Creates topics. One that exists already counts as created."""
        ...

    def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        """Adds partitions to topics, up to these numbers."""
        ...

    def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        """Sets settings of topics; None takes a setting back to its default."""
        ...

    def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        """Creates ACLs. One that exists already counts as created."""
        ...


class ForwardingAdmin(MirrorPlugin):
    """A plugin that makes the mirror's changes at the target in some other way (Kafka: ForwardingAdmin, KIP-787):
    through a control plane, or not at all.

    Override the methods whose changes take another way. The others, and `super()`, make them by requests to the
    target's brokers. The mirror logs refusals and tries again with its next look; RetriableError makes it look
    again soon.
    """

    delegate: TopicAdmin
    """Makes the changes by requests to the brokers. Set while one of the methods runs."""

    def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        """Creates remote topics and the mirror's own topics."""
        return self.delegate.create_topics(topics)

    def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        """Adds partitions to remote topics, up to these numbers."""
        return self.delegate.create_partitions(counts)

    def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        """Sets settings of remote topics; None takes a setting back to its default."""
        return self.delegate.incremental_alter_configs(changes)

    def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        """Creates ACLs of remote topics."""
        return self.delegate.create_acls(bindings)
