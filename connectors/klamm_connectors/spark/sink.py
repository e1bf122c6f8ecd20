"""The SparkSink connector. Imports no Spark: every task process imports this module."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_base.errors import ConfigError
from klamm_base.version import __version__
from klamm_connectors.spark import config
from klamm_plugins.connector import DriverTask, SinkConnector
from klamm_plugins.errors import ConnectError
from klamm_plugins.records import TopicPartition


class SparkSinkConnector(SinkConnector):
    """One task: Spark shares out the work itself."""

    kafka_name = "klamm.SparkSink"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return config.definition()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = config.definition().validate(props)
        values += [
            ConfigValue(name=name, errors=[f"SparkSink has no configuration {name}"])
            for name in config.unknown_keys(props)
        ]
        if not any(v.errors for v in values):
            try:
                config.job(props, {"bootstrap.servers": "-"}, "-", "earliest")
            except ConfigError as e:
                where = next((v for v in values if v.name == _key(e.key)), values[0])
                where.errors.append(str(e))
        return values

    @classmethod
    def task_class(cls) -> type[DriverTask]:
        from klamm_connectors.spark.task import SparkSinkTask

        return SparkSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        config.job(props, {"bootstrap.servers": "-"}, "-", "earliest")
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props)]

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Spark reads on where its checkpoint says; the group's offsets only show how far it is."""
        raise ConnectError(
            "SparkSink's offsets are in its checkpoint and cannot be changed here: to read from other offsets, set another "
            "checkpoint.location"
        )


def _key(place: str | None) -> str:
    """A connector's key behind a place in a job."""
    return {"source.schema": "value.schema", "source.watermark": "watermark.column"}.get(
        place or "", place or ""
    )
