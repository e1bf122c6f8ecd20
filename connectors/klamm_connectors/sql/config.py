"""The SQL sink's configuration: the keys of the JDBC sink."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Password, Type, between, invalid, non_empty, one_of
from klamm_connectors.sql.rows import RowRules
from klamm_connectors.sql.urls import to_sqlalchemy
from klamm_plugins.errors import ConfigError

DEFAULT_URL: Final = "sqlite:///klamm.db"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    url: str
    user: str | None
    password: Password | None = field(repr=False)
    timezone: str
    table_name: str
    insert_mode: str
    rows: RowRules
    batch_size: int
    auto_create: bool
    auto_evolve: bool
    max_retries: int
    retry_backoff_ms: int
    positions_table: str | None
    """The table that holds offsets with `exactly.once`; None without."""


def _zone(name: str, value: Any) -> None:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError):
        raise invalid(
            name, value, "The name of a time zone is needed, such as UTC or Europe/Vienna"
        ) from None


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    return (
        ConfigDef()
        .define("connection.url", Type.STRING, DEFAULT_URL, validator=non_empty, importance=_HIGH, documentation="Database: a SQLAlchemy URL (sqlite:///file.db, mysql://host/db, mariadb://host/db, postgresql://host/db where a driver is installed) or a jdbc: URL of these. The default is the file klamm.db in the worker's working directory. Give user and password by their own keys, so that nobody sees them here.")
        .define("connection.user", Type.STRING, None, importance=_HIGH, documentation="The database's user.")
        .define("connection.password", Type.PASSWORD, None, importance=_HIGH, documentation="The user's password.")
        .define("insert.mode", Type.STRING, "insert", validator=one_of("insert", "upsert", "update"), importance=_HIGH, documentation="insert: new rows (records that come again after a crash are there twice, or fail on the primary key). upsert: insert or replace by primary key; this makes repetitions harmless. update: change existing rows.")
        .define("batch.size", Type.INT, 3000, validator=between(1), importance=_MEDIUM, documentation="Rows of one statement, at most.")
        .define("delete.enabled", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether a record without a value deletes the row with its key. Needs pk.mode=record_key.")
        .define("table.name.format", Type.STRING, "${topic}", validator=non_empty, importance=_MEDIUM, documentation="Name of the table; ${topic} is the topic, ${table} what follows its last dot.")
        .define("pk.mode", Type.STRING, "none", validator=one_of("none", "kafka", "record_key", "record_value"), importance=_HIGH, documentation="The origin of the primary key: none; kafka: topic, partition and offset; record_key: the record's key; record_value: its value.")
        .define("pk.fields", Type.LIST, [], importance=_MEDIUM, documentation="Names of the key's columns. kafka: three names (default __connect_topic, __connect_partition, __connect_offset). record_key: one name for a key that is no struct, else fields of the key (default all). record_value: fields of the value (default all).")
        .define("fields.whitelist", Type.LIST, [], importance=_MEDIUM, documentation="Fields of the value to write. Empty: all.")
        .define("auto.create", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether to create missing tables.")
        .define("auto.evolve", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether to add missing columns.")
        .define("max.retries", Type.INT, 10, validator=between(0), importance=_MEDIUM, documentation="Retries of a batch after a lost connection, a deadlock or a lock timeout, before the task fails.")
        .define("retry.backoff.ms", Type.INT, 3000, validator=between(0), importance=_MEDIUM, documentation="The pause before each of these retries.")
        .define("db.timezone", Type.STRING, "UTC", validator=_zone, importance=_MEDIUM, documentation="Time zone in which timestamps are written to columns without one.")
        .define("exactly.once", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether offsets are kept in the database, in the transaction that writes the rows: then each record is written once, whatever ends a task or its database, also with insert.mode=insert. Needs tables with transactions (InnoDB).")
        .define("exactly.once.table", Type.STRING, "klamm_offsets", validator=non_empty, importance=_LOW, documentation="The table of these offsets; it is created when it is missing. Several connectors may share it.")
    )  # fmt: skip


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError, also for combinations that cannot work."""
    values = config_def().parse(props)
    to_sqlalchemy(values["connection.url"])
    mode, fields = values["pk.mode"], values["pk.fields"]
    if values["delete.enabled"] and mode != "record_key":
        raise ConfigError(
            f"delete.enabled=true needs pk.mode=record_key, not {mode}: only the key is left",
            key="delete.enabled",
        )
    if values["insert.mode"] != "insert" and mode == "none":
        raise ConfigError(
            f"insert.mode={values['insert.mode']} needs a primary key: set pk.mode to kafka, record_key or record_value",
            key="pk.mode",
        )
    if mode == "kafka" and fields and len(fields) != 3:
        raise ConfigError(
            f"pk.fields={','.join(fields)}: pk.mode=kafka takes three names, for topic, partition and offset",
            key="pk.fields",
        )
    return Settings(
        url=values["connection.url"],
        user=values["connection.user"],
        password=values["connection.password"],
        timezone=values["db.timezone"],
        table_name=values["table.name.format"],
        insert_mode=values["insert.mode"],
        rows=RowRules(
            mode,
            tuple(fields),
            frozenset(values["fields.whitelist"]),
            values["delete.enabled"],
            zoneinfo.ZoneInfo(values["db.timezone"]),
        ),
        batch_size=values["batch.size"],
        auto_create=values["auto.create"],
        auto_evolve=values["auto.evolve"],
        max_retries=values["max.retries"],
        retry_backoff_ms=values["retry.backoff.ms"],
        positions_table=values["exactly.once.table"] if values["exactly.once"] else None,
    )
