"""The connector class of MirrorSource: finds topics at the source, creates them at the target, spreads
partitions over tasks.

Offsets are MirrorMaker's: partition {"cluster": source alias, "topic": t, "partition": p}, offset
{"offset": of the last record that is at the target}. A thread of the connector's process looks after the
topics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_base.version import __version__
from klamm_mirror.connector import MirrorConnector
from klamm_mirror.copy.source_offsets import check_offset, check_partition
from klamm_mirror.copy.throttle import SHARE, Limits
from klamm_mirror.provenance.config import left_out
from klamm_mirror.schemas.config import ENABLED, check_registries
from klamm_mirror.settings.common_config import client_security, client_settings
from klamm_mirror.settings.keep_offsets import KEEP, check_keep, contradictions
from klamm_mirror.settings.plugins import TOPIC_FILTER, FlowPlugins
from klamm_mirror.settings.topic_map import KEY as TOPIC_MAP
from klamm_mirror.settings.topic_map import check_named_once
from klamm_mirror.source.config import ASSIGNED, FOUND_LATER, INDEX, client_errors, config_def
from klamm_mirror.source.live import live, shares_of
from klamm_mirror.source.placement import Shares, place
from klamm_plugins.connector import SourceOffset, SourcePartition
from klamm_plugins.errors import ConfigError

if TYPE_CHECKING:
    from klamm_mirror.source.task import MirrorSourceTask
    from klamm_mirror.source.topic_keeper import TopicKeeper

log = logging.getLogger(__name__)

READ_COMMITTED: Final = "read_committed"


class MirrorSourceConnector(MirrorConnector):
    """A connector that mirrors topics of one cluster to another, whole batches at a time."""

    TRANSFORMS = True
    kafka_name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    former_names = ("klamm_mirror.source.MirrorSourceConnector",)

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._keeper: TopicKeeper | None = None
        self._shares: Shares | None = None
        self._missed: frozenset[str] | None = None
        """The topics that came while the connector that made the present tasks ran, or after, and that it did not see."""

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
        for side in ("source", "target"):
            try:
                client_security(props, "source" if side == "source" else "target", "consumer")
            except ConfigError as e:
                by_name[f"{side}.cluster.bootstrap.servers"].errors.append(str(e))
        try:
            check_registries(props, {name: value.value for name, value in by_name.items()})
        except ConfigError as e:
            by_name[e.key or ENABLED].errors.append(str(e))
        alias = by_name["target.cluster.alias"]
        if alias.value is not None and alias.value == by_name["source.cluster.alias"].value:
            alias.errors.append(
                f"Invalid value {alias.value} for configuration target.cluster.alias: "
                "Must differ from source.cluster.alias"
            )
        parsed = {v.name: v.value for v in values}
        for error in client_errors(props, parsed):
            key = error.key or "source.cluster.bootstrap.servers"
            by_name.setdefault(key, ConfigValue(name=key)).errors.append(str(error))
        decide = {
            TOPIC_MAP,
            TOPIC_FILTER,
            "topics",
            "topics.exclude",
            *by_name.keys() - set(cls.config().names),
        }
        if not any(by_name[key].errors for key in decide):  # keys of a filter's own count, too
            try:
                with FlowPlugins(props, parsed) as plugins:
                    check_named_once(parsed, plugins.wants_topic)
            except ConfigError as e:
                by_name[TOPIC_MAP].errors.append(str(e))
        if parsed.get(KEEP):
            for key, why in contradictions(props, parsed):
                found = by_name.setdefault(key, ConfigValue(name=key))
                found.errors.append(f"Cannot be combined with {KEEP}=true: {why}")
        return list(by_name.values())

    @classmethod
    def task_class(cls) -> type[MirrorSourceTask]:
        from klamm_mirror.source.task import MirrorSourceTask

        return MirrorSourceTask

    def start(self, props: Mapping[str, str]) -> None:
        parsed = self.config().parse(props)
        left_out(props)
        check_registries(props, parsed)
        check_keep(props, parsed)
        self._props = dict(props)
        if not parsed["enabled"]:
            log.info("enabled=false: nothing is mirrored")
            return
        from klamm_mirror.source.topic_keeper import TopicKeeper

        self._keeper = TopicKeeper(self._props, parsed, self.context.request_task_reconfiguration)
        self._keeper.start(self.context.raise_error)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if self._keeper is None:
            return []
        partitions = self._keeper.partitions()
        present = self.context.present_task_configs
        if self._missed is None:
            self._missed = _wanted(self._keeper.unlisted, present)
        later = self._keeper.found_later | {f"{t}-{p}" for t, p in partitions if t in self._missed}
        limits = Limits.of(self.config().parse(self._props))
        self._shares = place(partitions, max_tasks, self._keeper.sizes, shares_of(present) or self._shares)
        return [
            {
                **self._props,
                **lives,
                INDEX: str(index),
                ASSIGNED: ",".join(f"{t}-{p}" for t, p in share),
                FOUND_LATER: ",".join(name for t, p in share if (name := f"{t}-{p}") in later),
                SHARE: limits.share(partitions, share),
            }
            for index, (share, lives) in enumerate(
                zip(self._shares, live(present, self._shares), strict=True)
            )
        ]

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool:
        """Returns True unless the configuration asks for aborted records, too."""
        return (
            client_settings(props, "source", "consumer").get("isolation.level", READ_COMMITTED)
            == READ_COMMITTED
        )

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts offsets for partitions of any cluster and topic, and any removal, as MirrorMaker does.

        An earlier configuration may have mirrored them, and everybody may clean up.
        """
        for partition, offset in offsets:
            if offset is not None:
                check_partition(partition)
                check_offset(offset)
        return True


def _wanted(topics: frozenset[str], present: Sequence[Mapping[str, str]]) -> frozenset[str]:
    """Returns the topics that the present tasks' configuration selects; none where there are no tasks."""
    if not topics or not present:
        return frozenset()
    with FlowPlugins(present[0], config_def().parse(present[0])) as plugins:
        return frozenset(topic for topic in topics if plugins.wants_topic(topic))
