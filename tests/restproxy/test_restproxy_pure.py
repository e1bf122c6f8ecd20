"""The parts of the REST proxy that need no cluster: Avro's JSON, streams of JSON, room, bodies, settings."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import fastavro
import pytest

from klamm.registry.avro import parse
from klamm.restproxy import avro_json, formats, requests
from klamm.restproxy.config import ProxyConfig, definition
from klamm.restproxy.endpoints import ENDPOINTS, TITLE
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.formats import Format
from klamm.restproxy.producing import OVERHEAD, Record, Room
from klamm.restproxy.v3_records import objects
from klamm.web.openapi import document
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties

TREE: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string", {"type": "array", "items": "int"}]},
        {"name": "raw", "type": "bytes"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ok", "type": "boolean"},
        {"name": "part", "type": "float"},
    ],
}
ORDER: dict[str, Any] = {
    "id": -5, "note": {"array": [1, 2]}, "raw": "\u00ff\u0000", "mark": "ab", "kind": "B", "sizes": {"x": 1.5},
    "next": None, "at": 7, "ok": True, "part": 0.5,
}  # fmt: skip


def test_avro_json_is_read_by_another_library_and_comes_back() -> None:
    type_, _ = parse(json.dumps(TREE))
    value = {**ORDER, "next": {"shop.Order": {**ORDER, "note": {"string": "ü"}}}}
    out = bytearray()
    avro_json.writer(type_)(value, out)
    read: Any = fastavro.schemaless_reader(io.BytesIO(bytes(out)), fastavro.parse_schema(TREE), None)
    assert (read["id"], read["note"], read["raw"], read["next"]["note"]) == (-5, [1, 2], b"\xff\0", "ü")
    assert avro_json.reader(type_)(bytes(out), 0) == (value, len(out))


def test_another_librarys_avro_is_read() -> None:
    type_, _ = parse(json.dumps(TREE))
    written = io.BytesIO()
    value = {**ORDER, "note": "text", "raw": b"\xff\0", "mark": b"ab"}
    fastavro.schemaless_writer(written, fastavro.parse_schema(TREE), value)
    assert avro_json.reader(type_)(written.getvalue(), 0)[0] == {**ORDER, "note": {"string": "text"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 2**63}, ".id: 9223372036854775808 does not fit long"),
        ({"id": "x"}, ".id: expected long, got 'x'"),
        ({"note": "bare"}, ".note: expected a union of null, string, array"),
        ({"note": {"int": 1}}, "unknown union branch int"),
        ({"note": {"array": [1, "x"]}}, ".note: [1]: expected int"),
        ({"mark": "abc"}, "has 2 bytes, not 3"),
        ({"kind": "C"}, ".kind: expected shop.Kind"),
        ({"more": 1}, "shop.Order has no field more"),
        ({"raw": "€"}, "U+0000 to U+00FF"),
    ],
)
def test_what_is_no_avro_json(change: dict[str, Any], words: str) -> None:
    type_, _ = parse(json.dumps(TREE))
    with pytest.raises(avro_json.AvroDataError) as caught:
        avro_json.writer(type_)({**ORDER, **change}, bytearray())
    assert words in str(caught.value)
    with pytest.raises(avro_json.AvroDataError, match="Expected field name not found: id"):
        avro_json.writer(type_)({}, bytearray())


def test_avro_that_is_cut_off_is_an_error_at_every_byte() -> None:
    type_, _ = parse(json.dumps(TREE))
    out = bytearray()
    avro_json.writer(type_)(ORDER, out)
    for end in range(len(out)):
        with pytest.raises(avro_json.AvroDataError):
            avro_json.reader(type_)(bytes(out[:end]), 0)


def streamed(parts: list[bytes], size_max: int = 1 << 20) -> list[Any]:
    async def chunks() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def collect() -> list[Any]:
        return [each async for each in objects(chunks(), size_max)]

    return asyncio.run(collect())


def test_few_bytes_are_no_millions_of_elements() -> None:
    type_, _ = parse('{"type": "array", "items": "null"}', [])
    data = bytearray()
    avro_json.writer(type_)([None] * 1000, data)
    assert avro_json.reader(type_)(bytes(data), 0)[0] == [None] * 1000
    for count in (1001, 10_000_000):
        data = bytearray()
        avro_json.put_long(count, data)
        with pytest.raises(avro_json.AvroDataError, match="is not believed"):
            avro_json.reader(type_)(bytes(data) + b"\0", 0)


def test_a_stream_of_objects_may_be_cut_anywhere() -> None:
    values = [{"a": 'ü€\\"}{', "n": [1, 2.5, True, None]}, {}, {"value": {"type": "JSON", "data": -1e9}}]
    text = " \r\n".join(json.dumps(v, ensure_ascii=False) for v in values).encode() + b"{}"
    for cut in range(len(text)):
        assert streamed([text[:cut], text[cut:]]) == [*values, {}]
    assert streamed([text[i : i + 1] for i in range(len(text))]) == [*values, {}]


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([b'{"a":1} x'], 400),
        ([b'{"a":1}', b'{"a"'], 400),
        ([b'{"a":]}       '], 400),
        ([b'{"a":NaN}'], 400),
        ([b"[1]"], 400),
        ([b'{"a":"\xff\xff"}'], 400),
        ([b'{"a":"', b"x" * 100], 413),
    ],
)
def test_a_stream_ends_at_what_is_no_json(parts: list[bytes], code: int) -> None:
    found = streamed(parts, 64)
    assert isinstance(found[-1], ProxyError)
    assert found[-1].code == code
    assert all(isinstance(each, dict) for each in found[:-1])


def test_room_takes_a_request_whole_or_not() -> None:
    room = Room(1000)
    assert room.fits(5000)
    room.used = 400
    assert room.fits(600)
    assert not room.fits(601)
    assert Record(b"k", b"vv").bytes == OVERHEAD + 3


def test_formats_without_a_schema() -> None:
    assert formats.encode(Format.BINARY, "aGk=", "v") == b"hi"
    assert formats.encode(Format.JSON, {"a": "ü"}, "v") == '{"a":"ü"}'.encode()
    assert formats.encode(Format.JSON, None, "v") is None
    assert formats.decode(Format.BINARY, b"\0") == "AA=="
    for value in ("%%%", 5):
        with pytest.raises(ProxyError, match=r"records\[0\].value"):
            formats.encode(Format.BINARY, value, "records[0].value")
    with pytest.raises(ProxyError, match="not usable JSON"):
        formats.encode(Format.JSON, 2**70, "v")
    assert formats.of_content("application/vnd.kafka.avro.v2+json") is Format.AVRO
    assert formats.of_content("application/json") is Format.BINARY


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"offsets": 1}, "offsets must be an array"),
        ({"offsets": [1]}, r"offsets\[0\] must be an object"),
        ({"offsets": [{"topic": "t"}]}, "needs topic, partition and offset"),
        ({"offsets": [{"topic": "t", "partition": -1, "offset": 0}]}, "integer from 0"),
        ({"offsets": [{"topic": "t", "partition": True, "offset": 0}]}, "integer from 0"),
    ],
)
def test_bodies_with_mistakes(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ProxyError, match=words) as caught:
        requests.places(body, "offsets", offsets=True)
    assert caught.value.status == 422


def test_settings_of_clients() -> None:
    config = ProxyConfig.from_properties(
        Properties(
            {
                "bootstrap.servers": "PLAINTEXT://a:9092,b:9092",
                "client.sasl.mechanism": "PLAIN",
                "client.security.protocol": "SASL_PLAINTEXT",
                "client.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="secret-1";',
                "producer.linger.ms": "7",
                "consumer.fetch.min.bytes": "9",
                "consumer.threads": "3",
            }
        )
    )
    assert config.bootstrap == "a:9092,b:9092"
    assert (config.producer["sasl.username"], config.consumer["sasl.username"]) == ("u", "u")
    assert config.security.sasl is not None
    assert config.security.sasl.username == "u"
    assert config.producer["linger.ms"] == "7"
    assert config.producer["acks"] == "all"
    assert config.consumer["fetch.min.bytes"] == "9"
    assert not any(key.startswith(("consumer.", "client.s", "linger")) for key in config.consumer)
    assert "secret-1" not in repr(config)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        ProxyConfig.from_properties(Properties({}))


def test_every_key_is_documented_and_every_endpoint_in_the_document() -> None:
    assert all(key.documentation for key in definition())
    made = document(ENDPOINTS, TITLE)
    assert sum(len(methods) for methods in made["paths"].values()) == len(ENDPOINTS)
    ids = [each["operationId"] for methods in made["paths"].values() for each in methods.values()]
    assert len(set(ids)) == len(ids)
