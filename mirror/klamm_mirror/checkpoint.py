"""MirrorCheckpointConnector: where the source's consumer groups are, told at the target.

Writes `<source>.checkpoints.internal` and, where `sync.group.offsets.enabled=true`, sets the offsets of the groups
themselves at the target while nobody reads there. What is done in a pass is in `checkpointer`. Tasks share the
groups by a hash of their names and look for new ones themselves, so that a new group restarts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigDef, ConfigValue, Importance, Type, between
from klamm_base.version import __version__
from klamm_mirror import filters
from klamm_mirror.config import common_config, syncs_config, topics_config
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError

if TYPE_CHECKING:
    from klamm_mirror.checkpoint_task import MirrorCheckpointTask

EMIT: Final = "emit.checkpoints"
SYNC: Final = "sync.group.offsets"
REFRESH: Final = "refresh.groups"
TASK: Final = "task.index"
TASKS: Final = "task.count"


def checkpoint_config() -> ConfigDef:
    """The connector's own keys, beside those that it shares with the others."""
    definition = (
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
    )
    for name, default, what, seconds in (
        (EMIT, True, "checkpoints are written to the target", 60),
        (SYNC, False, "offsets of groups that nobody uses at the target are set there", 60),
        (REFRESH, True, "new groups are looked for", 600),
    ):
        definition.define(
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
    return definition.define(
        "checkpoints.topic.replication.factor",
        Type.SHORT,
        3,
        importance=Importance.LOW,
        documentation="With how many replicas the checkpoints topic is made.",
    )


class MirrorCheckpointConnector(SourceConnector):
    """As many tasks as `tasks.max` says; none where the flow, or both things to do, are switched off."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return common_config().merged(topics_config()).merged(syncs_config()).merged(checkpoint_config())

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
        from klamm_mirror.checkpoint_task import MirrorCheckpointTask

        return MirrorCheckpointTask

    def start(self, props: Mapping[str, str]) -> None:
        self.config().parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if not self.config().parse(self._props)["enabled"]:
            return []
        return [{**self._props, TASK: str(i), TASKS: str(max_tasks)} for i in range(max_tasks)]

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """The tasks make no use of them; what they go on from is in the checkpoints topic."""
        for partition, offset in offsets:
            missing = [k for k in ("group", "topic", "partition") if k not in partition]
            if offset is not None and missing:
                raise ConnectError(f"Partition objects should contain the key '{missing[0]}'")
        return True
