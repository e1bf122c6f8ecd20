"""Names of properties, records and logical types by which Confluent's converters keep Connect's schemas in Avro's."""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.logical import DATE, DECIMAL, TIME, TIMESTAMP
from klamm_plugins.schema import Schema, Type

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_RECORD: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
FIXED_SIZE: Final = "connect.fixed.size"
PRECISION: Final = "connect.decimal.precision"
PRECISION_DEFAULT: Final = 64

PRIMITIVES: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
# Avro's logical types by Connect's.
LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis", DECIMAL: "decimal"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Avro = Any
"""An Avro schema in JSON: the name of a type, a dict, or a list (a union)."""


def check_name(name: str, what: str) -> str:
    """Raises DataError for a name that Avro does not allow."""
    if not _NAME.fullmatch(name):
        raise DataError(f"{what} {name!r} is no name in Avro, which takes letters, digits and _")
    return name


def split_name(full: str) -> tuple[str | None, str]:
    """Returns namespace and name. Raises DataError."""
    namespace, _, name = full.rpartition(".")
    for part in full.split("."):
        check_name(part, f"a part of the schema name {full!r},")
    return namespace or None, name


def is_union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and schema.name == UNION


def plain_map(schema: Schema) -> bool:
    """Returns whether a map is a map in Avro, whose keys are strings. Other maps are lists of entries."""
    return (
        schema.key_schema is not None
        and schema.key_schema.type is Type.STRING
        and not schema.key_schema.optional
    )
