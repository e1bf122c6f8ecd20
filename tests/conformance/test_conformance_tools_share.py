"""Apache's tools and Java's consumer on share groups: reading, describing, setting, deleting, and the records on disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic
from support.kafka_tools import KafkaTools, ToolResult
from support.share_groups import ShareReader, share

from klamm.testing import EmbeddedBroker

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def filled(broker: EmbeddedBroker, count: int) -> str:
    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    return topic


def rows(result: ToolResult) -> list[list[str]]:
    assert result.code == 0, result
    return [line.split() for line in result.lines[1:]]


def test_a_group_is_read_described_set_and_deleted(tool: Tool, broker: EmbeddedBroker) -> None:
    topic, group = filled(broker, 10), new_name("share")
    with ShareReader(broker.bootstrap, group, topic, 8, ["3", "7"]) as reader:
        assert sorted(reader.accepted) == ["0", "1", "2", "4", "5", "6", "8", "9"]
        assert [group, "Stable"] in [row[:2] for row in rows(tool("kafka-share-groups", "--list", "--state"))]
        members = rows(tool("kafka-share-groups", "--describe", "--group", group, "--members"))
        assert [row[0] for row in members] == [group]
        assert f"{topic}:0" in members[0][-1]
        refused = tool("kafka-share-groups", "--delete", "--group", group)
        assert "not empty" in (refused.out + refused.err).lower()
    offsets = rows(tool("kafka-share-groups", "--describe", "--group", group))
    assert offsets == [[group, topic, "0", "0", "2"]] or offsets[0][3:] == ["3", "2"]
    to = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert rows(tool("kafka-share-groups", *to)) == [[group, topic, "0", "0"]]
    assert rows(tool("kafka-share-groups", "--describe", "--group", group)) == [
        [group, topic, "0", "0", "10"]
    ]
    assert sorted(share(broker.bootstrap, group, topic, 10)) == [str(n) for n in range(10)]
    deleted = tool("kafka-share-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert [topic, "Successful"] in rows(deleted)
    assert "successful" in tool("kafka-share-groups", "--delete", "--group", group).out
    assert group not in tool("kafka-share-groups", "--list").out


def test_the_console_reads_as_a_member(tool: Tool, broker: EmbeddedBroker) -> None:
    topic, group = filled(broker, 3), new_name("share")
    entity = ("--entity-type", "groups", "--entity-name", group)
    tool("kafka-configs", "--alter", *entity, "--add-config", "share.auto.offset.reset=earliest")
    options = ("--topic", topic, "--group", group, "--max-messages", "3", "--timeout-ms", "30000")
    assert sorted(tool("kafka-console-share-consumer", *options).lines) == ["0", "1", "2"]


def test_the_records_on_disk_are_kafkas(kafka_tools: KafkaTools, broker: EmbeddedBroker) -> None:
    topic, group = filled(broker, 3), new_name("share")
    assert len(share(broker.bootstrap, group, topic, 2, ["1"])) == 2
    written = ""
    for name, decoder in (
        ("__share_group_state", "--share-group-state-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        logs = sorted(broker.data_dir.glob(f"{name}-*/*.log"))
        files = ",".join(str(path) for path in logs if path.stat().st_size)
        dumped = kafka_tools.run("kafka-dump-log", decoder, "--files", files)
        assert dumped.code == 0
        written += "\n".join(line for line in dumped.lines if f'"groupId":"{group}"' in line)
    for kind in (0, 1, 10, 11, 12, 13, 14, 15):
        assert f'{{"type":"{kind}"' in written, kind
    assert '"deliveryState":2,"deliveryCount":1' in written
