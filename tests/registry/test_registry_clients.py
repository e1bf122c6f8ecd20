"""A registry in a process, asked by Confluent's Python client and serializers: registered, read, killed, forwarded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import ConfigCompatibilityLevel, ServerConfig
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from support.broker import new_name, wait_until
from support.kafka_broker import KafkaBroker
from support.registry_process import RegistryProcess

from klamm.registry.model import Schema as RegistrySchema
from klamm.registry.schemas import read
from klamm.testing import EmbeddedBroker

AVRO = json.dumps(
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]}
)  # fmt: skip
JSON = json.dumps(
    {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
)  # fmt: skip


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with RegistryProcess(broker.bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def client(registry: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def there_and_back(topic: str, serialize: Any, deserialize: Any, value: Any) -> Any:
    context = SerializationContext(topic, MessageField.VALUE)
    data = serialize(value, context)
    assert data[:1] == b"\0"
    return deserialize(data, context)


def protobuf_order() -> Any:
    """Returns the class of a message with a map, and types of another file and of Google's."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2,):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    shop = 'syntax = "proto3"; package shop; message Shop { string name = 1; }'
    order = (
        'syntax = "proto3"; package orders; import "shop.proto"; import "google/protobuf/timestamp.proto";'
        "message Order { int64 id = 1; map<string, int32> sizes = 2; shop.Shop shop = 3; google.protobuf.Timestamp at = 4; }"
    )
    for name, text, references in (("shop.proto", shop, ()), ("order.proto", order, (("shop.proto", shop),))):
        proto = read(RegistrySchema(kind="PROTOBUF", text=text), references)[1].tree
        proto.name = name
        pool.AddSerializedFile(proto.SerializeToString())
        proto.name = ""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("orders.Order"))


def test_serializers_of_python(client: SchemaRegistryClient, registry: RegistryProcess) -> None:
    order = {"id": 7, "note": "x"}
    topic = new_name("avro")
    assert there_and_back(topic, AvroSerializer(client, AVRO), AvroDeserializer(client), order) == order
    topic = new_name("json")
    read_json = JSONDeserializer(JSON, schema_registry_client=client)
    assert there_and_back(topic, JSONSerializer(JSON, client), read_json, {"id": 7}) == {"id": 7}
    topic = new_name("proto")
    settings = {"use.deprecated.format": False}
    order_class = protobuf_order()
    value = order_class(id=7, sizes={"x": 1}, shop={"name": "a"})
    value.at.seconds = 5
    write = ProtobufSerializer(order_class, client, settings)
    read_order = ProtobufDeserializer(order_class, settings, client)
    assert there_and_back(topic, write, read_order, value) == value
    shown = registry.ask("GET", f"/subjects/{topic}-value/versions/latest")[1]
    assert shown["schemaType"] == "PROTOBUF"
    assert [each["name"] for each in shown["references"]] == ["shop.proto"]
    assert "map<string, int32> sizes = 2" in shown["schema"], (
        "the descriptor that Python sends is kept as text"
    )


def test_a_guid_in_a_header(client: SchemaRegistryClient, registry: RegistryProcess) -> None:
    """Confluent's serializers can leave the value alone, and name the schema in a header."""
    topic = new_name("header")
    context = SerializationContext(topic, MessageField.VALUE, headers=[])
    write = AvroSerializer(client, AVRO, conf={"schema.id.serializer": header_schema_id_serializer})
    data = write({"id": 1, "note": "a note of some length"}, context)
    assert data is not None
    assert context.headers
    with SchemaRegistryClient({"url": registry.url}) as other:
        read_order = AvroDeserializer(other)
        assert read_order(data, context) == {"id": 1, "note": "a note of some length"}


def test_the_client_of_python(client: SchemaRegistryClient) -> None:
    subject = new_name("subject")
    number = client.register_schema(subject, Schema(AVRO, "AVRO"))
    assert client.register_schema(subject, Schema(AVRO, "AVRO")) == number
    assert client.get_schema(number).schema_type == "AVRO"
    assert client.lookup_schema(subject, Schema(AVRO, "AVRO")).version == 1
    assert client.get_latest_version(subject).schema_id == number
    other = AVRO.replace('"default": null', '"doc": "no default"')
    assert not client.test_compatibility(subject, Schema('"string"', "AVRO"))
    assert client.test_compatibility(subject, Schema(other, "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema(subject, Schema('"string"', "AVRO"))
    assert caught.value.http_status_code == 409
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    assert client.get_config(subject).compatibility_level == "NONE"
    client.register_schema(subject, Schema('"string"', "AVRO"))
    assert client.get_versions(subject) == [1, 2]
    assert client.delete_version(subject, 2) == 2
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_versions(subject)
    assert caught.value.error_code == 40401


def test_nothing_acknowledged_is_lost_by_kill_9(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_name("_schemas")
    more = {"kafkastore.topic": topic, "schema.registry.group.id": topic}
    acknowledged: dict[str, int] = {}
    with RegistryProcess(broker.bootstrap, tmp_path, **more) as registry:

        def register(thread: int) -> None:
            for n in range(10_000):
                name = f"r{thread}_{n}"
                schema = json.dumps({"type": "fixed", "name": name, "size": 1})
                try:
                    status, answer = registry.ask("POST", f"/subjects/{name}/versions", {"schema": schema})
                except OSError:
                    return
                assert status == 200, answer
                acknowledged[name] = answer["id"]

        for kill in (1, 2):
            threads = [threading.Thread(target=register, args=(10 * kill + t,)) for t in range(4)]
            for thread in threads:
                thread.start()
            wait_until(lambda least=60 * kill: len(acknowledged) >= least, "schemas are registered")
            registry.end(kill=True)
            for thread in threads:
                thread.join(60)
            registry.start()
            kept = {v["subject"]: v["id"] for v in registry.ask("GET", "/schemas")[1]}
            assert {name: kept.get(name) for name in acknowledged} == acknowledged
        assert len(set(acknowledged.values())) == len(acknowledged), "ids are unique"


def test_registries_share_a_topic_and_one_writes(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_name("_schemas")
    more = {"kafkastore.topic": topic, "schema.registry.group.id": topic}
    first = RegistryProcess(broker.bootstrap, tmp_path / "1", **more)
    second = RegistryProcess(broker.bootstrap, tmp_path / "2", **more)
    with first, second:
        leads = {r.url: r.ask("GET", "/health")[1]["leads"] for r in (first, second)}
        assert sorted(leads.values()) == [False, True]
        leader, follower = (first, second) if leads[first.url] else (second, first)
        assert follower.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        assert leader.ask("GET", "/subjects/a/versions/latest")[1]["id"] == 1
        refused = follower.ask("POST", "/subjects/a/versions", {"schema": '"string"'})
        assert (refused[0], refused[1]["error_code"]) == (409, 409)
        leader.end(kill=True)
        wait_until(lambda: follower.ask("GET", "/health")[1]["leads"], "the other one leads")
        assert follower.ask("POST", "/subjects/b/versions", {"schema": '"long"'})[1]["id"] == 2
        leader.start()
        assert leader.ask("GET", "/subjects/b/versions/latest")[1]["id"] == 2
        assert leader.ask("POST", "/subjects/c/versions", {"schema": '"bytes"'})[1]["id"] == 3


@pytest.mark.usefixtures("apache_kafka")
def test_beside_apache_kafka_with_a_topic_of_confluents(tmp_path: Path) -> None:
    """Takes over a topic of Confluent's registry, and writes so that theirs could take it over."""
    with KafkaBroker(tmp_path) as kafka:
        producer = Producer({"bootstrap.servers": kafka.address})
        admin = AdminClient({"bootstrap.servers": kafka.address})
        topic = NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])["_schemas"].result(30)
        theirs = [
            (b'{"keytype":"NOOP","magic":0}', None),
            (
                b'{"keytype":"SCHEMA","subject":"old-value","version":1,"magic":1}',
                b'{"subject":"old-value","version":1,"id":41,"schema":"\\"int\\"","deleted":false}',
            ),
        ]
        for key, value in theirs:
            producer.produce("_schemas", key=key, value=value)
        producer.flush()
        with RegistryProcess(kafka.address, tmp_path / "registry") as registry:
            assert registry.ask("GET", "/schemas/ids/41")[1]["schema"] == '"int"'
            assert registry.ask("POST", "/subjects/new-value/versions", {"schema": '"long"'})[1]["id"] == 42
            assert registry.end() == 0
        consumer = Consumer(
            {"bootstrap.servers": kafka.address, "group.id": "look", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["_schemas"])
        found: dict[bytes, Any] = {}
        wanted = b'{"keytype":"SCHEMA","subject":"new-value","version":1,"magic":1}'
        wait_until(lambda: _read(consumer, found) or wanted in found, "the record")
        consumer.close()
        assert (
            found[wanted]
            == b'{"subject":"new-value","version":1,"id":42,"schema":"\\"long\\"","deleted":false}'
        )


def _read(consumer: Consumer, found: dict[bytes, Any]) -> bool:
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        found[bytes(message.key() or b"")] = message.value()
    return False
