"""Our commands for share and Streams groups beside Kafka's own, on one broker: the same lines, in any order, and the same exit code.

What cannot be undone is done to one group by Kafka's command and to another one by ours; `@` stands for the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic, wait_until
from support.kafka_tools import ToolResult
from support.raw import RawClient
from support.share_client import Reader

from klamm.kafka_tools.run import main
from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm_kafka.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


class Both:
    """Runs a command with Kafka's tool and with ours."""

    def __init__(
        self, name: str, tool: Tool, broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._name, self._tool, self._broker, self._capfd = name, tool, broker, capfd
        self.differ: list[str] = []

    def same(self, words: str, groups: Sequence[str] = ("", "")) -> None:
        theirs, mine = ([word.replace("@", group) for word in words.split()] for group in groups)
        told = self._tool(self._name, *theirs)
        code = main(self._name, ["--bootstrap-server", self._broker.bootstrap, *mine])
        said = self._capfd.readouterr().out
        ours, kafka = (code, lines(said, groups[1])), (told.code, lines(told.out, groups[0]))
        if ours != kafka:
            self.differ.append(f"{words}\n    ours:  {ours}\n    Kafka: {kafka}")

    def check(self) -> None:
        """Fails for commands that differed."""
        assert not self.differ, "\n".join(self.differ)


def lines(text: str, group: str) -> list[str]:
    """Returns the lines that are compared: the group's name taken out, spaces kept. Kafka's ends are caught in these tests, which its tools tell."""
    named = text.replace(group, "@") if group else text
    told = (line.rstrip() for line in named.splitlines() if line.strip())
    return sorted(line for line in told if not line.endswith("group command failed due to exit 1"))


def leave(broker: EmbeddedBroker, reader: Reader) -> None:
    with RawClient(broker.port) as client:
        asked = ShareGroupHeartbeatRequest(group_id=reader.group, member_id=reader.member, member_epoch=-1)
        assert client.request(asked, 1).error_code == 0


SHARE_READ = """
--list
--list --state
--list --state Stable,empty
--list --state dead
--describe --group nope
--describe --group @
--describe --group @ --offsets --verbose
--describe --group @ --members
--describe --group @ --members --verbose
--describe --group @ --state
--describe --group @ --state --verbose
--describe --all-groups --state
--delete --group @ --group nope
--reset-offsets --group @ --topic TOPIC --to-earliest --execute
--delete-offsets --group @ --topic TOPIC
"""
"""With a member in the group."""
SHARE_CHANGED = """
--describe --group @
--describe --group @ --members --verbose
--describe --group @ --state --verbose
--reset-offsets --group @ --topic TOPIC --to-latest --dry-run
--reset-offsets --group @ --topic TOPIC --to-datetime 2020-01-01T00:00:00.000 --dry-run
--reset-offsets --group @ --topic TOPIC --to-latest --execute
--describe --group @ --verbose
--reset-offsets --group @ --topic TOPIC:0 --to-earliest --execute
--reset-offsets --group @ --all-topics --to-earliest --execute
--reset-offsets --group @ --topic nope --to-latest --execute
--reset-offsets --group @-new --topic TOPIC --to-latest --execute
--reset-offsets --group @-absent --all-topics --to-latest --execute
--describe --group @-new
--delete-offsets --group @ --topic nope
--delete-offsets --group @ --topic TOPIC --topic nope
--delete-offsets --group @-absent --topic TOPIC
--describe --group @
--delete --group @ --group nope
--delete --group @-new
--delete --group @-new
"""
"""Without a member."""
SHARE_REFUSED = """
--list --group g
--list --describe
--describe
--describe --group g --members --state
--delete --group g --topic t
--reset-offsets --group g --topic t --to-earliest
--reset-offsets --group g --topic t --execute
--reset-offsets --group g --to-latest --execute
--reset-offsets --group g --topic t --to-earliest --to-latest --execute
--reset-offsets --group g --topic t --execute --dry-run --to-latest
--reset-offsets --all-groups --all-topics --to-latest --execute
--delete-offsets --group g
"""
"""Command lines that are not carried out."""


STREAMS_READ = """
--list
--list --state
--list --state notready,dead
--list --state not_ready
--describe --group nope
--describe --group @
--describe --group @ --offsets --verbose
--describe --group @ --members
--describe --group @ --members --verbose
--describe --group @ --state
--describe --group @ --state --verbose
--delete --group @ --group nope
--reset-offsets --group @ --input-topic TOPIC --to-earliest --execute
--delete-offsets --group @ --input-topic TOPIC
"""
STREAMS_CHANGED = """
--describe --group @
--describe --group @ --members --verbose
--describe --group @ --state --verbose
--reset-offsets --group @ --input-topic TOPIC --to-latest --dry-run
--reset-offsets --group @ --input-topic TOPIC:0 --to-latest --dry-run
--reset-offsets --group @ --input-topic TOPIC:0 --shift-by -1 --dry-run
--reset-offsets --group @ --input-topic TOPIC:0 --to-offset 99 --dry-run
--reset-offsets --group @ --all-input-topics --to-current --dry-run
--reset-offsets --group @ --all-input-topics --to-datetime 2020-01-01T00:00:00.000 --dry-run
--reset-offsets --group @ --all-input-topics --to-latest --dry-run --export
--reset-offsets --group @ --input-topic nope --to-latest --execute
--reset-offsets --group @-absent --all-input-topics --to-latest --execute
--reset-offsets --group @ --to-latest --execute
--reset-offsets --group @ --all-input-topics --to-earliest --execute
--reset-offsets --group @ --all-input-topics --to-earliest --execute --delete-all-internal-topics
--delete-offsets --group @ --input-topic nope
--delete-offsets --group @ --input-topic TOPIC:0
--delete-offsets --group @ --all-input-topics
--delete-offsets --group @-absent --input-topic TOPIC
--delete --group @ --group nope
--delete --group @ --delete-all-internal-topics
"""
STREAMS_REFUSED = """
--list --describe
--describe
--describe --group g --members --state
--reset-offsets --group g --input-topic t --to-earliest
--reset-offsets --group g --input-topic t --to-earliest --to-latest --execute
--reset-offsets --to-latest --execute
--delete-offsets --group g
--delete
"""


def test_share_groups(tool: Tool, broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]) -> None:
    both, topic = Both("kafka-share-groups", tool, broker, capfd), new_topic(broker, 2)
    groups = [new_name("a-share-group-with-a-name"), new_name("a-share-group-with-a-name")]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    with Reader(broker, groups[0], topic) as one, Reader(broker, groups[1], topic) as other:
        for reader in (one, other):
            reader.join().fetch()
        for words in SHARE_READ.strip().splitlines():
            both.same(words.replace("TOPIC", topic), groups[:1] * 2)
        leave(broker, one)
        leave(broker, other)
    for words in SHARE_CHANGED.strip().splitlines():
        both.same(words.replace("TOPIC", topic), groups)
    both.check()


REFUSED = [("kafka-share-groups", words) for words in SHARE_REFUSED.strip().splitlines()]
REFUSED += [("kafka-streams-groups", words) for words in STREAMS_REFUSED.strip().splitlines()]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_command_lines_that_are_refused(
    name: str, words: str, tool: Tool, broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    told = tool(name, *words.split())
    code = main(name, ["--bootstrap-server", broker.bootstrap, *words.split()])
    said = capfd.readouterr().err
    assert (code, said.splitlines()[0]) == (told.code, told.err.splitlines()[0])


class StreamsClient:
    """A member of a Streams group with two subtopologies, that has read two of five records."""

    def __init__(self, client: RawClient, group: str, topic: str) -> None:
        self._client, self._group = client, group
        subtopologies = [
            Subtopology(
                subtopology_id="0", source_topics=[topic], repartition_sink_topics=[f"{group}-repartition"]
            ),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name=f"{group}-repartition", partitions=3)],
                state_changelog_topics=[TopicInfo(name=f"{group}-changelog")],
            ),
        ]
        joined = self._beat(0, topology=Topology(epoch=0, subtopologies=subtopologies), rebalance_timeout_ms=60_000,
                            active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id="p", client_tags=[])  # fmt: skip
        told = [joined.member_epoch]

        def has_tasks() -> bool:
            answer = self._beat(told[-1])
            told.append(answer.member_epoch)
            return bool(answer.active_tasks)

        wait_until(has_tasks, "tasks")
        parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=2)]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
        commit = OffsetCommitRequest(
            group_id=group, member_id="m", generation_id_or_member_epoch=told[-1], topics=topics
        )
        assert client.request(commit, 9).topics[0].partitions[0].error_code == 0

    def _beat(self, epoch: int, **more: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group, member_id="m", member_epoch=epoch, **more
        )
        answer = self._client.request(request, 0)
        assert answer.error_code == 0, answer
        return answer

    def leave(self) -> None:
        self._beat(-1)


def test_streams_groups(tool: Tool, broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]) -> None:
    both, topic = Both("kafka-streams-groups", tool, broker, capfd), new_topic(broker, 2)
    groups = [new_name("app"), new_name("app")]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
        producer.produce(topic, str(number), partition=1)
    assert producer.flush(60) == 0
    with RawClient(broker.port) as client:
        members = [StreamsClient(client, group, topic) for group in groups]
        for words in STREAMS_READ.strip().splitlines():
            both.same(words.replace("TOPIC", topic), groups[:1] * 2)
        for member in members:
            member.leave()
    for words in STREAMS_CHANGED.strip().splitlines():
        both.same(words.replace("TOPIC", topic), groups)
    both.check()
    left = tool("kafka-topics", "--list").lines
    assert not [name for name in left if name.startswith(tuple(groups))], "internal topics"
