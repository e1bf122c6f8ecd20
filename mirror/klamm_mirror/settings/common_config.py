"""The configuration that the mirror's connectors share: MirrorMaker 2's keys.

The keys of a cluster's clients are MirrorMaker's: `source.cluster.X` and `target.cluster.X` for all clients
of a cluster, `consumer.X` for all consumers, `source.consumer.X` for consumers at the source. The more
specific key wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, non_empty, one_of, with_prefix
from klamm_base.errors import ConfigError
from klamm_mirror.settings import filters
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.plugins import ADMIN, JAVA_CLASSES, POLICY, TOPIC_FILTER, class_for
from klamm_mirror.settings.topic_map import KEY as TOPIC_MAP
from klamm_mirror.settings.topic_map import check_map

if TYPE_CHECKING:
    from klamm_base.security import ClientSecurity

Side = Literal["source", "target"]
ClientKind = Literal["consumer", "producer", "admin"]

_SECURITY: Final = re.compile(r"security\.protocol|(ssl|sasl)\..+")


def _servers(name: str, value: Any) -> None:
    from klamm_kafka.client import parse_bootstrap  # brings asyncio, which every child would wait for

    try:
        parse_bootstrap(value or "")
    except ConfigError:
        raise invalid(name, value, "Must be brokers such as host:9092,host:9092") from None


def common_config() -> ConfigDef:
    """Returns the keys that all three connectors have."""
    keys = ConfigDef()
    define = keys.define
    define(
        "source.cluster.alias", Type.STRING, validator=non_empty, importance=Importance.HIGH,
        documentation="Alias of the source cluster: the prefix of its topics at the target.",
    )  # fmt: skip
    define(
        "target.cluster.alias", Type.STRING, "target", validator=non_empty, importance=Importance.HIGH,
        documentation="Alias of the target cluster: names the topic of offset syncs.",
    )  # fmt: skip
    for side in ("source", "target"):
        define(
            f"{side}.cluster.bootstrap.servers", Type.STRING, validator=_servers, importance=Importance.HIGH,
            documentation=f"Brokers of the {side} cluster, host:port. Other settings of its clients follow "
            f"the prefix {side}.cluster.",
        )  # fmt: skip
    define("enabled", Type.BOOLEAN, True, documentation="Whether to mirror from source to target at all.")
    define(
        "admin.timeout.ms", Type.LONG, 60_000, validator=between(1), importance=Importance.LOW,
        documentation="Timeout of requests that find or create topics, ms.",
    )  # fmt: skip
    define(
        POLICY, Type.CLASS, JAVA_CLASSES[POLICY][0], validator=class_for(POLICY), importance=Importance.LOW,
        documentation="The names of remote topics: DefaultReplicationPolicy (alias and separator before the name), "
        "IdentityReplicationPolicy (the same name), or a ReplicationPolicy of a plugin package.",
    )  # fmt: skip
    define(
        "replication.policy.separator", Type.STRING, ".", validator=non_empty, importance=Importance.LOW,
        documentation="The text between alias and topic in the name of a remote topic.",
    )  # fmt: skip
    define(
        "replication.policy.internal.topic.separator.enabled", Type.BOOLEAN, True, importance=Importance.LOW,
        documentation="Whether the separator is used in the names of the mirror's own topics as well.",
    )  # fmt: skip
    define(
        ADMIN, Type.CLASS, JAVA_CLASSES[ADMIN][0], validator=class_for(ADMIN), importance=Importance.LOW,
        documentation="Makes topics, partitions, settings and ACLs at the target: by requests to the brokers, or a "
        "ForwardingAdmin of a plugin package (KIP-787).",
    )  # fmt: skip
    return keys


def topics_config() -> ConfigDef:
    """Returns the keys that select topics."""
    keys = ConfigDef()
    define = keys.define
    define(
        "topics", Type.LIST, filters.TOPICS, validator=filters.check_patterns, importance=Importance.HIGH,
        documentation="Topics to mirror: names and regular expressions.",
    )  # fmt: skip
    define(
        "topics.exclude", Type.LIST, filters.TOPICS_EXCLUDE, validator=filters.check_patterns,
        importance=Importance.HIGH, documentation="Topics to leave out; wins over topics.",
    )  # fmt: skip
    define(
        TOPIC_MAP, Type.LIST, [], validator=check_map, importance=Importance.MEDIUM,
        documentation="Names at the target in place of the policy's: PATTERN=NAME, such as orders=sales.orders, (.*)_raw=raw.$1. "
        "The first pattern that matches a whole name decides.",
    )  # fmt: skip
    define(
        KEEP, Type.BOOLEAN, False, importance=Importance.MEDIUM,
        documentation="Whether copies keep offsets, leader epochs and timestamps, as read-only mirror topics. The target's brokers "
        "must announce the feature klamm.mirror.topics.",
    )  # fmt: skip
    define(
        TOPIC_FILTER, Type.CLASS, JAVA_CLASSES[TOPIC_FILTER][0], validator=class_for(TOPIC_FILTER),
        importance=Importance.LOW,
        documentation="Selects topics: by the lists above, or a TopicFilter of a plugin package.",
    )  # fmt: skip
    return keys


def syncs_config() -> ConfigDef:
    """Returns the keys of the topic of offset syncs."""
    keys = ConfigDef()
    define = keys.define
    define(
        "offset-syncs.topic.location", Type.STRING, "source", validator=one_of("source", "target"),
        importance=Importance.LOW, documentation="The cluster that holds the topic of offset syncs.",
    )  # fmt: skip
    define(
        "offset-syncs.topic.replication.factor", Type.SHORT, 3, validator=between(-1),
        importance=Importance.LOW, documentation="Replicas of the topic of offset syncs.",
    )  # fmt: skip
    define(
        "emit.offset-syncs.enabled", Type.BOOLEAN, True, importance=Importance.LOW,
        documentation="Whether to write offset syncs; without them, groups cannot be translated.",
    )  # fmt: skip
    return keys


def client_settings(props: Mapping[str, str], side: Side, kind: ClientKind) -> dict[str, str]:
    """Returns the settings of a cluster's client, under Java's names and with `bootstrap.servers`."""
    found = {
        k: v for k, v in with_prefix(props, f"{side}.cluster.").items()
        if not k.startswith(("consumer.", "producer.", "admin.")) and k != "alias"
    }  # fmt: skip
    overrides = [f"{kind}.override."] if (side, kind) == ("target", "producer") else []
    for prefix in (f"{kind}.", f"{side}.cluster.{kind}.", f"{side}.{kind}.", *overrides):
        own = with_prefix(props, prefix)
        own.pop("poll.timeout.ms", None)  # consumer.poll.timeout.ms is the connector's
        found |= own
    return {k: v for k, v in props.items() if _SECURITY.fullmatch(k)} | found


def client_security(props: Mapping[str, str], side: Side, kind: ClientKind) -> ClientSecurity:
    """Returns TLS and SASL of a cluster's client; reads key stores. Raises ConfigError, which names the side."""
    from klamm_base.security import ClientSecurity

    try:
        return ClientSecurity.from_properties(client_settings(props, side, kind))
    except ConfigError as e:
        key = f"{side}.cluster.{e.key}"
        raise ConfigError(
            f"{side}.cluster.{e}" if e.key and str(e).startswith(e.key) else f"{key}: {e}", key=key
        ) from None
