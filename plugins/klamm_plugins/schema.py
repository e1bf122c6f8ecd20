"""Connect's schema model: types, schemas, the builder, and structs with validation.

A schema is immutable and hashable (converters cache by it). Values are plain Python: int, float, bool, str,
bytes, list, dict and `Struct`; a named schema may carry a logical type (`klamm_plugins.logical`), whose
values are `decimal.Decimal`, `datetime.date`, `time` and `datetime`. Errors are `DataError` and name the
field by its path. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from klamm_plugins.errors import DataError


class Type(StrEnum):
    """Connect's schema types; the value is the name that the JSON converter writes."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    @property
    def is_primitive(self) -> bool:
        return self not in _COMPOSITE


_COMPOSITE: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_INT_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct schema; `index` is its place."""

    name: str
    index: int
    schema: Schema


class Schema:
    """The shape of a value. Make one with `SchemaBuilder`, or use the constants (`STRING`, `OPTIONAL_INT64`).

    `name` and `version` identify it to schema registries and name logical types; `parameters` are free
    strings. `default` None with `optional` False means that there is no default.
    """

    __slots__ = (
        "_by_name",
        "_hash",
        "default",
        "doc",
        "fields",
        "key_schema",
        "name",
        "optional",
        "parameters",
        "type",
        "value_schema",
        "version",
    )

    def __init__(
        self,
        type: Type,
        *,
        optional: bool = False,
        default: Any = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        fields: tuple[Field, ...] = (),
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        self.type = type
        self.optional = optional
        self.name = name
        self.version = version
        self.doc = doc
        self.parameters = dict(parameters) if parameters else {}
        self.fields = fields
        self.key_schema = key_schema
        self.value_schema = value_schema
        self.default = default
        self._by_name = {f.name: f for f in fields}
        self._hash: int | None = None
        if default is not None:
            validate_value(self, default, "default")

    def field(self, name: str) -> Field | None:
        """Returns the struct field called `name`, or None."""
        return self._by_name.get(name)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or hash(self) != hash(other):
            return False
        return self._identity() == other._identity() and self.default == other.default

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._identity())
        return self._hash

    def _identity(self) -> tuple[Any, ...]:
        # Defaults may be lists or dicts, which have no hash: __eq__ compares them separately.
        return (
            self.type,
            self.optional,
            self.name,
            self.version,
            self.doc,
            tuple(sorted(self.parameters.items())),
            self.fields,
            self.key_schema,
            self.value_schema,
        )

    def __repr__(self) -> str:
        # Kafka's form, Schema{name:TYPE}: tools and people search logs for it.
        kind = self.type.name
        return f"Schema{{{self.name}:{kind}}}" if self.name else f"Schema{{{kind}}}"


class Struct:
    """A value of a struct schema. Fields are set and read by name; each value is checked as it is put.

    >>> point = SchemaBuilder.struct("point").field("x", INT32).field("y", OPTIONAL_INT32).build()
    >>> Struct(point, x=3)["x"]
    3
    """

    __slots__ = ("_values", "schema")

    def __init__(self, schema: Schema, /, **values: Any) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Struct needs a schema of type STRUCT, not {schema!r}")
        self.schema = schema
        self._values: list[Any] = [None] * len(schema.fields)
        for name, value in values.items():
            self.put(name, value)

    @classmethod
    def of_checked(cls, schema: Schema, values: list[Any]) -> Struct:
        """Makes a struct of values in the order of the fields, which the caller has checked. For converters."""
        struct = cls.__new__(cls)
        struct.schema = schema
        struct._values = values  # noqa: SLF001
        return struct

    @property
    def values(self) -> list[Any]:
        """The values as they were set, in the order of the fields; None where nothing was set. Do not change them."""
        return self._values

    def put(self, name: str, value: Any) -> Struct:
        """Sets a field and returns self, so that calls can be chained. Raises DataError for a missing field or a value that
        does not fit.
        """
        field = self._field(name)
        validate_value(field.schema, value, name)
        self._values[field.index] = value
        return self

    def get(self, name: str) -> Any:
        """Returns the field's value, or its default when it was not set."""
        field = self._field(name)
        value = self._values[field.index]
        return field.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """Returns the field's value as it was set, None when it was not."""
        return self._values[self._field(name).index]

    def validate(self) -> None:
        """Checks that every required field is set. The runtime does this before it converts the record."""
        validate_value(self.schema, self, "")

    def to_dict(self) -> dict[str, Any]:
        """Returns field names and values, defaults filled in; nested structs become dicts."""
        return {f.name: _plain(self.get(f.name)) for f in self.schema.fields}

    def _field(self, name: str) -> Field:
        field = self.schema.field(name)
        if field is None:
            known = ", ".join(f.name for f in self.schema.fields)
            raise DataError(f"{name} is not a valid field name of {self.schema!r}; it has: {known}")
        return field

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.put(name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and self._values == other._values

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        pairs = zip(self.schema.fields, self._values, strict=True)
        return f"Struct{{{','.join(f'{f.name}={v!r}' for f, v in pairs if v is not None)}}}"


def _plain(value: Any) -> Any:
    match value:
        case Struct():
            return value.to_dict()
        case list():
            return [_plain(v) for v in value]
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case _:
            return value


LogicalCheck = Callable[[Schema, Any], str | None]
"""A check that returns the fault of a value of a logical type, or None."""

_LOGICAL: dict[str, tuple[Type, LogicalCheck]] = {}


def register_logical(name: str, base: Type, check: LogicalCheck) -> None:
    """Makes `check` judge values of schemas with this name (see klamm_plugins.logical)."""
    _LOGICAL[name] = (base, check)


def is_judged(schema: Schema) -> bool:
    """Returns whether a `LogicalCheck` judges values of this schema."""
    return schema.name in _LOGICAL and _LOGICAL[schema.name][0] is schema.type


def validate_value(schema: Schema, value: Any, path: str = "value") -> None:
    """Checks a value against a schema, all the way down. Raises DataError that names the path of the misfit."""
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataError(f"{path or 'value'}: null for a required field of type {schema!r}")
        return
    wrong = _mismatch(schema, value, path)
    if wrong is not None:
        raise DataError(f"{path or 'value'}: {wrong}")


def _mismatch(schema: Schema, value: Any, path: str) -> str | None:
    """Returns the fault of this value itself. Its parts raise by themselves with their own path."""
    if schema.name is not None and is_judged(schema):
        return _LOGICAL[schema.name][1](schema, value)
    kind = schema.type
    if kind in _INT_BITS:
        return _int_mismatch(kind, value)
    if not _fits(kind, value):
        return f"{type(value).__name__} does not fit {schema!r}, which takes {_PYTHON[kind][0].__name__}"
    match kind:
        case Type.ARRAY:
            for i, item in enumerate(value):
                validate_value(_inner(schema), item, f"{path}[{i}]")
        case Type.MAP:
            for k, v in value.items():
                validate_value(schema.key_schema or _inner(schema), k, f"{path} key {k!r}")
                validate_value(_inner(schema), v, f"{path}[{k!r}]")
        case Type.STRUCT:
            if value.schema is not schema and value.schema.fields != schema.fields:
                return f"struct of {value.schema!r} does not have the fields of {schema!r}"
            for f in schema.fields:
                validate_value(f.schema, value.get_without_default(f.name), f"{path}.{f.name}".lstrip("."))
    return None


def _fits(kind: Type, value: Any) -> bool:
    # In Python a bool is an int; in Connect it is not a number.
    return isinstance(value, _PYTHON[kind]) and (kind is Type.BOOLEAN or not isinstance(value, bool))


def _inner(schema: Schema) -> Schema:
    assert schema.value_schema is not None, "the builder gives arrays and maps their inner schemas"
    return schema.value_schema


def _int_mismatch(kind: Type, value: Any) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{type(value).__name__} does not fit Schema{{{kind.name}}}, which takes int"
    limit = 1 << (_INT_BITS[kind] - 1)
    if not -limit <= value < limit:
        return f"{value} is out of range for {kind.name} ({-limit} to {limit - 1})"
    return None


_PYTHON: Final[dict[Type, tuple[type, ...]]] = {
    Type.FLOAT32: (float, int),
    Type.FLOAT64: (float, int),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (dict,),
    Type.STRUCT: (Struct,),
}


class SchemaBuilder:
    """Builds a schema step by step; each method returns the builder.

    >>> SchemaBuilder.array(STRING).optional().doc("tags").build()
    Schema{ARRAY}
    """

    def __init__(
        self, type: Type, *, key_schema: Schema | None = None, value_schema: Schema | None = None
    ) -> None:
        if (value_schema is not None) != (type in {Type.ARRAY, Type.MAP}):
            raise DataError(f"{type.name}: an ARRAY or a MAP, and only these, needs the schema of its values")
        self._type = type
        self._key_schema = key_schema
        self._value_schema = value_schema
        self._fields: list[Field] = []
        self._optional = False
        self._default: Any = None
        self._name: str | None = None
        self._version: int | None = None
        self._doc: str | None = None
        self._parameters: dict[str, str] = {}

    @classmethod
    def struct(cls, name: str | None = None) -> SchemaBuilder:
        return cls(Type.STRUCT).name(name)

    @classmethod
    def array(cls, value_schema: Schema) -> SchemaBuilder:
        return cls(Type.ARRAY, value_schema=value_schema)

    @classmethod
    def map(cls, key_schema: Schema, value_schema: Schema) -> SchemaBuilder:
        return cls(Type.MAP, key_schema=key_schema, value_schema=value_schema)

    def field(self, name: str, schema: Schema) -> SchemaBuilder:
        """Adds a field to a struct. Raises DataError when this is no struct or the name is taken."""
        if self._type is not Type.STRUCT:
            raise DataError(f"{name}: cannot add a field to a schema of type {self._type.name}")
        if any(f.name == name for f in self._fields):
            raise DataError(f"{name}: a field of this name is there already")
        self._fields.append(Field(name, len(self._fields), schema))
        return self

    def optional(self) -> SchemaBuilder:
        self._optional = True
        return self

    def default(self, value: Any) -> SchemaBuilder:
        self._default = value
        return self

    def name(self, name: str | None) -> SchemaBuilder:
        self._name = name
        return self

    def version(self, version: int | None) -> SchemaBuilder:
        self._version = version
        return self

    def doc(self, doc: str | None) -> SchemaBuilder:
        self._doc = doc
        return self

    def parameter(self, name: str, value: str) -> SchemaBuilder:
        self._parameters[name] = value
        return self

    def build(self) -> Schema:
        """Returns the schema. Raises DataError when the default does not fit it."""
        return Schema(
            self._type,
            optional=self._optional,
            default=self._default,
            name=self._name,
            version=self._version,
            doc=self._doc,
            parameters=self._parameters,
            fields=tuple(self._fields),
            key_schema=self._key_schema,
            value_schema=self._value_schema,
        )


INT8: Final = Schema(Type.INT8)
INT16: Final = Schema(Type.INT16)
INT32: Final = Schema(Type.INT32)
INT64: Final = Schema(Type.INT64)
FLOAT32: Final = Schema(Type.FLOAT32)
FLOAT64: Final = Schema(Type.FLOAT64)
BOOLEAN: Final = Schema(Type.BOOLEAN)
STRING: Final = Schema(Type.STRING)
BYTES: Final = Schema(Type.BYTES)
OPTIONAL_INT8: Final = Schema(Type.INT8, optional=True)
OPTIONAL_INT16: Final = Schema(Type.INT16, optional=True)
OPTIONAL_INT32: Final = Schema(Type.INT32, optional=True)
OPTIONAL_INT64: Final = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32: Final = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64: Final = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN: Final = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES: Final = Schema(Type.BYTES, optional=True)
