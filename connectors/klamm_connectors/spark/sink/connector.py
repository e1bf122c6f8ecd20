"""The connector class of SparkSink. Imports no Spark: every task process imports this module."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.spark.common_config import validated
from klamm_connectors.spark.sink import config
from klamm_plugins.connector import DriverTask, SinkConnector
from klamm_plugins.errors import ConnectError
from klamm_plugins.records import TopicPartition


class SparkSinkConnector(BundledConnector, SinkConnector):
    """A connector with one task: Spark distributes the work itself."""

    kafka_name = "klamm.SparkSink"
    former_names = ("klamm_connectors.spark.sink.SparkSinkConnector",)
    one_task = True
    key_prefixes = (*config.FREE_PREFIXES, "spark.")

    @classmethod
    def config(cls) -> ConfigDef:
        return config.config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        strange = config.unknown_keys(props)
        return validated("SparkSink", props, config.config_def(), strange, cls.check)

    @classmethod
    def task_class(cls) -> type[DriverTask]:
        from klamm_connectors.spark.sink.task import SparkSinkTask

        return SparkSinkTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        config.parse(props, {"bootstrap.servers": "-"}, "-", "earliest")

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Refuses: Spark continues where its checkpoint says, and the group's offsets only show its progress."""
        raise ConnectError(
            "SparkSink's offsets are in its checkpoint and cannot be changed here: to read from other offsets, set another "
            "checkpoint.location"
        )
