"""Random schemas and values through our JSON converter and Apache Kafka's: what one writes the other reads as the same.

Logical types, big integers, versions, parameters, defaults, nested structs, maps with keys of any type, arrays.
"""

import base64
import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kafka_oracle, transforms
from support.random_data import RandomData

from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.logical import decimal_scale, is_decimal
from klamm_plugins.schema import Schema, Struct, Type

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFIGS = [{"decimal.format": f, "replace.null.with.default": "false"} for f in ("BASE64", "NUMERIC")]


def converter(config):
    made = JsonConverter()
    made.configure(config, is_key=False)
    return made


def same(one, other):
    """Compares as envelopes: schemas equal, and values but for the digits of 32-bit floats and the order of maps."""
    return canonical(one["schema"], one["payload"]) == canonical(other["schema"], other["payload"])


def canonical(schema, payload):
    if schema is None or payload is None:
        return [sorted_schema(schema), payload]
    match schema["type"]:
        case "float":
            value = struct.pack("f", payload) if isinstance(payload, float) else payload
        case "array":
            value = [canonical(schema["items"], v)[1] for v in payload]
        case "map":
            pairs = payload.items() if isinstance(payload, dict) else payload
            value = sorted(
                (repr(canonical(schema["keys"], k)[1]), canonical(schema["values"], v)[1]) for k, v in pairs
            )
        case "struct":
            value = {f["field"]: canonical(f, payload[f["field"]])[1] for f in schema["fields"]}
        case _:
            value = payload
    return [sorted_schema(schema), value]


def sorted_schema(schema):
    return json.dumps(schema, sort_keys=True)


@pytest.mark.usefixtures("apache_kafka")
def test_what_we_write_kafka_reads_and_the_other_way_round():
    oracle = kafka_oracle.require()
    random = RandomData(2026)
    data = [random.envelope() for _ in range(1500)]
    asked, written = [], []
    for config in CONFIGS:
        ours = converter(config)
        for envelope in data:
            schema, value = transforms.data_of(envelope)
            raw = ours.from_connect_data("t", schema, value)
            written.append((config, schema, value, envelope))
            asked.append({"converter": JSON, "config": config, "bytes": base64.b64encode(raw).decode()})
            asked.append({"converter": JSON, "config": config, "data": envelope})
    answers = transforms.ask_kafka(oracle, asked)
    for (config, schema, value, envelope), read, made in zip(
        written, answers[::2], answers[1::2], strict=True
    ):
        assert "error" not in read, (envelope, read)
        assert same(read["data"], transforms.envelope(schema, value)), (envelope, read)
        back = converter(config).to_connect_data("t", base64.b64decode(made["bytes"]))
        assert back.schema == schema, envelope
        assert alike(back.value, value), (envelope, back.value)


def alike(one, other):
    """Equal, in type and to the last digit."""
    if type(one) is not type(other):
        return False
    match one:
        case Struct():
            return one.schema == other.schema and alike(one.values, other.values)
        case list():
            return len(one) == len(other) and all(map(alike, one, other))
        case dict():
            return one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items())
        case Decimal():
            return one.as_tuple() == other.as_tuple()
        case float():
            return struct.pack("f", one) == struct.pack("f", other) or one == other
        case _:
            return one == other


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), config=st.sampled_from(CONFIGS))
def test_what_is_written_is_read_back(seed, config):
    """Both ways through the converter, one by one and in lists, with one converter that has seen other schemas."""
    random = RandomData(seed)
    ours = converter(config)
    for _ in range(3):
        schema, value = transforms.data_of(random.envelope())
        (raw,) = ours.from_connect_data_many("t", schema, [value])
        assert raw == ours.from_connect_data("t", schema, value)
        (back,) = ours.to_connect_data_many("t", [raw])
        assert back.schema == schema
        assert alike(back.value, value)
        check_scales(schema, back.value)


def check_scales(schema: Schema, value):
    """Checks that a decimal has the scale of its schema, however it was written."""
    if value is None:
        return
    match schema.type:
        case Type.ARRAY:
            for item in value:
                check_scales(schema.value_schema, item)
        case Type.MAP:
            for key, item in value.items():
                check_scales(schema.key_schema, key)
                check_scales(schema.value_schema, item)
        case Type.STRUCT:
            for field in schema.fields:
                check_scales(field.schema, value.get_without_default(field.name))
        case _ if is_decimal(schema):
            assert -value.as_tuple().exponent == decimal_scale(schema)
