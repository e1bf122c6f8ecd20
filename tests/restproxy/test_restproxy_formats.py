"""Every format there and back: through the proxy, and with a foreign client on the other side; at our broker and at Apache Kafka's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support.broker import new_name
from support.kafka_broker import KafkaBroker
from support.registry_process import RegistryProcess
from support.rest_proxy_process import RestProxyProcess

from klamm.testing import EmbeddedBroker

AVRO = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]}
)  # fmt: skip
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; repeated string tags = 2; }'


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with RegistryProcess(broker.bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(
    broker: EmbeddedBroker, registry: RegistryProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestProxyProcess]:
    directory = tmp_path_factory.mktemp("proxy")
    with RestProxyProcess(broker.bootstrap, directory, schema__registry__url=registry.url) as running:
        yield running


def topic_of(bootstrap: str, partitions: int = 1) -> str:
    name = new_name("rest")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def consumed(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Reads with librdkafka."""
    settings = {"bootstrap.servers": bootstrap, "group.id": new_name("g"), "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(60):
        found += [(m.key(), m.value()) for m in consumer.consume(count, 0.5) if m.error() is None]
        if len(found) >= count:
            break
    consumer.close()
    return found


def there_and_back(proxy: RestProxyProcess, bootstrap: str) -> None:
    """Binary and JSON, with keys, nulls and partitions."""
    topic = topic_of(bootstrap, 2)
    answer = proxy.produce(
        topic, "binary", [{"key": "aw==", "value": "AP8=", "partition": 1}, {"value": None, "partition": 1}]
    )
    assert [(o["partition"], o["offset"], o["error_code"]) for o in answer["offsets"]] == [
        (1, 0, None),
        (1, 1, None),
    ]
    assert consumed(bootstrap, topic, 2) == [(b"k", b"\0\xff"), (None, None)]
    consumer = proxy.consumer(new_name("g"), "binary")
    assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]}) == (204, None)
    assert [(r["key"], r["value"], r["offset"]) for r in proxy.read(consumer, "binary", 2)] == [
        ("aw==", "AP8=", 0),
        (None, None, 1),
    ]
    assert proxy.ask("DELETE", consumer) == (204, None)

    topic = topic_of(bootstrap)
    proxy.produce(topic, "json", [{"key": "a", "value": {"x": [1, 2.5, "ü", None]}}])
    [(key, value)] = consumed(bootstrap, topic, 1)
    assert key is not None
    assert value is not None
    assert (json.loads(key), json.loads(value)) == ("a", {"x": [1, 2.5, "ü", None]})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b'{"y":1}', b"2")
    assert producer.flush(30) == 0
    consumer = proxy.consumer(new_name("g"), "json")
    proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
    assert [(r["key"], r["value"]) for r in proxy.read(consumer, "json", 2)] == [
        ("a", {"x": [1, 2.5, "ü", None]}),
        (2, {"y": 1}),
    ]
    proxy.ask("DELETE", consumer)


def test_binary_and_json(proxy: RestProxyProcess, broker: EmbeddedBroker) -> None:
    there_and_back(proxy, broker.bootstrap)


@pytest.mark.usefixtures("apache_kafka")
def test_binary_and_json_at_apache_kafka(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as kafka, RestProxyProcess(kafka.address, tmp_path / "proxy") as proxy:
        there_and_back(proxy, kafka.address)
        topic = topic_of(kafka.address, 3)
        status, shown = proxy.ask("GET", f"/topics/{topic}")
        assert (status, len(shown["partitions"]), shown["configs"]["cleanup.policy"]) == (200, 3, "delete")
        status, clusters = proxy.ask("GET", "/v3/clusters")
        cluster = clusters["data"][0]["metadata"]["self"]
        body = b'{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":[1]}}'
        status, answer = proxy.ask("POST", f"{cluster}/topics/{topic}/records", body, kind="application/json")
        assert (status, answer["error_code"], answer["topic_name"], answer["key"]) == (
            200,
            200,
            topic,
            {"type": "STRING", "size": 1},
        )
        assert consumed(kafka.address, topic, 1) == [(b"k", b"[1]")]


def foreign(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def back(proxy: RestProxyProcess, topic: str, form: str, count: int) -> list[Any]:
    consumer = proxy.consumer(new_name("g"), form)
    proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
    found = [r["value"] for r in proxy.read(consumer, form, count)]
    proxy.ask("DELETE", consumer)
    return found


def test_avro_with_confluents_serializers(
    proxy: RestProxyProcess, broker: EmbeddedBroker, registry: RegistryProcess
) -> None:
    topic = topic_of(broker.bootstrap)
    values = [{"id": 7, "note": {"string": "x"}}, {"id": 8, "note": None}]
    answer = proxy.produce(topic, "avro", [{"value": v} for v in values], value_schema=AVRO)
    again = proxy.produce(topic, "avro", [{"value": values[0]}], value_schema_id=answer["value_schema_id"])
    assert (again["key_schema_id"], again["value_schema_id"]) == (None, answer["value_schema_id"])
    with SchemaRegistryClient({"url": registry.url}) as client:
        read = AvroDeserializer(client)
        found = [read(value, foreign(topic)) for _, value in consumed(broker.bootstrap, topic, 3)]
        assert found == [{"id": 7, "note": "x"}, {"id": 8, "note": None}, {"id": 7, "note": "x"}]
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, AvroSerializer(client, AVRO)({"id": 9, "note": "y"}, foreign(topic)))
        assert producer.flush(30) == 0
    assert back(proxy, topic, "avro", 4) == [*values, values[0], {"id": 9, "note": {"string": "y"}}]


def test_json_schema_with_confluents_deserializer(
    proxy: RestProxyProcess, broker: EmbeddedBroker, registry: RegistryProcess
) -> None:
    topic = topic_of(broker.bootstrap)
    proxy.produce(topic, "jsonschema", [{"value": {"id": 1}}], value_schema=JSON)
    with SchemaRegistryClient({"url": registry.url}) as client:
        read = JSONDeserializer(JSON, schema_registry_client=client)
        assert [read(v, foreign(topic)) for _, v in consumed(broker.bootstrap, topic, 1)] == [{"id": 1}]
    assert back(proxy, topic, "jsonschema", 1) == [{"id": 1}]
    wrong = {"records": [{"value": {"id": "x"}}], "value_schema": JSON}
    status, answer = proxy.ask(
        "POST", f"/topics/{topic}", wrong, kind="application/vnd.kafka.jsonschema.v2+json"
    )
    assert (status, answer["error_code"]) == (422, 42203)
    assert "$.id: 'x' is not of type 'integer'" in answer["message"]


def order_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="tags", number=2, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    return message_factory.GetMessageClass(
        pool.AddSerializedFile(file.SerializeToString()) and pool.FindMessageTypeByName("Order")
    )


def test_protobuf_with_confluents_serializers(
    proxy: RestProxyProcess, broker: EmbeddedBroker, registry: RegistryProcess
) -> None:
    topic = topic_of(broker.bootstrap)
    proxy.produce(topic, "protobuf", [{"value": {"id": 5, "tags": ["a"]}}], value_schema=PROTO)
    made, settings = order_class(), {"use.deprecated.format": False}
    with SchemaRegistryClient({"url": registry.url}) as client:
        read = ProtobufDeserializer(made, settings, client)
        [found] = [read(v, foreign(topic)) for _, v in consumed(broker.bootstrap, topic, 1)]
        assert (found.id, list(found.tags)) == (5, ["a"])
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, ProtobufSerializer(made, client, settings)(made(id=6), foreign(topic)))
        assert producer.flush(30) == 0
    assert back(proxy, topic, "protobuf", 2) == [{"id": "5", "tags": ["a"]}, {"id": "6", "tags": []}]


@pytest.mark.parametrize(
    ("form", "body", "code"),
    [
        ("avro", {"records": [{"value": {}}]}, 42202),
        ("avro", {"records": [{"key": {}}], "value_schema": '"string"'}, 42201),
        ("avro", {"records": [{"value": 1}], "value_schema": '"string"'}, 42203),
        ("avro", {"records": [{"value": 1}], "value_schema": '"strange"'}, 42205),
        ("avro", {"records": [{"value": 1}], "value_schema_id": 99999}, 40801),
        ("protobuf", {"records": [{"value": {"nope": 1}}], "value_schema": PROTO}, 42203),
        ("json", {}, 422),
        ("json", {"records": [{"values": 1}]}, 422),
        ("json", {"records": [{"value": 1, "partition": 7}]}, 422),
        ("binary", {"records": [{"value": "%"}]}, 422),
    ],
)
def test_what_cannot_be_produced(
    proxy: RestProxyProcess, broker: EmbeddedBroker, form: str, body: dict[str, Any], code: int
) -> None:
    topic = topic_of(broker.bootstrap)
    status, answer = proxy.ask("POST", f"/topics/{topic}", body, kind=f"application/vnd.kafka.{form}.v2+json")
    assert (status, answer["error_code"]) == (int(str(code)[:3]), code), answer
    assert proxy.ask("GET", f"/topics/{topic}/partitions/0/offsets") == (
        200,
        {"beginning_offset": 0, "end_offset": 0},
    )
