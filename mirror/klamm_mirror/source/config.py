"""MirrorSource's configuration: the connector's keys, and the keys that it adds for its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, one_of
from klamm_base.errors import ConfigError
from klamm_mirror.clients import ClientSettings, ProducerSettings
from klamm_mirror.copy.start_offset import KEY as START
from klamm_mirror.copy.start_offset import check_start
from klamm_mirror.copy.throttle import SHARE, throttle_config
from klamm_mirror.principals.config import PrincipalSettings, principal_settings, principals_config
from klamm_mirror.provenance.config import ORIGIN, FlowBack, ProvenanceSettings, left_out
from klamm_mirror.schemas.config import IDS, TRANSLATE, SchemaSettings, schema_settings, schemas_config
from klamm_mirror.settings import filters
from klamm_mirror.settings.common_config import (
    client_settings,
    common_config,
    syncs_config,
    topics_config,
)
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.plugins import CONFIG_FILTER, JAVA_CLASSES, FlowPlugins, class_for
from klamm_mirror.settings.policy import DefaultReplicationPolicy, ReplicationPolicy
from klamm_mirror.topics.config_policy import policy_config

if TYPE_CHECKING:
    from klamm_mirror.copy.copier import CopierSettings
    from klamm_mirror.copy.gap_policy import GapSettings

ASSIGNED: Final = "task.assigned.partitions"
INDEX: Final = "task.index"
PAUSED: Final = "mirror.topics.paused"
FOUND_LATER: Final = "task.partitions.found.later"
PROVENANCE: Final = "mirror.provenance"
PROVENANCE_REPLICAS: Final = "mirror.provenance.topic.replication.factor"
SEGMENTS: Final = "mirror.offset.segments.enabled"
TRANSACTION_INTERVAL: Final = "mirror.transaction.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings. `partitions` hold topic, partition and the topic's name at the target."""

    source_alias: str
    target_alias: str
    partitions: tuple[tuple[str, int, str], ...]
    found_later: frozenset[str]
    """The partitions (`topic-0`) that were not there at the connector's first look."""
    copier: CopierSettings
    index: int = 0
    schemas: SchemaSettings | None = None
    """For the copies of schemas, which the first task makes."""
    translation: SchemaSettings | None = None
    """For the ids in the task's records."""
    principals: PrincipalSettings | None = None


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    keys = common_config().merged(topics_config()).merged(syncs_config()).merged(throttle_config())
    keys = keys.merged(policy_config())
    define = keys.define
    define(
        "config.properties.exclude", Type.LIST, filters.CONFIG_PROPERTIES_EXCLUDE,
        validator=filters.check_patterns, importance=Importance.HIGH,
        documentation="Settings of topics that are not taken over: names and regular expressions.",
    )  # fmt: skip
    define(
        "use.defaults.from", Type.STRING, "target", validator=one_of("source", "target"), importance=Importance.LOW,
        documentation="The defaults of remote topics: those of the source (then every setting is copied) or of the target.",
    )  # fmt: skip
    define(
        CONFIG_FILTER, Type.CLASS, JAVA_CLASSES[CONFIG_FILTER][0], validator=class_for(CONFIG_FILTER),
        importance=Importance.LOW,
        documentation="Selects settings of topics: by the list above, or a ConfigPropertyFilter of a plugin package.",
    )  # fmt: skip
    define(
        "consumer.poll.timeout.ms", Type.LONG, 1000, validator=between(1), importance=Importance.LOW,
        documentation="The time for which a broker of the source may wait for new records before it answers, ms.",
    )  # fmt: skip
    for what, text in (
        ("refresh.topics", "look for new topics and partitions"),
        ("sync.topic.configs", "give remote topics the settings of their sources"),
        ("sync.topic.acls", "give remote topics the ACLs of their sources, without the right to write"),
    ):
        define(
            f"{what}.enabled", Type.BOOLEAN, True, importance=Importance.LOW,
            documentation=f"Whether to {text}.",
        )  # fmt: skip
        define(
            f"{what}.interval.seconds", Type.LONG, 600, validator=between(1), importance=Importance.LOW,
            documentation=f"How often to {text}, seconds.",
        )  # fmt: skip
    define(
        "replication.factor", Type.INT, 2, validator=between(-1), importance=Importance.LOW,
        documentation="Replicas of remote topics; -1: the target cluster's default.",
    )  # fmt: skip
    define(
        "offset.lag.max", Type.LONG, 100, validator=between(0), importance=Importance.LOW,
        documentation="The number of records by which a partition may drift from its last offset sync before the next is written.",
    )  # fmt: skip
    define(
        "heartbeats.replication.enabled", Type.BOOLEAN, True, importance=Importance.LOW,
        documentation="Whether to mirror topics of heartbeats even where the filter leaves them out.",
    )  # fmt: skip
    define(
        PROVENANCE, Type.BOOLEAN, True, importance=Importance.LOW,
        documentation="Whether a flow that keeps topics' names marks where records come from, and leaves out records that "
        f"came from its target. {ORIGIN.format('ALIAS')} leaves out topics of another origin.",
    )  # fmt: skip
    define(
        PROVENANCE_REPLICAS, Type.SHORT, 3, validator=between(-1), importance=Importance.LOW,
        documentation="Replicas of the topic of marks, mm2-provenance.internal.",
    )  # fmt: skip
    _define_exactness(keys)
    _define_gaps(keys)
    return keys.merged(_choices()).merged(schemas_config()).merged(principals_config())


def _define_exactness(keys: ConfigDef) -> None:
    define = keys.define
    define(
        SEGMENTS, Type.BOOLEAN, True, importance=Importance.LOW,
        documentation="Whether to keep the mapping of all offsets at the target, so that groups are translated exactly.",
    )  # fmt: skip
    define(
        TRANSACTION_INTERVAL, Type.LONG, 100, validator=between(1, 30_000), importance=Importance.LOW,
        documentation="The shortest time between the ends of two transactions, ms (exactly.once.source.support=enabled).",
    )  # fmt: skip


def _define_gaps(keys: ConfigDef) -> None:
    define = keys.define
    define(
        "mirror.gap.policy", Type.STRING, "fail", validator=one_of("fail", "record"), importance=Importance.MEDIUM,
        documentation="How to go on where records cannot be copied: fail stops the partition until somebody resolves it, "
        "record enters the gap in the ledger and goes on.",
    )  # fmt: skip
    define(
        "mirror.topic.recreated", Type.STRING, "stop",
        validator=one_of("stop", "new-topic", "truncate-target", "append"), importance=Importance.MEDIUM,
        documentation="How to go on with a topic that was deleted at the source and made again: stop its partitions, copy "
        "it into a new remote topic, delete the copy's records first, or append its records to them.",
    )  # fmt: skip
    define(
        "mirror.gaps.topic.replication.factor", Type.SHORT, 3, validator=between(-1), importance=Importance.LOW,
        documentation="Replicas of the gap ledger.",
    )  # fmt: skip


def _choices() -> ConfigDef:
    """Returns the keys that say which topics are copied from where, and which are deleted."""
    keys = ConfigDef()
    define = keys.define
    define(
        "sync.topic.deletions", Type.STRING, "off", validator=one_of("off", "delete"), importance=Importance.LOW,
        documentation="delete: topics that were deleted at the source are deleted at the target, once the ledger has their end "
        "(they were copied whole, or somebody has decided about the rest), and all brokers of the source say that they are gone.",
    )  # fmt: skip
    define(
        PAUSED, Type.LIST, [], validator=filters.check_patterns, importance=Importance.LOW,
        documentation="Topics that are not copied for now: names and regular expressions. They go on where they were.",
    )  # fmt: skip
    define(
        START, Type.STRING, None, validator=check_start, importance=Importance.LOW,
        documentation="Where a partition without a committed offset begins: earliest, latest, or a time (ISO 8601, or ms since "
        "1970). Default: source.consumer.auto.offset.reset. Partitions that are added later begin at earliest.",
    )  # fmt: skip
    return keys


def client_errors(props: Mapping[str, str], values: Mapping[str, Any]) -> list[ConfigError]:
    """Returns what is wrong with the settings of the clients that read and write records. `values` are the connector's."""
    from klamm_mirror.clients import ProducerSettings
    from klamm_mirror.copy.fetch_settings import FetchSettings

    consumer = client_settings(props, "source", "consumer")
    found = []
    for read in (
        lambda: FetchSettings.of(consumer, values.get("consumer.poll.timeout.ms") or 0),
        lambda: ProducerSettings.of(props),
    ):
        try:
            read()
        except ConfigError as e:
            found.append(e)
    return found


def parse(props: Mapping[str, str]) -> Settings:
    """Returns a task's typed settings; reads key stores. Raises ConfigError."""
    values = config_def().parse(props)
    with FlowPlugins(props, values) as plugins:
        return _settings(props, values, plugins.policy)


def _settings(props: Mapping[str, str], values: Mapping[str, Any], policy: ReplicationPolicy) -> Settings:
    from klamm_mirror.copy.copier import (
        CopierSettings,
    )  # brings asyncio, which the connector's process does not need
    from klamm_mirror.copy.fetch_settings import FetchSettings

    source, target = values["source.cluster.alias"], values["target.cluster.alias"]
    consumer = client_settings(props, "source", "consumer")
    fetch = FetchSettings.of(consumer, values["consumer.poll.timeout.ms"], values[START])
    if values[KEEP]:  # markers are copied, too: readers leave aborted records out themselves
        fetch = replace(fetch, committed_only=False)
    at_target = values["offset-syncs.topic.location"] == "target"
    emits = values["emit.offset-syncs.enabled"]
    partitions = tuple(
        (topic, partition, policy.remote_topic(topic))
        for topic, partition in split_assigned(props.get(ASSIGNED, ""))
    )
    # Copies that keep offsets need no mapping.
    maps = not values[KEEP]
    syncs_topic = policy.offset_syncs_topic(source if at_target else target) if emits and maps else None
    index = int(props.get(INDEX, "0"))
    return Settings(
        source_alias=source,
        target_alias=target,
        partitions=partitions,
        found_later=frozenset(filter(None, props.get(FOUND_LATER, "").split(","))),
        index=index,
        schemas=schema_settings(props, values) if index == 0 else None,
        translation=schema_settings(props, values) if values[IDS] == TRANSLATE else None,
        principals=principal_settings(props, values),
        copier=CopierSettings(
            source=ClientSettings.of(props, "source", "consumer"),
            target=ClientSettings.of(props, "target", "producer"),
            syncs=ClientSettings.of(props, "target" if at_target else "source", "producer"),
            producer=ProducerSettings.of(props),
            fetch=fetch,
            syncs_topic=syncs_topic,
            lag_max=values["offset.lag.max"],
            segments_topic=policy.offset_segments_topic(source) if values[SEGMENTS] and maps else None,
            throttle=props.get(SHARE, ""),
            transaction_interval_s=values[TRANSACTION_INTERVAL] / 1000,
            keep=values[KEEP],
            provenance=_provenance(props, values, policy),
            gaps=_gap_settings(props, values, policy),
        ),
    )


def gap_settings(props: Mapping[str, str]) -> GapSettings:
    """Returns the settings of the gap ledger alone. Raises ConfigError."""
    values = config_def().parse(props)
    with FlowPlugins(props, values) as plugins:
        return _gap_settings(props, values, plugins.policy)


def _gap_settings(
    props: Mapping[str, str], values: Mapping[str, Any], policy: ReplicationPolicy
) -> GapSettings:
    from klamm_mirror.copy.gap_policy import GapSettings

    return GapSettings(
        topic=policy.gaps_topic(values["source.cluster.alias"]),
        replication_factor=values["mirror.gaps.topic.replication.factor"],
        recreated=values["mirror.topic.recreated"],
        gaps=values["mirror.gap.policy"],
        props=props,
        parsed=values,
    )


def _provenance(
    props: Mapping[str, str], values: Mapping[str, Any], policy: ReplicationPolicy
) -> ProvenanceSettings | None:
    if values[KEEP] or not (values[PROVENANCE] and policy.hides_origin):
        return None
    return ProvenanceSettings(
        source_alias=values["source.cluster.alias"],
        target_alias=values["target.cluster.alias"],
        replication_factor=values[PROVENANCE_REPLICAS],
        left_out=left_out(props),
        flow_back=_flow_back(props, values, policy),
    )


def _flow_back(
    props: Mapping[str, str], values: Mapping[str, Any], policy: ReplicationPolicy
) -> FlowBack | None:
    if values["offset-syncs.topic.location"] == "target":
        return None  # our own offset syncs have the same place and name
    renaming = DefaultReplicationPolicy(separator=policy.separator)
    return FlowBack(
        syncs_topic=policy.offset_syncs_topic(values["source.cluster.alias"]),
        topics=frozenset(topic for topic, _ in split_assigned(props.get(ASSIGNED, ""))),
        renamed=partial(renaming.format_remote_topic, values["target.cluster.alias"]),
    )


def split_assigned(text: str) -> list[tuple[str, int]]:
    """Parses `a-0,b-c-1` into topics and partitions."""
    found = []
    for item in filter(None, text.split(",")):
        topic, _, partition = item.rpartition("-")
        if not topic or not partition.isdigit():
            raise ConfigError(f"{ASSIGNED}: {item} is not a topic and a partition", key=ASSIGNED)
        found.append((topic, int(partition)))
    return found
