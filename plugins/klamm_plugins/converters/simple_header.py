"""SimpleHeaderConverter: header values as readable text, and back to the type that the text looks like.

`5` becomes an INT8, `[1,2]` an array, `2020-01-02` a date, anything else a string. The guess is Kafka's, but for
one rule: a text becomes a type other than a string only when that loses nothing. (Kafka reads `12:34:56` as 12
and keeps seven digits of a float.) Arrays and maps without a common type have no schema.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from klamm_base.configdef import ConfigDef
from klamm_base.version import __version__
from klamm_plugins import logical
from klamm_plugins.converter import NULL, HeaderConverter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.errors import DataError
from klamm_plugins.schema import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
)
from klamm_plugins.text import float_text, text_of

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|(?<=[+-])\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TOKEN: Final = re.compile(r"[^\s,\[\]{}\"]+")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_TEMPORAL: Final = re.compile(
    r"(?:(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z|(?P<date>\d{4}-\d\d-\d\d)|(?P<time>\d\d:\d\d:\d\d\.\d{3})Z)",
    re.ASCII,
)
_INTEGERS: Final = ((8, INT8), (16, INT16), (32, INT32), (64, INT64))
_WIDTH: Final = {t: i for i, t in enumerate((INT8, INT16, INT32, INT64, FLOAT32, FLOAT64))}
_WORDS: Final = {
    "null": NULL,
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
}
_DATE: Final = logical.date_builder().build()
_TIME: Final = logical.time_builder().build()
_TIMESTAMP: Final = logical.timestamp_builder().build()
_EXPONENT_MAX: Final = 1000  # 1e999999 is a text, not a number of a million digits
_MAX_DEPTH: Final = 50  # headers are small; a hostile one must not exhaust the stack


class SimpleHeaderConverter(HeaderConverter):
    kafka_name = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return converter_config()

    def configure_header(self, props: Mapping[str, Any]) -> None:
        self.config().parse({**props, "converter.type": "header"})

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else write_text(schema, value).encode()

    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        return NULL if value is None else parse_text(value.decode(errors="replace"))


def parse_text(text: str) -> SchemaAndValue:
    """Returns the value that a text looks like, or the text itself as a string."""
    stripped = text.strip()
    try:
        parser = _Parser(stripped)
        found = parser.value(top=True)
        if found is not None and parser.at_end:
            return found
    except _NotAValue:
        return SchemaAndValue(STRING, text)
    return SchemaAndValue(STRING, text)


class _NotAValue(Exception):
    """An error for a text in none of the forms: it is a string."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._depth = 0

    @property
    def at_end(self) -> bool:
        return self._pos == len(self._text)

    def value(self, *, top: bool = False) -> SchemaAndValue:
        self._space()
        if self._take("["):
            return self._nested(self._array)
        if self._take("{"):
            return self._nested(self._map)
        if not top and (quoted := self._match(_QUOTED)) is not None:
            text = re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
            return _temporal(text) or SchemaAndValue(STRING, text)
        for pattern, make in ((_TEMPORAL, _temporal), (_NUMBER, _number), (_TOKEN, _WORDS.get)):
            found = self._match(pattern)
            if found is not None:
                value = make(found[0])
                if value is not None:
                    return value
                self._pos = found.start()
        raise _NotAValue

    def _nested(self, parse: Callable[[], SchemaAndValue]) -> SchemaAndValue:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotAValue
        value = parse()
        self._depth -= 1
        return value

    def _array(self) -> SchemaAndValue:
        items: list[SchemaAndValue] = []
        while not self._closed("]", bool(items)):
            items.append(self.value())
        schema, values = _common(items)
        return SchemaAndValue(schema and SchemaBuilder.array(schema).build(), values)

    def _map(self) -> SchemaAndValue:
        keys: list[SchemaAndValue] = []
        values: list[SchemaAndValue] = []
        while not self._closed("}", bool(keys)):
            keys.append(self.value())
            self._space()
            if not self._take(":") or isinstance(keys[-1].value, (list, dict)):
                raise _NotAValue
            values.append(self.value())
        (key_schema, plain_keys), (value_schema, plain_values) = _common(keys), _common(values)
        found = dict(zip(plain_keys, plain_values, strict=True))
        if len(found) != len(keys):  # a key comes twice: a map would lose one
            raise _NotAValue
        if key_schema is None or value_schema is None:
            return SchemaAndValue(None, found)
        return SchemaAndValue(SchemaBuilder.map(key_schema, value_schema).build(), found)

    def _closed(self, end: str, some: bool) -> bool:
        """Returns whether the bracket closes here; between two elements, takes the comma."""
        self._space()
        if self._take(end):
            return True
        if some:
            if not self._take(","):
                raise _NotAValue
            self._space()
            return self._take(end)
        return False

    def _space(self) -> None:
        while self._pos < len(self._text) and self._text[self._pos].isspace():
            self._pos += 1

    def _take(self, char: str) -> bool:
        taken = self._text.startswith(char, self._pos)
        self._pos += taken
        return taken

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Matches here, up to a delimiter."""
        found = pattern.match(self._text, self._pos)
        if found is None:
            return None
        rest = self._text[found.end() : found.end() + 1]
        if rest and not rest.isspace() and rest not in ",:]}":
            return None
        self._pos = found.end()
        return found


def _common(items: list[SchemaAndValue]) -> tuple[Schema | None, list[Any]]:
    """Returns the one schema that fits all items (numbers widen), and their values in it."""
    values = [i.value for i in items]
    schemas = {i.schema for i in items}
    if len(schemas) == 1:
        return next(iter(schemas)), values
    if not schemas or any(s not in _WIDTH for s in schemas):
        return None, values
    widest = max((s for s in schemas if s is not None), key=_WIDTH.__getitem__)
    if widest in {FLOAT32, FLOAT64}:
        return widest, [float(v) for v in values]
    return widest, values


def _number(text: str) -> SchemaAndValue | None:
    value = Decimal(text)
    if abs(value.adjusted()) > _EXPONENT_MAX:
        return None
    if abs(value.adjusted()) < 20 and value == int(value):
        number = int(value)
        for bits, schema in _INTEGERS:
            if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                return SchemaAndValue(schema, number)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "the pattern knows neither NaN nor infinity"
    if exponent != 0:
        as_float = float(value)
        if Decimal(repr(as_float)) == value:
            return SchemaAndValue(FLOAT32 if _fits_float32(as_float, value) else FLOAT64, as_float)
    return SchemaAndValue(logical.decimal_builder(-exponent).build(), value)


def _fits_float32(as_float: float, value: Decimal) -> bool:
    try:
        return Decimal(float_text(as_float)) == value
    except DataError:
        return False


def _temporal(text: str) -> SchemaAndValue | None:
    match = _TEMPORAL.fullmatch(text)
    if match is None:
        return None
    try:
        if match["date"]:
            return SchemaAndValue(_DATE, date.fromisoformat(match["date"]))
        if match["time"]:
            return SchemaAndValue(_TIME, time.fromisoformat(match["time"]))
        return SchemaAndValue(_TIMESTAMP, datetime.fromisoformat(match["ts"]).replace(tzinfo=UTC))
    except ValueError:
        return None  # 2020-13-02: looks like a date and is none


def write_text(schema: Schema | None, value: Any, *, embedded: bool = False) -> str:
    """Writes a value as Kafka's header text: strings bare at the top and quoted inside, bytes as base64."""
    match value:
        case str():
            return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"' if embedded else value
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime():
            if value.tzinfo is None:
                raise DataError(f"{value!r} has no time zone")
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
        case time():
            return f"{value.isoformat('milliseconds')}Z"
        case list() | tuple():
            inner = schema and schema.value_schema
            return f"[{','.join(write_text(inner, v, embedded=True) for v in value)}]"
        case dict():
            keys, values = schema and schema.key_schema, schema and schema.value_schema
            return _object((write_text(keys, k, embedded=True), values, v) for k, v in value.items())
        case Struct():
            fields = value.schema.fields
            return _object((f'"{f.name}"', f.schema, value.get(f.name)) for f in fields)
        case _:
            return text_of(value, schema)


def _object(pairs: Any) -> str:
    return "{" + ",".join(f"{k}:{write_text(schema, v, embedded=True)}" for k, schema, v in pairs) + "}"
