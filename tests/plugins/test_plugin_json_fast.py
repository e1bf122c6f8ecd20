"""The fast way and the slow way between values and JSON agree, on what fits and on what does not."""

from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins import logical
from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.converters.json_decode import holds_decimals
from klamm_plugins.converters.json_read import JsonReader, loads
from klamm_plugins.converters.json_text import dumps
from klamm_plugins.converters.json_write import JsonWriter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type

VALUES = {
    Type.INT8: st.integers(-128, 127),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT32: st.floats(width=32),
    Type.FLOAT64: st.floats() | st.integers(-5, 5),
    Type.BOOLEAN: st.booleans(),
    Type.STRING: st.text(max_size=5),
    Type.BYTES: st.binary(max_size=5),
}
WRONG = st.sampled_from(
    [None, "text", 5, 1.5, 2**70, True, b"x", [None], {"a": None}, {1: 2}, date(2020, 1, 1)]
)
LOGICAL = [
    (logical.decimal_builder(2).build(), st.integers(-(10**6), 10**6).map(lambda n: logical.scaled(n, 2))),
    (logical.date_builder().build(), st.dates()),
    (SchemaBuilder(Type.STRING).name(logical.DATE).build(), st.text(max_size=3)),  # a name alone says nothing
    (logical.timestamp_builder().build(), st.just(datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC))),
]


@st.composite
def leaf(draw):
    kind = draw(st.sampled_from(list(VALUES)))
    optional = draw(st.booleans())
    default = draw(st.none() | VALUES[kind])
    schema = Schema(kind, optional=optional, default=default)
    return schema, VALUES[kind] | st.none() if optional or default is not None else VALUES[kind]


def array(inner):
    return SchemaBuilder.array(inner[0]).build(), st.lists(inner[1], max_size=3)


def mapping(inner):
    return SchemaBuilder.map(Schema(Type.STRING), inner[0]).build(), st.dictionaries(
        st.text(max_size=3), inner[1], max_size=3
    )


def pairs(inner):
    keys = st.dictionaries(st.integers(-9, 9), inner[1], max_size=3)
    return SchemaBuilder.map(Schema(Type.INT8), inner[0]).build(), keys


def struct(fields):
    builder = SchemaBuilder.struct()
    for i, (schema, _) in enumerate(fields):
        builder.field(f"f{i}", schema)
    schema = builder.build()
    values = st.tuples(*(v for _, v in fields))
    return schema, values.map(lambda vs: Struct(schema, **{f"f{i}": v for i, v in enumerate(vs)}))


SHAPES = st.recursive(
    leaf() | st.sampled_from(LOGICAL),
    lambda s: s.map(array) | s.map(mapping) | s.map(pairs) | st.lists(s, max_size=3).map(struct),
    max_leaves=5,
)


def outcome(function, *args):
    try:
        return function(*args)
    except DataError as e:
        return f"DataError: {e}"


@given(st.data(), st.booleans(), st.booleans())
def test_writing_and_reading(data, numeric, replace):
    schema, values = data.draw(SHAPES)
    value = data.draw(values)
    writer = JsonWriter(numeric_decimals=numeric, replace_null_with_default=replace)
    fast = outcome(lambda: dumps(writer.compiled(schema)(value)))
    assert fast == outcome(lambda: dumps(writer.to_json(schema, value)))
    if isinstance(fast, bytes):
        both_read(schema, fast, replace)


@given(st.data(), st.booleans(), st.booleans())
def test_writing_many(data, numeric, replace):
    """A list of values is written as each of them is alone, odd ones among them."""
    schema, values = data.draw(SHAPES)
    column = data.draw(st.lists(values | WRONG if data.draw(st.booleans()) else values, max_size=6))
    writer = JsonWriter(numeric_decimals=numeric, replace_null_with_default=replace)
    assert outcome(writer.texts(schema), column) == outcome(
        lambda: [dumps(writer.to_json(schema, value)) for value in column]
    )


@given(st.data(), st.booleans())
def test_structs_in_columns_are_written_as_structs(data, replace):
    schema, values = data.draw(
        st.lists(leaf() | st.sampled_from(LOGICAL), min_size=1, max_size=4).map(struct)
    )
    structs = data.draw(st.lists(values, min_size=1, max_size=4))
    row, count = structs[0].values, len(structs)
    alike = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    inner = StructColumn(
        schema,
        [Repeated(row[i], count) if same else [s.values[i] for s in structs] for i, same in enumerate(alike)],
        count,
    )
    envelope = SchemaBuilder.struct().field("op", Schema(Type.STRING)).field("after", schema).build()
    column = StructColumn(envelope, [Repeated("ü\\u0001", count), inner], count)
    writer = JsonWriter(numeric_decimals=False, replace_null_with_default=replace)
    for whole in (column, column[1:], column[:1]):
        assert outcome(writer.texts(envelope), whole) == outcome(
            lambda of: [dumps(writer.to_json(envelope, value)) for value in of], whole
        )
    assert list(column[1:]) == list(column)[1:]
    assert [column[i] for i in range(-count, count)] == list(column) * 2


def both_read(schema, written, replace):
    reader = JsonReader(replace_null_with_default=replace)
    parsed = loads(written, exact=holds_decimals(schema))
    slow = outcome(reader.from_json, schema, parsed)
    assert repr(outcome(reader.compiled(schema), parsed)) == repr(slow)  # repr: NaN is not equal to itself


@given(st.data(), WRONG)
def test_values_that_may_not_fit(data, value):
    schema, _ = data.draw(SHAPES)
    writer = JsonWriter(numeric_decimals=False, replace_null_with_default=True)
    assert outcome(lambda: dumps(writer.compiled(schema)(value))) == outcome(
        lambda: dumps(writer.to_json(schema, value))
    )
    if not isinstance(value, (bytes, date)):
        reader = JsonReader(replace_null_with_default=True)
        assert repr(outcome(reader.compiled(schema), value)) == repr(outcome(reader.from_json, schema, value))


def test_a_decimal_is_exact_either_way():
    schema = logical.decimal_builder(2).build()
    writer = JsonWriter(numeric_decimals=True, replace_null_with_default=True)
    assert dumps(writer.compiled(schema)(Decimal("0.10"))) == b"0.10"
