"""The console over Apache Kafka and Apache's Connect worker."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from support.broker import new_name, wait_until
from support.browser import Browser
from support.connect_worker import worker_properties
from support.kafka_broker import KafkaBroker
from support.kafka_connect import KafkaConnectWorker
from support.klamm import Server


@pytest.fixture(scope="module")
def browser(apache_kafka, processes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("apache")
    with KafkaBroker(folder) as kafka:
        worker = KafkaConnectWorker(worker_properties(kafka.address, "console"), folder)
        worker.wait_ready()
        settings = (
            "listeners=http://127.0.0.1:0", f"bootstrap.servers={kafka.address}", f"connect.url=http://127.0.0.1:{worker.port}",
        )  # fmt: skip
        try:
            with Server(
                "console", "start", *(word for each in settings for word in ("--override", each))
            ) as server:
                found = Browser(server.ready["console"])
                found.bootstrap = kafka.address
                found.get("/")
                yield found
        finally:
            worker.stop()


def test_topics_records_and_settings_of_apaches(browser):
    name = new_name()
    assert f"Topic {name} was created." in browser.post("/c/local/new-topic", name=name, partitions="2")
    producer = Producer({"bootstrap.servers": browser.bootstrap})
    producer.produce(name, b'{"a": 1}', b"k", partition=0)
    producer.flush(30)
    assert '"a": 1' in browser.get(f"/c/local/topics/{name}/records/0/0")
    text = browser.get(f"/c/local/topics/{name}/settings")
    assert "What it means" in text
    assert browser.get("/c/local")
    assert browser.status == 200


def test_a_connector_of_apaches(browser, tmp_path):
    name = new_name("sink")
    plugin = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    config = {
        "connector.class": plugin,
        "topics": "t",
        "file": str(tmp_path / "out"),
        "db.password": "geheim",
    }
    assert "FileStreamSink" in browser.get("/c/local/new-connector")
    assert 'name="c.topics"' in browser.get(f"/c/local/new-connector/form?plugin={plugin}")
    made = browser.post(
        "/c/local/new-connector/form", source="json", json=json.dumps({"name": name, "config": config})
    )
    assert f"Connector {name} was saved." in made
    wait_until(lambda: "RUNNING" in browser.get(f"/c/local/connectors/{name}"), "the connector runs")
    shown = browser.get(f"/c/local/connectors/{name}/edit")
    assert ("geheim" in shown, "[hidden]" in shown) == (False, True)
    assert "does not tell of events" in browser.get(f"/c/local/connectors/{name}/history")
    assert "was deleted" in browser.post(f"/c/local/connectors/{name}/delete", confirm=name)
