"""Spark's own Kafka connector in a job: real-time mode, on a broker of ours."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from support.broker import new_name, new_topic
from support.spark import a_job, require_spark, wait_event

from klamm.testing import EmbeddedBroker
from klamm_spark import kafka_jars
from klamm_spark.model import Output, Query
from klamm_spark.process import DriverProcess

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]


@pytest.fixture
def connector() -> None:
    require_spark()
    if not kafka_jars.find():
        pytest.skip(f"no jars in {kafka_jars.place()}: klamm spark setup --kafka-connector fetches them")


@pytest.mark.usefixtures("connector")
def test_records_pass_while_a_batch_is_open(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The batch lasts for minutes: what arrives before it ends was not waiting for it."""
    topics = new_topic(broker, 2), new_topic(broker, 2)
    copy = Output(
        name="copy",
        format="kafka",
        mode="update",
        trigger="real-time 5 minutes",
        options={"topic": topics[1]},
    )
    job = a_job(
        broker.bootstrap, topics[0], tmp_path,
        source={"connector": "spark", "schema": "line STRING"},
        query=Query(sql="SELECT key, upper(line) AS value FROM input"), outputs=(copy,), master="local[3]",
    )  # fmt: skip
    narrow = DriverProcess(dataclasses.replace(job, master="local[1]"))
    try:
        said = wait_event(narrow, "failed")["message"]
        assert said.endswith(
            '2 partitions all the time: master = "local[1]" has 1, set [job] master = "local[2]"'
        )
    finally:
        narrow.kill()
    driver = DriverProcess(job)
    try:
        wait_event(driver, "started")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": new_name(), "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topics[1]])
        found: set[bytes] = set()
        for i in range(3):
            producer.produce(topics[0], json.dumps({"line": f"line {i}"}), str(i))
            producer.flush()
            deadline = time.monotonic() + 120
            while f"LINE {i}".encode() not in found and time.monotonic() < deadline:
                found |= {m.value() for m in consumer.consume(10, 0.2) if m.error() is None}
        consumer.close()
        assert found == {b"LINE 0", b"LINE 1", b"LINE 2"}
        while (event := driver.next_event(0)) is not None:
            assert event["event"] != "progress" or not event["rows"], "no batch has ended"
    finally:
        driver.kill()
