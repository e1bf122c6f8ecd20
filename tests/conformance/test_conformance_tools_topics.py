"""Apache's kafka-topics, kafka-configs, kafka-cluster and kafka-broker-api-versions against our broker."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.broker import new_name
from support.kafka_tools import ToolResult

from klamm.testing import EmbeddedBroker
from klamm_broker.api import registry

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def described(result: ToolResult) -> dict[str, str]:
    """Returns the settings of `kafka-configs --describe`: name to value."""
    return dict(re.findall(r"^ {2}([\w.]+)=(.*?) sensitive=", result.ok().out, re.MULTILINE))


def test_topics_are_created_listed_described_grown_and_deleted(tool: Tool) -> None:
    name = new_name()
    created = tool(
        "kafka-topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=60000"
    )
    assert created.ok().lines == [f"Created topic {name}."]
    assert name in tool("kafka-topics", "--list").ok().lines

    head, *partitions = tool("kafka-topics", "--describe", "--topic", name).ok().lines
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=60000",
        head,
    )
    assert [re.sub(r"\s+", " ", line).strip() for line in partitions] == [
        f"Topic: {name} Partition: {n} Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:" for n in range(2)
    ]

    tool("kafka-topics", "--alter", "--topic", name, "--partitions", "5").ok()
    assert "PartitionCount: 5" in tool("kafka-topics", "--describe", "--topic", name).ok().out
    tool("kafka-topics", "--delete", "--topic", name).ok()
    assert name not in tool("kafka-topics", "--list").ok().lines


def test_refusals_are_kafkas(tool: Tool) -> None:
    name = new_name()
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "2").ok()
    for args, says in (
        (("--create", "--topic", name), f"Topic '{name}' already exists."),
        (
            ("--create", "--topic", "a/b"),
            "other than ASCII",
        ),
        (("--create", "--topic", new_name(), "--replication-factor", "3"), "replication factor"),
        (("--create", "--topic", new_name(), "--config", "no.such.key=1"), "no.such.key"),
        (("--create", "--topic", new_name(), "--config", "retention.ms=soon"), "retention.ms"),
        (("--alter", "--topic", name, "--partitions", "1"), "would not be an increase"),
        (("--describe", "--topic", new_name()), "does not exist as expected"),
        (("--delete", "--topic", new_name()), "does not exist as expected"),
    ):
        result = tool("kafka-topics", *args)
        assert result.code == 1, (args, result.out)
        assert says.lower() in (result.out + result.err).lower(), (args, result.out, result.err)


def test_configs_of_a_topic_are_altered_described_and_taken_back(tool: Tool) -> None:
    name = new_name()
    topic = ("--entity-type", "topics", "--entity-name", name)
    tool("kafka-topics", "--create", "--topic", name, "--config", "retention.ms=60000").ok()
    changes = "segment.bytes=1048576,cleanup.policy=[compact,delete]"
    done = tool(
        "kafka-configs", "--alter", *topic, "--add-config", changes, "--delete-config", "retention.ms"
    )
    assert done.ok().lines == [f"Completed updating config for topic {name}."]
    assert described(tool("kafka-configs", "--describe", *topic)) == {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "1048576",
    }
    everything = described(tool("kafka-configs", "--describe", "--all", *topic))
    assert everything["retention.ms"] == "604800000"
    assert everything["segment.bytes"] == "1048576"
    assert name in tool("kafka-topics", "--describe", "--topics-with-overrides").ok().out

    refused = tool("kafka-configs", "--alter", *topic, "--add-config", "no.such.key=1")
    assert refused.code == 1
    assert "InvalidConfigurationException: Unknown topic config name: no.such.key" in refused.err


def test_configs_of_the_broker_are_described(tool: Tool, broker: EmbeddedBroker) -> None:
    configs = described(
        tool("kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    )
    assert configs["log.dirs"] == str(broker.data_dir)
    assert configs["num.partitions"] == broker.config["num.partitions"]


def test_what_the_broker_serves_can_be_used_by_the_java_client(tool: Tool) -> None:
    lines = tool("kafka-broker-api-versions").ok().lines
    found = {m[1]: m[2] for line in lines if (m := re.search(r"^\t(\w+)\(\d+\): (.*?),?$", line))}
    usable = {int(m[1]) for line in lines if (m := re.search(r"\((\d+)\): .*\[usable: \d+\]", line))}
    assert usable == set(registry.load()), found
    assert not [line for line in lines if "UNKNOWN" in line]


def test_cluster_id_and_endpoints(tool: Tool, broker: EmbeddedBroker) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", tool("kafka-cluster", "cluster-id").ok().lines[0])
    endpoints = [line.split() for line in tool("kafka-cluster", "list-endpoints").ok().lines]
    assert endpoints[1][:3] == ["1", "127.0.0.1", str(broker.port)]
