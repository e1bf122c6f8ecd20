"""Groups of the consumer protocol (KIP-848): every answer beside Apache Kafka's, with its words.

Also one log directory that both brokers run on in turn: groups that Kafka wrote go on here, and the reverse.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import kafka_oracle
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm_kafka.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from klamm_kafka.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest
from klamm_kafka.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm_kafka.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm_kafka.wire.struct import Message, Struct

pytestmark = pytest.mark.usefixtures("apache_kafka")

SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
TOPIC = "known"


@dataclass(slots=True)
class Side:
    """One broker, and the answers that it gave, in plain values."""

    client: RawClient
    topic_id: bytes
    answers: list[Any]

    def ask(self, message: Message, version: int) -> Any:
        answer = self.client.request(message, version)
        self.answers.append((type(message).__name__, self._plain(answer)))
        return answer

    def _plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                spec.name: self._plain(getattr(value, spec.name), spec.name) for spec in type(value).FIELDS
            }
        if isinstance(value, list):
            items = [self._plain(item) for item in value]
            return sorted(items, key=repr)
        if name == "error_code":
            return ErrorCode(value).name
        if value == self.topic_id:
            return "the topic's id"
        return bytes(value) if isinstance(value, memoryview) else value

    # Requests

    def beat(self, group: str, member: str, epoch: int, version: int = 1, **more: Any) -> Any:
        if epoch == 0:
            more = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **more}
        if "owned" in more:
            owned = more.pop("owned")
            part = ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.topic_id, partitions=owned)
            more["topic_partitions"] = [part] if owned else []
        if epoch == 0 and "regex" not in more:
            more.setdefault("subscribed_topic_names", [TOPIC])
        more["subscribed_topic_regex"] = more.pop("regex", None)
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
        return self.ask(request, version)

    def describe(self, group: str) -> Any:
        return self.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1)

    def commit(self, group: str, member: str, epoch: int, *partitions: int, version: int = 9) -> Any:
        parts = [OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in partitions]
        where = {"topic_id": self.topic_id} if version >= 10 else {"name": TOPIC}
        topics = [OffsetCommitRequestTopic(**where, partitions=parts)]
        request = OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=topics
        )
        return self.ask(request, version)

    def fetch(self, group: str, member: str | None, epoch: int) -> Any:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        return self.ask(OffsetFetchRequest(groups=[asked]), 9)

    def join(self, group: str, member: str, owned: list[int], instance: str | None = None) -> Any:
        said = ConsumerProtocolSubscription(
            topics=[TOPIC],
            user_data=None,
            owned_partitions=[ConsumerProtocolSubscriptionTopicPartition(topic=TOPIC, partitions=owned)]
            if owned
            else [],
        )
        protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=b"\0\1" + said.encode(1))
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, member_id=member,
            group_instance_id=instance, protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        return self.ask(request, 9)

    def sync(self, group: str, member: str, generation: int, assign: list[int] | None = None) -> Any:
        assignments = []
        if assign is not None:
            part = ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=assign)
            data = ConsumerProtocolAssignment(assigned_partitions=[part], user_data=None)
            assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"\0\1" + data.encode(1))]
        request = SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member, protocol_type="consumer",
            protocol_name="cooperative-sticky", assignments=assignments,
        )  # fmt: skip
        return self.ask(request, 5)

    def classic_beat(self, group: str, member: str, generation: int) -> Any:
        return self.ask(HeartbeatRequest(group_id=group, member_id=member, generation_id=generation), 4)


def open_side(port: int) -> Side:
    """Its topic is made and its coordinator is loaded."""
    client = RawClient(port, timeout_s=60)
    topics = [CreatableTopic(name=TOPIC, num_partitions=4, replication_factor=1)]
    made = client.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)

    assert made.topics[0].error_code == 0, made

    def coordinates() -> bool:
        answer = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        if answer.coordinators[0].error_code:
            return False
        return not client.request(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code

    wait_until(coordinates, "the coordinator", timeout_s=60)
    return Side(client, made.topics[0].topic_id, [])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    kafka_oracle.require()
    work = tmp_path_factory.mktemp("consumer-groups")
    with KafkaBroker(work, SETTINGS) as kafka, EmbeddedBroker(work / "ours", config=SETTINGS) as ours:
        pair = open_side(ours.port), open_side(kafka.port)
        yield pair
        for side in pair:
            side.client.sock.close()


def alone(side: Side) -> None:
    side.describe("alone")
    side.beat("alone", "m", 1)
    side.beat("alone", "m", -1)
    joined = side.beat("alone", "m", 0, rack_id="r", server_assignor="range")
    side.beat("alone", "m", joined.member_epoch)
    side.beat("alone", "m", joined.member_epoch, owned=[0, 1, 2, 3])
    side.beat("alone", "m", joined.member_epoch + 1)
    side.beat("alone", "m", joined.member_epoch - 1)
    side.beat("alone", "m", joined.member_epoch, subscribed_topic_names=[TOPIC, "gone"], owned=[0, 1, 2, 3])
    side.describe("alone")
    side.ask(DescribeGroupsRequest(groups=["alone"]), 6)
    side.ask(DescribeGroupsRequest(groups=["alone"]), 5)
    side.ask(DeleteGroupsRequest(groups_names=["alone"]), 2)
    side.beat("alone", "m", 3, subscribed_topic_names=[], owned=[0, 1, 2, 3])
    side.beat("alone", "m", 3, owned=[])
    side.describe("alone")
    side.beat("alone", "nobody", -1)
    side.beat("alone", "m", -1)
    side.describe("alone")
    side.ask(ListGroupsRequest(types_filter=["Consumer"], states_filter=["empty"]), 5)
    side.ask(DeleteGroupsRequest(groups_names=["alone"]), 2)
    side.describe("alone")


def refused(side: Side) -> None:
    side.beat("r", "", 0)
    side.beat("", "m", 0)
    side.beat("r", "m", 0, instance_id="")
    side.beat("r", "m", 0, rack_id="")
    side.beat("r", "m", 0, rebalance_timeout_ms=-1)
    side.beat("r", "m", 0, topic_partitions=None)
    side.beat("r", "m", 0, subscribed_topic_names=None)
    side.beat("r", "m", 0, server_assignor="mine")
    side.beat("r", "m", 0, regex="(")
    side.beat("r", "m", -2)
    side.beat("r", "m", -3)
    side.beat("r", "m", -2, instance_id="i")
    side.ask(ConsumerGroupDescribeRequest(group_ids=[""]), 0)


def two_members(side: Side) -> None:
    g = "two"
    a = side.beat(g, "a", 0)
    b = side.beat(g, "b", 0)
    side.describe(g)
    a = side.beat(g, "a", a.member_epoch, owned=[0, 1, 2, 3])
    kept = a.assignment.topic_partitions[0].partitions
    side.describe(g)
    side.beat(g, "a", a.member_epoch)
    side.beat(g, "b", b.member_epoch, owned=[])
    side.commit(g, "a", a.member_epoch, 0, 1, 2, 3)
    side.commit(g, "a", a.member_epoch, 0, version=8)
    side.commit(g, "a", a.member_epoch, 0, version=10)
    side.commit(g, "a", a.member_epoch + 1, 0)
    side.commit(g, "x", a.member_epoch, 0)
    side.commit(g, "", -1, 0)
    before = a.member_epoch
    a = side.beat(g, "a", a.member_epoch, owned=kept)
    b = side.beat(g, "b", b.member_epoch, owned=[])
    side.describe(g)
    side.commit(g, "a", before, kept[0])
    given = b.assignment.topic_partitions[0].partitions
    side.commit(g, "a", before, given[0])
    side.commit(g, "b", b.member_epoch, given[0])
    side.fetch(g, None, -1)
    side.fetch(g, "a", a.member_epoch)
    side.fetch(g, "a", before)
    side.fetch(g, "x", 1)
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    side.ask(
        OffsetDeleteRequest(group_id=g, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=parts)]), 0
    )
    side.beat(g, "b", -1)
    side.describe(g)
    side.beat(g, "a", a.member_epoch, owned=kept)
    side.describe(g)
    side.beat(g, "a", -1)
    side.commit(g, "", -1, 0)


def static_members(side: Side) -> None:
    g = "static"
    a = side.beat(g, "a", 0, instance_id="i")
    side.beat(g, "b", 0, instance_id="i")
    side.beat(g, "b", a.member_epoch, instance_id="i")
    side.beat(g, "a", a.member_epoch, instance_id="other")
    side.beat(g, "a", -2, instance_id="i")
    side.describe(g)
    side.beat(g, "b", 0, instance_id="i")
    side.describe(g)
    side.beat(g, "a", a.member_epoch, instance_id="i")
    side.beat(g, "b", -1, instance_id="i")
    side.describe(g)


def regular_expressions(side: Side) -> None:
    g = "regex"
    first = side.beat(g, "a", 0, regex="kno.*")

    def assigned() -> bool:  # Kafka matches the topics in a thread
        found = side.client.request(ConsumerGroupDescribeRequest(group_ids=[g]), 1).groups[0]
        return found.group_epoch > first.member_epoch

    wait_until(assigned, "the topics of the regular expression")
    side.beat(g, "a", first.member_epoch, owned=[])
    side.describe(g)
    side.beat(g, "b", 0, regex="kno.*")
    side.describe(g)


def migration(side: Side) -> None:
    g = "mixed"
    member = side.client.request(_join(side, g), 9).member_id
    first = side.client.request(_join(side, g, member), 9)
    side.client.request(_sync(member, g, first.generation_id, [0, 1, 2, 3]), 5)
    side.commit(g, member, first.generation_id, 0)
    new = side.beat(g, "n", 0)
    side.answers.append(_renamed(side, g, member))
    side.classic_beat(g, member, first.generation_id)
    side.sync(g, member, first.generation_id)
    joined = side.client.request(_join(side, g, member, [0, 1, 2, 3]), 9)
    side.answers.append(joined.generation_id)
    side.sync(g, member, joined.generation_id)
    side.classic_beat(g, member, joined.generation_id)
    side.beat(g, "n", new.member_epoch, owned=[])
    kept = _owned(side, g, member)
    joined = side.client.request(_join(side, g, member, kept), 9)
    side.answers.append((joined.generation_id, joined.error_code, joined.protocol_name, joined.leader))
    side.sync(g, member, joined.generation_id)
    side.classic_beat(g, member, joined.generation_id)
    new = side.beat(g, "n", new.member_epoch, owned=[])
    side.answers.append(_renamed(side, g, member))
    side.classic_beat(g, member, 99)
    side.classic_beat(g, "n", new.member_epoch)
    side.classic_beat(g, "nobody", 1)
    side.sync(g, "nobody", 1)
    side.commit(g, member, joined.generation_id, 0)
    side.commit(g, member, 99, 0)
    side.ask(
        LeaveGroupRequest(group_id=g, members=[MemberIdentity(member_id="x"), MemberIdentity(group_instance_id="y")]), 5
    )  # fmt: skip
    side.beat(g, "n", -1)
    described = side.client.request(DescribeGroupsRequest(groups=[g]), 6).groups[0]
    side.answers.append((described.group_state, described.protocol_type, len(described.members)))
    side.fetch(g, None, -1)
    side.classic_beat(g, member, joined.generation_id)
    side.describe(g)


def _join(side: Side, group: str, member: str = "", owned: list[int] | None = None) -> JoinGroupRequest:
    parts = [ConsumerProtocolSubscriptionTopicPartition(topic=TOPIC, partitions=owned)] if owned else []
    said = ConsumerProtocolSubscription(topics=[TOPIC], user_data=None, owned_partitions=parts)
    protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=b"\0\1" + said.encode(1))
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, member_id=member,
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip


def _sync(member: str, group: str, generation: int, partitions: list[int]) -> SyncGroupRequest:
    part = ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=partitions)
    data = ConsumerProtocolAssignment(assigned_partitions=[part], user_data=None)
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, protocol_type="consumer",
        protocol_name="cooperative-sticky",
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"\0\1" + data.encode(1))],
    )  # fmt: skip


def _members(side: Side, group: str) -> Any:
    return side.client.request(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]


def _renamed(side: Side, group: str, member: str) -> Any:
    """Returns the group, with the classic member under a name that both brokers' have; how many partitions, not which."""
    found = _members(side, group)
    return (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name), sorted(
        (
            "classic" if m.member_id == member else m.member_id,
            m.member_epoch,
            m.member_type,
            [len(p.partitions) for p in m.assignment.topic_partitions],
            [len(p.partitions) for p in m.target_assignment.topic_partitions],
        )
        for m in found.members
    )


def _owned(side: Side, group: str, member: str) -> list[int]:
    (found,) = [m for m in _members(side, group).members if m.member_id == member]
    target = found.target_assignment.topic_partitions
    return target[0].partitions if target else []


@pytest.mark.parametrize(
    "case",
    [alone, refused, two_members, static_members, regular_expressions, migration],
    ids=lambda case: case.__name__,
)
def test_answers_are_kafkas(sides: tuple[Side, Side], case: Callable[[Side], None]) -> None:
    for side in sides:
        side.answers.clear()
        case(side)
    ours, kafkas = (side.answers for side in sides)
    assert len(ours) == len(kafkas)
    differ = [f"{i}. {a}\n   Kafka: {b}" for i, (a, b) in enumerate(zip(ours, kafkas, strict=True)) if a != b]
    assert not differ, "\n".join(differ)


def test_groups_live_on_when_brokers_take_turns(tmp_path: Path) -> None:
    """Kafka writes, ours goes on with the same members and without a needless epoch, Kafka goes on with ours."""
    kafka = KafkaBroker(tmp_path, SETTINGS)
    with kafka:
        side = open_side(kafka.port)
        side.beat("g", "a", 0)
        side.beat("rx", "x", 0, regex="kn.wn")
        wait_until(lambda: _members(side, "rx").group_epoch == 2, "the regular expression")
        side.beat("st", "s", 0, instance_id="i")
        before = [_plain(side, group) for group in ("g", "rx", "st")]
        side.client.sock.close()
        kafka.stop(signal.SIGKILL)
    with EmbeddedBroker(kafka.data, config=SETTINGS) as ours:
        client = RawClient(ours.port)
        mine = Side(client, side.topic_id, [])
        wait_until(lambda: not _members(mine, "g").error_code, "the groups")
        assert [_plain(mine, group) for group in ("g", "rx", "st")] == before
        again = mine.beat("g", "a", 2)
        assert (again.error_code, again.member_epoch) == (0, 2)
        assert [_plain(mine, "g")] == before[:1], "the hash of its topics is the same here"
        mine.beat("g", "b", 0)
        mine.beat("g", "a", 2, owned=[0, 1, 2, 3])
        mine.beat("rx", "x", -1)
        mine.beat("st", "s", -2, instance_id="i")
        after = [_plain(mine, group) for group in ("g", "rx", "st")]
        client.sock.close()
        ours.stop()
    with kafka:
        side = Side(RawClient(kafka.port), side.topic_id, [])
        wait_until(lambda: not _members(side, "g").error_code, "the groups", timeout_s=60)
        for group, expected in zip(("g", "rx", "st"), after, strict=True):
            found = _plain(side, group)
            differ = {k: (v, expected[k]) for k, v in found.items() if v != expected[k]}
            assert not differ, str(differ)
        side.client.sock.close()


def _plain(side: Side, group: str) -> Any:
    return side._plain(_members(side, group))
