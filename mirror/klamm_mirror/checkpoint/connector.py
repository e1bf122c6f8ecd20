"""The connector class of MirrorCheckpoint: writes the positions of the source's consumer groups to the target.

It writes `<source>.checkpoints.internal`. With `sync.group.offsets.enabled=true` it also sets the groups'
offsets at the target while nobody reads with them there. `checkpointer` does the work of a pass. Tasks
share the groups by a hash of their names and look for new groups themselves, so a new group restarts
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_base.version import __version__
from klamm_mirror.checkpoint.config import EMIT, FOR_MIRRORMAKER, SYNC, TASK, TASKS, config_def
from klamm_mirror.connector import MirrorConnector
from klamm_plugins.connector import SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError

if TYPE_CHECKING:
    from klamm_mirror.checkpoint.task import MirrorCheckpointTask


class MirrorCheckpointConnector(MirrorConnector):
    """A connector with `tasks.max` tasks; with none when the flow, or both kinds of work, are switched off."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"
    former_names = ("klamm_mirror.checkpoint.MirrorCheckpointConnector",)

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        by_name = {v.name: v for v in values}
        emit, sync = by_name[f"{EMIT}.enabled"], by_name[f"{SYNC}.enabled"]
        if emit.value is False and sync.value is False:
            for value in (emit, sync):
                value.errors.append(
                    f"{EMIT}.enabled and {SYNC}.enabled are both false: MirrorCheckpointConnector has nothing to do"
                )
        if by_name["emit.offset-syncs.enabled"].value is False:
            by_name["emit.offset-syncs.enabled"].errors.append(
                "emit.offset-syncs.enabled is false: without offset syncs MirrorCheckpointConnector translates nothing"
            )
        return values

    @classmethod
    def task_class(cls) -> type[MirrorCheckpointTask]:
        from klamm_mirror.checkpoint.task import MirrorCheckpointTask

        return MirrorCheckpointTask

    def start(self, props: Mapping[str, str]) -> None:
        self.config().parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if not self.config().parse(self._props)["enabled"]:
            return []
        shared = {**self._props, **FOR_MIRRORMAKER, TASKS: str(max_tasks)}
        return [{**shared, TASK: str(i)} for i in range(max_tasks)]

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts any offset: the tasks do not use them, but continue from the checkpoints topic."""
        for partition, offset in offsets:
            missing = [k for k in ("group", "topic", "partition") if k not in partition]
            if offset is not None and missing:
                raise ConnectError(f"Partition objects should contain the key '{missing[0]}'")
        return True
