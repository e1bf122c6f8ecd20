"""The Protobuf language, read and written: against protoc's descriptors, and spoiled in every way."""

import importlib
import os
from pathlib import Path

import google.type
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_plugins.converters.protobuf_parser import parse
from klamm_plugins.converters.protobuf_pool import read
from klamm_plugins.converters.protobuf_print import text_of
from klamm_plugins.errors import DataError

GOOGLE = Path(next(iter(google.type.__path__))).parents[1]
FIXTURES = Path(__file__).parents[1] / "fixtures/protobuf"
"""*.bin is what protoc made of *.proto: `protoc -I. --descriptor_set_out=proto2.bin proto2.proto`."""
OPTIONS = ("packed", "map_entry", "allow_alias", "deprecated", "java_package")


def comparable(proto):
    """Returns a descriptor without what is not read: services, options of somebody's own, names of types as they were resolved."""
    made = type(proto)()
    made.CopyFrom(proto)
    made.ClearField("service")
    made.ClearField("name")  # not always the one that the file has in its package
    _clean(made)
    return made


def _clean(message):
    for field, value in message.ListFields():
        if field.name == "options":
            kept = {name: getattr(value, name) for name in OPTIONS if name in value.DESCRIPTOR.fields_by_name}
            kept = {name: v for name, v in kept.items() if value.HasField(name)}
            value.Clear()
            for name, v in kept.items():
                setattr(value, name, v)
            if not kept:
                message.ClearField("options")
        elif field.name == "json_name":
            message.ClearField("json_name")
        elif field.name in {"type_name", "extendee"}:
            setattr(message, field.name, value.rpartition(".")[2])
            if field.name == "type_name" and message.type != descriptor_pb2.FieldDescriptorProto.TYPE_GROUP:
                message.ClearField("type")
        elif field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                _clean(each)


def of_protoc(name):
    return descriptor_pb2.FileDescriptorSet.FromString((FIXTURES / f"{name}.bin").read_bytes()).file[0]


def source(name):
    return (FIXTURES / f"{name}.proto").read_text("utf-8")


@pytest.mark.parametrize("name", ["proto2", "proto3"])
def test_all_of_the_language_is_read_as_protoc_reads_it(name):
    assert comparable(parse(source(name), f"{name}.proto").proto) == comparable(of_protoc(name))


def test_googles_files_are_read_as_protoc_reads_them():
    count = 0
    for path in GOOGLE.glob("google/**/*.proto"):
        name = os.fspath(path.relative_to(GOOGLE))
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        wanted = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        assert comparable(parse(path.read_text("utf-8"), name).proto) == comparable(wanted), name
        count += 1
    assert count > 50


@pytest.mark.parametrize("name", ["proto2", "proto3"])
def test_types_are_resolved_as_protoc_resolves_them(name):
    """The messages of our pool are on the wire what protoc's are: every field has its number, type and label."""
    file, wanted = read(source(name), {}).file, of_protoc(name)

    def flat(holder, messages):
        for message in messages:
            for f in message.field:
                yield f"{holder}.{message.name}", f.name, f.number, f.type, f.type_name, f.label
            yield from flat(f"{holder}.{message.name}", message.nested_type)

    ours = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(ours)
    assert set(flat("", ours.message_type)) == set(flat("", wanted.message_type))


CANONICAL = """\
syntax = "proto3";
package acme.v1;

import "google/protobuf/timestamp.proto";
import public "other.proto";

option java_package = "io.acme";
option optimize_for = SPEED;

message Order {
  reserved 5 to 7;
  reserved 100 to max;
  reserved "old";

  option deprecated = true;

  int64 id = 1;
  optional string note = 2 [deprecated = true];
  repeated .acme.v1.Order.Line lines = 3 [
    packed = false,
    json_name = "x\\"y"
  ];
  int32 small = 4 [(confluent.field_meta) = {
    params: [
      {
        key: "connect.type",
        value: "int8"
      },
      {
        value: "2",
        key: "scale"
      }
    ]
  }];

  oneof who {
    string name = 8;
    Line line = 9;
  }

  message Line {
    int32 n = 1;
  BLANK
    message Deep {}
  }
  enum Kind {
    reserved 3;
    option allow_alias = true;
    A = 0;
    B = -1;
  }
}
enum Empty {}
"""


def test_the_registrys_form_stays_as_it_is():
    text = CANONICAL.replace("BLANK", "")  # empty lines of an inner message are indented
    file = parse(text, "t.proto")
    assert file.params == {"acme.v1.Order.small": {"connect.type": "int8", "scale": "2"}}
    assert text_of(file.proto, file.params) == text


@pytest.mark.parametrize("name", ["proto2", "proto3"])
def test_what_is_written_is_read_again(name):
    file = parse(source(name), "t.proto")
    plain = [m.name for m in file.proto.message_type]
    again = parse(text_of(file.proto, file.params), "t.proto")
    assert [m.name for m in again.proto.message_type] == plain
    file.proto.ClearField("extension")
    if name == "proto3":
        assert _unordered(again.proto) == _unordered(file.proto)


def _unordered(proto):
    """Sorts fields by number and inner messages by name: members of oneofs and inner messages are written behind other fields,
    and an inner message of a map's entries belongs to its field.
    """
    made = comparable(proto)
    for message in made.message_type:
        _sort(message)
    return made


def _sort(message):
    fields = sorted(message.field, key=lambda f: f.number)
    inner = sorted(message.nested_type, key=lambda m: m.name)
    message.ClearField("field")
    message.field.extend(fields)
    message.ClearField("nested_type")
    message.nested_type.extend(inner)
    for each in message.nested_type:
        _sort(each)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message A { int32 = 1; }", "line 1: = where a name belongs"),
        ("message A {\n int32 a = 0;\n}", "line 2: 0 where a number of 1 to 536870911 belongs"),
        ("message A {\n int32 a = 1\n}", "line 3: } where ; belongs"),
        ("message A {", "the end where"),
        ("massage A {}", "massage where a message or an enum belongs"),
        ('syntax = "proto4";', "uses syntax proto4; Klamm reads proto2 and proto3"),
        ('edition = "2023";', "uses edition 2023"),
        ('message A { string a = 1 [json_name = "\\q"]; }', r"line 1: \\q is no escape sequence"),
        ("message A { $ }", r"line 1: '\$ }'"),
        ('syntax = "proto3"; message A { Other o = 1; }', "of type Other in A, and no type of this name"),
        ('import "acme/other.proto";', "imports acme/other.proto, which is neither"),
        ("message A { optional int32 a = 1; optional int32 a = 2; }", "cannot be used"),
        ("message A { oneof o { map<string, string> m = 1; } }", "where a map without a label belongs"),
        ("message A {" * 60, "nests messages more than 50 deep"),
        ("service S { rpc", "the end where } belongs"),
        ('message A { int32 a = 1 [x = "' + "\\xff" + '"', "the end where ]"),
    ],
    ids=lambda v: v[:30],
)
def test_what_is_wrong_is_said_with_its_line(text, says):
    with pytest.raises(DataError, match=says):
        read(text, {})


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_spoiled_text_is_refused_or_read_but_never_breaks(data):
    text = source(data.draw(st.sampled_from(["proto2", "proto3"])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.text("{}[]()<>=;,.:-\"'\\ amx0189", max_size=3)) + text[at + cut :]
    try:
        read(text, {})
    except DataError as e:
        if "Protobuf schema" not in str(e):
            raise
