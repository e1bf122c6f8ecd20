"""Apache's kafka-consumer-groups and kafka-groups against our coordinator, with and without live members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from support.broker import new_name, new_topic
from support.kafka_tools import ToolResult

from klamm.testing import EmbeddedBroker

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """Returns a topic of two partitions with five records each."""
    name = new_topic(broker, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(10):
        producer.produce(name, str(n), partition=n % 2, timestamp=1_700_000_000_000 + n)
    assert producer.flush(60) == 0
    return name


@contextmanager
def member(broker: EmbeddedBroker, group: str, topic: str) -> Iterator[Consumer]:
    """Yields a librdkafka consumer that has read, and committed, everything."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "a-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        read = 0
        while read < 10:
            read += len(consumer.consume(10 - read, 10))
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def table(result: ToolResult) -> list[dict[str, str]]:
    """Returns the table that a tool prints, by its head line; warnings may stand before it."""
    lines = [line.split() for line in result.ok().lines]
    head, *rows = lines[next(n for n, words in enumerate(lines) if words[0] in ("GROUP", "TOPIC")) :]
    return [dict(zip(head, row, strict=False)) for row in rows]


def test_a_group_with_a_member(tool: Tool, broker: EmbeddedBroker, topic: str) -> None:
    group = new_name("group")
    with member(broker, group, topic):
        assert {"GROUP": group, "STATE": "Stable"} in table(
            tool("kafka-consumer-groups", "--list", "--state")
        )
        rows = table(tool("kafka-consumer-groups", "--describe", "--group", group))
        assert [(r["TOPIC"], r["PARTITION"], r["CURRENT-OFFSET"], r["LAG"]) for r in rows] == [
            (topic, "0", "5", "0"),
            (topic, "1", "5", "0"),
        ]
        assert {(r["HOST"], r["CLIENT-ID"]) for r in rows} == {("/127.0.0.1", "a-member")}
        (row,) = table(
            tool("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose")
        )
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("a-member", "2")
        state = tool("kafka-consumer-groups", "--describe", "--group", group, "--state").ok().lines[1].split()
        assert state == [group, broker.bootstrap, "(1)", "range", "Stable", "1"]
        (row,) = [r for r in table(tool("kafka-groups", "--list")) if r["GROUP"] == group]
        assert (row["TYPE"], row["PROTOCOL"]) == ("Classic", "consumer")

        busy = tool("kafka-consumer-groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in busy.out + busy.err
        reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
        busy = tool("kafka-consumer-groups", *reset)
        assert "the current state is Stable" in busy.out + busy.err
    assert {"GROUP": group, "STATE": "Empty"} in table(tool("kafka-consumer-groups", "--list", "--state"))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), ("0", "0")),
        (("--to-latest",), ("5", "5")),
        (("--to-offset", "3"), ("3", "3")),
        (("--shift-by", "-2"), ("3", "3")),
        (
            ("--to-datetime", "2023-11-14T22:13:20.004"),
            ("2", "2"),
        ),  # records 4 and 5 are the first from there
        (("--to-datetime", "2123-11-14T22:13:20.004"), ("5", "5")),
    ],
)
def test_offsets_are_reset(
    tool: Tool, broker: EmbeddedBroker, topic: str, how: tuple[str, ...], expected: tuple[str, str]
) -> None:
    group = new_name("group")
    with member(broker, group, topic):
        pass
    done = table(
        tool(
            "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, *how, "--execute"
        )
    )
    assert {r["PARTITION"]: r["NEW-OFFSET"] for r in done} == dict(zip("01", expected, strict=True))
    rows = table(tool("kafka-consumer-groups", "--describe", "--group", group))
    assert {r["PARTITION"]: r["CURRENT-OFFSET"] for r in rows} == dict(zip("01", expected, strict=True))


def test_offsets_and_groups_are_deleted(tool: Tool, broker: EmbeddedBroker, topic: str) -> None:
    group = new_name("group")
    with member(broker, group, topic):
        pass
    deleted = tool("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert table(deleted) == [{"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}]
    rows = table(tool("kafka-consumer-groups", "--describe", "--group", group))
    assert [r["PARTITION"] for r in rows if r["CURRENT-OFFSET"] != "-"] == ["1"]
    deleted = tool("kafka-consumer-groups", "--delete", "--group", group).ok()
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted.out
    assert group not in tool("kafka-consumer-groups", "--list").ok().lines
    again = tool("kafka-consumer-groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.out + again.err
