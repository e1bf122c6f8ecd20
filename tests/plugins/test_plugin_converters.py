"""The built-in converters: configuration, errors, whole lists, and round trips of arbitrary data."""

import json
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.errors import ConfigError
from klamm_plugins import logical
from klamm_plugins.builtin import register_converters
from klamm_plugins.converter import NULL, Converter
from klamm_plugins.converters.bytearray import ByteArrayConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import parse_text, write_text
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import (
    BYTES,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    SchemaBuilder,
    Struct,
)

RECORDED = json.loads((Path(__file__).parent / "fixtures/recorded_configs.json").read_text("utf-8"))

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
ROW = (
    SchemaBuilder.struct("row")
    .field("id", INT64)
    .field("name", OPTIONAL_STRING)
    .field("raw", OPTIONAL_BYTES)
    .build()
)


def json_converter(**props):
    converter = JsonConverter()
    converter.configure({k.replace("_", "."): v for k, v in props.items()}, is_key=False)
    return converter


def test_json_configuration_is_that_of_kafka():
    ours = [
        [k.name, str(k.type), k.required, None if k.required or k.default is None else str(k.default).lower()
         if isinstance(k.default, bool) else str(k.default), str(k.importance), k.group, k.order_in_group,
         str(k.width), k.display_name]
        for k in JsonConverter.config()
    ]  # fmt: skip
    assert ours == RECORDED[JsonConverter.kafka_name]


@pytest.mark.parametrize("converter", register_converters(), ids=lambda c: c.__name__)
def test_every_converter_is_documented_and_configurable(converter):
    assert converter.kafka_name.startswith(("org.apache.kafka.connect.", "io.confluent.connect."))
    assert all(k.documentation for k in converter.config())
    props = (
        {"schema.registry.url": "http://registry:8081"} if "schema.registry.url" in converter.config() else {}
    )
    if issubclass(converter, Converter):
        converter().configure(props, is_key=True)
        converter().configure(props, is_key=False)
    if hasattr(converter, "configure_header"):
        converter().configure_header({})


@pytest.mark.parametrize(
    ("converter", "props", "error"),
    [
        (JsonConverter, {"schemas.enable": "maybe"}, "Invalid value maybe for configuration schemas.enable"),
        (JsonConverter, {"decimal.format": "HEX"}, "Invalid value HEX for configuration decimal.format"),
        (JsonConverter, {"schemas.cache.size": "-1"}, "Value must be at least 0"),
        (JsonConverter, {"schema.content": '{"type":"nope"}'}, "Unknown schema type: nope"),
        (StringConverter, {"converter.encoding": "klingon"}, "Unknown encoding"),
        (StringConverter, {"converter.encoding": "UTF-16"}, "UTF-16BE or UTF-16LE"),
    ],
)
def test_bad_configurations_are_named(converter, props, error):
    with pytest.raises(ConfigError, match=error):
        converter().configure(props, is_key=False)


@pytest.mark.parametrize(
    "converter", [StringConverter(), json_converter(), json_converter(schemas_enable="false")]
)
@pytest.mark.parametrize(
    ("schema", "values"),
    [(STRING, ["a", "ü😀", ""]), (OPTIONAL_STRING, ["a", None]), (None, ["a", 5, None]), (INT32, [1, 2])],
)
def test_a_list_converts_as_its_parts_do(converter, schema, values):
    written = [converter.from_connect_data("t", schema, v) for v in values]
    assert converter.from_connect_data_many("t", schema, values) == written
    assert converter.to_connect_data_many("t", written) == [
        converter.to_connect_data("t", b) for b in written
    ]


@given(ANY_JSON)
def test_plain_json_survives(value):
    converter = json_converter(schemas_enable="false")
    written = converter.from_connect_data("t", None, value)
    assert (written is None) == (value is None)
    assert converter.to_connect_data("t", written).value == value
    if written is not None:
        assert orjson.loads(written) == value


@given(st.lists(st.builds(lambda i, n, r: Struct(ROW, id=i, name=n, raw=r), st.integers(-(2**63), 2**63 - 1),
                          st.none() | st.text(), st.none() | st.binary()), max_size=5))  # fmt: skip
def test_structs_survive_with_their_schema(rows):
    writer, reader = json_converter(), json_converter()
    for row in rows:
        data = reader.to_connect_data("t", writer.from_connect_data("t", ROW, row))
        assert data == (ROW, row)


@given(st.floats())
def test_doubles_survive(value):
    converter = json_converter()
    read = converter.to_connect_data("t", converter.from_connect_data("t", FLOAT64, value))
    assert read.schema == FLOAT64
    assert read.value == value or value != value


@given(st.floats(width=32, allow_nan=False))
def test_32_bit_floats_survive(value):
    converter = json_converter()
    assert converter.to_connect_data("t", converter.from_connect_data("t", FLOAT32, value)).value == value


def test_json_reads_a_payload_after_a_remembered_schema():
    converter = json_converter()
    first = converter.from_connect_data("t", STRING, "a")
    assert converter.to_connect_data("t", first) == (STRING, "a")
    assert converter.to_connect_data("t", converter.from_connect_data("t", STRING, 'b"}')) == (STRING, 'b"}')
    with pytest.raises(DataError, match='requires "schema" and "payload" fields'):
        converter.to_connect_data("t", first[:-1] + b',"x":1}')
    with pytest.raises(DataError, match="serialization error"):
        converter.to_connect_data("t", first[:-2] + b"}")
    spaced = b'{ "payload": 5, "schema": {"type": "int32"} }'
    assert converter.to_connect_data("t", spaced) == (INT32, 5)
    assert converter.to_connect_data("t", first) == (STRING, "a")


@pytest.mark.parametrize("size", [0, 1, 2])
def test_json_remembers_as_many_schemas_as_it_may(size):
    converter = json_converter(schemas_cache_size=str(size))
    for _ in range(2):
        for schema, value in ((STRING, "a"), (INT32, 1), (FLOAT64, 0.5)):
            data = converter.to_connect_data("t", converter.from_connect_data("t", schema, value))
            assert data == (schema, value)
    assert len(converter._decoders) == len(converter._encoders) == size


def test_json_with_a_fixed_schema_reads_plain_json():
    converter = json_converter(schema_content='{"type":"struct","fields":[{"field":"n","type":"int32"}]}')
    data = converter.to_connect_data("t", b'{"n":5}')
    assert data.value["n"] == 5
    with pytest.raises(DataError, match=r"payload\.n: "):
        converter.to_connect_data("t", b'{"n":"five"}')


def test_json_tombstones():
    for converter in (json_converter(), json_converter(schemas_enable="false")):
        assert converter.from_connect_data("t", None, None) is None
        assert converter.to_connect_data("t", None) == NULL
    assert json_converter(schemas_enable="false").from_connect_data("t", OPTIONAL_STRING, None) == b"null"
    assert json_converter(schemas_enable="false").to_connect_data("t", b"") == NULL


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        (INT32, "x", "str does not fit Schema{INT32}"),
        (INT32, None, "null value for field that is required"),
        (None, {1, 2}, "set does not have a corresponding schema type"),
        (None, 2**64, "cannot be written as JSON"),
        (None, "\ud800", "cannot be written as JSON"),
        (FLOAT32, 1e39, "out of range for FLOAT32"),
        (ROW, Struct(ROW, name="x"), "value.id: null for a required field"),
    ],
)
def test_json_refuses_what_does_not_fit(schema, value, error):
    with pytest.raises(DataError, match=error):
        json_converter().from_connect_data("t", schema, value)


@pytest.mark.parametrize(
    ("name", "base", "payload", "error"),
    [
        ("Date", "int32", '"2020-01-01"', "payload: str does not fit Schema{INT32}"),
        (
            "Timestamp",
            "int64",
            "4611686018427387904",
            "payload: .*Timestamp: 4611686018427387904 is out of range",
        ),
        ("Decimal", "bytes", "true", "payload: Invalid bytes field"),
        ("Decimal", "bytes", "1.234", "payload: 1.234 has more digits after the point than scale 2 keeps"),
        ("Decimal", "bytes", "1e999", "number is infinity when parsed"),
    ],
)
def test_json_refuses_payloads_of_logical_types(name, base, payload, error):
    text = (
        f'{{"schema":{{"type":"{base}","name":"org.apache.kafka.connect.data.{name}","parameters":{{"scale":"2"}}}},'
        f'"payload":{payload}}}'
    )
    with pytest.raises(DataError, match=error):
        json_converter().to_connect_data("t", text.encode())


def test_large_decimals_are_exact():
    number = Decimal("1" + "0" * 300 + ".25")
    schema = logical.decimal_builder(2).build()
    converter = json_converter(decimal_format="NUMERIC")
    assert converter.to_connect_data("t", converter.from_connect_data("t", schema, number)) == (
        schema,
        number,
    )


def test_a_scale_has_a_limit():
    text = b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"%d"}},"payload":1}'
    with pytest.raises(DataError, match="scale 1000000000 is beyond"):
        json_converter().to_connect_data("t", text % 10**9)
    assert parse_text("1e999999999") == (STRING, "1e999999999")


def test_byte_arrays_only():
    converter = ByteArrayConverter()
    assert converter.from_connect_data("t", BYTES, bytearray(b"x")) == b"x"
    assert converter.from_connect_data("t", None, None) is None
    assert converter.to_connect_data("t", b"x") == (OPTIONAL_BYTES, b"x")
    assert converter.to_connect_header("t", "h", None) == (OPTIONAL_BYTES, None)
    with pytest.raises(DataError, match="Invalid schema type for ByteArrayConverter: STRING"):
        converter.from_connect_data("t", STRING, "x")
    with pytest.raises(DataError, match="not compatible with objects of type str"):
        converter.from_connect_header("t", "h", None, "x")


def test_strings_in_other_encodings():
    converter = StringConverter()
    converter.configure({"converter.encoding": "ISO-8859-1"}, is_key=False)
    assert converter.from_connect_data_many("t", STRING, ["ü"]) == [b"\xfc"]
    assert converter.to_connect_data("t", b"\xfc") == (OPTIONAL_STRING, "ü")
    with pytest.raises(DataError, match="cannot be written as iso8859-1"):
        converter.from_connect_data("t", STRING, "€")
    assert StringConverter().to_connect_data("t", b"a\xff").value == "a\ufffd"
    assert StringConverter().from_connect_data("t", None, b"raw") == b"raw"


@given(st.text())
def test_header_text_is_never_lost(text):
    data = parse_text(text)
    if data.schema is STRING:
        assert data.value == text


@given(
    st.recursive(st.booleans() | st.integers() | st.text(), lambda i: st.lists(i, max_size=3), max_leaves=6)
)
def test_header_lists_survive(value):
    assert not isinstance(value, list) or parse_text(write_text(None, value)).value == value


def test_a_hostile_header_is_a_string():
    text = "[" * 100_000
    assert parse_text(text) == (STRING, text)
