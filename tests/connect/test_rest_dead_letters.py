"""Dead letters of our worker and of Apache's for the same bad records, on a real Apache Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.connect_worker import JSON, WorkerProcess, lines_out, wait_for, worker_properties
from support.kafka_broker import KafkaBroker
from support.kafka_connect import KafkaConnectWorker
from support.runtime_broker import read_all

E = "__connect.errors."
# What each worker says in its own words; all else must be equal.
OWN_WORDS = {E + "connector.name", E + "exception.message", E + "exception.stacktrace"}


@pytest.fixture(scope="module")
def kafka(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def bad_records(bootstrap: str, topic: str) -> None:
    """Good ones, a bad value with headers and a time of its own, a bad key, and one that its transform does not like."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b'{"n": 1}')
    producer.produce(topic, b"{no json", b'"k"', headers=[("trace", b"1"), ("none", None)], timestamp=1234)
    producer.produce(topic, b'{"n": 2}', b"{no key either")
    producer.produce(topic, b'{"n": "x"}')
    producer.produce(topic, b'{"n": 3}')
    assert producer.flush(60) == 0


def dead_letters(worker: WorkerProcess, bootstrap: str, name: str, topic: str, directory: Path) -> list:
    directory.mkdir(exist_ok=True)
    answer = worker.create(
        name,
        connector__class="FileStreamSink",
        file=str(directory / "out.txt"),
        topics=topic,
        key__converter=JSON,
        key__converter__schemas__enable="false",
        value__converter=JSON,
        value__converter__schemas__enable="false",
        transforms="cast",
        transforms__cast__type="org.apache.kafka.connect.transforms.Cast$Value",
        transforms__cast__spec="n:int32",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"{name}-dlq",
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
        errors__log__enable="true",
    )
    assert answer.status == 201, answer.body
    wait_for(lambda: len(lines_out(directory)) == 2, lambda: f"{lines_out(directory)}\n{worker.log}", 60)
    wait_for(lambda: len(read_all(bootstrap, f"{name}-dlq")) == 3, lambda: worker.log, 60)
    worker.wait_state(name, "RUNNING", "RUNNING")
    return read_all(bootstrap, f"{name}-dlq")


def shown(message) -> tuple:
    headers = [(n, None if n in OWN_WORDS else v) for n, v in message.headers()]
    return message.key(), message.value(), message.timestamp(), headers


def figures(worker: WorkerProcess) -> dict:
    return worker.get("/connectors/ours/status")["tasks"][0].get("progress", {}).get("details", {})


@pytest.mark.usefixtures("apache_kafka")
def test_rest_dead_letters_are_those_of_apaches_worker(kafka: KafkaBroker, tmp_path: Path) -> None:
    bootstrap, topic = kafka.address, "lines"
    bad_records(bootstrap, topic)
    ours = WorkerProcess(worker_properties(bootstrap, "ours"), tmp_path)
    try:
        ours.wait_ready()
        found = dead_letters(ours, bootstrap, "ours", topic, tmp_path / "ours")
        wait_for(lambda: figures(ours).get("skipped") == 3, lambda: str(figures(ours)))
        assert figures(ours)["errors"]["deadletterqueue-produce-requests"] == 3
    finally:
        ours.end()
    theirs = KafkaConnectWorker(worker_properties(bootstrap, "theirs"), tmp_path)
    try:
        theirs.wait_ready()
        expected = dead_letters(theirs, bootstrap, "theirs", topic, tmp_path / "theirs")
    finally:
        theirs.end()
    assert [shown(m) for m in found] == [shown(m) for m in expected]
    for message in (*found, *expected):
        words = dict(message.headers())
        assert all(words[name] for name in OWN_WORDS)
        assert words[E + "exception.stacktrace"].count(b"\n") > 1
