"""Streams groups (KIP-1071): every answer beside Apache Kafka's, with its words.

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
from klamm_kafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from klamm_kafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm_kafka.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestTaskIds,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from klamm_kafka.wire.struct import Message, Struct

pytestmark = pytest.mark.usefixtures("apache_kafka")

SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
TaskIds = StreamsGroupHeartbeatRequestTaskIds
Tag = KeyValue


def simple(*sources: str, epoch: int = 0, log: str = "") -> Topology:
    """Returns one subtopology, with a changelog if it has a name."""
    logs = [TopicInfo(name=log, topic_configs=[Tag(key="cleanup.policy", value="compact")])] if log else []
    made = Subtopology(subtopology_id="0", source_topics=list(sources), state_changelog_topics=logs)
    return Topology(epoch=epoch, subtopologies=[made])


def tasks(**found: list[int]) -> list[TaskIds]:
    """Returns tasks by subtopology: `s0=[0, 1]`."""
    return [TaskIds(subtopology_id=name[1:], partitions=partitions) for name, partitions in found.items()]


@dataclass(slots=True)
class Side:
    """One broker, and the answers that it gave, in plain values."""

    client: RawClient
    answers: list[Any]

    def ask(self, message: Message, version: int) -> Any:
        answer = self.client.request(message, version)
        self.answers.append((type(message).__name__, plain(answer)))
        return answer

    def topic(self, name: str, partitions: int) -> None:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        made = self.client.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert made.topics[0].error_code == 0, made
        self.wait_topic(name, partitions)

    def wait_topic(self, name: str, partitions: int) -> None:
        def there() -> bool:
            found = self.client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[
                0
            ]
            return found.error_code == 0 and len(found.partitions) == partitions

        wait_until(there, f"topic {name}", timeout_s=30)
        wait_until(
            lambda: self._coordinator_knows(name, partitions), f"the coordinator to know {name}", timeout_s=30
        )

    def _coordinator_knows(self, name: str, partitions: int) -> bool:
        """Asks as a group of its own, as the parts of Kafka's broker hear of a topic one after the other."""

        def ask(epoch: int, **more: Any) -> Any:
            request = StreamsGroupHeartbeatRequest(
                group_id="probe", member_id="p", member_epoch=epoch, **more
            )
            return self.client.request(request, 0)

        empty: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        told = ask(
            0, rebalance_timeout_ms=1000, topology=simple(name), process_id="p", client_tags=[], **empty
        )
        ask(-1)
        self.client.request(DeleteGroupsRequest(groups_names=["probe"]), 2)
        given = [p for t in told.active_tasks or () for p in t.partitions]
        return len(given) == partitions

    def beat(self, group: str, member: str, epoch: int, **more: Any) -> Any:
        if epoch == 0:
            more = {
                "rebalance_timeout_ms": 60_000, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
                "process_id": f"process of {member}", "client_tags": [], "endpoint_information_epoch": -1, **more,
            }  # fmt: skip
        if "active" in more:
            more |= {
                "active_tasks": more.pop("active"),
                "standby_tasks": more.pop("standby", []),
                "warmup_tasks": [],
            }
        request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
        return self.ask(request, 0)

    def describe(self, group: str) -> Any:
        return self.ask(StreamsGroupDescribeRequest(group_ids=[group]), 0).groups[0]

    def commit(
        self, group: str, member: str, epoch: int, topic: str, *partitions: int, version: int = 9
    ) -> Any:
        parts = [OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in partitions]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
        request = OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=topics
        )
        return self.ask(request, version)

    def fetch(self, group: str, member: str | None, epoch: int, topic: str) -> Any:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        return self.ask(OffsetFetchRequest(groups=[asked]), 9)

    def configure(self, group: str, **configs: str) -> Any:
        entries = [
            AlterableConfig(name=f"streams.{key.replace('_', '.')}", config_operation=0, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=entries)
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

        def known() -> bool:  # Kafka's parts hear of it one after the other
            asked = DescribeConfigsResource(resource_type=32, resource_name=group)
            found = self.client.request(DescribeConfigsRequest(resources=[asked]), 4).results[0].configs
            values = {c.name: c.value for c in found}
            return all(values[e.name] == e.value for e in entries)

        if not answer.responses[0].error_code:
            wait_until(known, "the configuration", timeout_s=30)
        return answer


def plain(value: Any, name: str = "") -> Any:
    if isinstance(value, Struct):
        return {spec.name: plain(getattr(value, spec.name), spec.name) for spec in type(value).FIELDS}
    if isinstance(value, list):
        return sorted((plain(item) for item in value), key=repr)
    if name == "error_code":
        return ErrorCode(value).name
    return bytes(value) if isinstance(value, memoryview) else value


def open_side(port: int) -> Side:
    """Its coordinator is loaded."""
    client = RawClient(port, timeout_s=60)

    def coordinates() -> bool:
        answer = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        if answer.coordinators[0].error_code:
            return False
        return not client.request(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code

    wait_until(coordinates, "the coordinator", timeout_s=60)
    return Side(client, [])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    kafka_oracle.require()
    work = tmp_path_factory.mktemp("streams-groups")
    with KafkaBroker(work, SETTINGS) as kafka, EmbeddedBroker(work / "ours", config=SETTINGS) as ours:
        pair = open_side(ours.port), open_side(kafka.port)
        yield pair
        for side in pair:
            side.client.sock.close()


def refused(side: Side) -> None:
    g, fits = "refused", simple("nothing")
    side.beat(g, "", 0, topology=fits)
    side.beat("", "m", 0, topology=fits)
    side.beat(g, " ", 0, topology=fits)
    side.beat(g, "m", 0, topology=fits, instance_id="i")
    side.beat(g, "m", 0, topology=fits, instance_id="")
    side.beat(g, "m", 0, topology=fits, rack_id="")
    side.beat(g, "m", 0, topology=fits, rebalance_timeout_ms=-1)
    side.beat(g, "m", 0, topology=fits, active_tasks=None)
    side.beat(g, "m", 0, topology=fits, standby_tasks=tasks(s0=[0]))
    side.beat(g, "m", 0, topology=fits, warmup_tasks=tasks(s0=[0]))
    side.beat(g, "m", 0, topology=fits, warmup_tasks=None)
    side.beat(g, "m", 0)
    side.beat(g, "m", 0, topology=fits, task_offsets=[TaskOffset(subtopology_id="0", partition=0, offset=1)])
    side.beat(g, "m", 0, topology=fits, task_end_offsets=[])
    side.beat(g, "m", -2)
    side.beat(g, "m", -3)
    side.beat(g, "m", -1)
    side.beat(g, "m", 1)
    side.beat(g, "m", 1, topology=fits)
    side.beat(g, "m", 1, active_tasks=[])
    side.beat(g, "m", 1, active_tasks=[], standby_tasks=[])
    sized = TopicInfo(name="log", partitions=3)
    made = Subtopology(subtopology_id="0", source_topics=["nothing"], state_changelog_topics=[sized])
    side.beat(g, "m", 0, topology=Topology(epoch=0, subtopologies=[made]))
    made = Subtopology(subtopology_id="0", source_topics=["nothing"], source_topic_regex=["n.*"])
    side.beat(g, "m", 0, topology=Topology(epoch=0, subtopologies=[made]))
    side.beat(g, "m", 0, topology=simple("__consumer_offsets", "__transaction_state"))
    side.beat(g, "m", 0, topology=simple("a b", "fine", "c/d"))
    side.ask(StreamsGroupDescribeRequest(group_ids=["", "refused"]), 0)
    for name in (
        "num_standby_replicas",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "assignment_interval_ms",
    ):
        side.configure(g, **{name: "1000000"})
        side.configure(g, **{name: "-1"})
    side.configure(g, session_timeout_ms="1")
    side.configure(g, initial_rebalance_delay_ms="-1")
    side.configure(g, unknown_thing="1")


def one_member(side: Side) -> None:
    g = "one"
    side.topic("one-in", 3)
    joined = side.beat(
        g,
        "m",
        0,
        topology=simple("one-in", log="one-log"),
        rack_id="r",
        client_tags=[Tag(key="k", value="v")],
    )
    side.describe(g)
    side.wait_topic("one-log", 3)
    epoch = side.beat(g, "m", joined.member_epoch).member_epoch
    side.describe(g)
    side.beat(g, "m", epoch)
    side.beat(g, "m", epoch, active=tasks(s0=[0, 1, 2]))
    side.beat(g, "m", epoch, active=tasks(s0=[0, 1, 3]))
    side.beat(g, "m", epoch, active=tasks(s7=[0]))
    side.beat(g, "m", epoch + 1)
    side.beat(g, "m", epoch - 1)
    side.beat(g, "m", 0, topology=simple("one-in", log="one-log"))
    side.beat(g, "m", 0, topology=simple("one-in"))
    side.beat(g, "m", 0, topology=simple("one-in", log="one-log", epoch=1))
    side.beat(g, "x", epoch)
    side.ask(DescribeGroupsRequest(groups=[g]), 6)
    side.ask(ListGroupsRequest(types_filter=["Streams"], states_filter=["Stable"]), 5)
    side.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=g,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=9,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        ),
        1,
    )
    side.ask(_join(g), 9)
    side.ask(DeleteGroupsRequest(groups_names=[g]), 2)
    epoch = side.describe(g).members[0].member_epoch
    side.commit(g, "m", epoch, "one-in", 0, 1)
    side.commit(g, "m", epoch, "one-in", 0, version=8)
    side.commit(g, "m", epoch + 1, "one-in", 0)
    side.commit(g, "m", epoch - 1, "one-in", 0)
    side.commit(g, "m", epoch - 1, "one-log", 0)
    side.commit(g, "m", 1, "one-in", 0)
    side.commit(g, "x", epoch, "one-in", 0)
    side.commit(g, "", -1, "one-in", 0)
    side.fetch(g, None, -1, "one-in")
    side.fetch(g, "m", epoch, "one-in")
    side.fetch(g, "m", epoch - 1, "one-in")
    side.fetch(g, "x", epoch, "one-in")
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="one-in", partitions=parts)]
    side.ask(OffsetDeleteRequest(group_id=g, topics=topics), 0)
    side.beat(g, "x", -1)
    side.beat(g, "m", -1)
    side.describe(g)
    side.ask(OffsetDeleteRequest(group_id=g, topics=topics), 0)
    side.commit(g, "", -1, "one-in", 2)
    side.fetch(g, None, -1, "one-in")
    side.ask(ListGroupsRequest(types_filter=["streams"], states_filter=["Empty"]), 5)
    side.ask(DeleteGroupsRequest(groups_names=[g]), 2)
    side.describe(g)


def _join(group: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
        protocols=[protocol], member_id="",
    )  # fmt: skip


def several_members(side: Side) -> None:
    g = "several"
    side.topic("several-in", 4)
    fits = simple("several-in")
    a = side.beat(g, "a", 0, topology=fits)
    b = side.beat(g, "b", 0, topology=fits)
    side.describe(g)
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=[0, 1, 2, 3]))
    kept = a.active_tasks[0].partitions
    side.describe(g)
    side.beat(g, "a", a.member_epoch)
    b = side.beat(g, "b", b.member_epoch, active=[])
    before = a.member_epoch
    side.commit(g, "a", before, "several-in", 0, 1, 2, 3)
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=kept))
    b = side.beat(g, "b", b.member_epoch, active=[])
    side.describe(g)
    side.commit(g, "a", before, "several-in", *kept)
    given = b.active_tasks[0].partitions
    side.commit(g, "a", before, "several-in", given[0])
    side.commit(g, "b", b.member_epoch - 1, "several-in", given[0])
    side.beat(g, "b", -1)
    side.describe(g)
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=kept))
    side.describe(g)
    c = side.beat(g, "c", 0, topology=fits, process_id="process of a")
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=[0, 1, 2, 3]))
    side.beat(
        g, "a", a.member_epoch, active=tasks(s0=a.active_tasks[0].partitions), shutdown_application=True
    )
    side.beat(g, "c", c.member_epoch)
    side.describe(g)
    side.beat(g, "a", -1)
    side.beat(g, "c", -1)
    side.describe(g)


def standbys_and_endpoints(side: Side) -> None:
    g = "standby"
    side.configure(g, num_standby_replicas="1")
    side.topic("standby-in", 2)
    fits = simple("standby-in", log="standby-log")
    here = StreamsGroupHeartbeatRequestEndpoint(host="here", port=1)
    there = StreamsGroupHeartbeatRequestEndpoint(host="there", port=65535)
    a = side.beat(g, "a", 0, topology=fits, user_endpoint=here)
    side.wait_topic("standby-log", 2)
    a = side.beat(g, "a", a.member_epoch, endpoint_information_epoch=a.endpoint_information_epoch)
    b = side.beat(g, "b", 0, topology=fits, user_endpoint=there)
    side.describe(g)
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=[0, 1]), endpoint_information_epoch=9)
    kept = a.active_tasks[0].partitions
    a = side.beat(
        g, "a", a.member_epoch, active=tasks(s0=kept), endpoint_information_epoch=a.endpoint_information_epoch
    )
    b = side.beat(g, "b", b.member_epoch, active=[], endpoint_information_epoch=0)
    side.describe(g)
    side.configure(g, num_standby_replicas="0")
    a = side.beat(g, "a", a.member_epoch)
    side.describe(g)
    side.beat(g, "a", -1)
    side.beat(g, "b", -1)


def topics_that_do_not_fit(side: Side) -> None:
    g = "topics"
    fits = simple("t-one", "t-two", "t-three", "t-four", log="t-log")
    a = side.beat(g, "a", 0, topology=fits)
    side.describe(g)
    a = side.beat(g, "a", a.member_epoch)
    for name in ("t-one", "t-two", "t-three", "t-four"):
        side.topic(name, 2)
    side.topic("t-log", 3)
    a = side.beat(g, "a", a.member_epoch)
    side.describe(g)
    side.client.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="t-log")], timeout_ms=10_000), 6)
    wait_until(lambda: _told(side, g, "a", a.member_epoch) == [3], "its end", timeout_s=30)
    side.wait_topic("t-log", 2)
    a = side.beat(g, "a", a.member_epoch)
    side.describe(g)
    more = CreatePartitionsTopic(name="t-one", count=4, assignments=None)
    side.client.request(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
    side.wait_topic("t-one", 4)
    a = side.beat(g, "a", a.member_epoch, active=tasks(s0=[0, 1]))
    side.describe(g)
    side.beat(g, "a", -1)


def _told(side: Side, group: str, member: str, epoch: int) -> list[int]:
    """Returns the statuses that a member is told, without noting the answer."""
    request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    answer = side.client.request(request, 0)
    return [status.status_code for status in answer.status]


def larger_topology(*, one: int = 0, joined: bool = True) -> Topology:
    """Returns two sources that are repartitioned and joined; `one` is a set number of partitions."""
    both = CopartitionGroup(source_topics=[0] if joined else [], repartition_source_topics=[0, 1])
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["l-left"], repartition_sink_topics=["l-rep-a"]),
            Subtopology(subtopology_id="1", source_topics=["l-right"], repartition_sink_topics=["l-rep-b"]),
            Subtopology(
                subtopology_id="2",
                source_topics=["l-side"] if joined else [],
                repartition_source_topics=[
                    TopicInfo(name="l-rep-a", partitions=one),
                    TopicInfo(name="l-rep-b"),
                ],
                state_changelog_topics=[TopicInfo(name="l-log")],
                copartition_groups=[both],
            ),
        ],
    )


def joins(side: Side) -> None:
    for name, count in (("l-left", 2), ("l-right", 3), ("l-side", 4)):
        side.topic(name, count)
    side.beat("joins-set", "m", 0, topology=larger_topology(one=5))
    side.describe("joins-set")
    side.beat("joins-alone", "m", 0, topology=larger_topology(one=5, joined=False))
    side.describe("joins-alone")
    for topic, count in (("l-rep-a", 5), ("l-rep-b", 5), ("l-log", 5)):
        side.wait_topic(topic, count)
    side.beat("joins", "m", 0, topology=larger_topology())
    side.describe("joins")
    unmatched = CopartitionGroup(source_topics=[0, 1], repartition_source_topics=[])
    odd = Subtopology(subtopology_id="0", source_topics=["l-left", "l-right"], copartition_groups=[unmatched])
    side.beat("joins-odd", "m", 0, topology=Topology(epoch=0, subtopologies=[odd]))
    side.describe("joins-odd")
    loop = Subtopology(
        subtopology_id="0",
        repartition_sink_topics=["loop"],
        repartition_source_topics=[TopicInfo(name="loop")],
    )
    side.beat("joins-loop", "m", 0, topology=Topology(epoch=0, subtopologies=[loop]))
    never = Subtopology(
        subtopology_id="0", source_topics=["l-left"], repartition_source_topics=[TopicInfo(name="never")]
    )
    side.beat("joins-never", "m", 0, topology=Topology(epoch=0, subtopologies=[never]))
    side.describe("joins-never")


def bad_internal_topic(side: Side) -> None:
    side.topic("bad-in", 1)
    log = TopicInfo(name="bad-log", topic_configs=[Tag(key="cleanup.policy", value="nonsense")])
    made = Subtopology(subtopology_id="0", source_topics=["bad-in"], state_changelog_topics=[log])
    a = side.beat("bad", "m", 0, topology=Topology(epoch=0, subtopologies=[made]))

    def said() -> bool:
        request = StreamsGroupHeartbeatRequest(group_id="bad", member_id="m", member_epoch=a.member_epoch)
        answer = side.client.request(request, 0)
        return "Creation failed: bad-log (" in answer.status[0].status_detail

    wait_until(said, "the reason", timeout_s=30)


def classic_before(side: Side) -> None:
    g = "was-classic"
    side.topic("classic-in", 1)
    side.commit(g, "", -1, "classic-in", 0)
    side.describe(g)
    a = side.beat(g, "m", 0, topology=simple("classic-in"))
    side.fetch(g, None, -1, "classic-in")
    side.describe(g)
    side.beat(g, "m", -1)
    joined = side.client.request(_join(g), 9)
    assert a.member_epoch
    side.answers.append(ErrorCode(joined.error_code).name)
    asked = StreamsGroupDescribeRequest(
        group_ids=[g]
    )  # Kafka answers with what is committed, which takes a moment
    wait_until(lambda: side.client.request(asked, 0).groups[0].error_code, "the end of the Streams group")
    side.describe(g)


CASES = [
    refused, one_member, several_members, standbys_and_endpoints, topics_that_do_not_fit, joins,
    bad_internal_topic, classic_before,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
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
        side.topic("in", 4)
        epoch = side.beat("g", "a", 0, topology=simple("in", log="log")).member_epoch
        side.wait_topic("log", 4)
        epoch = side.beat("g", "a", epoch).member_epoch
        before = _described(side)
        assert before["group_state"] == "Stable"
        side.client.sock.close()
        kafka.stop(signal.SIGKILL)
    with EmbeddedBroker(kafka.data, config=SETTINGS) as ours:
        client = RawClient(ours.port)
        mine = Side(client, [])
        wait_until(lambda: _described(mine)["error_code"] == "NONE", "the group")
        again = mine.beat("g", "a", epoch)
        assert (again.error_code, again.member_epoch) == (0, epoch)
        assert _described(mine) == before, "the hash of its topics is the same here"
        mine.beat("g", "b", 0, topology=simple("in", log="log"))
        mine.beat("g", "a", epoch, active=tasks(s0=[0, 1, 2, 3]))
        after = _described(mine)
        client.sock.close()
        ours.stop()
    with kafka:
        side = Side(RawClient(kafka.port), [])
        wait_until(lambda: _described(side)["error_code"] == "NONE", "the group", timeout_s=60)
        again = side.beat("g", "b", _epoch(after, "b"))
        assert (again.error_code, again.member_epoch) == (0, _epoch(after, "b"))
        found = _described(side)
        differ = {k: (v, after[k]) for k, v in found.items() if v != after[k]}
        assert not differ, str(differ)
        side.client.sock.close()


def _described(side: Side) -> dict[str, Any]:
    found: dict[str, Any] = plain(
        side.client.request(StreamsGroupDescribeRequest(group_ids=["g"]), 0).groups[0]
    )
    return found


def _epoch(group: dict[str, Any], member: str) -> int:
    (epoch,) = [m["member_epoch"] for m in group["members"] if m["member_id"] == member]
    return int(epoch)
