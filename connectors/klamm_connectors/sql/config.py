"""The SQL sink's configuration: the keys of the JDBC sink."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import (
    ConfigDef,
    Importance,
    Password,
    Type,
    Validator,
    between,
    invalid,
    non_empty,
)
from klamm_connectors.sql.names import folding, table_name
from klamm_connectors.sql.rows import RowRules
from klamm_connectors.sql.urls import DIALECTS, backend, to_sqlalchemy
from klamm_connectors.sql.values import NANOSECONDS, TimeRules
from klamm_plugins.errors import ConfigError

DEFAULT_URL: Final = "sqlite:///klamm.db"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    url: str
    user: str | None
    password: Password | None = field(repr=False)
    dialect: str
    """The original's name of the dialect; empty: the URL's."""
    connection_attempts: int
    connection_backoff_ms: int
    timezone: str
    quoted: bool
    """True when new names keep their case."""
    table_types: frozenset[str]
    trimmed: bool
    """True when messages leave out what the database says of a record."""
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


def _word_of(*allowed: str) -> Validator:
    """Returns a validator that accepts these words in any case."""

    def check(name: str, value: Any) -> None:
        for item in value if isinstance(value, list) else [value]:
            if str(item).lower() not in {word.lower() for word in allowed}:
                raise invalid(name, item, f"String must be one of: {', '.join(allowed)}")

    return check


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    return _original(ConfigDef())


def _original(keys: ConfigDef) -> ConfigDef:
    return (
        keys
        .define("connection.url", Type.STRING, DEFAULT_URL, validator=non_empty, importance=_HIGH, documentation="Database: a SQLAlchemy URL (sqlite:///file.db, mysql://host/db, mariadb://host/db, postgresql://host/db, or any other whose dialect and driver are installed) or a jdbc: URL of SQLite, MySQL, MariaDB, PostgreSQL, SQL Server or Oracle. The default is the file klamm.db in the worker's working directory. Give user and password by their own keys, so that nobody sees them here.")
        .define("connection.user", Type.STRING, None, importance=_HIGH, documentation="The database's user.")
        .define("connection.password", Type.PASSWORD, None, importance=_HIGH, documentation="The user's password.")
        .define("connection.attempts", Type.INT, 3, validator=between(1), importance=_LOW, documentation="How often a connection is tried before this counts as one of max.retries.")
        .define("connection.backoff.ms", Type.LONG, 10000, validator=between(0), importance=_LOW, documentation="The pause between two of these attempts.")
        .define("dialect.name", Type.STRING, "", validator=_word_of("", *DIALECTS), importance=_LOW, documentation="The original's name of the database's dialect, where the URL does not say it. Empty: the URL's.")
        .define("insert.mode", Type.STRING, "insert", validator=_word_of("insert", "upsert", "update"), importance=_HIGH, documentation="insert: new rows (records that come again after a crash are there twice, or fail on the primary key). upsert: insert or replace by primary key; this makes repetitions harmless. update: change existing rows.")
        .define("batch.size", Type.INT, 3000, validator=between(1), importance=_MEDIUM, documentation="Rows of one statement, at most.")
        .define("delete.enabled", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether a record without a value deletes the row with its key. Needs pk.mode=record_key.")
        .define("table.name.format", Type.STRING, "${topic}", validator=non_empty, importance=_MEDIUM, documentation="Name of the table; ${topic} is the topic, ${table} what follows its last dot. A dot in the format ends the name of a schema (in MySQL: of a database), unless quotes are around it; dots of a topic belong to the name.")
        .define("table.types", Type.LIST, ["TABLE"], validator=_word_of("TABLE", "VIEW", "PARTITIONED TABLE"), importance=_LOW, documentation="The types of tables that are written to. TABLE and PARTITIONED TABLE mean the same.")
        .define("quote.sql.identifiers", Type.STRING, "ALWAYS", validator=_word_of("ALWAYS", "NEVER"), importance=_MEDIUM, documentation="always: new tables and columns get their names as they are. never: in the case in which the database keeps names without quotes (lower in PostgreSQL). Statements have quotes either way.")
        .define("pk.mode", Type.STRING, "none", validator=_word_of("none", "kafka", "record_key", "record_value"), importance=_HIGH, documentation="The origin of the primary key: none; kafka: topic, partition and offset; record_key: the record's key; record_value: its value.")
        .define("pk.fields", Type.LIST, [], importance=_MEDIUM, documentation="Names of the key's columns. kafka: three names (default __connect_topic, __connect_partition, __connect_offset). record_key: one name for a key that is no struct, else fields of the key (default all). record_value: fields of the value (default all).")
        .define("fields.whitelist", Type.LIST, [], importance=_MEDIUM, documentation="Fields of the value to write. Empty: all.")
        .define("auto.create", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether to create missing tables.")
        .define("auto.evolve", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether to add missing columns.")
        .define("max.retries", Type.INT, 10, validator=between(0), importance=_MEDIUM, documentation="Retries of a batch after a lost connection, a deadlock or a lock timeout, before the task fails.")
        .define("retry.backoff.ms", Type.INT, 3000, validator=between(0), importance=_MEDIUM, documentation="The pause before each of these retries.")
        .define("db.timezone", Type.STRING, "UTC", validator=_zone, importance=_MEDIUM, documentation="Time zone in which timestamps are written to columns without one.")
        .define("date.timezone", Type.STRING, "UTC", validator=_word_of("DB_TIMEZONE", "UTC"), importance=_MEDIUM, documentation="UTC: Connect's dates are written as the days that they are. DB_TIMEZONE: as the days that they are in db.timezone at midnight in UTC, so in zones west of it the day before.")
        .define("timestamp.fields.list", Type.LIST, [], importance=_MEDIUM, documentation="Fields of numbers (since 1970) or texts (such numbers, or ISO 8601) that are written as timestamps.")
        .define("timestamp.precision.mode", Type.STRING, "MICROSECONDS", validator=_word_of(*map(str.upper, NANOSECONDS)), importance=_MEDIUM, documentation="The unit of the numbers of timestamp.fields.list: microseconds or nanoseconds.")
        .define("replace.null.with.default", Type.BOOLEAN, True, importance=_MEDIUM, documentation="Whether a null is written as its field's default, if the field has one.")
        .define("trim.sensitive.log", Type.BOOLEAN, False, importance=_LOW, documentation="Whether messages and dead letters leave out the database's words about a record, which quote its values, and have only the kind and the code of the error.")
        .define("exactly.once", Type.BOOLEAN, False, importance=_MEDIUM, documentation="Whether offsets are kept in the database, in the transaction that writes the rows: then each record is written once, whatever ends a task or its database, also with insert.mode=insert. Needs tables with transactions (InnoDB).")
        .define("exactly.once.table", Type.STRING, "klamm_offsets", validator=non_empty, importance=_LOW, documentation="The table of these offsets; it is created when it is missing. Several connectors may share it.")
    )  # fmt: skip


_UPSERTING: Final = frozenset({"mariadb", "mysql", "postgresql", "sqlite"})


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError, also for combinations that cannot work."""
    values = config_def().parse(props)
    values |= {
        name: values[name].lower() for name in ("insert.mode", "pk.mode")
    }  # in any case, as the original
    table_name(values["table.name.format"], "topic")
    dialect = backend(to_sqlalchemy(values["connection.url"], values["dialect.name"]))
    mode, fields = values["pk.mode"], values["pk.fields"]
    if values["delete.enabled"] and mode != "record_key":
        raise ConfigError(
            f"delete.enabled=true needs pk.mode=record_key, not {mode}: only the key is left",
            key="delete.enabled",
        )
    if values["insert.mode"] == "upsert" and dialect not in _UPSERTING:
        raise ConfigError(
            f"insert.mode=upsert is not known for {dialect}, only for {', '.join(sorted(_UPSERTING))}: use insert or update",
            key="insert.mode",
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
        dialect=values["dialect.name"],
        connection_attempts=values["connection.attempts"],
        connection_backoff_ms=values["connection.backoff.ms"],
        timezone=values["db.timezone"],
        quoted=values["quote.sql.identifiers"].lower() == "always",
        table_types=frozenset(kind.upper() for kind in values["table.types"]),
        trimmed=values["trim.sensitive.log"],
        table_name=values["table.name.format"],
        insert_mode=values["insert.mode"],
        rows=RowRules(
            mode,
            tuple(fields),
            frozenset(values["fields.whitelist"]),
            values["delete.enabled"],
            values["insert.mode"] == "insert",
            TimeRules(
                zoneinfo.ZoneInfo(values["db.timezone"]),
                zoned_dates=values["date.timezone"].upper() == "DB_TIMEZONE",
                fields=frozenset(values["timestamp.fields.list"]),
                precision=values["timestamp.precision.mode"].lower(),
            ),
            folding(dialect),
            null_as_default=values["replace.null.with.default"],
            trimmed=values["trim.sensitive.log"],
        ),
        batch_size=values["batch.size"],
        auto_create=values["auto.create"],
        auto_evolve=values["auto.evolve"],
        max_retries=values["max.retries"],
        retry_backoff_ms=values["retry.backoff.ms"],
        positions_table=values["exactly.once.table"] if values["exactly.once"] else None,
    )
