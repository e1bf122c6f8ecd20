"""The connector class of MirrorHeartbeat: one record a second in the target's `heartbeats` topic shows that
the flow is alive.

The opposite flow copies heartbeats as any topic (`<source>.heartbeats`). Their age on arrival tells how far
replication is behind. Flows that are not enabled send heartbeats too, as in MirrorMaker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef
from klamm_base.version import __version__
from klamm_mirror.connector import MirrorConnector
from klamm_mirror.heartbeat.config import config_def, parse
from klamm_plugins.connector import SourceOffset, SourcePartition

if TYPE_CHECKING:
    from klamm_mirror.heartbeat.task import MirrorHeartbeatTask


class MirrorHeartbeatConnector(MirrorConnector):
    """A connector with one task, or with none when heartbeats are switched off."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    former_names = ("klamm_mirror.heartbeat.MirrorHeartbeatConnector",)

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def task_class(cls) -> type[MirrorHeartbeatTask]:
        from klamm_mirror.heartbeat.task import MirrorHeartbeatTask

        return MirrorHeartbeatTask

    def start(self, props: Mapping[str, str]) -> None:
        parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props)] if parse(self._props).enabled else []

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts any offset: the task does not use them."""
        return True
