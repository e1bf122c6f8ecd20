"""Names of topics at the other cluster: MirrorMaker 2's replication policies. Pure.

`DefaultReplicationPolicy` puts the source's alias before the name (`A.orders`), so that the name shows a
topic's origin and no topic goes in circles. `IdentityReplicationPolicy` keeps all names except those of
heartbeats. Sources:
`org.apache.kafka.connect.mirror.{ReplicationPolicy,DefaultReplicationPolicy,IdentityReplicationPolicy}`,
KIP-382, KIP-690 (names of internal topics), KIP-787.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import invalid
from klamm_mirror.settings.topic_map import KEY as TOPIC_MAP
from klamm_mirror.settings.topic_map import TopicMap, parse_map

SEPARATOR: Final = "."
HEARTBEATS: Final = "heartbeats"
PROVENANCE_TOPIC: Final = "mm2-provenance.internal"
"""The topic of `klamm_mirror.provenance.marks`. Flows with different separators share it."""
_INTERNAL: Final = "internal"
_CHECKPOINTS: Final = "checkpoints"
_PACKAGE: Final = "org.apache.kafka.connect.mirror."


class DefaultReplicationPolicy:
    """Remote topics are `<source alias><separator><topic>`. `internal_separator` is for the mirror's own topics."""

    keeps_names = False
    """True: a topic's name does not show where it came from."""

    def __init__(
        self, *, separator: str = SEPARATOR, internal_separator: str | None = None, source_alias: str = ""
    ) -> None:
        self.separator = separator
        self.source_alias = source_alias
        self.topic_map = TopicMap()
        """Names that the file gives."""
        self._internal_separator = separator if internal_separator is None else internal_separator

    def remote_topic(self, topic: str) -> str:
        """Returns the target's name for a topic of this flow's source: the file's, else the policy's. Raises ConfigError."""
        return self.mapped_name(topic) or self.format_remote_topic(self.source_alias, topic)

    def mapped_name(self, topic: str) -> str | None:
        """Returns the name that the file gives a topic; None: it has the policy's. Raises ConfigError."""
        return None if not self.topic_map or self.is_heartbeats_topic(topic) else self.topic_map.name(topic)

    @property
    def hides_origin(self) -> bool:
        """True when names at the target do not show where all topics came from."""
        return self.keeps_names or bool(self.topic_map)

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Returns the policy's name at the target for a topic of the source."""
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Returns the alias of the cluster that a topic was mirrored from; None for a local topic."""
        alias, separator, rest = topic.partition(self.separator)
        return alias if separator and rest.strip(self.separator) else None

    def upstream_topic(self, topic: str) -> str | None:
        """Returns the topic's name at the cluster that it was mirrored from; None for a local topic."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Returns the topic's name where it was first created, across any number of mirrors."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def topic_sources(self, topic: str) -> list[str]:
        """Returns the aliases of all clusters that a topic came through, the last one first."""
        found = []
        while (source := self.topic_source(topic)) is not None:
            found.append(source)
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic:
                break
            topic = upstream
        return found

    def heartbeats_topic(self) -> str:
        """Returns the target's topic of heartbeats."""
        return HEARTBEATS

    def offset_syncs_topic(self, alias: str) -> str:
        """Returns the topic of offset syncs, named after the other cluster (usually the target)."""
        return f"mm2-offset-syncs{self._internal_separator}{alias}{self._internal_separator}{_INTERNAL}"

    def offset_segments_topic(self, alias: str) -> str:
        """Returns the target's topic of offset segments for the topics of the source with this alias."""
        return f"mm2-offset-segments{self._internal_separator}{alias}{self._internal_separator}{_INTERNAL}"

    def checkpoints_topic(self, alias: str) -> str:
        """Returns the target's topic of checkpoints for the groups of the source with this alias."""
        return f"{alias}{self._internal_separator}{_CHECKPOINTS}{self._internal_separator}{_INTERNAL}"

    def gaps_topic(self, alias: str) -> str:
        """Returns the target's gap ledger for the flow from the source with this alias."""
        return f"mm2-gaps{self._internal_separator}{alias}{self._internal_separator}{_INTERNAL}"

    def moves_topic(self, alias: str) -> str:
        """Returns a cluster's journal of moves between it and the cluster with this alias."""
        return f"mm2-moves{self._internal_separator}{alias}{self._internal_separator}{_INTERNAL}"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Returns True for a topic of heartbeats, local or mirrored."""
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self.checkpoints_topic(""))

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Returns True for a topic of a mirror's own data (offset syncs, checkpoints, its workers' topics)."""
        ours = topic.startswith("mm2") and topic.endswith(f"{self._internal_separator}{_INTERNAL}")
        return ours or topic == PROVENANCE_TOPIC or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        """Returns True for a topic that is never mirrored: a mirror's own, Kafka's own (`__`), or hidden (`.`)."""
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Remote topics have the names of their sources. Names show no circles: `klamm_mirror.provenance.tracker` does."""

    keeps_names = True

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if self._looks_like_heartbeats(topic):
            return super().format_remote_topic(source_alias, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        """Returns the one configured source: the name alone does not tell."""
        if self._looks_like_heartbeats(topic):
            return super().topic_source(topic)
        return self.source_alias or None

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if self._looks_like_heartbeats(topic) else topic

    def original_topic(self, topic: str) -> str:
        return super().original_topic(topic) if self._looks_like_heartbeats(topic) else topic

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return topic.endswith(self.heartbeats_topic())  # as in MirrorMaker: `user-heartbeats`, too


ReplicationPolicy = DefaultReplicationPolicy
POLICIES: Final[dict[str, type[ReplicationPolicy]]] = {
    policy.__name__: policy for policy in (DefaultReplicationPolicy, IdentityReplicationPolicy)
}


def find_policy(name: str) -> type[ReplicationPolicy]:
    """Returns the policy for a class name, Java's or ours. Raises ConfigError."""
    found = POLICIES.get(name.removeprefix(_PACKAGE))
    if found is None:
        known = " or ".join(POLICIES)
        raise invalid("replication.policy.class", name, f"Must be {known}: no other policy is known")
    return found


def policy_from(parsed: Mapping[str, Any]) -> ReplicationPolicy:
    """Returns the policy of a parsed configuration (see `common_config`). Raises ConfigError."""
    separator = parsed["replication.policy.separator"]
    custom = parsed["replication.policy.internal.topic.separator.enabled"]
    policy = find_policy(parsed["replication.policy.class"])(
        separator=separator,
        internal_separator=separator if custom else SEPARATOR,
        source_alias=parsed["source.cluster.alias"],
    )
    policy.topic_map = parse_map(parsed.get(TOPIC_MAP) or [])
    return policy
