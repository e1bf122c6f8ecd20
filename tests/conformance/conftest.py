"""One broker of ours, and one JVM for Apache's tools, for all conformance tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support import kafka_oracle
from support.answers import Request, Side, compare
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_tools import KafkaTools, ToolResult
from support.raw import RawClient, batch, produce_request

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest

Tool = Callable[..., ToolResult]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Tests share it: each takes topics and groups of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("conformance") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def kafka_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Yields the JVM that runs Apache's tools; skips where there is no Kafka or no Java."""
    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("kafka-tools"))
    try:
        yield tools
    finally:
        tools.close()


@pytest.fixture(scope="session")
def tool(broker: EmbeddedBroker, kafka_tools: KafkaTools) -> Tool:
    """Run one of Apache's tools against our broker: `tool("kafka-topics", "--list")`."""

    def run(name: str, *args: str, stdin: str = "", timeout_s: float = 60) -> ToolResult:
        command = 1 if name == "kafka-cluster" else 0  # its subcommand comes first, other tools want it last
        words = (*args[:command], "--bootstrap-server", broker.bootstrap, *args[command:])
        return kafka_tools.run(name, *words, stdin=stdin, timeout_s=timeout_s)

    return run


@dataclass(frozen=True, slots=True)
class TwoBrokers:
    """Ours and Apache Kafka's, set up alike: topic `known` with ten records in partition 0 of two."""

    ours: Side
    kafka: Side

    def compare(self, case: Callable[[Side], list[Request]], intended: dict[str, str] | None = None) -> None:
        """See `support.answers.compare`."""
        compare(self.ours, self.kafka, case, intended)


@pytest.fixture(scope="session")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    """Yields one of each with the same settings; Apache's starts in about five seconds."""
    kafka_oracle.require()
    work = tmp_path_factory.mktemp("two-brokers")
    settings = {"num.partitions": "1", "offsets.topic.num.partitions": "1", "node.id": "1"}
    settings["log.retention.ms"] = "-1"  # the records are of 2023, and Kafka looks after half a minute
    with KafkaBroker(work, settings) as kafka, EmbeddedBroker(work / "ours", config=settings) as ours:
        yield TwoBrokers(_side("Klamm", ours.port), _side("Kafka", kafka.port))


def _side(name: str, port: int) -> Side:
    """Make the topics, fill `known`, and have the group coordinator's topic made and loaded."""
    with RawClient(port) as client:
        topics = [CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in ("known", "empty")]
        made = client.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert [t.error_code for t in made.topics] == [0, 0], made
        ids = {t.name: t.topic_id for t in made.topics}
        wait_until(lambda: _filled(client), f"{name} to take records")
        wait_until(lambda: _coordinates(client), f"{name} to coordinate groups")
    return Side(name, port, ids)


def _filled(client: RawClient) -> bool:
    """Returns two batches of five records, a second apart."""
    for n in range(2):
        values = [f"value {n} {i}".encode() for i in range(5)]
        records = batch(*values, timestamp=1_700_000_000_000 + n * 1000)
        (topic,) = client.request(produce_request("known", records), 9).responses
        if topic.partition_responses[0].error_code:
            return False
    return True


def _coordinates(client: RawClient) -> bool:
    answer = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    if answer.coordinators[0].error_code:
        return False
    groups = client.request(DescribeGroupsRequest(groups=["g"]), 5).groups
    return not groups[0].error_code
