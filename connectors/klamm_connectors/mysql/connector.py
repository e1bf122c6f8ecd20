"""The connector class of MySqlSource: tables of MySQL or MariaDB to topics, by a snapshot and then change by
change.

Offsets: partition {"server": topic.prefix}; offset as in `position`. The heavy libraries are imported with
the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.extras import need, need_value
from klamm_connectors.mysql import tls
from klamm_connectors.mysql.column_rules import in_clear_in_keys
from klamm_connectors.mysql.config import config_def, parse
from klamm_connectors.mysql.position import SERVER, Position
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.original_keys import KeyTable

if TYPE_CHECKING:
    from klamm_connectors.mysql.task import MySqlSourceTask

_NEEDS: Final = ("The MySQL source", ("pymysql", "pymysqlreplication"), "mysql")


class MySqlSourceConnector(BundledConnector, SourceConnector):
    """A connector with one task, because a binlog has one order."""

    kafka_name = "io.debezium.connector.mysql.MySqlConnector"
    former_names = ("klamm_connectors.mysql.source.MySqlSourceConnector",)
    original_keys = KeyTable("klamm_connectors.mysql")
    one_task = True

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        if not any(value.errors for value in values):
            for key, error in _errors(props).items():
                named = [value for value in values if value.name == key]
                if not named:  # a key with a variable part, such as column.mask.with.10.chars
                    named = [ConfigValue(name=key, value=props.get(key))]
                    values += named
                for value in named:
                    value.errors.append(error)
        return values + need_value(*_NEEDS)

    @classmethod
    def warnings(cls, props: Mapping[str, str]) -> dict[str, str]:
        return super().warnings(props) | in_clear_in_keys(props)

    @classmethod
    def task_class(cls) -> type[MySqlSourceTask]:
        need(*_NEEDS)
        from klamm_connectors.mysql.task import MySqlSourceTask

        return MySqlSourceTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool:
        """Returns True, as Debezium does: each change of the binlog comes once. A snapshot that breaks off begins anew."""
        return True

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts positions in the binlog, {"file", "pos", "gtids"}, and any removal."""
        for partition, offset in offsets:
            if offset is None:
                continue  # anything may be removed
            if SERVER not in partition:
                raise ConnectError(f"Partition objects should contain the key '{SERVER}' (the topic.prefix)")
            Position.from_offset(offset)
        return True


class MariaDbSourceConnector(MySqlSourceConnector):
    """The same connector under the name of Debezium's connector for MariaDB."""

    kafka_name = "io.debezium.connector.mariadb.MariaDbConnector"
    former_names = ("klamm_connectors.mysql.source.MariaDbSourceConnector",)
    original_keys = KeyTable("klamm_connectors.mysql", "mariadb")


def _errors(props: Mapping[str, str]) -> dict[str, str]:
    """Returns the errors that concern several keys, or files, by the key that is to be changed."""
    try:
        settings = parse(props)
    except ConfigError as e:
        return {str(e.key): str(e)}
    return tls.errors(settings.connection.tls)
