"""Converters with a schema registry: wire format, subjects, versions, failures; on a small registry and on a real one."""

import base64
import json
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import apicurio, transforms
from support.random_data import RandomData
from support.schema_registry import SchemaRegistry

from klamm_base.errors import ConfigError
from klamm_plugins.converters.avro import AvroConverter
from klamm_plugins.converters.json_schema_registry import JsonSchemaConverter
from klamm_plugins.converters.protobuf import ProtobufConverter
from klamm_plugins.converters.registry import RegisteredSchema, RegistryClient
from klamm_plugins.errors import DataError, RetriableError
from klamm_plugins.logical import decimal_builder, timestamp_builder
from klamm_plugins.schema import (
    INT8,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)

ORDER = (
    SchemaBuilder.struct("acme.Order")
    .version(3)
    .field("id", INT64)
    .field("note", OPTIONAL_STRING)
    .field("small", INT8)
    .field("price", decimal_builder(2).build())
    .field("at", timestamp_builder().optional().build())
    .build()
)


def order(id_=1):
    from datetime import UTC, datetime
    from decimal import Decimal

    return Struct(ORDER, id=id_, small=5, price=Decimal("12.34"), at=datetime(2020, 2, 29, tzinfo=UTC))


@pytest.fixture
def registry():
    with SchemaRegistry() as registry:
        yield registry


def converter(cls, url, *, is_key=False, **props):
    made = cls()
    made.configure(
        {"schema.registry.url": url, **{k.replace("__", "."): v for k, v in props.items()}}, is_key=is_key
    )
    return made


EXACT = [AvroConverter, JsonSchemaConverter]  # the schema comes back as it was
CLASSES = [*EXACT, ProtobufConverter]


@pytest.mark.parametrize("cls", EXACT)
def test_what_is_written_is_read_back(registry, cls):
    writer, reader = converter(cls, registry.url), converter(cls, registry.url)
    raw = writer.from_connect_data("orders", ORDER, order())
    assert raw[0] == 0
    assert struct.unpack(">I", raw[1:5]) == (1,)
    schema, value = reader.to_connect_data("orders", raw)
    assert schema == ORDER
    assert value == order()
    assert list(registry.subjects) == ["orders-value"]


@pytest.mark.parametrize("cls", CLASSES)
def test_a_schema_is_asked_for_once(registry, cls):
    writer, reader = converter(cls, registry.url), converter(cls, registry.url)
    raws = writer.from_connect_data_many("orders", ORDER, [order(i) for i in range(50)])
    raws += writer.from_connect_data_many("orders", ORDER, [order(i) for i in range(50)])
    assert [reader.to_connect_data("orders", raw).value["id"] for raw in raws] == [*range(50)] * 2
    assert [r for r in registry.requests if r.endswith("/versions")] == [
        "POST /subjects/orders-value/versions"
    ]
    assert [r for r in registry.requests if "/ids/" in r] == ["GET /schemas/ids/1"]


@pytest.mark.parametrize("cls", CLASSES)
def test_tombstones_need_no_registry(cls):
    made = converter(cls, "http://127.0.0.1:1")
    assert made.from_connect_data("t", ORDER, None) is None
    assert made.from_connect_data_many("t", ORDER, [None, None]) == [None, None]
    assert made.to_connect_data("t", None) == (None, None)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("TopicNameStrategy", "orders-key"), ("RecordNameStrategy", "acme.Order"), ("TopicRecordNameStrategy", "orders-acme.Order")],
)  # fmt: skip
def test_subjects(registry, cls, strategy, subject):
    package = "io.confluent.kafka.serializers.subject."
    made = converter(cls, registry.url, is_key=True, key__subject__name__strategy=package + strategy)
    made.from_connect_data("orders", ORDER, order())
    assert list(registry.subjects) == [subject]


@pytest.mark.parametrize("cls", CLASSES)
def test_without_auto_register_the_schema_must_be_there(registry, cls):
    strict = converter(cls, registry.url, auto__register__schemas="false")
    with pytest.raises(DataError, match=r"Subject 'orders-value' not found.*40401"):
        strict.from_connect_data("orders", ORDER, order())
    first = converter(cls, registry.url).from_connect_data("orders", ORDER, order())
    assert strict.from_connect_data("orders", ORDER, order()) == first


@pytest.mark.parametrize("cls", CLASSES)
def test_what_the_registry_refuses_is_a_bad_record(registry, cls):
    registry.refuse = "Schema being registered is incompatible with an earlier schema"
    with pytest.raises(DataError, match=r"incompatible with an earlier schema \(409\)"):
        converter(cls, registry.url).from_connect_data("orders", ORDER, order())


@pytest.mark.parametrize("cls", CLASSES)
def test_a_registry_that_is_away_may_come_back(registry, cls):
    away = converter(cls, "http://127.0.0.1:1")
    with pytest.raises(RetriableError, match="The schema registry is not available"):
        away.from_connect_data("orders", ORDER, order())
    made = converter(cls, registry.url)
    registry.failures = 1
    with pytest.raises(RetriableError, match="busy"):
        made.from_connect_data("orders", ORDER, order())
    assert made.from_connect_data("orders", ORDER, order())[:1] == b"\0"


@pytest.mark.parametrize("cls", CLASSES)
def test_the_next_address_is_tried(registry, cls):
    made = converter(cls, f"http://127.0.0.1:1,{registry.url}")
    assert made.from_connect_data("orders", ORDER, order())


@pytest.mark.parametrize("cls", CLASSES)
def test_user_and_password(cls):
    with SchemaRegistry(user="ann:p:w") as registry:
        with pytest.raises(DataError, match="Unauthorized"):
            converter(cls, registry.url).from_connect_data("t", ORDER, order())
        in_url = registry.url.replace("http://", "http://ann:p%3Aw@")
        raw = converter(cls, in_url).from_connect_data("t", ORDER, order())
        given = converter(
            cls,
            registry.url,
            basic__auth__credentials__source="USER_INFO",
            basic__auth__user__info="ann:p:w",
        )
        assert given.to_connect_data("t", raw).value["id"] == 1


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("raw", [b"", b"\0", b"{}", b"\1\0\0\0\1x", b"\0\0\0\0\5x"], ids=repr)
def test_bytes_of_somebody_else_are_bad_records(registry, cls, raw):
    with pytest.raises(DataError):
        converter(cls, registry.url).to_connect_data("t", raw)


@pytest.mark.parametrize("cls", EXACT)
def test_cut_and_spoiled_bytes_are_bad_records(registry, cls):
    made = converter(cls, registry.url)
    raw = made.from_connect_data("t", ORDER, order())
    for cut in range(5, len(raw)):
        with pytest.raises(DataError):
            made.to_connect_data("t", raw[:cut])
    with pytest.raises(DataError):
        made.to_connect_data("t", raw + b"\0")


@pytest.mark.parametrize("cls", CLASSES)
def test_values_that_do_not_fit_are_named(registry, cls):
    made = converter(cls, registry.url)
    with pytest.raises(DataError, match="2147483648 is out of range for INT32"):
        made.from_connect_data("t", INT32, 2**31)
    with pytest.raises(DataError, match="id: null for a required field"):
        made.from_connect_data("t", ORDER, Struct(ORDER, small=1))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("props", "says"),
    [
        ({"schema__registry__url": "localhost:8081"}, "it must begin with http:// or https://"),
        ({"schema__registry__url": ""}, "Empty list"),
        ({"value__subject__name__strategy": "no.Such"}, "Class no.Such could not be found"),
        ({"basic__auth__credentials__source": "USER_INFO"}, "basic.auth.user.info"),
        ({"basic__auth__credentials__source": "SASL"}, "must be one of: URL, USER_INFO"),
        ({"schemas__cache__config": "0"}, "at least 1"),
    ],
    ids=str,
)
def test_bad_settings(cls, props, says):
    with pytest.raises(ConfigError) as raised:
        converter(cls, "http://x", **props)
    assert says in str(raised.value)


def test_a_password_in_an_address_does_not_show():
    made = converter(AvroConverter, "http://ann:secret@127.0.0.1:1")
    with pytest.raises(RetriableError) as raised:
        made.from_connect_data("t", INT32, 1)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "props",
    [
        {"bearer__auth__token": "sec\nret"},
        {"bearer__auth__token": "sec\u20acret"},
        {"bearer__auth__token": "Bearer secret"},
        {"schema__registry__url": "http://ann:sec/ret@127.0.0.1:1"},
        {"schema__registry__url": "http://ann:1/secret@127.0.0.1:1"},
        {"schema__registry__url": "http://ann:sec?ret@127.0.0.1:1"},
        {"schema__registry__url": "http://ann:sec,ret@127.0.0.1:1"},
        {"schema__registry__url": "http://ann:1,secret@127.0.0.1:1"},
        {"schema__registry__url": "ann:secret@127.0.0.1:1"},
        {"schema__registry__url": "http://ann:sec\u2100ret@127.0.0.1:1"},
        {"schema__registry__url": "http://[ann:secret@127.0.0.1:1"},
    ],
    ids=str,
)
def test_mistakes_in_secrets_do_not_show_them(props):
    with pytest.raises(ConfigError) as raised:
        converter(AvroConverter, "http://x", **props)
    assert not [part for part in ("sec", "ret") if part in str(raised.value)]
    [key] = props
    assert f"Invalid value [hidden] for configuration {key.replace('__', '.')}" in str(raised.value)


def test_a_request_that_cannot_be_sent_shows_no_header():
    client = RegistryClient(["http://127.0.0.1:1"], {"Authorization": "Bearer sec\nret"})
    with pytest.raises(RetriableError) as raised:
        client.ask("GET", "/subjects")
    assert str(raised.value).endswith("http://127.0.0.1:1: the request cannot be sent (ValueError)")
    assert raised.value.__context__ is None


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    for name in ("avro_read", "avro_write"):
        monkeypatch.delitem(sys.modules, f"klamm_plugins.converters.{name}", raising=False)
        monkeypatch.delattr(f"klamm_plugins.converters.{name}", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[schemas\]'"):
        converter(AvroConverter, "http://x")


# Avro


def avro_text(registry, subject="t-value"):
    return json.loads(registry.schemas[max(registry.subjects[subject].values())]["schema"])


def put(registry, subject, schema, **more):
    body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
    status, answer = registry.answer("POST", f"/subjects/{subject}/versions", body, None)
    assert status == 200, answer
    return answer["id"]


def test_avro_schemas_are_confluents(registry):
    converter(AvroConverter, registry.url).from_connect_data("t", ORDER, order())
    assert avro_text(registry) == {
        "type": "record", "name": "Order", "namespace": "acme",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "small", "type": {"type": "int", "connect.type": "int8"}},
            {"name": "price", "type": {"type": "bytes", "scale": 2, "precision": 64, "connect.version": 1,
             "connect.parameters": {"scale": "2"}, "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal"}},
            {"name": "at", "type": ["null", {"type": "long", "connect.version": 1,
             "connect.name": "org.apache.kafka.connect.data.Timestamp", "logicalType": "timestamp-millis"}], "default": None},
        ],
        "connect.version": 3, "connect.name": "acme.Order",
    }  # fmt: skip


def test_avro_of_other_writers(registry):
    """Enums, fixed, unions, documentation, references: what Connect itself does not write."""
    inner = {
        "type": "record",
        "name": "In",
        "namespace": "a",
        "fields": [{"name": "n", "type": "int", "default": 7}],
    }
    put(registry, "inner", inner)
    schema = {
        "type": "record", "name": "Out", "namespace": "a", "doc": "of all kinds",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "doc": "one of two"},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "u", "type": ["null", "string", "long", "a.In"]},
            {"name": "i", "type": "In"},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
            {"name": "x", "type": ["null", {"type": "map", "values": "double"}]},
        ],
    }  # fmt: skip
    reference = {"name": "a.In", "subject": "inner", "version": 1}
    id_ = put(registry, "t-value", schema, references=[reference])
    data = (
        b"\x02" + b"ab" + b"\x04\x0a" + b"\x02" + b"\x02" + b"\x02\x02\x02k" + struct.pack("<d", 1.5) + b"\0"
    )
    read, value = converter(AvroConverter, registry.url).to_connect_data(
        "t", b"\0" + id_.to_bytes(4, "big") + data
    )
    assert read.name == "a.Out"
    assert read.version == 1
    assert value["e"] == "Y"
    assert read.field("e").schema.parameters["io.confluent.connect.avro.Enum.X"] == "X"
    assert value["f"] == b"ab"
    assert value["u"].to_dict() == {"string": None, "long": 5, "In": None}
    assert value["i"]["n"] == 1
    assert value["d"].isoformat() == "1970-01-02"
    assert value["x"] == {"k": 1.5}
    assert read.parameters["io.confluent.connect.avro.field.doc.e"] == "one of two"


def test_avro_unions_are_written_by_the_branch_that_is_set(registry):
    union = (
        SchemaBuilder.struct("io.confluent.connect.avro.Union")
        .field("string", OPTIONAL_STRING)
        .field("long", Schema(Type.INT64, optional=True))
        .field("In", SchemaBuilder.struct("a.In").field("n", INT32).optional().build())
        .build()
    )
    holder = SchemaBuilder.struct("a.H").field("u", union).build()
    made = converter(AvroConverter, registry.url)
    inner = Struct(union.field("In").schema, n=3)
    for branch, set_ in (("string", "5"), ("long", 5), ("In", inner)):
        raw = made.from_connect_data("t", holder, Struct(holder, u=Struct(union, **{branch: set_})))
        read = made.to_connect_data("t", raw).value["u"]
        found = read[branch]
        assert (found.to_dict() if branch == "In" else found) == ({"n": 3} if branch == "In" else set_)
        assert sum(v is not None for v in read.values) == 1


def test_the_latest_version_may_have_other_fields(registry):
    put(registry, "t-value", {"type": "record", "name": "Order", "namespace": "acme", "fields": [
        {"name": "id", "type": "long"}, {"name": "more", "type": "string", "default": "d"}]})  # fmt: skip
    made = converter(
        AvroConverter, registry.url, auto__register__schemas="false", use__latest__version="true"
    )
    raw = made.from_connect_data("t", ORDER, order(9))
    assert made.to_connect_data("t", raw).value.to_dict() == {"id": 9, "more": "d"}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "needs values with a schema"),
        (SchemaBuilder.struct().field("a b", INT32).build(), "'a b' is no name in Avro"),
        (SchemaBuilder.struct("1x").build(), "is no name in Avro"),
        (
            SchemaBuilder.struct("n")
            .field("a", SchemaBuilder.struct("m").build())
            .field("b", SchemaBuilder.struct("m").field("x", INT32).build())
            .build(),
            "two types of one name",
        ),
    ],
)
def test_schemas_that_are_none_in_avro(registry, schema, says):
    made = converter(AvroConverter, registry.url)
    with pytest.raises(DataError, match=says):
        made.from_connect_data("t", schema, {} if schema is None else Struct(schema))


def test_a_struct_that_comes_twice_is_defined_once(registry):
    inner = SchemaBuilder.struct("a.In").field("n", INT32).build()
    outer = (
        SchemaBuilder.struct("a.Out").field("x", inner).field("y", SchemaBuilder.array(inner).build()).build()
    )
    made = converter(AvroConverter, registry.url)
    value = Struct(outer, x=Struct(inner, n=1), y=[Struct(inner, n=2)])
    read = made.to_connect_data("t", made.from_connect_data("t", outer, value))
    assert read.schema.version == 1  # the registry's: the struct has none of its own
    assert read.value.to_dict() == value.to_dict()
    assert avro_text(registry)["fields"][1]["type"] == {"type": "array", "items": "In"}


def test_a_record_that_holds_itself_is_refused(registry):
    id_ = put(
        registry,
        "t-value",
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
    )
    with pytest.raises(DataError, match="L contains itself"):
        converter(AvroConverter, registry.url).to_connect_data("t", b"\0" + id_.to_bytes(4, "big") + b"\0")


NAMES = ("x.y", "with space", "\\u00fc", "`", "ns.")


def avro_of(schema):
    """Returns the Avro schema; None where one name has two meanings."""
    from klamm_plugins.converters.avro_write import AvroSchema

    try:
        return AvroSchema(schema)
    except DataError as e:
        if "two types of one name" not in str(e):
            raise
        return None


def fits_avro(data):
    """Random data whose names Avro takes, and whose value is there."""
    return data["payload"] is not None and not any(name in json.dumps(data) for name in NAMES)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_data_in_avro(seed):
    from klamm_plugins.converters.avro_read import AvroReader
    from klamm_plugins.converters.avro_write import AvroWriter

    random = RandomData(seed)
    for data in filter(fits_avro, (random.envelope() for _ in range(3))):
        schema, value = transforms.data_of(data)
        avro = avro_of(schema)
        if avro is None:
            continue
        raw = AvroWriter(schema, avro.json)(value)
        reader = AvroReader(avro.text, {})
        back = transforms.envelope(reader.schema, reader(raw))
        assert same(back, transforms.envelope(schema, filled(schema, value)))


def filled(schema, value, *, everywhere=False):
    """Fills in defaults where a struct's fields are null, as Avro is written, or wherever a null is, as JSON is."""
    if value is None:
        return schema.default if everywhere else None
    match schema.type:
        case Type.ARRAY:
            return [filled(schema.value_schema, v, everywhere=everywhere) for v in value]
        case Type.MAP:
            return {k: filled(schema.value_schema, v, everywhere=everywhere) for k, v in value.items()}
        case Type.STRUCT:
            pairs = zip(schema.fields, value.values, strict=True)
            values = [
                filled(f.schema, f.schema.default if v is None else v, everywhere=everywhere)
                for f, v in pairs
            ]
            return Struct.of_checked(schema, values)
        case _:
            return value


def same(one, other):
    """Equal but for what Avro has no place for: what is said of a map's text keys."""
    return transforms.comparable({"x": without_keys(one)}) == transforms.comparable(
        {"x": without_keys(other)}
    )


def without_keys(data):
    if isinstance(data, dict):
        made = {k: without_keys(v) for k, v in data.items()}
        if (
            made.get("type") == "map"
            and isinstance(made.get("keys"), dict)
            and made["keys"].get("type") == "string"
        ):
            made["keys"] = {"type": "string"}
        return made
    return [without_keys(v) for v in data] if isinstance(data, list) else data


# JSON Schema


def test_json_schemas_are_confluents(registry):
    made = converter(JsonSchemaConverter, registry.url)
    raw = made.from_connect_data("t", ORDER, order())
    assert json.loads(raw[5:]) == {"id": 1, "note": None, "small": 5, "price": "BNI=", "at": 1582934400000}
    assert avro_text(registry) == {
        "type": "object", "title": "acme.Order", "connect.version": 3,
        "properties": {
            "id": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
            "small": {"type": "integer", "connect.type": "int8", "connect.index": 2},
            "price": {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes",
                      "connect.version": 1, "connect.parameters": {"scale": "2"}, "connect.index": 3},
            "at": {"oneOf": [{"type": "null"}, {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp",
                   "connect.type": "int64", "connect.version": 1}], "connect.index": 4},
        },
    }  # fmt: skip


def test_json_of_other_writers(registry):
    put(registry, "inner", {"type": "object", "properties": {"n": {"type": "integer"}}}, schemaType="JSON")
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"tag": {"type": "string", "description": "a word"}},
        "properties": {
            "e": {"enum": ["X", "Y"]},
            "t": {"$ref": "#/definitions/tag"},
            "i": {"$ref": "inner.json"},
            "u": {"oneOf": [{"type": "null"}, {"type": "integer"}, {"type": "string"}]},
            "n": {"type": ["number", "null"]},
            "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    }
    reference = {"name": "inner.json", "subject": "inner", "version": 1}
    id_ = put(registry, "t-value", schema, schemaType="JSON", references=[reference])
    text = {"e": "Y", "t": "w", "i": {"n": 3}, "u": "five", "n": 1, "m": {"a": True}, "more": 1}
    made = converter(JsonSchemaConverter, registry.url)
    read, value = made.to_connect_data("t", b"\0" + id_.to_bytes(4, "big") + json.dumps(text).encode())
    one = "io.confluent.connect.json.OneOf.field."
    assert value.to_dict() == {
        "e": "Y", "t": "w", "i": {"n": 3}, "u": {f"{one}0": None, f"{one}1": "five"}, "n": 1.0, "m": {"a": True}
    }  # fmt: skip
    assert read.field("t").schema.doc == "a word"
    assert read.field("n").schema.optional
    raw = made.from_connect_data("back", read, value)
    assert made.to_connect_data("back", raw).value.to_dict() == value.to_dict()


def test_json_may_be_checked_against_its_schema(registry):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}}
    id_ = put(registry, "t-value", schema, schemaType="JSON")
    raw = b"\0" + id_.to_bytes(4, "big") + b'{"n": 6}'
    assert converter(JsonSchemaConverter, registry.url).to_connect_data("t", raw).value["n"] == 6
    strict = converter(JsonSchemaConverter, registry.url, json__fail__invalid__schema="true")
    with pytest.raises(DataError, match=r"\$\.n: 6 is greater than the maximum of 5"):
        strict.to_connect_data("t", raw)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_data_in_json_schema(seed):
    random = RandomData(seed)
    made = JsonSchemaConverter()
    made.configure({"schema.registry.url": "http://127.0.0.1:1"}, is_key=False)
    for data in (random.envelope() for _ in range(3)):
        if data["payload"] is None:
            continue
        schema, value = transforms.data_of(data)
        text = made.schema_text(schema)
        raw = made.writer(schema, None)(value)
        read, decode = made.reading(RegisteredSchema(1, "JSON", text), {}, b"")
        back = transforms.envelope(read, decode(raw))
        assert same(back, transforms.envelope(schema, filled(schema, value, everywhere=True)))


# As others have it

RECORDED = Path(__file__).parents[1] / "fixtures/connect_avro/table.jsonl"


def test_recorded_schemas_and_bytes():
    """The recorded answers are AvroData's for 300 random values: the schema, and the bytes but for the order of maps."""
    from klamm_plugins.converters.avro_read import AvroReader
    from klamm_plugins.converters.avro_write import AvroWriter

    rows = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    assert len(rows) == 300
    for row in rows:
        schema, value = transforms.data_of(row["data"])
        avro = avro_of(schema)
        assert avro is not None
        assert avro.json == json.loads(row["schema"])
        raw = base64.b64decode(row["bytes"])
        assert sorted(AvroWriter(schema, avro.json)(value)) == sorted(raw)
        reader = AvroReader(row["schema"], {})
        back = transforms.envelope(reader.schema, reader(raw))
        assert same(back, transforms.envelope(schema, filled(schema, value)))


@pytest.mark.usefixtures("apache_kafka")
def test_random_data_as_avro_data_has_it():
    """Schemas and bytes are those of AvroData, which is in Confluent's converter and in Apicurio's."""
    from klamm_plugins.converters.avro_write import AvroWriter

    apicurio.home()
    random = RandomData(41)
    data = [d for d in (random.envelope() for _ in range(2500)) if fits_avro(d)]
    answers = apicurio.ask_avro_data([{"data": d} for d in data])
    compared = 0
    for given_, answer in zip(data, answers, strict=True):
        schema, value = transforms.data_of(given_)
        avro = avro_of(schema)
        # Of two types of one name theirs makes a schema that holds itself, and it calls all entries of maps the same.
        if avro is None or "MapEntry2" in avro.text:
            continue
        assert "error" not in answer, (given_, answer)
        assert avro.json == json.loads(answer["schema"]), given_
        theirs = base64.b64decode(answer["bytes"])
        ours = AvroWriter(schema, avro.json)(value)
        assert sorted(ours) == sorted(theirs), given_  # maps have no order
        compared += ours == theirs
    assert compared > len(data) * 0.9


@pytest.fixture(scope="module")
def real(processes, tmp_path_factory):
    apicurio.home()
    with apicurio.Apicurio(tmp_path_factory.mktemp("apicurio")) as registry:
        yield registry


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.parametrize("cls", CLASSES)
def test_on_a_real_registry(real, cls):
    topic = f"orders-{cls.kind}"
    strict = converter(cls, real.url, auto__register__schemas="false")
    with pytest.raises(DataError, match="404"):
        strict.from_connect_data(topic, ORDER, order())
    writer, reader = converter(cls, real.url), converter(cls, real.url)
    raw = writer.from_connect_data(topic, ORDER, order())
    assert strict.from_connect_data(topic, ORDER, order()) == raw
    read, value = reader.to_connect_data(topic, raw)
    if cls is ProtobufConverter:
        assert value.to_dict() == order().to_dict() | {"note": ""}  # Protobuf's null, without other settings
    else:
        assert (read, value) == (ORDER, order())
    latest = converter(cls, real.url, auto__register__schemas="false", use__latest__version="true")
    assert latest.from_connect_data(topic, ORDER, order()) == raw
    if cls is JsonSchemaConverter:
        return  # Apicurio takes for a JSON Schema only what is one of an object
    others = [(INT64, 5), (STRING, "x"), (SchemaBuilder.array(STRING).build(), ["a"])]
    for number, (schema, value) in enumerate(others[: 2 if cls is ProtobufConverter else 3]):
        raw = writer.from_connect_data(f"{topic}-{number}", schema, value)
        assert reader.to_connect_data(f"{topic}-{number}", raw).value == value
