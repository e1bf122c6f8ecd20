"""MirrorHeartbeatConnector: a record a second in the target's `heartbeats` topic says that the flow lives.

The opposite flow carries them on as any topic (`<source>.heartbeats`), so that how old they are where they arrive
tells how far replication is behind. Heartbeats are sent also by flows that are not enabled, as MirrorMaker's are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef, Importance, Type, between
from klamm_base.version import __version__
from klamm_mirror.config import common_config
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition

if TYPE_CHECKING:
    from klamm_mirror.heartbeat_task import MirrorHeartbeatTask


def heartbeat_config() -> ConfigDef:
    """The connector's own keys, beside those that all three share."""
    return (
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
            documentation="With how many replicas the heartbeats topic is made.",
        )
    )


class MirrorHeartbeatConnector(SourceConnector):
    """One task, or none where heartbeats are switched off."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return common_config().merged(heartbeat_config())

    @classmethod
    def task_class(cls) -> type[MirrorHeartbeatTask]:
        from klamm_mirror.heartbeat_task import MirrorHeartbeatTask

        return MirrorHeartbeatTask

    def start(self, props: Mapping[str, str]) -> None:
        self.config().parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props)] if self.config().parse(self._props)["emit.heartbeats.enabled"] else []

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """The task makes no use of them."""
        return True
