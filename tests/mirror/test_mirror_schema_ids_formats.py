"""Translated ids of schemas in records of Protobuf and JSON Schema, and in transactions."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support.broker import new_name, new_topic
from support.mirroring import Row, Running, produce, read
from support.mirroring_once import Mirror

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.varint import encode_varint

from .test_mirror_schema_ids import config_of
from .test_mirror_schemas import order_schema, registries, understood, written

__all__ = ["registries"]

INT = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL


def value_at(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def messages(name: str) -> Any:
    """Returns a message class that is not the first of its file, within another, and uses a second file."""
    money = descriptor_pb2.FileDescriptorProto(name=f"{name}/money.proto", package=name, syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=INT, label=ONE)
    orders = descriptor_pb2.FileDescriptorProto(
        name=f"{name}/orders.proto", package=name, syntax="proto3", dependency=[money.name]
    )
    orders.message_type.add(name="Other")
    line = orders.message_type.add(name="Order").nested_type.add(name="Line")
    line.field.add(name="price", number=1, type=MESSAGE, label=ONE, type_name=f".{name}.Money")
    pool = descriptor_pool.DescriptorPool()
    for file in (money, orders):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Order.Line"))


def test_protobuf_keeps_its_message_index_and_its_imports(registries, source, target):
    a, b = registries
    topic, package = new_topic(source), new_name("p").replace("-", "_")
    line_class = messages(package)
    line = line_class()
    line.price.cents = 4711
    with SchemaRegistryClient({"url": a.url}) as client:
        sent = ProtobufSerializer(line_class, client, {"use.deprecated.format": False})(line, value_at(topic))
    assert sent is not None
    produce(source.bootstrap, topic, [(None, sent, None, 1000)])
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: mirror.records == 1, "the record")
    [(_, found, _, _)] = read(target.bootstrap, f"A.{topic}", 1)
    assert found is not None
    index = b"\x04\x02\x00"  # two steps: the second message, its first nested one
    assert sent[5:8] == found[5:8] == index
    assert found[5:] == sent[5:]
    [theirs] = b.subjects[f"A.{topic}-value"].values()
    assert found[:5] == struct.pack(">bI", 0, theirs) != sent[:5]
    [reference] = b.schemas[theirs]["references"]
    assert (reference["name"], reference["subject"]) == (f"{package}/money.proto",) * 2
    assert reference["subject"] in b.subjects
    with SchemaRegistryClient({"url": b.url}) as client:
        read_by = ProtobufDeserializer(line_class, {"use.deprecated.format": False}, client)
        assert read_by(found, value_at(f"A.{topic}")) == line


def test_json_schema_is_understood_under_another_id(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"a": {"type": "integer"}}})
    with SchemaRegistryClient({"url": a.url}) as client:
        sent = JSONSerializer(schema, client)({"a": 1}, value_at(topic))
    produce(source.bootstrap, topic, [(None, sent, None, 1000)])
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: mirror.records == 1, "the record")
    [(_, found, _, _)] = read(target.bootstrap, f"A.{topic}", 1)
    assert found != sent
    with SchemaRegistryClient({"url": b.url}) as client:
        deserializer = JSONDeserializer(None, schema_registry_client=client)
        assert deserializer(found, value_at(f"A.{topic}")) == {"a": 1}


@pytest.mark.usefixtures("processes")
def test_translated_records_come_once_whatever_is_killed(registries, tmp_path: Path):
    a, b = registries
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        topic = new_topic(source)
        registry = {
            "sync__schemas__enabled": "true", "sync__schemas__ids": "translate",
            "source__cluster__schema__registry__url": a.url, "target__cluster__schema__registry__url": b.url,
        }  # fmt: skip
        mirror = Mirror(source.bootstrap, target.bootstrap, topic, tmp_path, **registry)
        sent = 0
        try:
            for version in ("a", "b", "c"):
                head = written(a, topic, order_schema(version), {})[:5]
                produce(source.bootstrap, topic, rows_of(head, sent, 1_000))
                mirror.kill()
                produce(source.bootstrap, topic, rows_of(head, sent + 1_000, 1_000))
                sent += 2_000
            found = [value for _, value in mirror.wait_for_records(sent)]
        finally:
            mirror.worker.end()
    ids = list(b.subjects[f"A.{topic}-value"].values())
    assert ids == [1, 2, 3]
    assert found == [
        value
        for version, id_ in enumerate(ids)
        for _, value, _, _ in rows_of(struct.pack(">bI", 0, id_), version * 2_000, 2_000)
    ]
    assert understood(b, f"A.{topic}", found[-1]) == {"c": 5_999}


def rows_of(head: bytes, first: int, count: int) -> list[Row]:
    """Returns records of Avro with one int each: its number."""
    return [(None, head + encode_varint(i), [], 1_700_000_000_000 + i) for i in range(first, first + count)]
