"""Schemas between two real registries (Apicurio's), with records of Confluent's serializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support import apicurio
from support.broker import new_name, new_topic
from support.mirroring import Running, produce, props, read

pytestmark = pytest.mark.usefixtures("apache_kafka")  # Java, as the registry needs it

KEY = json.dumps({"title": "Key", "type": "object", "properties": {"k": {"type": "string"}}})
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "a", "type": "int"}]})


@pytest.fixture(scope="module")
def registries(processes, tmp_path_factory) -> Iterator[tuple[apicurio.Apicurio, apicurio.Apicurio]]:
    apicurio.home()
    with (
        apicurio.Apicurio(tmp_path_factory.mktemp("a")) as a,
        apicurio.Apicurio(tmp_path_factory.mktemp("b")) as b,
    ):
        for _ in range(3):  # ids of the two differ
            schema = json.dumps({"type": "record", "name": new_name().replace("-", "_"), "fields": []})
            with SchemaRegistryClient({"url": a.url}) as client:
                AvroSerializer(client, schema)({}, at(new_name()))
        yield a, b


def at(topic: str, part: str = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, part)


def written(a: apicurio.Apicurio, topic: str) -> tuple[bytes, bytes]:
    with SchemaRegistryClient({"url": a.url}) as client:
        key = JSONSerializer(KEY, client)({"k": "x"}, at(topic, MessageField.KEY))
        value = AvroSerializer(client, ORDER)({"a": 1}, at(topic))
    assert key is not None
    assert value is not None
    return key, value


def config_of(registries, source, target, topic: str, ids: str) -> dict[str, str]:
    a, b = registries
    return props(
        source.bootstrap, target.bootstrap, topics=topic, sync__schemas__enabled="true", sync__schemas__ids=ids,
        source__cluster__schema__registry__url=a.url, target__cluster__schema__registry__url=b.url,
    )  # fmt: skip


def schemas(mirror: Running) -> dict[str, Any]:
    found: dict[str, Any] = mirror.details().get("schemas", {})
    return found


def test_readers_understand_translated_records(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    row = written(a, topic)
    produce(source.bootstrap, topic, [(*row, None, 1000)])
    with Running(config_of(registries, source, target, topic, "translate")) as mirror:
        mirror.until(lambda: mirror.records == 1 and schemas(mirror).get("synced_ms"), "record and schemas")
        assert not schemas(mirror)["conflicts"]
    [(key, value, _, _)] = read(target.bootstrap, f"A.{topic}", 1)
    assert key is not None
    assert value is not None
    assert (key, value) != row
    with SchemaRegistryClient({"url": b.url}) as client:
        assert AvroDeserializer(client)(value, at(f"A.{topic}")) == {"a": 1}
        reader: Any = JSONDeserializer(KEY, schema_registry_client=client)
        assert reader(key, at(f"A.{topic}", MessageField.KEY)) == {"k": "x"}


def test_a_registry_that_cannot_import_ids_is_a_conflict(registries, source, target):
    topic = new_topic(source)
    produce(source.bootstrap, topic, [(*written(registries[0], topic), None, 1000)])
    with Running(config_of(registries, source, target, topic, "keep")) as mirror:
        mirror.until(lambda: schemas(mirror).get("conflicts"), "the conflict")
        [why, *_] = schemas(mirror)["conflicting"].values()
    assert "sync.schemas.ids=translate" in why
