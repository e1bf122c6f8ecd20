"""MirrorSourceConnector: finds topics at the source, makes them at the target, spreads partitions over tasks.

Offsets are MirrorMaker's: partition {"cluster": source alias, "topic": t, "partition": p}, offset {"offset": of the
last record that is at the target}. Topics are looked after by a thread of the connector's process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_base.version import __version__
from klamm_mirror.config import client_security, source_config, unknown_keys
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from klamm_mirror.source_task import MirrorSourceTask
    from klamm_mirror.topic_keeper import TopicKeeper

log = logging.getLogger(__name__)

ASSIGNED: Final = "task.assigned.partitions"
INDEX: Final = "task.index"
IDS: Final = "task.topic.ids"
_CLUSTER, _TOPIC, _PARTITION, _OFFSET = "cluster", "topic", "partition", "offset"


class MirrorSourceConnector(SourceConnector):
    """Mirrors topics of one cluster to another, whole batches at a time."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._keeper: TopicKeeper | None = None

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return source_config()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        by_name = {v.name: v for v in values}
        for side in ("source", "target"):
            try:
                client_security(props, "source" if side == "source" else "target", "consumer")
            except ConfigError as e:
                by_name[f"{side}.cluster.bootstrap.servers"].errors.append(str(e))
        alias = by_name["target.cluster.alias"]
        if alias.value is not None and alias.value == by_name["source.cluster.alias"].value:
            alias.errors.append(
                f"Invalid value {alias.value} for configuration target.cluster.alias: "
                "Must differ from source.cluster.alias"
            )
        return values

    @classmethod
    def task_class(cls) -> type[MirrorSourceTask]:
        from klamm_mirror.source_task import MirrorSourceTask

        return MirrorSourceTask

    def start(self, props: Mapping[str, str]) -> None:
        parsed = self.config().parse(props)
        self._props = dict(props)
        for name in unknown_keys(props, self.config()):
            log.warning("%s is not a setting of MirrorSourceConnector and has no effect", name)
        if not parsed["enabled"]:
            log.info("enabled=false: nothing is mirrored")
            return
        if parsed["sync.topic.acls.enabled"]:
            log.warning(
                "sync.topic.acls.enabled=true: ACLs are not mirrored; set it to false where you know that"
            )
        from klamm_mirror.topic_keeper import TopicKeeper

        self._keeper = TopicKeeper(self._props, parsed, self.context.request_task_reconfiguration)
        self._keeper.start(self.context.raise_error)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if self._keeper is None:
            return []
        partitions = self._keeper.partitions()
        ids = self._keeper.ids
        return [
            {
                **self._props,
                INDEX: str(index),
                ASSIGNED: ",".join(f"{t}-{p}" for t, p in share),
                IDS: ",".join(f"{t}={ids[t]}" for t in sorted({t for t, _ in share}) if t in ids),
            }
            for index, share in enumerate(spread(partitions, max_tasks))
        ]

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """As with MirrorMaker, partitions of any cluster and topic may be altered, as they may have been mirrored
        before, and anything may be removed: nobody should be kept from cleaning up.
        """
        for partition, offset in offsets:
            if offset is not None:
                check_partition(partition)
                offset_of(offset)
        return True


def spread(partitions: Sequence[tuple[str, int]], tasks: int) -> list[list[tuple[str, int]]]:
    """One share per task, in turns, so that a large topic's partitions go to many. No share is empty."""
    count = min(tasks, len(partitions))
    return [list(partitions[i::count]) for i in range(count)]


def split_assigned(text: str) -> list[tuple[str, int]]:
    """`a-0,b-c-1` as topics and partitions."""
    found = []
    for item in filter(None, text.split(",")):
        topic, _, partition = item.rpartition("-")
        if not topic or not partition.isdigit():
            raise ConfigError(f"{ASSIGNED}: {item} is not a topic and a partition", key=ASSIGNED)
        found.append((topic, int(partition)))
    return found


def split_ids(text: str) -> dict[str, bytes]:
    """`a=0f…,b=77…` as topic ids by topic."""
    pairs = (item.split("=") for item in text.split(",") if item)
    return {topic: bytes.fromhex(topic_id) for topic, topic_id in pairs}


def source_partition(alias: str, topic: str, partition: int) -> dict[str, Any]:
    """The key of a partition's committed offset."""
    return {_CLUSTER: alias, _TOPIC: topic, _PARTITION: partition}


def check_partition(partition: SourcePartition) -> None:
    """Raises ConnectError for what is not a key of `source_partition`."""
    for key in (_CLUSTER, _TOPIC, _PARTITION):
        if partition.get(key) is None:
            raise ConnectError(f"Source partition {dict(partition)} has no '{key}', which must be there")
    number = partition[_PARTITION]
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConnectError(f"Source partition has '{_PARTITION}' {number!r}: must be a number from 0 on")


def offset_of(offset: SourceOffset) -> int:
    """The number in a committed offset. Raises ConnectError."""
    number = offset.get(_OFFSET)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConnectError(f"Source offset {dict(offset)}: '{_OFFSET}' must be a number from 0 on")
    return number
