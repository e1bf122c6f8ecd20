"""Keys of the records: topics and their names, the form of keys and values, and what happens to rows that do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid
from klamm_connectors.mysql.keys.words import one_word_of, word
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.values import Modes
from klamm_plugins.transforms.debezium.renaming import ADJUSTMENTS, AVRO, NONE

_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_TIMES: Final = ("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
_OPERATIONS: Final = ("c", "u", "d", "t")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The settings of the records."""

    shape: Shape
    skipped: frozenset[str]
    """Operations (`c`, `u`, `d`, `t`) of the binlog that become no records."""
    schema_changes: bool
    transactions: bool
    transaction_topic: str
    failures: str
    """The fate of a row that its schema cannot hold: `fail`, `warn` or `skip`."""
    heartbeat_interval_ms: int
    heartbeat_topic: str
    heartbeat_query: str | None


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    return _beside(_names(_values(_topics(d))))


def _topics(d: ConfigDef) -> ConfigDef:
    return (
        d.define("topic.prefix", Type.STRING, validator=_legal_name, importance=_HIGH, documentation="Name of the server in topics and offsets: a table's topic is PREFIX.DATABASE.TABLE. With another prefix the connector begins anew.")
        .define("topic.delimiter", Type.STRING, ".", validator=_legal_name, importance=_MEDIUM, documentation="Stands between prefix, database and table in names of topics.")
        .define("event.format", Type.STRING, "envelope", validator=one_word_of("envelope", "row"), importance=_HIGH, documentation="envelope: Debezium's before, after, source, op. row: the row after the change as a flat struct, a tombstone for a deleted row; sinks need no conversion.")
        .define("key.format", Type.STRING, "struct", validator=one_word_of("struct", "value"), importance=_MEDIUM, documentation="struct: the primary key as a struct of its columns. value: a primary key of one column as its bare value, for sinks that make it an id; keys of several columns stay structs.")
        .define("message.key.columns", Type.STRING, None, importance=_MEDIUM, documentation="Columns of the records' keys in place of the primary key: TABLES:COLUMN,COLUMN, separated by semicolons, where TABLES is a regular expression for database.table. Other tables keep their primary keys.")
        .define("tombstones.on.delete", Type.BOOLEAN, True, importance=_MEDIUM, documentation="With envelopes: whether a record without a value follows the record of a deleted row, so that a compacted topic forgets the key.")
        .define("skipped.operations", Type.LIST, ["t"], validator=_known_operations, importance=_LOW, documentation="Changes that become no records: c (insert), u (update), d (delete), t (TRUNCATE TABLE); none: all become records. A snapshot's rows are never skipped. Only envelopes have records for t.")
    )  # fmt: skip


def _values(d: ConfigDef) -> ConfigDef:
    return (
        d.define("decimal.handling.mode", Type.STRING, "precise", validator=one_word_of("precise", "string", "double"), importance=_MEDIUM, documentation="DECIMAL as Connect's Decimal, as text, or as a number of 64 bits.")
        .define("bigint.unsigned.handling.mode", Type.STRING, "long", validator=one_word_of("long", "precise"), importance=_MEDIUM, documentation="BIGINT UNSIGNED as INT64 (event.processing.failure.handling.mode says what happens to a row with a value beyond it) or as Connect's Decimal.")
        .define("time.precision.mode", Type.STRING, "adaptive_time_microseconds", validator=one_word_of(*_TIMES, refused={"adaptive": "MySQL's TIME needs more than adaptive has: use adaptive_time_microseconds, Debezium's default"}), importance=_MEDIUM, documentation="DATE, TIME and DATETIME. adaptive_time_microseconds: Debezium's numbers; those of a DATETIME are milliseconds where its column has at most three digits of fraction. microseconds, nanoseconds: TIME and DATETIME as numbers of this unit. isostring: ISO 8601 texts in UTC. connect: Connect's Date, Time and Timestamp (milliseconds).")
        .define("binary.handling.mode", Type.STRING, "bytes", validator=one_word_of("bytes", "base64", "base64-url-safe", "hex"), importance=_LOW, documentation="BINARY, BLOB and GEOMETRY as bytes or as text.")
        .define("event.processing.failure.handling.mode", Type.STRING, "fail", validator=one_word_of("fail", "warn", "skip", "ignore"), importance=_MEDIUM, documentation="A row with a value that its schema cannot hold. fail: the task fails; with errors.tolerance=all the runtime counts the row, leaves it out and hands it to the dead letter topic. warn: the row is left out, and the log names it. skip, ignore: the row is left out; the log counts such rows.")
    )  # fmt: skip


def _names(d: ConfigDef) -> ConfigDef:
    return (
        d.define("schema.name.adjustment.mode", Type.STRING, NONE, validator=one_word_of(*ADJUSTMENTS), importance=_LOW, documentation="What Avro cannot have in names of schemas. avro: it becomes an underscore. avro_unicode: it becomes _uXXXX, with the character's code; the underscore, too. none: it stays.")
        .define("field.name.adjustment.mode", Type.STRING, NONE, validator=one_word_of(*ADJUSTMENTS), importance=_LOW, documentation="What Avro cannot have in names of columns, which become fields, as in schema.name.adjustment.mode. With AvroConverter as the connector's own converter, none means avro.")
    )  # fmt: skip


def _beside(d: ConfigDef) -> ConfigDef:
    return (
        d.define("include.schema.changes", Type.BOOLEAN, False, importance=_LOW, documentation="Whether changes of captured tables' structures (DDL) become records in the topic PREFIX.")
        .define("provide.transaction.metadata", Type.BOOLEAN, False, importance=_LOW, documentation="Whether each transaction's begin and end become records, and envelopes name their transaction and their place in it.")
        .define("topic.transaction", Type.STRING, "transaction", validator=_legal_name, importance=_LOW, documentation="The topic of transactions is PREFIX.THIS.")
        .define("heartbeat.interval.ms", Type.INT, 0, validator=between(0), importance=_MEDIUM, documentation="Interval of the records to HEARTBEATPREFIX.PREFIX, so that the committed position moves while captured tables do not change. 0: no records.")
        .define("heartbeat.topics.prefix", Type.STRING, "__debezium-heartbeat", validator=_legal_name, importance=_LOW, documentation="Prefix of the heartbeat topic.")
        .define("heartbeat.action.query", Type.STRING, None, importance=_LOW, documentation="A statement that runs in the database with each heartbeat, for example an INSERT that moves the binlog of a quiet server. A statement that fails is logged.")
    )  # fmt: skip


def read(values: Mapping[str, Any], props: Mapping[str, str]) -> Events:
    """Returns the settings."""
    prefix, delimiter = values["topic.prefix"], values["topic.delimiter"]
    failures = word(values["event.processing.failure.handling.mode"])
    return Events(
        shape=Shape(
            prefix=prefix,
            delimiter=delimiter,
            rows_only=word(values["event.format"]) == "row",
            plain_keys=word(values["key.format"]) == "value",
            tombstones=values["tombstones.on.delete"],
            schema_names=word(values["schema.name.adjustment.mode"]),
            field_names=_field_names(values, props),
            modes=Modes(
                decimal=word(values["decimal.handling.mode"]),
                bigint_unsigned=word(values["bigint.unsigned.handling.mode"]),
                time=word(values["time.precision.mode"]),
                binary=word(values["binary.handling.mode"]),
                refused_later=failures == "fail" and props.get("errors.tolerance") == "all",
            ),
        ),
        skipped=frozenset(values["skipped.operations"]) - {"none"},
        schema_changes=values["include.schema.changes"],
        transactions=values["provide.transaction.metadata"],
        transaction_topic=f"{prefix}{delimiter}{values['topic.transaction']}",
        failures="skip" if failures == "ignore" else failures,
        heartbeat_interval_ms=values["heartbeat.interval.ms"],
        heartbeat_topic=f"{values['heartbeat.topics.prefix']}{delimiter}{prefix}",
        heartbeat_query=values["heartbeat.action.query"],
    )


def _field_names(values: Mapping[str, Any], props: Mapping[str, str]) -> str:
    """Returns the adjustment of fields' names. A connector with a converter of Avro's own has one, as in Debezium."""
    mode = word(values["field.name.adjustment.mode"])
    converters = (props.get(key, "").rpartition(".")[2] for key in ("key.converter", "value.converter"))
    return AVRO if mode == NONE and "AvroConverter" in converters else mode


def _legal_name(name: str, value: Any) -> None:
    if value is None or not _PREFIX.fullmatch(value):
        raise invalid(
            name, value, "Letters, digits, '.', '_' and '-': topics are called PREFIX.DATABASE.TABLE"
        )


def _known_operations(name: str, value: Any) -> None:
    if value != ["none"] and any(operation not in _OPERATIONS for operation in value):
        raise invalid(name, ",".join(value), "Some of c, u, d, t separated by commas, or none alone")
