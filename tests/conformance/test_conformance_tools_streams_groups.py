"""Apache's kafka-streams-groups, kafka-groups and DumpLogSegments on Streams groups (KIP-1071)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import kafka_oracle
from support.broker import new_name, new_topic, wait_until
from support.kafka_tools import ToolResult
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def join(client: RawClient, group: str, topic: str, member: str = "m", log: str = "") -> Any:
    logs = [TopicInfo(name=log)] if log else []
    made = Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=logs)
    request = StreamsGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000, active_tasks=[], standby_tasks=[],
        warmup_tasks=[], process_id="p", client_tags=[], topology=Topology(epoch=0, subtopologies=[made]),
    )  # fmt: skip
    answer = client.request(request, 0)
    assert answer.error_code == 0, answer
    return answer


def assigned(client: RawClient, group: str, epoch: int) -> int:
    """Returns the epoch in which the member has its tasks: the first assignment waits for others."""
    told = [epoch]

    def has_tasks() -> bool:
        request = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=told[-1])
        answer = client.request(request, 0)
        told.append(answer.member_epoch)
        return bool(answer.active_tasks)

    wait_until(has_tasks, "the tasks")
    return told[-1]


def leave(client: RawClient, group: str, member: str = "m") -> None:
    request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1)
    assert client.request(request, 0).error_code == 0


def commit(client: RawClient, group: str, topic: str, offset: int, epoch: int) -> None:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
    request = OffsetCommitRequest(
        group_id=group, member_id="m", generation_id_or_member_epoch=epoch, topics=topics
    )
    assert client.request(request, 9).topics[0].partitions[0].error_code == 0


def test_a_group_is_listed_described_reset_and_deleted(tool: Tool, broker: EmbeddedBroker) -> None:
    group, topic = new_name("group"), new_topic(broker, 3)
    with RawClient(broker.port) as client:
        epoch = assigned(client, group, join(client, group, topic).member_epoch)
        commit(client, group, topic, 7, epoch)
        assert group in tool("kafka-streams-groups", "--list").ok().out
        (row,) = [line.split() for line in tool("kafka-groups", "--list").ok().lines if group in line]
        assert row == [group, "Streams", "streams"]
        state = tool("kafka-streams-groups", "--describe", "--group", group, "--state", "--verbose").ok()
        assert group in state.out
        assert "Stable" in state.out, state.out
        members = tool("kafka-streams-groups", "--describe", "--group", group, "--members", "--verbose").ok()
        assert "m" in members.out.split()
        offsets = tool("kafka-streams-groups", "--describe", "--group", group, "--offsets", "--verbose").ok()
        rows = {words[2]: words[3] for words in (line.split() for line in offsets.lines) if topic in words}
        assert rows == {"0": "7", "1": "-", "2": "-"}, offsets
        busy = tool("kafka-streams-groups", "--delete", "--group", group)
        assert "not EMPTY" in busy.out + busy.err or "not empty" in busy.out + busy.err, busy
        leave(client, group)
    args = ("--group", group, "--reset-offsets", "--input-topic", f"{topic}:0", "--to-earliest", "--execute")
    reset = tool("kafka-streams-groups", *args).ok()
    assert topic in reset.out
    tool("kafka-streams-groups", "--delete", "--group", group).ok()
    assert group not in tool("kafka-streams-groups", "--list").ok().out


def test_its_records_are_decoded(tmp_path: Path) -> None:
    oracle = kafka_oracle.require()
    config = {"offsets.topic.num.partitions": "1", "group.streams.initial.rebalance.delay.ms": "0"}
    config["group.streams.assignment.interval.ms"] = "0"
    with EmbeddedBroker(tmp_path / "data", config=config) as broker, RawClient(broker.port) as client:
        topic = new_topic(broker, 2)
        join(client, "dumped", topic)
        leave(client, "dumped", "m")
        join(client, "dumped", topic, "n")
    log = tmp_path / "data/__consumer_offsets-0/00000000000000000000.log"
    dump = oracle.run(kafka_oracle.DUMP_LOG, "--offsets-decoder", "--deep-iteration", "--files", str(log))
    assert dump.returncode == 0, dump.stderr
    records: dict[str, Any] = {}
    for line in dump.stdout.splitlines():
        if "payload: {" in line:
            key, payload = line.partition(" key: ")[2].split(" payload: ")
            key_of, value_of = json.loads(key), json.loads(payload)
            records[f"{key_of['type']} {key_of['data'].get('memberId', '')}".strip()] = value_of["data"]
    assert {"17", "19 n", "20", "21 n", "22 n", "23"} <= set(records)
    assert records["17"]["validatedTopologyEpoch"] == 0
    assert records["17"]["lastAssignmentConfigs"] == [{"key": "num.standby.replicas", "value": "0"}]
    assert records["23"]["subtopologies"][0]["sourceTopics"] == [topic]
    (owned,) = records["22 n"]["activeTasks"]
    assert (owned["partitions"], owned["assignmentEpochs"]) == ([0, 1], [4, 4])
