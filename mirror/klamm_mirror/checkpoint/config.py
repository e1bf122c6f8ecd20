"""MirrorCheckpoint's configuration: the connector's keys, and the keys that it adds for its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm_base.configdef import ConfigDef, Importance, Type, between
from klamm_mirror.checkpoint.settings import CheckpointSettings
from klamm_mirror.settings import filters
from klamm_mirror.settings.common_config import common_config, syncs_config, topics_config
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.plugins import GROUP_FILTER, JAVA_CLASSES, FlowPlugins, class_for

EMIT: Final = "emit.checkpoints"
SYNC: Final = "sync.group.offsets"
REFRESH: Final = "refresh.groups"
TASK: Final = "task.index"
TASKS: Final = "task.count"
FOR_MIRRORMAKER: Final = {"task.assigned.groups": "-"}
"""A key that MirrorMaker's tasks need. Its worker starts with the tasks that it finds, before it makes its own: with
ours, these would fail for a moment. No group has this name.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    source_alias: str
    target_alias: str
    syncs_at_source: bool
    plugins: FlowPlugins
    checkpointer: CheckpointSettings


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    own = (
        ConfigDef()
        .define(
            "groups",
            Type.LIST,
            filters.GROUPS,
            validator=filters.check_patterns,
            importance=Importance.HIGH,
            documentation="Consumer groups to follow: names and regular expressions, separated by commas.",
        )
        .define(
            "groups.exclude",
            Type.LIST,
            filters.GROUPS_EXCLUDE,
            validator=filters.check_patterns,
            importance=Importance.HIGH,
            documentation="Groups to leave out: names and regular expressions. They win over `groups`.",
        )
        .define(
            GROUP_FILTER,
            Type.CLASS,
            JAVA_CLASSES[GROUP_FILTER][0],
            validator=class_for(GROUP_FILTER),
            importance=Importance.LOW,
            documentation="Selects groups: by the lists above, or a GroupFilter of a plugin package.",
        )
    )
    for name, default, what, seconds in (
        (EMIT, True, "checkpoints are written to the target", 60),
        (SYNC, False, "offsets of groups that nobody uses at the target are set there", 60),
        (REFRESH, True, "new groups are looked for", 600),
    ):
        own.define(
            f"{name}.enabled",
            Type.BOOLEAN,
            default,
            importance=Importance.LOW,
            documentation=f"Whether {what}.",
        ).define(
            f"{name}.interval.seconds",
            Type.LONG,
            seconds,
            validator=between(1),
            importance=Importance.LOW,
            documentation=f"How often {what}, in seconds.",
        )
    own.define(
        "checkpoints.topic.replication.factor",
        Type.SHORT,
        3,
        importance=Importance.LOW,
        documentation="Replicas of the checkpoints topic.",
    )
    return common_config().merged(topics_config()).merged(syncs_config()).merged(own)


def parse(props: Mapping[str, str]) -> Settings:
    """Returns a task's typed settings. Raises ConfigError."""
    values = config_def().parse(props)
    plugins = FlowPlugins(props, values)
    policy = plugins.policy
    source, target = values["source.cluster.alias"], values["target.cluster.alias"]
    at_source = values["offset-syncs.topic.location"] == "source"

    def every(name: str) -> float | None:
        return values[f"{name}.interval.seconds"] if values[f"{name}.enabled"] else None

    def original(topic: str) -> str | None:
        return policy.upstream_topic(topic) if policy.topic_source(topic) == target else None

    return Settings(
        source_alias=source,
        target_alias=target,
        syncs_at_source=at_source,
        plugins=plugins,
        checkpointer=CheckpointSettings(
            syncs_topic=policy.offset_syncs_topic(target if at_source else source),
            back_syncs_topic=policy.offset_syncs_topic(source if at_source else target),
            segments_topic=policy.offset_segments_topic(source),
            back_segments_topic=policy.offset_segments_topic(target),
            checkpoints_topic=policy.checkpoints_topic(source),
            replication_factor=values["checkpoints.topic.replication.factor"],
            wants_group=plugins.wants_group,
            wants_topic=plugins.wants_topic,
            gaps_topic=policy.gaps_topic(source),
            back_gaps_topic=policy.gaps_topic(target),
            rename=policy.remote_topic,
            original=original,
            keeps_offsets=values[KEEP],
            emit_every_s=every(EMIT),
            sync_every_s=every(SYNC),
            refresh_every_s=every(REFRESH),
            task=int(props.get(TASK, "0")),
            tasks=int(props.get(TASKS, "1")),
        ),
    )
