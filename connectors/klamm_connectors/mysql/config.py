"""The MySQL source's configuration; keys have Debezium's names where they mean the same."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Password, Type, between, invalid, non_empty, one_of
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.values import Modes
from klamm_plugins.errors import ConfigError

SNAPSHOT_MODES: Final = (
    "initial",
    "initial_only",
    "no_data",
    "schema_only",
    "never",
    "always",
    "when_needed",
)
_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    host: str
    port: int
    user: str
    password: Password | None = field(repr=False)
    server_id: int
    """The number under which the task reads the binlog."""
    ssl_mode: str
    ssl_ca: str | None
    connect_timeout_s: int
    topic_prefix: str
    rows_only: bool
    plain_keys: bool
    tombstones: bool
    modes: Modes
    heartbeat_interval_ms: int
    heartbeat_prefix: str
    filters: Filters
    snapshot_mode: str
    snapshot_fetch_size: int
    snapshot_lock: bool
    batch_size: int
    queue_size: int
    poll_wait_s: float


def _legal_prefix(name: str, value: Any) -> None:
    if value is None or not _PREFIX.fullmatch(value):
        raise invalid(
            name, value, "Letters, digits, '.', '_' and '-': topics are called PREFIX.DATABASE.TABLE"
        )


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    return _capture(_events(_connection(ConfigDef())))


def _connection(d: ConfigDef) -> ConfigDef:
    return (
        d.define("database.hostname", Type.STRING, validator=non_empty, importance=_HIGH, documentation="Address of the MySQL or MariaDB server.")
        .define("database.port", Type.INT, 3306, validator=between(1, 65535), importance=_HIGH, documentation="Its port.")
        .define("database.user", Type.STRING, validator=non_empty, importance=_HIGH, documentation="User with SELECT, REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: also BINLOG MONITOR; MySQL: also RELOAD for the snapshot's lock).")
        .define("database.password", Type.PASSWORD, None, importance=_HIGH, documentation="The user's password.")
        .define("database.server.id", Type.LONG, 0, validator=between(0, 4294967295), importance=_MEDIUM, documentation="The number under which the connector reads the binlog: it must differ from that of the server and of every replica. 0 makes one from the connector's name.")
        .define("database.ssl.mode", Type.STRING, "disabled", validator=one_of("disabled", "required", "verify_ca", "verify_identity"), importance=_LOW, documentation="Whether the connection is encrypted and the server's certificate checked.")
        .define("database.ssl.ca", Type.STRING, None, importance=_LOW, documentation="File with the authority's certificate, for verify_ca and verify_identity.")
        .define("connect.timeout.ms", Type.INT, 30000, validator=between(1), importance=_LOW, documentation="Timeout of one attempt to connect.")
    )  # fmt: skip


def _events(d: ConfigDef) -> ConfigDef:
    return (
        d.define("topic.prefix", Type.STRING, validator=_legal_prefix, importance=_HIGH, documentation="Name of the server in topics and offsets: a table's topic is PREFIX.DATABASE.TABLE. With another prefix the connector begins anew.")
        .define("event.format", Type.STRING, "envelope", validator=one_of("envelope", "row"), importance=_HIGH, documentation="envelope: Debezium's before, after, source, op. row: the row after the change as a flat struct, a tombstone for a deleted row; sinks need no conversion.")
        .define("key.format", Type.STRING, "struct", validator=one_of("struct", "value"), importance=_MEDIUM, documentation="struct: the primary key as a struct of its columns. value: a primary key of one column as its bare value, for sinks that make it an id; keys of several columns stay structs.")
        .define("tombstones.on.delete", Type.BOOLEAN, True, importance=_MEDIUM, documentation="With envelopes: whether a record without a value follows the record of a deleted row, so that a compacted topic forgets the key.")
        .define("include.schema.changes", Type.BOOLEAN, False, importance=_LOW, documentation="Only false: there is no topic of schema changes. Column names come with the events (binlog_row_metadata=FULL).")
        .define("decimal.handling.mode", Type.STRING, "precise", validator=one_of("precise", "string", "double"), importance=_MEDIUM, documentation="DECIMAL as Connect's Decimal, as text, or as a number of 64 bits.")
        .define("bigint.unsigned.handling.mode", Type.STRING, "long", validator=one_of("long", "precise"), importance=_MEDIUM, documentation="BIGINT UNSIGNED as INT64 (a value beyond it fails the task) or as Connect's Decimal.")
        .define("time.precision.mode", Type.STRING, "adaptive_time_microseconds", validator=one_of("adaptive_time_microseconds", "connect"), importance=_MEDIUM, documentation="DATE, TIME and DATETIME as Debezium's numbers with their full precision, or as Connect's Date, Time and Timestamp (milliseconds).")
        .define("binary.handling.mode", Type.STRING, "bytes", validator=one_of("bytes", "base64", "hex"), importance=_LOW, documentation="BINARY, BLOB and GEOMETRY as bytes or as text.")
        .define("heartbeat.interval.ms", Type.INT, 0, validator=between(0), importance=_MEDIUM, documentation="Interval of the records to HEARTBEATPREFIX.PREFIX, so that the committed position moves while captured tables do not change. 0: no records.")
        .define("heartbeat.topics.prefix", Type.STRING, "__debezium-heartbeat", validator=_legal_prefix, importance=_LOW, documentation="Prefix of the heartbeat topic.")
    )  # fmt: skip


def _capture(d: ConfigDef) -> ConfigDef:
    lists = {
        "database.include.list": "Databases to capture: regular expressions that match whole names, separated by commas. Empty: all but the system's.",
        "database.exclude.list": "Databases to leave out.",
        "table.include.list": "Tables to capture, as database.table. Empty: all.",
        "table.exclude.list": "Tables to leave out.",
        "column.include.list": "Columns to capture, as database.table.column. Empty: all.",
        "column.exclude.list": "Columns to leave out.",
    }
    for name, text in lists.items():
        d.define(name, Type.LIST, [], importance=_HIGH if "table" in name else _MEDIUM, documentation=text)
    return (
        d.define("snapshot.mode", Type.STRING, "initial", validator=one_of(*SNAPSHOT_MODES), importance=_HIGH, documentation="initial: read the tables when there is no offset, then the binlog. initial_only: stop after the tables. no_data (also schema_only, never): begin at the binlog's present end. always: read the tables at every start. when_needed: as initial, and again when the binlog no longer has the position.")
        .define("snapshot.fetch.size", Type.INT, 2000, validator=between(1, 1_000_000), importance=_MEDIUM, documentation="Rows of one read in a snapshot.")
        .define("snapshot.locking.mode", Type.STRING, "minimal", validator=one_of("minimal", "none"), importance=_LOW, documentation="minimal: on MySQL a global read lock while position and snapshot are taken together (MariaDB needs none). none: no lock; safe only when nothing is written at that moment.")
        .define("max.batch.size", Type.INT, 2048, validator=between(1), importance=_MEDIUM, documentation="The approximate number of records that the task hands over at once.")
        .define("max.queue.size", Type.INT, 256, validator=between(1), importance=_LOW, documentation="The most binlog events that wait for the task.")
        .define("poll.interval.ms", Type.LONG, 500, validator=between(1, 1000), importance=_LOW, documentation="The time for which the task waits for the next event before it reports none.")
    )  # fmt: skip


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError, also for keys that exclude each other."""
    values = config_def().parse(props)
    if values["include.schema.changes"]:
        raise ConfigError(
            "include.schema.changes=true: there is no topic of schema changes here; leave it false", key="include.schema.changes"
        )  # fmt: skip
    for kind in ("database", "table", "column"):
        if values[f"{kind}.include.list"] and values[f"{kind}.exclude.list"]:
            raise ConfigError(
                f"{kind}.include.list and {kind}.exclude.list are both set: use one of them",
                key=f"{kind}.exclude.list",
            )
    return Settings(
        host=values["database.hostname"],
        port=values["database.port"],
        user=values["database.user"],
        password=values["database.password"],
        server_id=values["database.server.id"] or _server_id(props.get("name", ""), values["topic.prefix"]),
        ssl_mode=values["database.ssl.mode"],
        ssl_ca=values["database.ssl.ca"],
        connect_timeout_s=max(1, values["connect.timeout.ms"] // 1000),
        topic_prefix=values["topic.prefix"],
        rows_only=values["event.format"] == "row",
        plain_keys=values["key.format"] == "value",
        tombstones=values["tombstones.on.delete"],
        modes=Modes(
            decimal=values["decimal.handling.mode"],
            bigint_unsigned=values["bigint.unsigned.handling.mode"],
            time=values["time.precision.mode"],
            binary=values["binary.handling.mode"],
        ),
        heartbeat_interval_ms=values["heartbeat.interval.ms"],
        heartbeat_prefix=values["heartbeat.topics.prefix"],
        filters=Filters(values),
        snapshot_mode=values["snapshot.mode"],
        snapshot_fetch_size=values["snapshot.fetch.size"],
        snapshot_lock=values["snapshot.locking.mode"] == "minimal",
        batch_size=values["max.batch.size"],
        queue_size=values["max.queue.size"],
        poll_wait_s=values["poll.interval.ms"] / 1000,
    )


def _server_id(connector: str, prefix: str) -> int:
    """Makes a stable id from names, so that a restarted task takes over the connection of its killed predecessor."""
    return 100_000_000 + zlib.crc32(f"{connector}/{prefix}".encode()) % 1_900_000_000
