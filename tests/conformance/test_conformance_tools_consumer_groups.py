"""Apache's kafka-consumer-groups, kafka-groups and DumpLogSegments on groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import kafka_oracle
from support.broker import new_name, new_topic
from support.kafka_tools import ToolResult
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def join(client: RawClient, group: str, member: str, **more: object) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
        topic_partitions=[], **more,
    )  # fmt: skip
    assert client.request(request, 1).error_code == 0


def test_a_group_is_described_listed_and_protected(tool: Tool, broker: EmbeddedBroker) -> None:
    group, topic = new_name("group"), new_topic(broker, 3)
    with RawClient(broker.port) as client:
        join(client, group, "m", subscribed_topic_names=[topic])
        state = tool("kafka-consumer-groups", "--describe", "--group", group, "--state", "--verbose").ok()
        assert state.lines[1].split() == [group, broker.bootstrap, "(1)", "uniform", "Stable", "2", "2", "1"]
        members = tool("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose").ok()
        row = dict(zip(members.lines[0].split(), members.lines[1].split(), strict=False))
        assert (row["CONSUMER-ID"], row["CURRENT-EPOCH"], row["TARGET-EPOCH"]) == ("m", "2", "2")
        assert f"{topic}:0,1,2" in members.out
        offsets = tool("kafka-consumer-groups", "--describe", "--group", group).ok()
        assert len([line for line in offsets.lines if topic in line]) == 3
        listed = tool("kafka-consumer-groups", "--list", "--type", "consumer").ok()
        assert group in listed.out
        assert group not in tool("kafka-consumer-groups", "--list", "--type", "classic").ok().out
        (row,) = [line.split() for line in tool("kafka-groups", "--list").ok().lines if group in line]
        assert row == [group, "Consumer", "consumer"]
        busy = tool("kafka-consumer-groups", "--delete", "--group", group)
        assert "The group is not empty" in busy.out + busy.err
        leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1)
        assert client.request(leave, 1).error_code == 0
    assert "was successful" in tool("kafka-consumer-groups", "--delete", "--group", group).ok().out


def test_its_records_are_decoded(tmp_path: Path) -> None:
    oracle = kafka_oracle.require()
    with EmbeddedBroker(tmp_path / "data", config={"offsets.topic.num.partitions": "1"}) as broker:
        topic = new_topic(broker, 2)
        with RawClient(broker.port) as client:
            join(client, "dumped", "m", subscribed_topic_names=[topic], instance_id="i", rack_id="r")
            join(client, "dumped", "x", subscribed_topic_regex=f"{topic}.*", server_assignor="range")
    log = tmp_path / "data/__consumer_offsets-0/00000000000000000000.log"
    dump = oracle.run(kafka_oracle.DUMP_LOG, "--offsets-decoder", "--deep-iteration", "--files", str(log))
    assert dump.returncode == 0, dump.stderr
    records: dict[str, dict] = {}
    for line in dump.stdout.splitlines():
        if "payload: {" in line:
            key, payload = line.partition(" key: ")[2].split(" payload: ")
            key_of, value_of = json.loads(key), json.loads(payload)
            assert value_of["version"] == "0"
            records[f"{key_of['type']} {key_of['data'].get('memberId', '')}".strip()] = value_of["data"]
    assert set(records) == {"3", "5 m", "5 x", "6", "7 m", "8 m", "8 x", "16"}
    assert records["5 m"] | {"clientHost": ""} == {
        "instanceId": "i", "rackId": "r", "clientId": "raw", "clientHost": "", "subscribedTopicNames": [topic],
        "subscribedTopicRegex": "", "rebalanceTimeoutMs": 60_000, "serverAssignor": None,
    } | ({"classicMemberMetadata": None} if "classicMemberMetadata" in records["5 m"] else {})  # fmt: skip
    assert records["5 x"]["serverAssignor"] == "range"
    assert records["16"]["topics"] == [topic]
    (owned,) = records["8 m"]["assignedPartitions"]
    assert (owned["partitions"], owned["assignmentEpochs"]) == ([0, 1], [2, 2])
