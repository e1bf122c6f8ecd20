"""The description of a MySQL table's column, as needed for binlog and schema. Pure: no I/O.

A description comes from `information_schema` (snapshot) or from a table map event of the binlog. Both give
the same kind for the same column, so that records of snapshot and binlog share one schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from klamm_plugins.errors import ConnectError


class Kind(StrEnum):
    """Families of column types that are stored and converted alike."""

    INT = "int"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    BIT = "bit"
    ENUM = "enum"
    SET = "set"
    YEAR = "year"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    JSON = "json"
    GEOMETRY = "geometry"
    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `size` is the bytes of an integer, of a fixed binary value, or of an ENUM or SET; the bits of a
    BIT.

    `length` is the most characters of a CHAR or VARCHAR; 0 for other types.
    `length_bytes` is the number of bytes that hold a value's length in the binlog; 0 when the description is
    from elsewhere.
    """

    name: str
    kind: Kind
    nullable: bool = True
    unsigned: bool = False
    size: int = 0
    precision: int = 0
    scale: int = 0
    fsp: int = 0
    charset: str = "utf8mb4"
    values: tuple[str, ...] = ()
    length_bytes: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one moment. `key` holds the columns of its primary key, in the key's order."""

    database: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"


_INTS: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BLOBS: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"})
_SHAPES: Final = frozenset({
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
})  # fmt: skip
_SIMPLE: Final = {k: Kind(k) for k in ("float", "double", "year", "date", "json", "uuid", "inet4", "inet6")}
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")


def from_information_schema(row: Mapping[str, Any]) -> Column:
    """Makes a column from a row of `information_schema.columns` (keys in lower case)."""
    type_name, full = str(row["data_type"]).lower(), str(row["column_type"])
    base = Column(str(row["column_name"]), Kind.BYTES, nullable=row["is_nullable"] == "YES")
    unsigned = "unsigned" in full.lower()
    if type_name in _INTS:
        return replace(base, kind=Kind.INT, size=_INTS[type_name], unsigned=unsigned)
    if type_name == "decimal":
        precision, scale = int(row["numeric_precision"]), int(row["numeric_scale"] or 0)
        return replace(base, kind=Kind.DECIMAL, precision=precision, scale=scale, unsigned=unsigned)
    if type_name in {"time", "datetime", "timestamp"}:
        return replace(base, kind=Kind(type_name), fsp=int(row["datetime_precision"] or 0))
    if type_name in _SIMPLE:
        return replace(base, kind=_SIMPLE[type_name])
    if type_name in _TEXTS:
        length = int(row["character_maximum_length"] or 0) if type_name in {"char", "varchar"} else 0
        return replace(
            base, kind=Kind.STRING, charset=str(row["character_set_name"] or "utf8mb4"), length=length
        )
    if type_name in _BLOBS:
        size = int(row["character_maximum_length"] or 0) if type_name == "binary" else 0
        return replace(base, size=size)
    if type_name in {"enum", "set"}:
        values = tuple(v.replace("''", "'") for v in _QUOTED.findall(full))
        return replace(base, kind=Kind(type_name), values=values)
    if type_name == "bit":
        return replace(base, kind=Kind.BIT, size=int(row["numeric_precision"]))
    if type_name in _SHAPES:
        return replace(base, kind=Kind.GEOMETRY)
    raise ConnectError(f"column {base.name} has the type {full}, which this connector does not know")


_INT_CODES: Final = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}  # field type code -> bytes
_FSP_CODES: Final = {17: Kind.TIMESTAMP, 18: Kind.DATETIME, 19: Kind.TIME}
_VARCHAR: Final = frozenset({15, 253, 254})


def from_table_map(found: Any, *, nullable: bool, declared: Column | None) -> Column:
    """Makes a column from mysql-replication's description of a table map event.

    `declared` is the present column of that name in `information_schema`. The binlog does not tell UUID and
    INET6 from BINARY, and has no names and character sets unless `binlog_row_metadata` is FULL.
    """
    code = int(found.type)
    name = found.name or (declared.name if declared else "")
    base = Column(name, Kind.BYTES, nullable=nullable)
    if code in _INT_CODES:
        # Without metadata in the binlog, only information_schema tells whether the column is unsigned.
        unsigned = bool(found.unsigned) or (not found.name and declared is not None and declared.unsigned)
        return replace(base, kind=Kind.INT, size=_INT_CODES[code], unsigned=unsigned)
    match code:
        case 4:
            return replace(base, kind=Kind.FLOAT)
        case 5:
            return replace(base, kind=Kind.DOUBLE)
        case 10:
            return replace(base, kind=Kind.DATE)
        case 13:
            return replace(base, kind=Kind.YEAR)
        case 16:
            return replace(base, kind=Kind.BIT, size=int(found.bits))
        case 246:
            return replace(base, kind=Kind.DECIMAL, precision=int(found.precision), scale=int(found.decimals))
        case 247 | 248:
            return _enumeration(base, found, declared)
        case 252 | 255 | 245:
            return _long(base, found, declared)
    if code in _FSP_CODES:
        return replace(base, kind=_FSP_CODES[code], fsp=int(found.fsp))
    if code in _VARCHAR:
        return _short(base, found, declared)
    raise ConnectError(
        f"column {name or '?'} is stored in the binlog as type {code}, which this connector cannot read"
    )


def _charset(found: Any, declared: Column | None) -> str:
    if found.collation_name:
        return str(found.collation_name).split("_")[0]
    if not found.name and declared is not None:
        return (
            "binary" if declared.kind in {Kind.BYTES, Kind.UUID, Kind.INET4, Kind.INET6} else declared.charset
        )
    return str(found.character_set_name or "utf8mb4")


def _enumeration(base: Column, found: Any, declared: Column | None) -> Column:
    kind = Kind.ENUM if int(found.type) == 247 else Kind.SET
    values = members(found)
    now = declared.values if declared is not None and declared.kind is kind else ()
    if not values:
        values = now
    elif "" in values:
        if len(now) != len(values) or any(a not in {"", b} for a, b in zip(values, now, strict=True)):
            raise ConnectError(
                f"column {base.name}: its {kind.upper()} has members that are no UTF-8 in the binlog, and the table is no "
                "longer what it was then; make the column utf8mb4, then read the table again"
            )
        values = now
    return replace(base, kind=kind, size=int(found.size), values=values)


def members(found: Any) -> tuple[str, ...]:
    """Returns the members of an ENUM or SET from the binlog, "" where the library could not read one; empty
    without metadata.
    """
    if int(found.type) == 247:
        return tuple(
            (found.enum_values or ())[1:]
        )  # the library puts "" in front, the value of an invalid one
    return tuple(found.set_values or ()) if int(found.type) == 248 else ()


def _long(base: Column, found: Any, declared: Column | None) -> Column:
    base = replace(base, length_bytes=int(found.length_size))
    if int(found.type) == 245:
        return replace(base, kind=Kind.JSON)
    if int(found.type) == 255:
        return replace(base, kind=Kind.GEOMETRY)
    charset = _charset(found, declared)
    return base if charset == "binary" else replace(base, kind=Kind.STRING, charset=charset)


def _short(base: Column, found: Any, declared: Column | None) -> Column:
    length = int(found.max_length)
    base = replace(base, length_bytes=2 if length > 255 else 1)
    charset = _charset(found, declared)
    if charset != "binary":
        return replace(base, kind=Kind.STRING, charset=charset, length=length // _WIDEST.get(charset, 1))
    if int(found.type) != 254:
        return base
    base = replace(base, size=length)  # of fixed length: the binlog leaves zeros at the end out
    if declared is not None and declared.kind in {Kind.UUID, Kind.INET4, Kind.INET6}:
        return replace(base, kind=declared.kind)
    return base


_WIDEST: Final = {
    "utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "ujis": 3, "eucjpms": 3,
    "gb18030": 4, "sjis": 2, "cp932": 2, "euckr": 2, "big5": 2, "gbk": 2, "gb2312": 2,
}  # fmt: skip
"""The most bytes of a character, where they are more than one."""
