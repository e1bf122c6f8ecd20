"""Groups and their offsets: our answers beside Apache Kafka's, field by field."""

from __future__ import annotations

import pytest
from support.answers import NOBODY, Request, Side, differences

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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = pytest.mark.usefixtures("apache_kafka")
INSTANCE = "an-instance"


def find_coordinator(side: Side) -> list[Request]:
    return [
        (FindCoordinatorRequest(key="g"), 0),
        (FindCoordinatorRequest(key="g", key_type=0), 3),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h", ""]), 4),
        (FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 4),
        (FindCoordinatorRequest(key="g", key_type=9), 3),
        (FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]), 4),
    ]


def commit(
    group: str, version: int, *, offset: int = 5, topic: str | bytes = "known", partition: int = 0,
    metadata: str | None = "m", generation: int = -1, member: str = "", instance: str | None = None,
) -> Request:  # fmt: skip
    where = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    part = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata=metadata,
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(**where, partitions=[part])],
    ), version


def fetch(
    group: str, version: int, *partitions: int, topic: str | bytes = "known", every: bool = False
) -> Request:
    wanted = list(partitions)
    if version < 8:
        old = None if every else [OffsetFetchRequestTopic(name=str(topic), partition_indexes=wanted)]
        return OffsetFetchRequest(group_id=group, topics=old), version
    where = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    topics = None if every else [OffsetFetchRequestTopics(**where, partition_indexes=wanted)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]), version


def offsets_are_committed_and_fetched(side: Side) -> list[Request]:
    known = side.topic_ids["known"]
    return [
        commit("simple", 2),
        commit("simple", 8, offset=6, partition=1, metadata=None),
        commit("simple", 10, offset=7, topic=known),
        fetch("simple", 1, 0, 1, 9),
        fetch("simple", 5, 0, 1, 9),
        fetch("simple", 7, every=True),
        fetch("simple", 8, 0, 1, 9),
        fetch("simple", 9, every=True),
        fetch("simple", 10, 0, 1, 9, topic=known),
        fetch("simple", 10, every=True),
    ]


def offset_commits_refused(side: Side) -> list[Request]:
    return [
        commit("refused", 9, topic="unknown"),
        commit("refused", 10, topic=NOBODY),
        commit("refused", 9, topic="bad/name"),
        commit("refused", 9, partition=9),
        commit("refused", 9, partition=-1),
        commit("refused", 9, metadata="m" * 5000),
        commit("unknown", 9, generation=3, member="somebody"),
        commit("unknown", 8, generation=3, member="somebody"),
        commit("refused", 9, generation=-1, member="somebody"),
        commit("refused", 9, offset=-1),
        commit("", 9),
    ]


def offset_fetches_of_what_is_not_there(side: Side) -> list[Request]:
    return [
        fetch("nobody", 1, 0),
        fetch("nobody", 7, every=True),
        fetch("nobody", 9, 0, topic="unknown"),
        fetch("nobody", 10, 0, topic=NOBODY),
        fetch("nobody", 9, every=True),
        fetch("", 9, 0),
    ]


def simple_group_as_described(side: Side) -> list[Request]:
    part = OffsetDeleteRequestPartition(partition_index=0)
    return [
        commit("described", 8),
        (DescribeGroupsRequest(groups=["described"], include_authorized_operations=True), 5),
        (DescribeGroupsRequest(groups=["described"]), 0),
        (ListGroupsRequest(states_filter=["Empty"]), 4),
        (ListGroupsRequest(types_filter=["classic"]), 5),
        (OffsetDeleteRequest(group_id="described", topics=[OffsetDeleteRequestTopic(name="known", partitions=[part])]), 0),
        (OffsetDeleteRequest(group_id="described", topics=[OffsetDeleteRequestTopic(name="unknown", partitions=[part])]), 0),
        (DeleteGroupsRequest(groups_names=["described", "nobody"]), 2),
        (DeleteGroupsRequest(groups_names=["described"]), 0),
    ]  # fmt: skip


def groups_that_are_not_there(side: Side) -> list[Request]:
    part = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name="known", partitions=[part])]
    return [
        (DescribeGroupsRequest(groups=["nobody", ""], include_authorized_operations=True), 5),
        (DescribeGroupsRequest(groups=["nobody", ""]), 6),
        (DeleteGroupsRequest(groups_names=["nobody", ""]), 2),
        (OffsetDeleteRequest(group_id="nobody", topics=topics), 0),
        (ListGroupsRequest(states_filter=["Stable", "NoSuchState"]), 4),
        (ListGroupsRequest(types_filter=["nosuchtype"]), 5),
    ]


def join(
    group: str, version: int = 9, *, member: str = "", session: int = 10_000, kind: str = "consumer",
    protocols: tuple[str, ...] = ("range",), instance: str | None = None,
) -> Request:  # fmt: skip
    offered = [JoinGroupRequestProtocol(name=p, metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff") for p in protocols]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=session, rebalance_timeout_ms=10_000, member_id=member,
        group_instance_id=instance, protocol_type=kind, protocols=offered,
    ), version  # fmt: skip


def joins_refused(side: Side) -> list[Request]:
    return [
        join(""),
        join("joins", session=5),
        join("joins", session=99_999_999),
        join("joins", member="somebody"),
        join("joins", 9, protocols=()),
        join("joins", 9, kind=""),
    ]


def members_that_are_not_there(side: Side) -> list[Request]:
    gone = [MemberIdentity(member_id="somebody"), MemberIdentity(member_id="", group_instance_id="nobody")]
    return [
        (HeartbeatRequest(group_id="nobody", generation_id=1, member_id="somebody"), 4),
        (HeartbeatRequest(group_id="", generation_id=1, member_id="somebody"), 4),
        (SyncGroupRequest(group_id="nobody", generation_id=1, member_id="somebody", protocol_type="consumer", protocol_name="range"), 5),
        (SyncGroupRequest(group_id="nobody", generation_id=1, member_id="somebody"), 0),
        (LeaveGroupRequest(group_id="nobody", members=gone), 5),
        (LeaveGroupRequest(group_id="nobody", member_id="somebody"), 0),
        (LeaveGroupRequest(group_id="", members=gone), 5),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [5, 9])
def test_the_life_of_a_static_member(two_brokers, version):
    """A static member's id is not known before: each side is asked with the id that it gave."""
    answers = []
    for side in (two_brokers.ours, two_brokers.kafka):
        with_ids = {}
        group = f"static-{version}"
        first = side.ask(lambda _: [join(group, version, instance=INSTANCE)])
        (member,) = [v for path, v in first.items() if path.endswith(f"v{version}.member_id")]
        assert member.startswith(INSTANCE)
        share = [SyncGroupRequestAssignment(member_id=member, assignment=b"mine")]
        as_member = {
            "group_id": group,
            "generation_id": 1,
            "member_id": member,
            "group_instance_id": INSTANCE,
        }
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        later = [
            (SyncGroupRequest(**as_member, **protocol | {"protocol_name": "other"}, assignments=share), 5),
            (SyncGroupRequest(**as_member, **protocol, assignments=share), 5),
            (SyncGroupRequest(**as_member, **protocol, assignments=share), 5),
            (HeartbeatRequest(**as_member), 4),
            (HeartbeatRequest(**as_member | {"generation_id": 2}), 4),
            (HeartbeatRequest(**as_member | {"member_id": "other"}), 4),
            (HeartbeatRequest(**as_member | {"group_instance_id": "other"}), 4),
            (DescribeGroupsRequest(groups=[group]), 5),
            commit(group, 9, generation=1, member=member, instance=INSTANCE),
            commit(group, 9, generation=4, member=member, instance=INSTANCE),
            commit(group, 9, generation=1, member="other", instance=INSTANCE),
            commit(group, 9),
            join(group, version, member=member, instance=INSTANCE, kind="connect"),
            join(group, version, member="other", instance=INSTANCE),
            (DeleteGroupsRequest(groups_names=[group]), 2),
            (LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="", group_instance_id=INSTANCE)]), 5),
            (DescribeGroupsRequest(groups=[group]), 5),
        ]  # fmt: skip
        found = first | side.ask(lambda _, later=later: later)
        renamed = {p: "the member" if v == member else v for p, v in found.items()}
        answers.append({p.replace(member, "the member"): v for p, v in renamed.items()} | with_ids)
    ours, kafkas = answers
    assert differences(ours, kafkas) == {}


def test_a_member_without_an_id_is_given_one(two_brokers):
    """The first join is refused with an id to join with, from version 4; older ones are taken at once."""
    for version in (3, 4, 9):
        one, other = (
            side.ask(lambda _, v=version: [join(f"dynamic-{v}", v)])
            for side in (two_brokers.ours, two_brokers.kafka)
        )
        made = {p for p in one if p.endswith((".member_id", ".leader", "metadata"))}
        assert {p: v for p, v in one.items() if p not in made} == {
            p: v for p, v in other.items() if p not in made
        }


INTENDED: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize(
    "case",
    [
        find_coordinator, offsets_are_committed_and_fetched, offset_commits_refused, offset_fetches_of_what_is_not_there,
        simple_group_as_described, groups_that_are_not_there, joins_refused, members_that_are_not_there,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(two_brokers, case):
    two_brokers.compare(case, INTENDED.get(case.__name__))
