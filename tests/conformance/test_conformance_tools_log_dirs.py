"""Apache's kafka-log-dirs and kafka-reassign-partitions against a broker of ours with two log directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support import kafka_oracle
from support.broker import new_topic, wait_until
from support.kafka_tools import KafkaTools

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def broker(dirs: list[Path]) -> Iterator[EmbeddedBroker]:
    config = {"log.dirs": ",".join(str(path) for path in dirs)}
    with EmbeddedBroker(dirs[0], config=config) as running:
        yield running


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[KafkaTools]:
    made = KafkaTools(kafka_oracle.require(), tmp_path)
    yield made
    made.close()


def test_a_partition_is_moved_by_kafkas_own_tool(
    broker: EmbeddedBroker, dirs: list[Path], tools: KafkaTools, tmp_path: Path
) -> None:
    topic = new_topic(broker, partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        producer.produce(topic, b"x" * 10_000, partition=number % 3)
    assert producer.flush(60) == 0

    def places() -> dict[str, set[str]]:
        said = tools.run(
            "kafka-log-dirs", "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic
        )
        (line,) = [line for line in said.ok().lines if line.startswith("{")]
        (answer,) = json.loads(line)["brokers"]
        assert all(d["error"] is None for d in answer["logDirs"])
        return {d["logDir"]: {p["partition"] for p in d["partitions"]} for d in answer["logDirs"]}

    before = places()
    assert before.keys() == {str(path) for path in dirs}
    assert before[str(dirs[0])] == {f"{topic}-0", f"{topic}-2"}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": topic, "partition": n, "replicas": [1], "log_dirs": [str(dirs[1])]} for n in range(3)]}))  # fmt: skip

    def run(*args: str) -> str:
        arguments = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan), *args)
        return tools.run("kafka-reassign-partitions", *arguments).out

    said = run("--execute")
    assert "log_dirs" in said or "Successfully started" in said, said
    wait_until(lambda: places()[str(dirs[1])] == {f"{topic}-{n}" for n in range(3)}, "all are moved")
    assert "complete" in run("--verify")
