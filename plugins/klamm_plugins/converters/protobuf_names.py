"""Names and settings with which Confluent's converter keeps Connect's schemas in Protobuf's (ProtobufData). No
library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus

from klamm_plugins.errors import DataError
from klamm_plugins.logical import DATE, DECIMAL, TIME, TIMESTAMP
from klamm_plugins.schema import Schema, Type

NAMESPACE: Final = "io.confluent.connect.protobuf"
DEFAULT_NAME: Final = "ConnectDefault"
ENUM: Final = f"{NAMESPACE}.Enum"
UNION: Final = f"{NAMESPACE}.Union"
TAG: Final = f"{NAMESPACE}.Tag"
TYPE: Final = f"{NAMESPACE}.Type"
WRAPPER: Final = f"{NAMESPACE}.Wrapper"
GENERAL_ENUM: Final = "org.apache.kafka.connect.data.Enum"
GENERAL_UNION: Final = "org.apache.kafka.connect.data.Union"

PRECISION: Final = "precision"
SCALE: Final = "scale"
CONNECT_PRECISION: Final = "connect.decimal.precision"
CONNECT_TYPE: Final = "connect.type"
ENTRY: Final = "Entry"

DECIMAL_TYPE: Final = "confluent.type.Decimal"
LOGICAL_TYPES: Final = {
    DECIMAL: (DECIMAL_TYPE, "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
WRAPPERS_FILE: Final = "google/protobuf/wrappers.proto"
_WRAPPERS: Final = {
    "DoubleValue": Type.FLOAT64,
    "FloatValue": Type.FLOAT32,
    "Int64Value": Type.INT64,
    "UInt64Value": Type.INT64,
    "Int32Value": Type.INT32,
    "UInt32Value": Type.INT64,
    "BoolValue": Type.BOOLEAN,
    "StringValue": Type.STRING,
    "BytesValue": Type.BYTES,
}
WRAPPERS: Final = {f"google.protobuf.{name}": type_ for name, type_ in _WRAPPERS.items()}
SCALARS: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_WRAPPER_OF: Final = {
    "int32": "Int32Value",
    "int64": "Int64Value",
    "uint32": "UInt32Value",
    "fixed32": "UInt32Value",
    "uint64": "UInt64Value",
    "fixed64": "UInt64Value",
    "float": "FloatValue",
    "double": "DoubleValue",
    "bool": "BoolValue",
    "string": "StringValue",
    "bytes": "BytesValue",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLEAN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """The converter's keys, by Confluent's names and defaults."""

    generalized_sum_type_support: bool = False
    ignore_default_for_nullables: bool = False
    enhanced_protobuf_schema_support: bool = False
    scrub_invalid_names: bool = False
    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = False
    wrapper_for_raw_primitives: bool = True
    generate_struct_for_nulls: bool = False
    generate_index_for_unions: bool = True
    flatten_unions: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Settings:
        return cls(**{name: settings[name.replace("_", ".")] for name in cls.__dataclass_fields__})

    @property
    def enum_parameter(self) -> str:
        return GENERAL_ENUM if self.generalized_sum_type_support else ENUM

    def name(self, name: str, what: str) -> str:
        """Returns a name that Protobuf allows. Raises DataError for another name when `scrub.invalid.names` is off."""
        if self.scrub_invalid_names:
            return scrubbed(name)
        if not _NAME.fullmatch(name):
            raise DataError(
                f"{what} {name!r} is no name in Protobuf, which takes letters, digits and _; "
                "scrub.invalid.names=true replaces the rest"
            )
        return name

    def split(self, full: str) -> tuple[str, str]:
        """Returns package and name of a schema's name. Raises DataError."""
        parts = [self.name(p, f"a part of the schema name {full!r},") for p in full.split(".")]
        return ".".join(parts[:-1]), parts[-1]


def scrubbed(name: str) -> str:
    """Replaces the characters of a name that Protobuf does not allow, as Confluent's converter does."""
    if not name or _CLEAN.fullmatch(name):
        return name
    encoded = quote_plus(name, safe="*")  # as java.net.URLEncoder, which leaves * and encodes ~
    if encoded[0].isdigit() or encoded[0] == "_":
        encoded = f"x{encoded}"
    return re.sub(r"[^A-Za-z0-9_]", "_", encoded.replace("~", "%7E"))


def is_union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and (
        (schema.name or "").startswith(UNION) or GENERAL_UNION in schema.parameters
    )


def enum_type(schema: Schema) -> str | None:
    """Returns the name of the enum of a schema's values; None if they are no enum."""
    if schema.type is Type.STRING:
        return schema.parameters.get(GENERAL_ENUM) or schema.parameters.get(ENUM)
    return schema.parameters.get(ENUM) if schema.type is Type.INT32 else None


def scalar_type(schema: Schema) -> str:
    """Returns Protobuf's type of a primitive schema."""
    type_ = SCALARS[schema.type]
    return schema.parameters.get(TYPE, type_) if schema.type in {Type.INT32, Type.INT64} else type_


def wrapper_type(schema: Schema) -> str:
    """Returns the wrapper message of a primitive schema."""
    scalar = scalar_type(schema)
    return f"google.protobuf.{_WRAPPER_OF.get(scalar, _WRAPPER_OF[SCALARS[schema.type]])}"


def to_entry_name(name: str) -> str:
    """Returns the message of a map's entries, by the map's name."""
    if "_" in name:
        name = "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))
    return name + ENTRY


def from_entry_name(full: str) -> str:
    """Returns the map's name, by the message of its entries."""
    scope, dot, last = full.rpartition(".")
    if last.endswith(ENTRY):
        last = last.removesuffix(ENTRY)
        last = "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(last))
    return f"{scope}{dot}{last}"
