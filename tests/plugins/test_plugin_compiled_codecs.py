"""The compiled ways of Avro, Protobuf, JSON Schema and JSON do what the slow ways do: values, bytes and errors."""

import random as randoms
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins.test_plugin_json_fast import SHAPES, WRONG, outcome
from support import transforms
from support.random_data import RandomData

from klamm_plugins.converters import protobuf_pool
from klamm_plugins.converters.avro_read import AvroReader
from klamm_plugins.converters.avro_write import AvroSchema, AvroWriter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.json_decode import holds_decimals
from klamm_plugins.converters.json_read import JsonReader, loads
from klamm_plugins.converters.json_schema_registry import JsonSchemaConverter
from klamm_plugins.converters.protobuf_model import proto_text
from klamm_plugins.converters.protobuf_names import Settings
from klamm_plugins.converters.protobuf_read import ProtoReader
from klamm_plugins.converters.protobuf_write import ProtoWriter
from klamm_plugins.converters.registry import RegisteredSchema
from klamm_plugins.errors import DataError
from klamm_plugins.logical import decimal_builder
from klamm_plugins.schema import INT32, INT64, OPTIONAL_STRING, STRING, Schema, SchemaBuilder, Struct, Type

DEFAULTS = Settings()
ORDER = (
    SchemaBuilder.struct("acme.Order")
    .field("id", INT64)
    .field("note", OPTIONAL_STRING)
    .field("price", decimal_builder(2).optional().build())
    .field("tags", SchemaBuilder.array(STRING).build())
    .field("counts", SchemaBuilder.map(STRING, INT32).build())
    .field("place", SchemaBuilder.struct("acme.Place").field("zip", INT32).optional().build())
    .build()
)


def order(**values):
    return Struct(ORDER, **{"id": 1, "tags": ["a"], "counts": {"b": 2}, **values})


def slowly(made):
    """Returns a reader or writer without its compiled way."""
    made._fast = None
    return made


def avro_of(schema):
    try:
        found = AvroSchema(schema)
        return found, AvroWriter(schema, found.json), slowly(AvroWriter(schema, found.json))
    except (DataError, ValueError):  # no schema in Avro
        return None


def data(seed):
    """Returns random data with schemas of all kinds."""
    random = RandomData(seed)
    found = (transforms.data_of(e) for e in (random.envelope() for _ in range(3)) if e["payload"] is not None)
    return [(schema, value) for schema, value in found if schema is not None]


def spoiled(raw, random):
    """Returns bytes that are cut off, longer or different by a byte."""
    at = random.randrange(len(raw) + 1)
    return random.choice(
        [raw[:at], raw + b"\0", raw[:at] + bytes([random.randrange(256)]) + raw[at + 1 :], raw[at:]]
    )


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_avro_of_random_data(seed):
    random = randoms.Random(seed)
    for schema, value in data(seed):
        made = avro_of(schema)
        if made is None:
            continue
        avro, fast, slow = made
        raw = outcome(slow, value)
        assert outcome(fast, value) == raw
        if isinstance(raw, str):
            continue
        assert fast.many([value, value]) == [raw, raw]
        reader, by_hand = AvroReader(avro.text, {}), slowly(AvroReader(avro.text, {}))
        assert repr(reader.many([b"head" + raw] * 2, 4)) == repr([by_hand(raw)] * 2)
        for bad in (spoiled(raw, random) for _ in range(10)):
            assert shown(outcome(reader, bad)) == shown(outcome(by_hand, bad))


def shown(found):
    """Returns a value or an error without addresses of objects. NaN is not equal to itself, but its text is."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(found))


def as_field(schema):
    return SchemaBuilder.struct("r").field("f", schema).build()


@settings(deadline=None)
@given(st.data(), WRONG)
def test_avro_of_values_that_may_not_fit(data, wrong):
    inner, values = data.draw(SHAPES)
    schema = as_field(inner)
    made = avro_of(schema)
    if made is None:
        return
    _, fast, slow = made
    for value in (wrong, data.draw(values)):
        struct = Struct.of_checked(schema, [value])
        assert outcome(fast, struct) == outcome(slow, struct)
    assert outcome(fast, wrong) == outcome(slow, wrong)


def proto_writers(schema, kept=DEFAULTS):
    own = proto_text(schema, kept)
    message = protobuf_pool.read(own.text, {}).find(own.message)
    return ProtoWriter(schema, message, kept), slowly(ProtoWriter(schema, message, kept))


@pytest.mark.parametrize("kept", [Settings(), Settings(optional_for_nullables=True, int_for_enums=True)])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_protobuf_of_random_data(kept, seed):
    for schema, value in data(seed):
        try:
            fast, slow = proto_writers(schema, kept)
        except DataError:  # no schema in Protobuf
            continue
        assert outcome(fast, value) == outcome(slow, value)


NUMBERS = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto";
message M {
  int32 a = 3; int64 b = 1; uint32 c = 2; uint64 d = 4; sint32 e = 5; sint64 f = 6; fixed32 g = 7; fixed64 h = 8;
  sfixed32 i = 9; sfixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15; Color p = 16;
  optional int32 q = 17; optional string r = 300; N s = 301; google.protobuf.Timestamp t = 302; confluent.type.Decimal u = 303;
}
message N { optional bool x = 1; Color y = 2; }
enum Color { RED = 0; GREEN = 1; OLD = -5; }
"""
INTEGERS = {"a": 32, "b": 64, "e": 32, "f": 64, "i": 32, "j": 64, "q": 32}
NATURALS = {"c": 32, "d": 64, "g": 32, "h": 64}


@settings(deadline=None)
@given(st.data())
def test_protobuf_of_all_types(data):
    proto = protobuf_pool.read(NUMBERS, {})
    message = proto.find("M")
    fields = {name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in INTEGERS.items()}
    fields |= {name: st.integers(0, 2**bits - 1) for name, bits in NATURALS.items()}
    fields |= {
        "k": st.floats(width=32),
        "l": st.floats(),
        "m": st.booleans(),
        "n": st.text(),
        "o": st.binary(),
    }
    fields |= {"p": st.sampled_from([0, 1, -5, 7]), "r": st.text(max_size=200)}
    fields["s"] = st.fixed_dictionaries({}, optional={"x": st.booleans(), "y": st.sampled_from([1, -5])})
    fields["t"] = st.fixed_dictionaries(
        {"seconds": st.integers(-6 * 10**10, 2 * 10**11), "nanos": st.integers(0, 10**9 - 1)}
    )
    fields["u"] = st.fixed_dictionaries(
        {"value": st.binary(max_size=9)}, optional={"scale": st.integers(-9, 9)}
    )
    given_ = data.draw(st.fixed_dictionaries({}, optional=fields))
    raw = protobuf_pool.message_class(message)(**given_).SerializeToString()
    made = protobuf_pool.message_class(message).FromString(raw)
    read = ProtoReader(proto, message, DEFAULTS)(b"head" + raw, 4)
    wanted = {name: getattr(made, name) for name in "abcdefghijklmno"}
    for name in "dh":  # Java has no 64 bits without a sign
        wanted[name] -= 2**64 if wanted[name] >= 2**63 else 0
    wanted |= {name: getattr(made, name) if made.HasField(name) else None for name in "qr"}
    names = {0: "RED", 1: "GREEN", -5: "OLD"}
    wanted["p"] = names.get(made.p, "UNKNOWN_ENUM_VALUE_Color_7")
    wanted["s"] = (
        {"x": made.s.x if made.s.HasField("x") else None, "y": names[made.s.y]}
        if made.HasField("s")
        else None
    )
    found = read.to_dict()
    assert found.pop("t") == (moment(made.t) if made.HasField("t") else None)
    assert found.pop("u") == (number(made.u) if made.HasField("u") else None)
    assert sorted(map(repr, found.items())) == sorted(map(repr, wanted.items()))


def moment(value):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=value.seconds, milliseconds=value.nanos // 10**6
    )


def number(value):
    return int.from_bytes(value.value, "big", signed=True) * Decimal(10) ** -value.scale


@settings(deadline=None, max_examples=25)
@given(st.data(), WRONG)
def test_protobuf_of_values_that_may_not_fit(data, wrong):
    inner, values = data.draw(SHAPES)
    schema = as_field(inner)
    try:
        fast, slow = proto_writers(schema)
    except DataError:
        return
    for value in (wrong, data.draw(values)):
        struct = Struct.of_checked(schema, [value])
        assert outcome(fast, struct) == outcome(slow, struct)


def json_schema(schema, monkeypatch):
    """Returns writer and reader of a converter, and both without their compiled ways."""
    made = JsonSchemaConverter()
    made.configure({"schema.registry.url": "http://127.0.0.1:1"}, is_key=False)
    registered = RegisteredSchema(1, "JSON", made.schema_text(schema))
    fast = made.writer(schema, None), made.reading(registered, {}, b"").decode
    with monkeypatch.context() as patch:
        place = "klamm_plugins.converters.json_schema_registry"
        patch.setattr(f"{place}.compile_writer", lambda *_: never)
        patch.setattr(f"{place}.compile_decoder", lambda *_, **__: never)
        return *fast, made.writer(schema, None), made.reading(registered, {}, b"").decode


def never(_):
    raise ValueError("the slow way")


@pytest.mark.parametrize("seed", range(25))
def test_json_schema_of_random_data(seed, monkeypatch):
    random = randoms.Random(seed)
    for schema, value in data(seed):
        write, read, slow_write, slow_read = json_schema(schema, monkeypatch)
        raw = outcome(slow_write, value)
        assert outcome(write, value) == raw
        if isinstance(raw, str):
            continue
        assert repr(outcome(read, raw)) == repr(outcome(slow_read, raw))
        for bad in (spoiled(raw, random) for _ in range(5)):
            assert repr(outcome(read, bad)) == repr(outcome(slow_read, bad))


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_json_is_read_as_by_hand(data, numeric):
    schema, values = data.draw(SHAPES)
    converter = JsonConverter()
    converter.configure({"decimal.format": "NUMERIC" if numeric else "BASE64"}, is_key=False)
    raw = outcome(converter.from_connect_data, "t", schema, data.draw(values))
    if not isinstance(raw, bytes):
        return
    payload = loads(raw, exact=holds_decimals(schema))["payload"]
    by_hand = outcome(JsonReader(replace_null_with_default=True).from_json, schema, payload)
    reader = JsonConverter()
    for _ in range(2):  # the second time, the envelope's beginning is known
        assert repr(outcome(lambda: reader.to_connect_data("t", raw).value)) == repr(by_hand)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": {"type": "int32"}, "payload": 5}',
        '{ "schema" : {"type":"struct","fields":[{"field":"payload","type":"int32"}]} , "payload" : {"payload":5} }\n',
        '{"payload":5,"schema":{"type":"int32"}}',
        '{"schema":{"type":"int32"},"payload":4,"payload":5}',
    ],
)
def test_envelopes_of_other_writers(text):
    converter = JsonConverter()
    for _ in range(2):
        schema, value = converter.to_connect_data("t", text.encode())
        assert (value if schema.type is Type.INT32 else value["payload"]) == 5
    schemas, values = converter.to_connect_columns("t", [text.encode(), None, text.encode()])
    assert schemas == [schema, None, schema]
    assert values == [value, None, value]


def test_the_head_of_another_writer_is_parsed_once(monkeypatch):
    converter = JsonConverter()
    raw = b'{"schema": {"type": "string"}, "payload": "a"}'
    converter.to_connect_data("t", raw)
    monkeypatch.setattr(converter, "_read_envelope", None)
    assert converter.to_connect_data("t", raw.replace(b'"a"', b'"b"')).value == "b"


def test_large_numbers_in_a_decimal_are_exact():
    schema = as_field(decimal_builder(3).build())
    text = b'{"f":123456789012345678901234567890.125}'
    assert str(JsonReader(replace_null_with_default=True).parser(schema)(text)["f"]) == text[5:-1].decode()


def test_an_array_of_nothing_asks_for_no_memory():
    schema = as_field(SchemaBuilder.array(SchemaBuilder.struct("empty").build()).build())
    avro = AvroSchema(schema)
    assert AvroReader(avro.text, {})._fast is not None
    assert len(AvroReader(avro.text, {})(b"\x06\x00")["f"]) == 3


def test_the_usual_ways_are_compiled():
    avro = AvroSchema(ORDER)
    writer, reader = AvroWriter(ORDER, avro.json), AvroReader(avro.text, {})
    value = order(note="x", place=Struct(ORDER.field("place").schema, zip=5))
    assert reader._fast(writer._fast(value), 0) == value
    assert proto_writers(ORDER)[0]._fast(value)["place"] == {"zip": 5}
    assert Schema(Type.STRING) == STRING
