"""A table with every column type of MariaDB, its rows and the changes to them; and what a connector makes of them.

Each type has a nullable column (its name) and one that is NOT NULL with a default (`NAME_nn`), where the database allows it. The
recorder (`tests/fixtures/record_debezium_types.py`) and the tests of our source go through the same statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).parents[1] / "connectors/fixtures/debezium_types.json"
RECORDED_NAMES: Final = RECORDED.with_name("debezium_names.json")

Types = Mapping[str, tuple[str, str, str]]
TYPES: Final[Types] = {
    "tinyint": ("TINYINT", "-128", "127"),
    "tinyint_u": ("TINYINT UNSIGNED", "255", "0"),
    "tinyint1": ("TINYINT(1)", "1", "-7"),
    "bool": ("BOOLEAN", "TRUE", "FALSE"),
    "smallint": ("SMALLINT", "-32768", "32767"),
    "smallint_u": ("SMALLINT UNSIGNED", "65535", "0"),
    "mediumint": ("MEDIUMINT", "-8388608", "8388607"),
    "mediumint_u": ("MEDIUMINT UNSIGNED", "16777215", "0"),
    "int": ("INT", "-2147483648", "2147483647"),
    "int_u": ("INT UNSIGNED", "4294967295", "0"),
    "int_z": ("INT(6) ZEROFILL", "42", "4294967295"),
    "bigint": ("BIGINT", "-9223372036854775808", "9223372036854775807"),
    "bigint_u": ("BIGINT UNSIGNED", "9223372036854775807", "0"),
    "float": ("FLOAT", "1.5", "-0.25"),
    "float_m": ("FLOAT(7,4)", "123.0625", "-1"),
    "double": ("DOUBLE", "0.1", "-1.7976931348623157e308"),
    "double_m": ("DOUBLE(12,5)", "1234567.89012", "-1"),
    "decimal": ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789", "-0.0000000001"),
    "numeric": ("NUMERIC(5,0)", "99999", "-99999"),
    "decimal_u": ("DECIMAL(10,2) UNSIGNED", "12345678.90", "0.01"),
    "bit1": ("BIT(1)", "b'1'", "b'0'"),
    "bit12": ("BIT(12)", "b'101000000011'", "b'1'"),
    "bit64": ("BIT(64)", "0xFEDCBA9876543210", "b'0'"),
    "char": ("CHAR(5)", "'ab'", "'äöü😀x'"),
    "varchar": ("VARCHAR(20)", "'a  '", "'Grüße 😀'"),
    "latin1": ("VARCHAR(10) CHARACTER SET latin1", "'Ä€ß'", "''"),
    "utf16": ("VARCHAR(10) CHARACTER SET utf16", "'Ä€😀'", "'x'"),
    "cp932": ("VARCHAR(10) CHARACTER SET cp932", "'表ソ'", "'x'"),
    "charbin": ("CHAR(4) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "'aB'", "'Ää'"),
    "tinytext": ("TINYTEXT", "'tiny'", "''"),
    "text": ("TEXT", "'line\\nline'", "'\\'\"\\\\'"),
    "mediumtext": ("MEDIUMTEXT", "'medium'", "'ß'"),
    "longtext": ("LONGTEXT", "'long'", "'ß'"),
    "binary": ("BINARY(4)", "X'00010000'", "X'FFFEFDFC'"),
    "varbinary": ("VARBINARY(8)", "X'000100'", "X''"),
    "tinyblob": ("TINYBLOB", "X'00FF'", "X'61'"),
    "blob": ("BLOB", "X'00FF80'", "X'61'"),
    "mediumblob": ("MEDIUMBLOB", "X'C3A4'", "X'61'"),
    "longblob": ("LONGBLOB", "X'FFFFFF'", "X'61'"),
    "enum": ("ENUM('a','b','it''s')", "'it\\'s'", "'a'"),
    "enum_latin1": ("ENUM('ä','ö') CHARACTER SET latin1", "'ö'", "'ä'"),
    "set": ("SET('x','y','z')", "'x,z'", "''"),
    "json": ("JSON", """'{"a": [1, null, "ä"]}'""", "'[]'"),
    "date": ("DATE", "'2024-02-29'", "'1000-01-01'"),
    "time": ("TIME", "'23:59:59'", "'00:00:01'"),
    "time3": ("TIME(3)", "'12:34:56.789'", "'00:00:00.001'"),
    "time6": ("TIME(6)", "'12:34:56.789012'", "'00:00:00.000001'"),
    "datetime": ("DATETIME", "'2024-02-29 23:59:59'", "'1969-12-31 23:59:59'"),
    "datetime3": ("DATETIME(3)", "'2024-02-29 23:59:59.123'", "'1970-01-01 00:00:00.001'"),
    "datetime6": ("DATETIME(6)", "'2024-02-29 23:59:59.123456'", "'1969-12-31 23:59:59.999999'"),
    "timestamp": ("TIMESTAMP", "'2024-02-29 23:59:59'", "'1970-01-02 00:00:00'"),
    "timestamp3": ("TIMESTAMP(3)", "'2024-02-29 23:59:59.120'", "'2038-01-01 00:00:00.001'"),
    "timestamp6": ("TIMESTAMP(6)", "'2024-02-29 23:59:59.123456'", "'2000-01-01 00:00:00'"),
    "year": ("YEAR", "2024", "1901"),
    "geometry": ("GEOMETRY", "ST_GeomFromText('POINT(1 2)', 4326)", "ST_GeomFromText('LINESTRING(0 0,1 1)')"),
    "point": ("POINT", "POINT(1.5, -2)", "POINT(0, 0)"),
    "polygon": ("POLYGON", "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))')", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"),
    "multipoint": ("MULTIPOINT", "ST_GeomFromText('MULTIPOINT(0 0,1 1)')", "ST_GeomFromText('MULTIPOINT(5 5)')"),
    "uuid": ("UUID", "'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"),
    "inet4": ("INET4", "'192.0.2.1'", "'0.0.0.0'"),
    "inet6": ("INET6", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'"),
}  # fmt: skip
"""By the column's name: type, and two values as literals of SQL."""

OURS_ALONE: Final = frozenset({"inet4", "inet6"})
"""Types whose tables Debezium cannot read: its parser of DDL does not know them."""
KNOWN: Final = {name: row for name, row in TYPES.items() if name not in OURS_ALONE}
NO_DEFAULT: Final = frozenset({"geometry", "point", "polygon", "multipoint"})
"""Types whose NOT NULL column has no default here: the literals of SQL for one are expressions."""
GENERATED: Final = {"virtual": "INT AS (id * 2) VIRTUAL", "stored": "VARCHAR(10) AS (CONCAT('n', id)) STORED"}

MODES: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "decimal string": {"decimal.handling.mode": "string"},
    "decimal double": {"decimal.handling.mode": "double"},
    "time connect": {"time.precision.mode": "connect"},
    "time isostring": {"time.precision.mode": "isostring"},
    "time microseconds": {"time.precision.mode": "microseconds"},
    "time nanoseconds": {"time.precision.mode": "nanoseconds"},
    "bigint precise": {"bigint.unsigned.handling.mode": "precise"},
    "binary base64": {"binary.handling.mode": "base64"},
    "binary base64-url-safe": {"binary.handling.mode": "base64-url-safe"},
    "binary hex": {"binary.handling.mode": "hex"},
}


def ddl(name: str, types: Types = TYPES) -> str:
    """Returns the statement that makes the table."""
    parts = ["id INT NOT NULL PRIMARY KEY"]
    parts += [f"`{column}` {kind} NULL" for column, (kind, *_) in types.items()]
    for column, (kind, *values) in types.items():
        # Debezium's parser of DDL does not know `DEFAULT -1`.
        value = next(v for v in values if not v.startswith("-"))
        default = "" if column in NO_DEFAULT else f" DEFAULT {value}"
        parts.append(f"`{column}_nn` {kind} NOT NULL{default}")
    parts += [f"`{column}` {how}" for column, how in GENERATED.items()]
    return f"CREATE TABLE {name} ({', '.join(parts)}) ROW_FORMAT=DYNAMIC"


def inserts(table: str, first: int, types: Types = TYPES) -> Iterator[str]:
    """Yields statements for three rows: the first values of all columns, the second ones, and NULLs and defaults."""
    for number, which in enumerate((1, 2)):
        values = [row[which] for row in types.values()]
        names = [*types, *(f"{name}_nn" for name in types)]
        yield _insert(table, first + number, names, values + values)
    yield _insert(
        table,
        first + 2,
        [f"{n}_nn" for n in types if n in NO_DEFAULT],
        [types[n][1] for n in types if n in NO_DEFAULT],
    )


def changes(table: str, types: Types = TYPES) -> Iterator[str]:
    """Yields what happens after the snapshot: rows 4 to 6, then row 4 becomes row 2, row 5 loses its values, row 6 goes."""
    yield from inserts(table, 4, types)
    second = ", ".join(f"`{n}` = {row[2]}, `{n}_nn` = {row[2]}" for n, row in types.items())
    yield f"UPDATE {table} SET {second} WHERE id = 4"
    yield f"UPDATE {table} SET {', '.join(f'`{n}` = NULL' for n in types)} WHERE id = 5"
    yield f"DELETE FROM {table} WHERE id = 6"


CHANGES: Final = 6
"""Records of `changes`, without the tombstone."""


def _insert(table: str, number: int, names: Sequence[str], values: Sequence[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    return f"INSERT INTO {table} (id, {listed}) VALUES ({number}, {', '.join(values)})"


def answers(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns schema and values by column, of envelopes as the JSON converter writes them (`schema` and `payload`).

    Values are those of `before` and `after` in the order of the records. A schema has no `field`; two schemas of one
    column, of snapshot and binlog, would be a list.
    """
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        row = next(f for f in record["schema"]["fields"] if f["field"] == "after")
        for field in row["fields"]:
            name = field.pop("field")
            column = found.setdefault(name, {"schema": field, "values": []})
            if column["schema"] != field:
                column["schema"] = [column["schema"], field]
            for side in ("before", "after"):
                if (payload := record["payload"][side]) is not None:
                    column["values"].append(payload[name])
    return found


def recorded() -> dict[str, dict[str, Any]]:
    """Returns Debezium's answers: by mode, then by column. A mode's file entry has only what differs from the default's."""
    modes: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text("utf-8"))
    return {mode: {**modes["default"], **found} for mode, found in modes.items()}


def as_text(modes: dict[str, dict[str, Any]]) -> str:
    """Returns the recorded answers as JSON with a line for each column; modes have only what differs from the default's."""
    default = modes["default"]
    parts = []
    for mode, found in modes.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(column, ensure_ascii=False)}"
            for name, column in found.items()
            if mode == "default" or column != default[name]
        ]
        parts.append(f"{json.dumps(mode)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


NAMES_DATABASE: Final = "names-1"
NAMES_TABLE: Final = "2t_x-y"
NAMES_PREFIX: Final = "p-1"
NAMES_MODES: Final = {
    f"schema {schema}, field {field}": {
        "schema.name.adjustment.mode": schema,
        "field.name.adjustment.mode": field,
        "provide.transaction.metadata": "true",
    }
    for schema, field in (
        ("none", "none"), ("avro", "avro"), ("avro_unicode", "avro_unicode"), ("none", "avro"), ("avro", "none"),
    )
}  # fmt: skip
"""The adjustments of names, each of schemas and of fields."""


def names_statements() -> Iterator[str]:
    """Yields the statements that make a table whose names Avro does not take, and a row of it."""
    yield f"CREATE DATABASE `{NAMES_DATABASE}`"
    table = f"`{NAMES_DATABASE}`.`{NAMES_TABLE}`"
    yield f"CREATE TABLE {table} (`Größe` INT, `1st` INT, `a.b` INT, `_x` INT, `by $` INT, PRIMARY KEY (`Größe`, `a.b`))"
    yield f"INSERT INTO {table} VALUES (1, 2, 3, 4, 5)"


def names_of(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Returns the names in a record's schemas, as the JSON converter writes them."""
    fields = {field["field"]: field for field in value["schema"]["fields"]}
    return {
        "key": key["schema"]["name"],
        "key fields": [field["field"] for field in key["schema"]["fields"]],
        "key values": key["payload"],
        "value": value["schema"]["name"],
        **{name: fields[name]["name"] for name in ("before", "after", "source", "transaction")},
        "fields": [field["field"] for field in fields["after"]["fields"]],
        "values": value["payload"]["after"],
    }


def recorded_names() -> dict[str, dict[str, Any]]:
    """Returns Debezium's names by mode."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDED_NAMES.read_text("utf-8"))
    return found
