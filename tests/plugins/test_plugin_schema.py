"""Schemas, structs and logical types: what fits, what does not, and how the error names it."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins import logical
from klamm_plugins.errors import DataError
from klamm_plugins.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
    validate_value,
)

INNER = SchemaBuilder.struct("inner").field("n", INT32).build()
OUTER = (
    SchemaBuilder.struct("outer")
    .field("id", INT64)
    .field("tags", SchemaBuilder.array(STRING).optional().build())
    .field("inner", INNER)
    .field("counts", SchemaBuilder.map(STRING, INT8).optional().build())
    .field("note", SchemaBuilder(Type.STRING).default("none").build())
    .build()
)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, -128),
        (INT16, 32767),
        (INT32, -(2**31)),
        (INT64, 2**63 - 1),
        (FLOAT64, 1.5),
        (FLOAT64, 2),
        (BOOLEAN, False),
        (STRING, ""),
        (BYTES, memoryview(b"x")),
        (OPTIONAL_STRING, None),
        (SchemaBuilder(Type.INT32).default(5).build(), None),
        (SchemaBuilder.array(OPTIONAL_INT32).build(), [1, None]),
        (SchemaBuilder.map(INT32, STRING).build(), {1: "a"}),
    ],
)
def test_values_that_fit(schema, value):
    validate_value(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        (INT8, 128, "value: 128 is out of range for INT8 (-128 to 127)"),
        (INT32, "5", "value: str does not fit Schema{INT32}, which takes int"),
        (INT32, True, "value: bool does not fit Schema{INT32}, which takes int"),
        (FLOAT64, True, "value: bool does not fit Schema{FLOAT64}, which takes float"),
        (STRING, b"x", "value: bytes does not fit Schema{STRING}, which takes str"),
        (STRING, None, "value: null for a required field of type Schema{STRING}"),
        (SchemaBuilder.array(INT32).build(), [1, "x"], "value[1]: str does not fit"),
        (SchemaBuilder.map(STRING, INT32).build(), {"a": None}, "value['a']: null for a required field"),
        (SchemaBuilder.map(STRING, INT32).build(), {1: 1}, "value key 1: int does not fit"),
        (INNER, Struct(OUTER), "value: struct of Schema{outer:STRUCT} does not have the fields of"),
    ],
)
def test_values_that_do_not_fit(schema, value, error):
    with pytest.raises(DataError) as raised:
        validate_value(schema, value)
    assert str(raised.value).startswith(error)


def test_struct_checks_each_value_as_it_is_put():
    struct = Struct(OUTER, id=1, inner=Struct(INNER, n=2))
    struct["tags"] = ["a"]
    assert (struct["id"], struct["tags"], struct["note"]) == (1, ["a"], "none")
    assert struct.get_without_default("note") is None
    assert struct.to_dict() == {"id": 1, "tags": ["a"], "inner": {"n": 2}, "counts": None, "note": "none"}
    assert repr(struct) == "Struct{id=1,tags=['a'],inner=Struct{n=2}}"
    with pytest.raises(DataError, match=r"^id: str does not fit"):
        struct.put("id", "x")
    with pytest.raises(DataError, match=r"nope is not a valid field name of .*; it has: id, tags, inner"):
        struct.put("nope", 1)
    with pytest.raises(DataError, match=r"^counts\['a'\]: 500 is out of range for INT8"):
        struct.put("counts", {"a": 500})


def test_struct_names_the_missing_field_by_its_path():
    with pytest.raises(DataError, match=r"^id: null for a required field"):
        Struct(OUTER, inner=Struct(INNER, n=1)).validate()
    with pytest.raises(DataError, match=r"^inner\.n: null for a required field"):
        Struct(OUTER, id=1).put("inner", Struct(INNER))
    with pytest.raises(DataError, match="needs a schema of type STRUCT"):
        Struct(STRING)


def test_schemas_are_equal_by_what_they_say():
    def build():
        return (
            SchemaBuilder.array(INT32).name("n").version(1).doc("d").parameter("a", "b").default([1]).build()
        )

    assert build() == build()
    assert hash(build()) == hash(build())
    others = [
        SchemaBuilder.array(INT32).name("n").version(1).doc("d").parameter("a", "b").default([2]).build(),
        SchemaBuilder.array(INT32).name("n").version(2).doc("d").parameter("a", "b").default([1]).build(),
        SchemaBuilder.array(INT64).name("n").version(1).doc("d").parameter("a", "b").default([1]).build(),
        SchemaBuilder.array(INT32).name("n").version(1).doc("d").parameter("a", "c").default([1]).build(),
        SchemaBuilder.array(INT32).name("n").version(1).doc("d").parameter("a", "b").build(),
    ]
    assert all(build() != other for other in others)
    assert repr(build()) == "Schema{n:ARRAY}"


@pytest.mark.parametrize(
    "build",
    [
        lambda: SchemaBuilder(Type.ARRAY),
        lambda: SchemaBuilder(Type.INT32, value_schema=INT32),
        lambda: SchemaBuilder(Type.INT32).field("a", INT32),
        lambda: SchemaBuilder.struct().field("a", INT32).field("a", INT32),
        lambda: SchemaBuilder(Type.INT32).default("x").build(),
    ],
)
def test_the_builder_refuses_what_makes_no_schema(build):
    with pytest.raises(DataError):
        build()


def through(schema: Schema, value):
    validate_value(schema, value)
    return logical.from_primitive(schema, logical.to_primitive(schema, value))


@given(st.integers(), st.integers(-5, 30))
def test_decimals_survive(unscaled, scale):
    value = logical.scaled(unscaled, scale)
    assert through(logical.decimal_builder(scale).build(), value) == value
    assert value == Decimal(unscaled) / Decimal(10) ** scale or abs(unscaled) > 10**20


@given(st.dates())
def test_dates_survive(value):
    assert through(logical.date_builder().build(), value) == value


@given(st.times())
def test_times_survive_to_the_millisecond(value):
    kept = value.replace(microsecond=value.microsecond // 1000 * 1000, fold=0)
    assert through(logical.time_builder().build(), value) == kept


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_timestamps_survive_to_the_millisecond(value):
    # Half a day from either end of Python's range, UTC could lie outside it.
    if not 2 <= value.year <= 9998:
        return
    assert value - through(logical.timestamp_builder().build(), value) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("builder", "value", "error"),
    [
        (logical.decimal_builder(2), Decimal("1.5"), "has scale 1 but the schema says 2"),
        (logical.decimal_builder(2), 1.5, "takes a finite decimal.Decimal"),
        (logical.decimal_builder(0), Decimal("NaN"), "takes a finite decimal.Decimal"),
        (logical.date_builder(), datetime(2020, 1, 1, tzinfo=UTC), "datetime does not fit Date"),
        (logical.time_builder(), 5, "5 does not fit Time"),
        (logical.time_builder(), time(1, tzinfo=UTC), "without a time zone"),
        (logical.timestamp_builder(), datetime(2020, 1, 1), "with a time zone"),  # noqa: DTZ001
        (logical.timestamp_builder(), date(2020, 1, 1), "with a time zone"),
    ],
)
def test_logical_values_that_do_not_fit(builder, value, error):
    with pytest.raises(DataError, match=error):
        validate_value(builder.build(), value)


def test_primitives_that_stand_for_nothing():
    with pytest.raises(DataError, match="a day has 86400000 milliseconds"):
        logical.from_primitive(logical.time_builder().build(), 86_400_000)
    with pytest.raises(DataError, match="out of range"):
        logical.from_primitive(logical.timestamp_builder().build(), 2**62)
    with pytest.raises(DataError, match="scale must be an integer, not None"):
        validate_value(SchemaBuilder(Type.BYTES).name(logical.DECIMAL).build(), Decimal(1))
