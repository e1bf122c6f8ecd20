"""Dead letters, schemas, access and metrics in the console, over a real broker and a real worker."""

from __future__ import annotations

import json
import struct

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic, wait_until
from support.browser import Browser
from support.klamm import Server
from support.schema_registry import SchemaRegistry

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}


@pytest.fixture(scope="module")
def registry():
    with SchemaRegistry() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker, worker, registry):
    settings = (
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"connect.url={worker.url}",
        f"registry.url={registry.url}",
    )  # fmt: skip
    with Server("console", "start", *(word for each in settings for word in ("--override", each))) as server:
        yield server.ready["console"]


@pytest.fixture
def browser(address):
    found = Browser(address)
    found.get("/")
    return found


def test_dead_letters_are_looked_at_and_sent_again(broker, worker, browser, tmp_path):
    topic, name = new_topic(broker), new_name("sink")
    worker.create(
        name,
        {
            "connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "out"),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
            "errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dlq",
            "errors.deadletterqueue.topic.replication.factor": "1", "errors.deadletterqueue.context.headers.enable": "true",
        },
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"{bad")
    producer.flush(30)
    path = f"/c/local/dead-letters/{name}-dlq"
    wait_until(
        lambda: "DataError" in browser.get(path) or "DataException" in browser.get(path), "the dead letter"
    )
    assert f"{topic}-0@0" in browser.get(path)
    assert f"{name}-dlq" in wait_until(
        lambda: (t := browser.get("/c/local/dead-letters")) and name in t and t, "listed"
    )
    assert f"1 record would be sent to {topic}" in browser.post(f"{path}/replay", what="try")
    worker.halt(name)
    wait_until(lambda: not worker.status(name)["tasks"], "its tasks have ended")
    assert f"Sent again: 1 record to {topic}" in browser.post(f"{path}/replay", what="send")
    assert f"{name}-dlq-0@0" in browser.get(
        f"/c/local/topics/{topic}/records/0/1"
    )  # the header says where it lay
    worker.delete(name)


def test_schemas_and_records_through_the_registry(broker, registry, browser):
    topic = new_topic(broker)
    subject = f"{topic}-value"
    text = json.dumps(USER)
    assert "The schema has the id" in browser.post(f"/c/local/schemas/{subject}", kind="AVRO", schema=text)
    shown = browser.get(f"/c/local/schemas/{subject}")
    assert ("Version 1" in shown, '"name": "User"' in shown) == (True, True)
    assert subject in browser.get(f"/c/local/schemas?q={subject}")
    (number,) = (i for i, s in registry.schemas.items() if "User" in json.dumps(s))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"\0" + struct.pack(">i", number) + b"\x06ann")
    producer.produce(topic, b"\0" + struct.pack(">i", 999) + b"\x06ann")
    producer.flush(30)
    found = browser.get(f"/c/local/topics/{topic}/records/0/0")
    assert f"avro, schema {number}" in found
    assert '"name": "ann"' in found
    assert "avro" not in browser.get(f"/c/local/topics/{topic}/records/0/1")
    assert "FULL now" in browser.post(f"/c/local/schemas/{subject}/level", level="FULL")
    assert "type " in browser.post(f"/c/local/schemas/{subject}/delete", confirm="x")


def test_users_and_quotas(browser):
    name = new_name("user")
    made = browser.post("/c/local/access/user", user=name, mechanism="SCRAM-SHA-512", password="geheim")
    assert f"{name} has a password for SCRAM-SHA-512" in made
    assert "geheim" not in made
    assert "1,024" in browser.post("/c/local/access/quota", user=name, producer_byte_rate="1024")
    assert "1,024" not in browser.post("/c/local/access/quota", user=name)
    assert "has no SCRAM-SHA-512" in browser.post(
        "/c/local/access/user", what="delete", user=name, mechanism="SCRAM-SHA-512"
    )
    assert "is no number" in browser.post("/c/local/access/quota", user=name, producer_byte_rate="much")


def test_acls_where_there_is_no_authorizer_are_a_sentence(browser):
    assert "authorizer" in browser.get("/c/local/access").lower()
