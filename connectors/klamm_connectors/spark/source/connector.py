"""The connector class of SparkSource. Imports no Spark: every task process imports this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.spark.common_config import validated
from klamm_connectors.spark.source import config
from klamm_plugins.connector import DriverTask, SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError


class SparkSourceConnector(BundledConnector, SourceConnector):
    """A connector with one task: Spark distributes the work itself."""

    kafka_name = "klamm.SparkSource"
    former_names = ("klamm_connectors.spark.source.SparkSourceConnector",)
    one_task = True
    key_prefixes = (*config.FREE_PREFIXES, "spark.")

    @classmethod
    def config(cls) -> ConfigDef:
        return config.config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        strange = config.unknown_keys(props)
        return validated("SparkSource", props, config.config_def(), strange, cls.check)

    @classmethod
    def task_class(cls) -> type[DriverTask]:
        from klamm_connectors.spark.source.task import SparkSourceTask

        return SparkSourceTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        config.parse(props, {"bootstrap.servers": "-"}, "-", None)

    @classmethod
    def alter_offsets(
        cls,
        props: Mapping[str, str],
        offsets: Sequence[tuple[SourcePartition, SourceOffset | None]],
    ) -> bool:
        """Accepts values for batch reads, which continue after the stored value. A stream's place is in its checkpoint."""
        if props.get("source.read", "stream") != "batch" or not props.get("poll.column"):
            raise ConnectError(
                "SparkSource's place is in its checkpoint and cannot be changed here, but for batch reads with poll.column: to "
                "read from elsewhere, set another checkpoint.location"
            )
        for partition, offset in offsets:
            if set(partition) != {"spark"}:
                raise ConnectError(
                    f"SparkSource has partitions such as {{'spark': 'NAME'}}, not {dict(partition)}"
                )
            if offset is not None and not isinstance(offset.get("value"), str):
                raise ConnectError(
                    f"SparkSource's offsets are {{'column': {props['poll.column']!r}, 'value': TEXT}}, not {dict(offset)}"
                )
        return True
