"""MirrorHeartbeat's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm_base.configdef import ConfigDef, Importance, Type, between
from klamm_mirror.settings.common_config import common_config
from klamm_mirror.settings.plugins import FlowPlugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    enabled: bool
    source_alias: str
    target_alias: str
    topic: str
    interval_s: float
    replication_factor: int
    plugins: FlowPlugins


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    own = (
        ConfigDef()
        .define(
            "emit.heartbeats.enabled",
            Type.BOOLEAN,
            True,
            importance=Importance.LOW,
            documentation="Whether heartbeats are sent to the target cluster.",
        )
        .define(
            "emit.heartbeats.interval.seconds",
            Type.LONG,
            1,
            validator=between(1),
            importance=Importance.LOW,
            documentation="Seconds between two heartbeats.",
        )
        .define(
            "heartbeats.topic.replication.factor",
            Type.SHORT,
            3,
            importance=Importance.LOW,
            documentation="Replicas of the heartbeats topic.",
        )
    )
    return common_config().merged(own)


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError."""
    values = config_def().parse(props)
    plugins = FlowPlugins(props, values)
    return Settings(
        enabled=values["emit.heartbeats.enabled"],
        source_alias=values["source.cluster.alias"],
        target_alias=values["target.cluster.alias"],
        topic=plugins.policy.heartbeats_topic(),
        interval_s=values["emit.heartbeats.interval.seconds"],
        replication_factor=values["heartbeats.topic.replication.factor"],
        plugins=plugins,
    )
