"""The structure of a table as the topic of schema changes tells it: Debezium's `tableChanges`. Asks the server."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Final

from pymysql.cursors import DictCursor

from klamm_connectors.mysql import server
from klamm_connectors.mysql.names import quoted
from klamm_plugins.schema import (
    INT32,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    SchemaBuilder,
    Struct,
    Type,
)

_OPTIONAL_BOOLEAN: Final = SchemaBuilder(Type.BOOLEAN).optional().build()
_COLUMN_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.schema.Column")
    .version(1)
    .field("name", STRING)
    .field("jdbcType", INT32)
    .field("nativeType", OPTIONAL_INT32)
    .field("typeName", STRING)
    .field("typeExpression", OPTIONAL_STRING)
    .field("charsetName", OPTIONAL_STRING)
    .field("length", OPTIONAL_INT32)
    .field("scale", OPTIONAL_INT32)
    .field("position", INT32)
    .field("optional", _OPTIONAL_BOOLEAN)
    .field("autoIncremented", _OPTIONAL_BOOLEAN)
    .field("generated", _OPTIONAL_BOOLEAN)
    .field("comment", OPTIONAL_STRING)
    .field("defaultValueExpression", OPTIONAL_STRING)
    .field("enumValues", SchemaBuilder.array(STRING).optional().build())
    .build()
)
_TABLE_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.schema.Table")
    .version(1)
    .field("defaultCharsetName", OPTIONAL_STRING)
    .field("primaryKeyColumnNames", SchemaBuilder.array(STRING).optional().build())
    .field("columns", SchemaBuilder.array(_COLUMN_SCHEMA).build())
    .field("comment", OPTIONAL_STRING)
    .build()
)
CHANGE_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.schema.Change")
    .version(1)
    .field("type", STRING)
    .field("id", STRING)
    .field("table", _TABLE_SCHEMA)
    .build()
)
# Numbers of java.sql.Types, as Debezium's parser of DDL gives them.
_JDBC: Final[Mapping[str, int]] = {
    "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 6, "double": 8, "decimal": 3,
    "char": 1, "varchar": 12, "tinytext": 12, "text": 12, "mediumtext": 12, "longtext": 12, "enum": 1, "set": 1,
    "binary": -2, "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004, "longblob": 2004, "bit": -7,
    "date": 91, "time": 92, "datetime": 93, "timestamp": 2014, "year": 4, "json": 1111, "uuid": 1111, "inet4": 1111,
    "inet6": 1111,
}  # fmt: skip
_OTHER: Final = 1111
_MEMBER: Final = re.compile(r"'(?:[^']|'')*'")
_COLUMNS: Final = (
    "SELECT column_name AS name, data_type AS type, column_type AS full_type, is_nullable AS nullable, extra AS extra,"
    " character_set_name AS charset, character_maximum_length AS characters, numeric_precision AS digits,"
    " numeric_scale AS scale, datetime_precision AS fraction"
    " FROM information_schema.columns WHERE table_schema=%s AND table_name=%s ORDER BY ordinal_position"
)
_COLLATION: Final = (
    "SELECT table_collation FROM information_schema.tables WHERE table_schema=%s AND table_name=%s"
)


def table_change(connection: Any, type: str, database: str, name: str) -> Struct:
    """Returns the change of one table, with its present structure; without columns for a table that is gone."""
    with contextlib.closing(connection.cursor(DictCursor)) as cursor:
        cursor.execute(_COLUMNS, (database, name))
        columns = [_column(number, row) for number, row in enumerate(cursor.fetchall(), 1)]
    collation = server.run(connection, _COLLATION, (database, name))
    charset = str(collation[0][0]).split("_")[0] if collation and collation[0][0] else None
    key = server.primary_key(connection, database, name)
    table = Struct.of_checked(_TABLE_SCHEMA, [charset, list(key), columns, None])
    return Struct.of_checked(CHANGE_SCHEMA, [type, f'"{database}"."{name}"', table])


def create_statement(connection: Any, database: str, name: str) -> str:
    """Returns the CREATE TABLE of a table."""
    return str(server.run(connection, f"SHOW CREATE TABLE {quoted(database)}.{quoted(name)}")[0][1])


def _column(number: int, row: Mapping[str, Any]) -> Struct:
    type_name, full, extra = str(row["type"]).lower(), str(row["full_type"]), str(row["extra"]).lower()
    shown = type_name.upper() + (" UNSIGNED" if "unsigned" in full.lower() else "")
    increments = "auto_increment" in extra
    values = _MEMBER.findall(full) if type_name in {"enum", "set"} else None
    length, scale = _length(type_name, row)
    return Struct.of_checked(
        _COLUMN_SCHEMA,
        [
            str(row["name"]), _JDBC.get(type_name, _OTHER), None, shown, shown, row["charset"], length, scale, number,
            row["nullable"] == "YES", increments, increments or "generated" in extra, None, None, values,
        ],
    )  # fmt: skip


def _length(type_name: str, row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    if type_name in {"char", "varchar", "binary", "varbinary"}:
        return int(row["characters"]), None
    if type_name == "decimal":
        return int(row["digits"]), int(row["scale"])
    if type_name == "bit":
        return int(row["digits"]), None
    if type_name in {"time", "datetime", "timestamp"} and row["fraction"]:
        return int(row["fraction"]), None
    return None, None
