"""The connector class of SqlSink. SQLAlchemy is imported with the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.extras import need, need_value
from klamm_connectors.sql.config import config_def, parse
from klamm_connectors.sql.drivers import check_driver
from klamm_connectors.sql.urls import masked
from klamm_plugins.connector import SinkConnector
from klamm_plugins.errors import ConfigError
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.records import TopicPartition

if TYPE_CHECKING:
    from klamm_connectors.sql.task import SqlSinkTask

_NEEDS: Final = ("The SQL sink", ("sqlalchemy",), "sql")


class SqlSinkConnector(BundledConnector, SinkConnector):
    """A connector whose tasks each write with a connection of their own."""

    kafka_name = "io.confluent.connect.jdbc.JdbcSinkConnector"
    former_names = ("klamm_connectors.sql.sink.SqlSinkConnector",)
    original_keys = KeyTable("klamm_connectors.sql")

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        missing = need_value(*_NEEDS)
        error: ConfigError | None = None
        if not any(value.errors for value in values):
            try:
                settings = parse(props)
                if not missing:
                    check_driver(settings.url, settings.dialect)
            except ConfigError as e:
                error = e
        for value in values:
            if error is not None and value.name == error.key:
                value.errors.append(str(error))
            if value.name == "connection.url" and isinstance(value.value, str):
                value.value = masked(value.value)
        return values + missing

    @classmethod
    def task_class(cls) -> type[SqlSinkTask]:
        need(*_NEEDS)
        from klamm_connectors.sql.task import SqlSinkTask

        return SqlSinkTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts any offset. With `exactly.once` the database holds the offsets too, and they are changed there."""
        settings = parse(props)
        if settings.positions_table is not None:
            from klamm_connectors.sql.task import alter_positions

            alter_positions(settings, props["name"], offsets)
        return True
