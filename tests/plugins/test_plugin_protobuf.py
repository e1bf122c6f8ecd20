"""ProtobufConverter: schemas and values as Confluent's ProtobufData has them, and bytes as google's runtime reads and writes them."""

import functools
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from support import apicurio, transforms
from support.random_data import RandomData
from support.schema_registry import SchemaRegistry

from klamm_base.errors import ConfigError
from klamm_plugins.converters.protobuf import ProtobufConverter, from_place, to_place
from klamm_plugins.converters.protobuf_model import proto_text
from klamm_plugins.converters.protobuf_names import Settings, from_entry_name, scrubbed, to_entry_name
from klamm_plugins.converters.protobuf_pool import known_file, read
from klamm_plugins.converters.protobuf_read import ProtoReader
from klamm_plugins.converters.protobuf_write import ProtoWriter
from klamm_plugins.errors import DataError
from klamm_plugins.logical import date_builder, decimal_builder, time_builder, timestamp_builder
from klamm_plugins.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)

FIXTURES = Path(__file__).parents[1] / "fixtures/protobuf"
PROTO3 = (FIXTURES / "proto3.proto").read_text("utf-8")
TAG = "io.confluent.connect.protobuf.Tag"


@pytest.fixture
def registry():
    with SchemaRegistry() as registry:
        yield registry


def converter(url="http://127.0.0.1:1", **props):
    made = ProtobufConverter()
    made.configure(
        {"schema.registry.url": url, **{k.replace("__", "."): v for k, v in props.items()}}, is_key=False
    )
    return made


def put(registry, subject, text, **more):
    body = {"schema": text, "schemaType": "PROTOBUF", **more}
    status, answer = registry.answer("POST", f"/subjects/{subject}/versions", body, None)
    assert status == 200, answer
    return answer["id"]


@functools.cache
def googles(name, type_):
    """Returns a message class of google's runtime, of the descriptor that protoc made."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorSet.FromString((FIXTURES / f"{name}.bin").read_bytes()).file[0]
    for dependency in file.dependency:
        pool.Add(known_file(dependency))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(type_))


def framed(id_, place, data):
    return b"\0" + id_.to_bytes(4, "big") + place + data


ORDER = (
    SchemaBuilder.struct("com.acme.Order")
    .field("id", INT64)
    .field("note", OPTIONAL_STRING)
    .field("small", INT8)
    .field("price", decimal_builder(2).parameter("connect.decimal.precision", "9").build())
    .field("at", timestamp_builder().optional().build())
    .field("day", date_builder().build())
    .field("time", time_builder().build())
    .field("tags", SchemaBuilder.array(STRING).build())
    .field("word_count", SchemaBuilder.map(STRING, INT32).name("word_count").build())
    .field("line", SchemaBuilder.struct("com.acme.line").field("n", INT32).build())
    .field("lines", SchemaBuilder.array(SchemaBuilder.struct("Line").field("n", INT32).build()).build())
    .field("unnamed", SchemaBuilder.struct().field("n", INT32).optional().build())
    .build()
)
# Facts of Confluent's converter: order of imports, fields before types, entries of maps that are messages of their own,
# `Message` behind the name of a message that is also a field's, precision and scale with the value first.
ORDER_TEXT = """\
syntax = "proto3";
package com.acme;

import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";

message Order {
  int64 id = 1;
  string note = 2;
  int32 small = 3 [(confluent.field_meta) = {
    params: [
      {
        key: "connect.type",
        value: "int8"
      }
    ]
  }];
  confluent.type.Decimal price = 4 [(confluent.field_meta) = {
    params: [
      {
        value: "9",
        key: "precision"
      },
      {
        value: "2",
        key: "scale"
      }
    ]
  }];
  google.protobuf.Timestamp at = 5;
  google.type.Date day = 6;
  google.type.TimeOfDay time = 7;
  repeated string tags = 8;
  repeated WordCountEntry word_count = 9;
  lineMessage line = 10;
  repeated Line lines = 11;
  ConnectDefault1 unnamed = 12;

  message WordCountEntry {
    string key = 1;
    int32 value = 2;
  }
  message lineMessage {
    int32 n = 1;
  }
  message Line {
    int32 n = 1;
  }
  message ConnectDefault1 {
    int32 n = 1;
  }
}
"""


def order():
    return Struct(
        ORDER,
        id=7,
        note="n",
        small=-5,
        price=Decimal("-12.34"),
        at=datetime(2020, 2, 29, 12, 0, 0, 250_000, tzinfo=UTC),
        day=date(2020, 2, 29),
        time=time(13, 5, 9, 250_000),
        tags=["a", "b"],
        word_count={"x": 1, "y": 0},
        line=Struct(ORDER.field("line").schema, n=1),
        lines=[Struct(ORDER.field("lines").schema.value_schema, n=2)],
    )


def test_schemas_are_confluents(registry):
    made = converter(registry.url)
    raw = made.from_connect_data("t", ORDER, order())
    assert registry.schemas[1]["schema"] == ORDER_TEXT
    assert raw[:6] == b"\0\0\0\0\1\0"
    schema, value = made.to_connect_data("t", raw)
    assert value.to_dict() == order().to_dict()
    assert schema.name == "Order"
    assert schema.version == 1
    assert schema.field("small").schema.type is Type.INT8
    price = schema.field("price").schema
    assert price.parameters == {"scale": "2", "connect.decimal.precision": "9", TAG: "4"}
    assert price.optional
    assert schema.field("word_count").schema.name == "word_count"


def test_what_was_read_is_written_with_the_same_numbers(registry):
    """Tags keep the fields' numbers through a worker: reading and writing again changes no byte."""
    id_ = put(registry, "t-value", PROTO3)
    data = googles("proto3", "p.Many")(
        i32=1, u64=2**64 - 1, maybe=3, color=5, text="x", colors=[1, 5], packed=[1, 2]
    )
    place = to_place((1,))
    made = converter(registry.url)
    schema, value = made.to_connect_data("t", framed(id_, place, data.SerializeToString()))
    raw = made.from_connect_data("back", schema, value)
    again = googles("proto3", "p.Many").FromString(raw[6:])
    assert again == data
    assert made.to_connect_data("back", raw).value.to_dict() == value.to_dict()


MANY = {
    "i32": -(2**31), "s32": -5, "sf32": -6, "u32": 2**32 - 1, "f32": 2**32 - 1, "i64": str(-(2**63)), "s64": "-7",
    "sf64": "-8", "u64": str(2**64 - 1), "f64": str(2**63), "f": 1.5, "d": 0.1, "b": True, "s": "ä€😀", "y": "/wA=",
    "color": "BLUE", "maybe": 0, "point": {"x": 1.0}, "wordCount": {"a": 1, "b": 0}, "points": {"-3": {"y": 2.0}},
    "path": [{"x": 1.0, "y": 2.0}, {}], "packed": [1, -2], "unpacked": [3, 4], "colors": ["RED", "GREEN"],
    "wrappedInt": 0, "wrappedBig": "18446744073709551615", "at": "2020-02-29T12:00:00.250Z",
    "day": {"year": 2020, "month": 2, "day": 29}, "time": {"hours": 13, "seconds": 5}, "from": {"x": 3.0},
}  # fmt: skip


def many():
    return json_format.ParseDict(MANY, googles("proto3", "p.Many")())


def test_messages_of_others(registry):
    """A message that protoc's descriptor and google's runtime made."""
    id_ = put(registry, "t-value", PROTO3)
    raw = framed(id_, to_place((1,)), many().SerializeToString())
    schema, value = converter(registry.url).to_connect_data("t", raw)
    read_ = value.to_dict()
    assert read_["wrapped_int"] == {"value": 0}
    assert {k: v for k, v in read_.items() if k not in {"wrapped_int", "wrapped_big", "choice_0"}} == {
        "i32": -(2**31), "s32": -5, "sf32": -6, "u32": 2**32 - 1, "f32": 2**32 - 1, "i64": -(2**63), "s64": -7,
        "sf64": -8, "u64": -1, "f64": -(2**63), "f": 1.5, "d": 0.1, "b": True, "s": "ä€😀", "y": b"\xff\0",
        "color": "BLUE", "maybe": 0, "word_count": {"a": 1, "b": 0}, "points": {-3: {"x": 0.0, "y": 2.0}},
        "path": [{"x": 1.0, "y": 2.0}, {"x": 0.0, "y": 0.0}], "packed": [1, -2], "unpacked": [3, 4],
        "colors": ["RED", "GREEN"], "at": datetime(2020, 2, 29, 12, 0, 0, 250_000, tzinfo=UTC),
        "day": date(2020, 2, 29), "time": time(13, 0, 5), "from": {"x": 3.0, "y": 0.0},
    }  # fmt: skip
    assert read_["choice_0"] == {"text": None, "point": {"x": 1.0, "y": 0.0}, "shade": None, "wrapped": None}
    union = schema.field("choice_0").schema
    assert union.name == "io.confluent.connect.protobuf.Union.choice"
    assert union.optional
    assert schema.fields[0].name == "choice_0"  # before the other fields
    color = schema.field("color").schema
    enum = "io.confluent.connect.protobuf.Enum"
    assert color.parameters == {
        enum: "Color",
        f"{enum}.RED": "0",
        f"{enum}.GREEN": "1",
        f"{enum}.BLUE": "5",
        TAG: "16",
    }
    assert schema.field("u32").schema.parameters["io.confluent.connect.protobuf.Type"] == "uint32"
    assert schema.field("s32").schema.type is Type.INT32
    assert schema.field("word_count").schema.key_schema.parameters == {TAG: "1"}


@pytest.mark.parametrize(
    "props",
    [
        {},
        {"wrapper__for__nullables": "true"},
        {"optional__for__nullables": "true"},
        {"int__for__enums": "true"},
        {"generate__index__for__unions": "false"},
        {"generalized__sum__type__support": "true"},
        {"enhanced__protobuf__schema__support": "true"},
        {"ignore__default__for__nullables": "true"},
    ],
    ids=str,
)
def test_googles_runtime_reads_what_is_written(registry, props):
    """Written with protoc's schema as the newest one of the subject: the message is the one that was read."""
    id_ = put(registry, "t-value", PROTO3)
    made = converter(registry.url, auto__register__schemas="false", use__latest__version="true", **props)
    schema, value = made.to_connect_data("t", framed(id_, to_place((1,)), many().SerializeToString()))
    raw = made.from_connect_data("t", schema, value)
    assert raw[:7] == framed(id_, b"\2\2", b"")
    assert googles("proto3", "p.Many").FromString(raw[7:]) == many()


def test_absent_and_null(registry):
    id_ = put(registry, "t-value", PROTO3)
    empty = framed(id_, to_place((1,)), b"")
    found = converter(registry.url).to_connect_data("t", empty).value
    assert [f.name for f in found.schema.fields if found.get(f.name) is None] == [
        "choice_0", "maybe", "wrapped_int", "wrapped_big", "at", "day", "time", "from"
    ]  # fmt: skip
    assert found["color"] == "RED"
    assert found["path"] == []
    made = converter(registry.url, flatten__unions="true", generate__struct__for__nulls="true")
    found = made.to_connect_data("t", empty).value
    assert found["text"] is None
    assert found["from"].to_dict() == {"x": 0.0, "y": 0.0}
    assert found["maybe"] == 0
    unknown = googles("proto3", "p.Many")(color=9).SerializeToString()
    found = converter(registry.url).to_connect_data("t", framed(id_, to_place((1,)), unknown)).value
    assert found["color"] == "UNKNOWN_ENUM_VALUE_Color_9"


def test_proto2(registry):
    text = """syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2 [default = 7]; optional E e = 3 [default = Y];
        enum E { Y = 3; Z = 4; } }"""
    id_ = put(registry, "t-value", text)
    raw = framed(id_, b"\0", b"\x08\x05")
    assert converter(registry.url).to_connect_data("t", raw).value.to_dict() == {"a": 5, "b": None, "e": None}
    old = converter(registry.url, optional__for__proto2="false")
    assert old.to_connect_data("t", raw).value.to_dict() == {"a": 5, "b": 7, "e": "Y"}
    needs = converter(registry.url, optional__for__nullables="true").to_connect_data("t", raw).schema
    assert [f.schema.optional for f in needs.fields] == [False, True, True]


NULLABLE = (
    SchemaBuilder.struct("N")
    .field("i", OPTIONAL_INT32)
    .field("s", OPTIONAL_STRING)
    .field("b", Schema(Type.BYTES, optional=True))
    .field("d", Schema(Type.INT32, optional=True, default=5))
    .build()
)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("wrapper__for__nullables", "  google.protobuf.Int32Value i = 1;\n"),
        ("optional__for__nullables", "  optional int32 i = 1;\n"),
    ],
)
def test_null_and_zero_differ_where_they_shall(registry, key, line):
    made = converter(registry.url, **{key: "true"}, ignore__default__for__nullables="true")
    for fields in ({}, {"i": 0, "s": "", "b": b"", "d": 0}):
        found = made.to_connect_data("t", made.from_connect_data("t", NULLABLE, Struct(NULLABLE, **fields)))
        assert {k: v for k, v in found.value.to_dict().items() if v is not None} == fields
        assert all(f.schema.optional for f in found.schema.fields)
    assert line in registry.schemas[1]["schema"]


def test_defaults_fill_nulls(registry):
    made = converter(registry.url)
    found = made.to_connect_data("t", made.from_connect_data("t", NULLABLE, Struct(NULLABLE))).value
    assert found.to_dict() == {"i": 0, "s": "", "b": b"", "d": 5}


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [(INT64, -3, b"\2\4"), (STRING, "x", b"\2\x0e"), (BYTES, b"\0", b"\2\x10"), (INT8, 5, b"\2\x08"),
     (Schema(Type.FLOAT64), 0.5, b"\0"), (Schema(Type.BOOLEAN), True, b"\2\x0c")],
    ids=str,
)  # fmt: skip
def test_numbers_and_texts_by_themselves_are_wrapped(registry, schema, value, place):
    made = converter(registry.url)
    raw = made.from_connect_data("t", schema, value)
    assert raw[5 : 5 + len(place)] == place
    assert registry.schemas[1]["schema"].startswith(
        'syntax = "proto3";\npackage google.protobuf;\n\noption java_package'
    )
    assert "message StringValue {\n  string value = 1;\n}\n" in registry.schemas[1]["schema"]
    assert made.to_connect_data("t", raw).value == value
    bare = converter(registry.url, wrapper__for__raw__primitives="false").to_connect_data("t", raw)
    assert bare.value.to_dict() == {"value": value}


@given(st.lists(st.integers(0, 500), min_size=1, max_size=6).map(tuple))
def test_indexes_of_messages(indexes):
    made = to_place(indexes)
    assert from_place(made) == indexes
    if indexes != (0,):
        whole = framed(1, made, b"rest")
        assert converter().head_of(whole) == whole[: 5 + len(made)]


def test_indexes_as_confluent_writes_them():
    assert to_place((0,)) == b"\0"
    assert to_place((1,)) == b"\x02\x02"
    assert to_place((1, 0)) == b"\x04\x02\x00"
    assert to_place((64,)) == b"\x02\x80\x01"
    assert from_place(b"\x02\x00") == (0,)  # without the shortcut


def test_a_nested_message(registry):
    id_ = put(registry, "t-value", PROTO3)
    raw = framed(id_, to_place((1, 0)), b"\x09" + b"\0" * 6 + b"\xf0\x3f")
    found = converter(registry.url).to_connect_data("t", raw)
    assert found.schema.name == "Point"
    assert found.value.to_dict() == {"x": 1.0, "y": 0.0}


@pytest.mark.parametrize(
    ("place", "data", "says"),
    [
        (b"", b"", "indexes are cut off"),
        (b"\x02", b"", "indexes are cut off"),
        (b"\x02\x80", b"", "indexes are cut off"),
        (b"\x01", b"x", "not the indexes of a message"),
        (b"\xff\xff\x03", b"x", "not the indexes of a message"),
        (b"\x02\x0a", b"", r"no message at \[5\]"),
        (b"\x02\x01", b"", r"no message at \[-1\]"),
        (b"\x02\x02", b"\x08", "Failed to deserialize Protobuf data"),
        (b"\x02\x02", b"\x72\x01\xff", "Failed to deserialize Protobuf data"),
    ],
)
def test_spoiled_bytes_are_bad_records(registry, place, data, says):
    id_ = put(registry, "t-value", PROTO3)
    with pytest.raises(DataError, match=says):
        converter(registry.url).to_connect_data("t", framed(id_, place, data))


def test_references(registry):
    put(registry, "inner", 'syntax = "proto3"; package a; message In { int32 n = 1; }')
    outer = 'syntax = "proto3"; package a.b; import "in.proto"; import "google/type/money.proto"; message Out { In i = 1; .a.In j = 2; google.type.Money m = 3; }'
    reference = {"name": "in.proto", "subject": "inner", "version": 1}
    id_ = put(registry, "t-value", outer, references=[reference])
    raw = framed(id_, b"\0", b"\x0a\x02\x08\x05\x1a\x03\x0a\x01E")
    found = converter(registry.url).to_connect_data("t", raw)
    assert found.value.to_dict() == {
        "i": {"n": 5},
        "j": None,
        "m": {"currency_code": "E", "units": 0, "nanos": 0},
    }
    assert found.schema.version == 1


def test_a_message_that_holds_itself_is_refused(registry):
    id_ = put(registry, "t-value", 'syntax = "proto3"; message L { repeated L next = 1; }')
    with pytest.raises(DataError, match="L contains itself"):
        converter(registry.url).to_connect_data("t", framed(id_, b"\0", b""))


def test_the_newest_schema_may_have_other_numbers_but_must_have_the_fields(registry):
    put(
        registry,
        "t-value",
        'syntax = "proto3"; message Point { double y = 9; float x = 8; string more = 1; }',
    )
    point = (
        SchemaBuilder.struct("Point")
        .field("x", Schema(Type.FLOAT32))
        .field("y", Schema(Type.FLOAT64))
        .build()
    )
    made = converter(registry.url, auto__register__schemas="false", use__latest__version="true")
    found = made.to_connect_data("t", made.from_connect_data("t", point, Struct(point, x=1.5, y=2.5)))
    assert found.value.to_dict() == {"y": 2.5, "x": 1.5, "more": ""}
    for other, says in (
        (SchemaBuilder.struct("Point").field("z", INT32).build(), "z is no field of the Protobuf message Point; it has: y, x, more"),
        (SchemaBuilder.struct("Point").field("more", INT32).build(), "does not fit the field of the Protobuf schema"),
        (SchemaBuilder.struct("Point").field("x", SchemaBuilder.array(INT32).build()).build(), "does not fit"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=says):
            made.from_connect_data("t", other, Struct(other))


def field_of(name, schema):
    return SchemaBuilder.struct("S").field(name, schema).build()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "needs values with a schema"),
        (SchemaBuilder.array(STRING).build(), "Unsupported root schema of type ARRAY"),
        (SchemaBuilder.map(STRING, STRING).build(), "Unsupported root schema of type MAP"),
        (decimal_builder(2).build(), "Unsupported root schema of type"),
        (field_of("a", SchemaBuilder.array(SchemaBuilder.array(STRING).build()).build()), "Array cannot be nested"),
        (field_of("a-b", STRING), "'a-b' is no name in Protobuf, .*scrub.invalid.names"),
        (SchemaBuilder.struct("a-b.C").build(), "'a-b' is no name in Protobuf"),
        (
            SchemaBuilder.struct("n").field("a", SchemaBuilder.struct("m").build())
            .field("b", SchemaBuilder.struct("m").field("x", INT32).build()).build(),
            "two types of one name",
        ),
        (field_of("t", SchemaBuilder(Type.INT32).parameter(TAG, "0").build()), "must be a number of 1 to 536870911"),
        (
            field_of("e", SchemaBuilder(Type.STRING).name("E").parameter("io.confluent.connect.protobuf.Enum", "E").build()),
            "an enum needs a symbol of number 0",
        ),
        (
            SchemaBuilder.struct("S").field("a", SchemaBuilder(Type.INT32).parameter(TAG, "2").build())
            .field("b", SchemaBuilder(Type.INT32).parameter(TAG, "2").build()).build(),
            "the field number 2 comes twice",
        ),
        (field_of("m", SchemaBuilder.map(SchemaBuilder.array(INT32).build(), INT32).build()), "the keys of a map"),
    ],
    ids=lambda v: str(v)[:30],
)  # fmt: skip
def test_schemas_that_are_none_in_protobuf(registry, schema, says):
    made = converter(registry.url)
    with pytest.raises(DataError, match=says):
        made.from_connect_data("t", schema, Struct(schema) if schema and schema.type is Type.STRUCT else 1)
    assert registry.requests == []  # refused before the registry has it


def test_values_that_protobuf_cannot_hold(registry):
    made = converter(registry.url)
    lines = field_of("a", SchemaBuilder.array(OPTIONAL_STRING).build())
    with pytest.raises(DataError, match="Protobuf cannot hold a null in an array"):
        made.from_connect_data("t", lines, Struct(lines, a=["x", None]))
    word = field_of("s", STRING)
    with pytest.raises(DataError, match="Failed to serialize Protobuf data"):
        made.from_connect_data("t", word, Struct(word, s="\ud800"))
    enum = SchemaBuilder(Type.STRING).name("E")
    for key, value in (("", "E"), (".A", "0"), (".B", "3")):
        enum.parameter(f"io.confluent.connect.protobuf.Enum{key}", value)
    holder = field_of("e", enum.build())
    assert made.from_connect_data("t", holder, Struct(holder, e="B"))[6:] == b"\x08\x03"
    with pytest.raises(DataError, match=r"S\.e: 'C' is no symbol of S\.E"):
        made.from_connect_data("t", holder, Struct(holder, e="C"))


def test_a_new_field_among_tagged_ones_takes_a_free_number(registry):
    tagged = SchemaBuilder(Type.INT32).parameter(TAG, "1").build()
    mixed = SchemaBuilder.struct("S").field("new", INT32).field("old", tagged).field("more", INT32).build()
    made = converter(registry.url)
    made.from_connect_data("t", mixed, Struct(mixed, new=1, old=2, more=3))
    lines = registry.schemas[1]["schema"].splitlines()
    assert [line.strip() for line in lines[3:6]] == ["int32 new = 2;", "int32 old = 1;", "int32 more = 3;"]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [("a", "a"), ("x.y", "x_y"), ("1a", "x1a"), ("_a", "x_a"), ("a b", "a_b"), ("ü", "_C3_BC"), ("a~*", "a_7E_"), ("", "")],
)  # fmt: skip
def test_scrubbed_names(given_, wanted):
    assert scrubbed(given_) == wanted


def test_names_of_entries():
    assert to_entry_name("word_count") == "WordCountEntry"
    assert to_entry_name("tags") == "tagsEntry"
    assert from_entry_name("a.B.WordCountEntry") == "a.B.word_count"
    assert from_entry_name("tagsEntry") == "tags"


def test_without_the_library_it_says_what_to_install(monkeypatch):
    import sys

    for name in (
        "protobuf_model",
        "protobuf_pool",
        "protobuf_read",
        "protobuf_write",
        "protobuf_parser",
        "protobuf_print",
    ):
        monkeypatch.delitem(sys.modules, f"klamm_plugins.converters.{name}", raising=False)
        monkeypatch.delattr(f"klamm_plugins.converters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[schemas\]'"):
        converter()


# Random data

WAYS = [
    Settings(scrub_invalid_names=True),
    Settings(scrub_invalid_names=True, wrapper_for_nullables=True),
    Settings(scrub_invalid_names=True, optional_for_nullables=True, ignore_default_for_nullables=True),
]
REFUSED = (
    "two types of one name",
    "Array cannot be nested",
    "Unsupported root",
    "null in an array",
    "of a map cannot be",
)


def writer_of(schema, way):
    """Returns the functions that write and read values of a schema; None where Protobuf has none for it."""
    try:
        text = proto_text(schema, way)
        proto = read(text.text, {})
        message = proto.find(text.message)
        assert message.full_name == text.message
        return ProtoWriter(schema, message, way), ProtoReader(proto, message, way)
    except DataError as e:
        if not any(r in str(e) for r in REFUSED):
            raise
        return None


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_data(seed):
    random = RandomData(seed)
    for way in WAYS:
        for data in (random.envelope() for _ in range(3)):
            if data["payload"] is None:
                continue
            schema, value = transforms.data_of(data)
            made = writer_of(schema, way)
            if made is None:
                continue
            if nulls_in_arrays(value):
                with pytest.raises(DataError, match="null in an array"):
                    made[0](value)
            else:
                assert plain(made[1](memoryview(made[0](value)))) == expected(schema, value, way)


@pytest.mark.usefixtures("apache_kafka")
def test_a_real_registry_takes_what_is_written_and_gives_it_back(tmp_path):
    """Apicurio parses each schema; what comes back, in its own form or ours, reads the bytes."""
    apicurio.home()
    random, count = RandomData(77), 0
    with apicurio.Apicurio(tmp_path) as real:
        made = converter(real.url)
        raw = made.from_connect_data("orders", ORDER, order())
        assert made.to_connect_data("orders", raw).value.to_dict() == order().to_dict()
        for number, data in enumerate(random.struct_envelope() for _ in range(60)):
            schema, value = transforms.data_of(data)
            way = WAYS[number % len(WAYS)]
            if value is None or nulls_in_arrays(value) or writer_of(schema, way) is None:
                continue
            props = {k.replace("_", "__"): str(getattr(way, k)) for k in Settings.__dataclass_fields__}
            raw = converter(real.url, **props).from_connect_data(f"t{number}", schema, value)
            back = converter(real.url, **props).to_connect_data(f"t{number}", raw).value
            assert plain(back) == expected(schema, value, way)
            count += 1
    assert count > 20


def nulls_in_arrays(value):
    match value:
        case Struct():
            return any(nulls_in_arrays(v) for v in value.values)
        case list():
            return None in value or any(nulls_in_arrays(v) for v in value)
        case dict():
            return any(nulls_in_arrays(v) for pair in value.items() for v in pair)
        case _:
            return False


def plain(value):
    """Returns values whose equality is that of what they say: floats by their text (NaN, -0.0), entries of maps in lists."""
    match value:
        case Struct():
            return {f.name: plain(v) for f, v in zip(value.schema.fields, value.values, strict=True)}
        case list():
            return [plain(v) for v in value]
        case dict():
            return [(plain(k), plain(v)) for k, v in value.items()]
        case _:
            return value


ZEROS = {Type.BOOLEAN: False, Type.STRING: "", Type.BYTES: b"", Type.FLOAT32: 0.0, Type.FLOAT64: 0.0}


def expected(schema, value, way, *, optional_field=True):
    """Returns what Protobuf gives back: nulls are zeros but in wrappers, `optional` fields and messages."""
    if value is None:
        if schema.type in {Type.ARRAY, Type.MAP}:
            return []
        message = schema.type is Type.STRUCT or (schema.name or "").startswith(
            "org.apache.kafka.connect.data."
        )
        kept = way.wrapper_for_nullables or (way.optional_for_nullables and optional_field)
        return None if message or (kept and schema.optional) else ZEROS.get(schema.type, 0)
    inner = schema.value_schema
    match schema.type:
        case Type.STRUCT:
            found = {}
            for f, v in zip(schema.fields, value.values, strict=True):
                default = None if way.ignore_default_for_nullables else f.schema.default
                found[scrubbed(f.name)] = expected(f.schema, default if v is None else v, way)
            return found
        case Type.ARRAY:
            return [expected(inner, v, way) for v in value]
        case Type.MAP:
            pairs = [
                (expected(schema.key_schema, k, way), expected(inner, v, way, optional_field=False))
                for k, v in value.items()
            ]
            if inner.type in {Type.ARRAY, Type.MAP}:
                return [{"key": k, "value": v} for k, v in pairs]
            return pairs
        case _:
            return value
