"""The fast way from Connect values to JSON: a writer per schema, made once, that takes the values of many records at once.

Writers know the usual forms only. They refuse all others (a subclass of int, a value that does not fit) with `Misfit`, and the
caller asks `JsonWriter` value by value, which knows all forms and names the fault. So both ways must agree on the forms that
writers accept; a test compares them.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any, Final

import orjson

from klamm_plugins import logical
from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.converters.compiled import INT_END, Misfit
from klamm_plugins.converters.json_text import dumps, dumps_each, number
from klamm_plugins.schema import Schema, Struct, Type, is_judged
from klamm_plugins.text import double_text, float_text, is_plain_double

Column = Sequence[Any]
Slow = Callable[[Schema, Any], Any]
"""Turns one value of any form into the input of `dumps`."""

_NULL: Final = type(None)
_schema_of: Final = attrgetter("schema")
_values_of: Final = attrgetter("values")


class ColumnWriter:
    """Writes values of one schema, whose usual form is `kind`: `convert` gets these, and never a null."""

    kind: type = object

    def __init__(self, schema: Schema, slow: Slow) -> None:
        self.schema = schema
        self._slow = slow
        self._usual = {self.kind}
        self._or_null = {self.kind, _NULL}
        self._is_null = schema.optional and schema.default is None

    def convert(self, column: Column) -> Column:
        """Returns the inputs of `dumps` for values that are not null."""
        return column

    def objects(self, column: Column) -> Column:
        """Returns the inputs of `dumps`."""
        kinds = set(map(type, column))
        if kinds == self._usual:
            return self.convert(column)
        if not kinds <= self._or_null:
            raise Misfit
        null = self._null() if kinds else None
        present = [value for value in column if value is not None]
        written = iter(self.convert(present) if present else ())
        return [null if value is None else next(written) for value in column]

    def one(self, value: Any) -> Any:
        """Returns the input of `dumps` for one value."""
        if type(value) is self.kind:
            return self.convert((value,))[0]
        return self._null() if value is None else self.objects((value,))[0]

    def _null(self) -> Any:
        return None if self._is_null else self._slow(self.schema, None)

    def texts(self, column: Column) -> list[bytes]:
        """Returns one JSON text for each value."""
        if type(column) is Repeated:
            return [dumps(self.one(column.value))] * len(column)
        return dumps_each(self.objects(column) if len(column) != 1 else [self.one(column[0])])


class _Any(ColumnWriter):
    """The writer of what has no fast way."""

    def one(self, value: Any) -> Any:
        return self._slow(self.schema, value)

    def objects(self, column: Column) -> Column:
        return [self._slow(self.schema, value) for value in column]


class _String(ColumnWriter):
    kind = str


class _Boolean(ColumnWriter):
    kind = bool


class _Integer(ColumnWriter):
    kind = int

    def __init__(self, schema: Schema, slow: Slow) -> None:
        super().__init__(schema, slow)
        self._end = INT_END[schema.type]

    def convert(self, column: Column) -> Column:
        if min(column) < -self._end or max(column) >= self._end:
            raise Misfit
        return column

    def texts(self, column: Column) -> list[bytes]:
        if type(column) is Repeated or not column:
            return super().texts(column)
        return dumps(list(self.objects(column)))[1:-1].split(b",")


class _Float32(ColumnWriter):
    kind = float

    def convert(self, column: Column) -> Column:
        return [number(float_text(value)) for value in column]


class _Float64(ColumnWriter):
    kind = float

    def convert(self, column: Column) -> Column:
        if all(map(is_plain_double, column)):
            return column
        return [value if is_plain_double(value) else number(double_text(value)) for value in column]


class _Bytes(ColumnWriter):
    kind = bytes

    def convert(self, column: Column) -> Column:
        return [b2a_base64(value, newline=False).decode("ascii") for value in column]


class _Decimal(ColumnWriter):
    kind = Decimal

    def __init__(self, schema: Schema, slow: Slow) -> None:
        super().__init__(schema, slow)
        self._fits = Decimal((0, (1,), -logical.decimal_scale(schema))).same_quantum
        self._bytes = logical.primitive_writer(schema)

    def convert(self, column: Column) -> Column:
        if not all(map(self._fits, column)):
            raise Misfit
        return [b2a_base64(data, newline=False).decode("ascii") for data in map(self._bytes, column)]


class _NumericDecimal(_Decimal):
    def convert(self, column: Column) -> Column:
        if not all(map(self._fits, column)):
            raise Misfit
        return [orjson.Fragment(str(value)) for value in column]


class _Moment(ColumnWriter):
    """The writer of a logical type of days and times."""

    def __init__(self, schema: Schema, slow: Slow, kind: type) -> None:
        self.kind = kind
        super().__init__(schema, slow)
        self._number = logical.primitive_writer(schema)

    def convert(self, column: Column) -> Column:
        if self.kind is not date and any((v.tzinfo is None) != (self.kind is time) for v in column):
            raise Misfit
        return list(map(self._number, column))


class _List(ColumnWriter):
    kind = list

    def __init__(self, schema: Schema, slow: Slow, inner: ColumnWriter) -> None:
        super().__init__(schema, slow)
        self._inner = inner

    def convert(self, column: Column) -> Column:
        written = iter(self._inner.objects(list(chain.from_iterable(column))))
        return [list(islice(written, len(value))) for value in column]


class _Map(ColumnWriter):
    """The writer of maps whose keys are strings."""

    kind = dict

    def __init__(self, schema: Schema, slow: Slow, inner: ColumnWriter) -> None:
        super().__init__(schema, slow)
        self._inner = inner

    def convert(self, column: Column) -> Column:
        if not set(map(type, chain.from_iterable(column))) <= {str}:
            raise Misfit
        written = iter(self._inner.objects([v for value in column for v in value.values()]))
        return [dict(zip(value, written, strict=False)) for value in column]


class _Struct(ColumnWriter):
    kind = Struct

    def __init__(self, schema: Schema, slow: Slow, fields: Sequence[ColumnWriter]) -> None:
        super().__init__(schema, slow)
        self._names = [f.name for f in schema.fields]
        self._fields = fields
        self._labels = [b"," * (i > 0) + dumps(name) + b":" for i, name in enumerate(self._names)]

    def convert(self, column: Column) -> Column:
        if len(column) == 1:
            value = column[0]
            self._check(value.schema)
            fields = zip(self._names, self._fields, value.values, strict=True)
            return [{name: field.one(part) for name, field, part in fields}]
        self._check(*{id(s): s for s in map(_schema_of, column)}.values())
        return self._rows(list(zip(*map(_values_of, column), strict=True)), len(column))

    def objects(self, column: Column) -> Column:
        if type(column) is StructColumn:
            self._check(column.schema)
            if _is_nested(column):
                return [orjson.Fragment(text) for text in self._joined(column)]
            return self._rows(column.columns, len(column))
        return super().objects(column)

    def texts(self, column: Column) -> list[bytes]:
        if type(column) is StructColumn and _is_nested(column):
            self._check(column.schema)
            return self._joined(column)
        return super().texts(column)

    def _check(self, *schemas: Schema) -> None:
        if any(schema is not self.schema and schema != self.schema for schema in schemas):
            raise Misfit

    def _rows(self, columns: Sequence[Column], count: int) -> list[dict[str, Any]]:
        if not columns:
            return [{}] * count
        names = self._names
        written = [field.objects(column) for field, column in zip(self._fields, columns, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*written, strict=True)]

    def _joined(self, column: StructColumn) -> list[bytes]:
        """Returns objects whose constant parts are written once."""
        parts: list[Iterator[bytes] | list[bytes]] = []
        constant = b"{"
        for label, field, values in zip(self._labels, self._fields, column.columns, strict=True):
            constant += label
            if type(values) is Repeated:
                constant += dumps(field.one(values.value))
            else:
                parts += repeat(constant), field.texts(values)
                constant = b""
        constant += b"}"
        if not parts:
            return [constant] * len(column)
        return list(map(b"".join, zip(*parts, repeat(constant), strict=False)))


def _is_nested(column: StructColumn) -> bool:
    """Returns whether joining texts is faster than making a dict of each row."""
    return (
        any(type(values) in {Repeated, StructColumn} for values in column.columns) or len(column.columns) == 1
    )


_LEAVES: Final[dict[Type, type[ColumnWriter]]] = {
    Type.STRING: _String,
    Type.BOOLEAN: _Boolean,
    Type.INT8: _Integer,
    Type.INT16: _Integer,
    Type.INT32: _Integer,
    Type.INT64: _Integer,
    Type.FLOAT32: _Float32,
    Type.FLOAT64: _Float64,
    Type.BYTES: _Bytes,
}
_MOMENTS: Final = {logical.DATE: date, logical.TIME: time, logical.TIMESTAMP: datetime}


def compile_columns(schema: Schema, slow: Slow, *, numeric_decimals: bool) -> ColumnWriter:
    """Returns the writer of a schema; `slow` does what has no fast way, and nulls."""

    def inner(part: Schema | None) -> ColumnWriter:
        assert part is not None, "the builder gives arrays and maps their inner schemas"
        return compile_columns(part, slow, numeric_decimals=numeric_decimals)

    if logical.is_decimal(schema):
        return (_NumericDecimal if numeric_decimals else _Decimal)(schema, slow)
    if logical.is_logical(schema):
        return _Moment(schema, slow, _MOMENTS[schema.name or ""])
    if is_judged(schema):
        return _Any(schema, slow)
    match schema.type:
        case Type.STRUCT:
            return _Struct(schema, slow, [inner(f.schema) for f in schema.fields])
        case Type.ARRAY:
            return _List(schema, slow, inner(schema.value_schema))
        case Type.MAP:
            keys = schema.key_schema
            if keys is None or keys.type is not Type.STRING or is_judged(keys):
                return _Any(schema, slow)
            return _Map(schema, slow, inner(schema.value_schema))
    return _LEAVES[schema.type](schema, slow)
