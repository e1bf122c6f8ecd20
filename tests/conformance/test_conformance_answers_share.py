"""Share groups: our answers beside Apache Kafka's, field by field."""

from __future__ import annotations

import pytest
from conformance.conftest import TwoBrokers, _side
from support import kafka_oracle
from support.answers import NOBODY, Request, Side
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.raw import RawClient
from support.share_groups import BROKER

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm_kafka.wire.messages.share_fetch import AcknowledgementBatch as FetchBatch
from klamm_kafka.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from klamm_kafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm_kafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")
GROUP = 32
MEMBER = "a-member"


@pytest.fixture(scope="module")
def share_brokers(tmp_path_factory):
    kafka_oracle.require()
    work = tmp_path_factory.mktemp("share-brokers")
    settings = {
        "num.partitions": "1", "offsets.topic.num.partitions": "1", "node.id": "1", "log.retention.ms": "-1",
        "group.share.assignment.interval.ms": "0",
    }  # fmt: skip
    with (
        KafkaBroker(work, settings | BROKER) as kafka,
        EmbeddedBroker(work / "ours", config=settings) as ours,
    ):
        yield TwoBrokers(_side("Klamm", ours.port), _side("Kafka", kafka.port))


def heartbeat(group: str, epoch: int, topics=None, member: str = MEMBER, **more) -> Request:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics, **more
    ), 1


def configure(group: str, **configs: str) -> Request:
    changes = [AlterableConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=changes)
    return IncrementalAlterConfigsRequest(resources=[resource]), 1


def fetch(
    side: Side, group: str, epoch: int, version: int = 2, *, topic: bytes | None = None, acks=(), **more
) -> Request:
    partition = FetchPartition(
        partition_index=0,
        acknowledgement_batches=[
            FetchBatch(first_offset=f, last_offset=t, acknowledge_types=list(types)) for f, t, types in acks
        ],
    )
    asked = [FetchTopic(topic_id=topic or side.topic_ids["known"], partitions=[partition])]
    fields = {
        "group_id": group, "member_id": MEMBER, "share_session_epoch": epoch, "max_wait_ms": 1_000, "min_bytes": 1,
        "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100, "topics": asked if acks or epoch == 0 else [],
        **more,
    }  # fmt: skip
    return ShareFetchRequest(**fields), version


def acknowledge(
    side: Side, group: str, epoch: int, *acks, version: int = 2, topic: bytes | None = None, **more
) -> Request:
    batches = [
        AcknowledgementBatch(first_offset=f, last_offset=t, acknowledge_types=list(types))
        for f, t, types in acks
    ]
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    asked = [AcknowledgeTopic(topic_id=topic or side.topic_ids["known"], partitions=[partition])]
    fields = {
        "group_id": group,
        "member_id": MEMBER,
        "share_session_epoch": epoch,
        "topics": asked if acks else [],
    }
    return ShareAcknowledgeRequest(**{**fields, **more}), version


def offsets(*groups: str, topics=None, version: int = 1) -> Request:
    asked = None
    if topics is not None:
        asked = [DescribeShareGroupOffsetsRequestTopic(topic_name=t, partitions=p) for t, p in topics.items()]
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=g, topics=asked) for g in groups]
    ), version


def alter(group: str, topic: str, **starts: int) -> Request:
    parts = [
        AlterShareGroupOffsetsRequestPartition(partition_index=int(p[1:]), start_offset=o)
        for p, o in starts.items()
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=parts)]
    return AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0


def delete(group: str, *topics: str) -> Request:
    asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=t) for t in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=asked), 0


def joined(side: Side, group: str, topics=("known",)) -> int:
    """Makes a member of a new group that reads from the beginning, and returns its epoch once it has partitions."""
    with RawClient(side.port) as client:
        assert (
            not client.request(*configure(group, share_auto_offset_reset="earliest")).responses[0].error_code
        )
        answer = client.request(*heartbeat(group, 0, list(topics)))
        epoch = answer.member_epoch

        def assigned():
            nonlocal epoch
            found = client.request(*heartbeat(group, epoch, list(topics)))
            epoch = found.member_epoch
            return found.assignment is not None and found.assignment.topic_partitions

        wait_until(assigned, f"{side.name} to assign partitions")
        return epoch


def members(side: Side) -> list[Request]:
    epoch = joined(side, "members")
    return [
        heartbeat("members", epoch),
        heartbeat("members", epoch, ["known"]),
        heartbeat("members", epoch - 1),
        heartbeat("members", epoch + 1),
        heartbeat("members", epoch, member="stranger"),
        (ShareGroupDescribeRequest(group_ids=["members"], include_authorized_operations=True), 1),
        (ListGroupsRequest(types_filter=["share"]), 5),
        (DescribeGroupsRequest(groups=["members"]), 6),
        (DeleteGroupsRequest(groups_names=["members"]), 2),
        alter("members", "known", p0=1),
        delete("members", "known"),
        heartbeat("members", -1),
        heartbeat("members", -1),
        (ShareGroupDescribeRequest(group_ids=["members"]), 1),
        (DeleteGroupsRequest(groups_names=["members"]), 2),
        (ShareGroupDescribeRequest(group_ids=["members"]), 1),
    ]


def heartbeats_refused(side: Side) -> list[Request]:
    return [
        heartbeat("refused", 0),
        heartbeat("refused", 0, []),
        heartbeat("refused", 5),
        heartbeat("refused", -1),
        heartbeat("refused", -2),
        heartbeat("", 0, ["known"]),
        heartbeat("refused", 0, ["known"], member=""),
        heartbeat("refused", 0, ["known"], member="m" * 37),
        heartbeat("refused", 0, ["known"], rack_id=""),
        (ShareGroupDescribeRequest(group_ids=["refused", ""]), 1),
    ]


def records_by_session(side: Side) -> list[Request]:
    joined(side, "session")
    return [
        fetch(side, "session", 0, 1),
        fetch(side, "session", 1, 1, max_wait_ms=100),
        acknowledge(side, "session", 2, (0, 4, [1]), version=1),
        acknowledge(side, "session", 3, (5, 9, [2, 1, 3, 2, 0])),
        fetch(side, "session", 4),
        fetch(side, "session", 5, acks=[(5, 5, [1]), (8, 8, [1])], max_wait_ms=100),
        offsets("session"),
        fetch(side, "session", 6, max_wait_ms=100),
        fetch(side, "session", -1),
        fetch(side, "session", 7),
        acknowledge(side, "session", 7),
    ]


def a_record_limit(side: Side) -> list[Request]:
    joined(side, "limit")
    return [
        fetch(side, "limit", 0, max_records=3, share_acquire_mode=1),
        fetch(side, "limit", 1, max_records=3, share_acquire_mode=1),
        acknowledge(side, "limit", 2, (0, 2, [2])),
        fetch(side, "limit", 3, max_records=2, share_acquire_mode=1),
        fetch(side, "limit", 4, max_records=3),
        acknowledge(side, "limit", 5, (0, 0, [4]), is_renew_ack=True),
        fetch(side, "limit", 6, acks=[(0, 0, [4])], is_renew_ack=True),
        fetch(side, "limit", 6, acks=[(0, 0, [4])], is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0),
    ]  # fmt: skip


def acknowledgements_refused(side: Side) -> list[Request]:
    joined(side, "wrong")
    return [
        fetch(side, "wrong", 0),
        acknowledge(side, "wrong", 1, (0, 20, [1])),
        acknowledge(side, "wrong", 2, (3, 1, [1])),
        acknowledge(side, "wrong", 3, (0, 1, [1, 1, 1])),
        acknowledge(side, "wrong", 4, (0, 1, [7])),
        acknowledge(side, "wrong", 5, (0, 1, [])),
        acknowledge(side, "wrong", 6, (0, 1, [4])),
        acknowledge(side, "wrong", 7, (4, 4, [1]), (2, 2, [1])),
        acknowledge(side, "wrong", 8, (0, 0, [1]), topic=NOBODY),
        acknowledge(side, "wrong", 9, (0, 0, [1]), (0, 0, [1])),
        acknowledge(side, "wrong", 10, (0, 0, [1])),
        acknowledge(side, "wrong", 11, (0, 0, [1])),
        acknowledge(side, "wrong", 5),
        acknowledge(side, "wrong", 0),
        acknowledge(side, "wrong", 1, member_id=""),
        acknowledge(side, "wrong", 1, group_id=None),
        fetch(side, "wrong", 3),
        fetch(side, "wrong", 0, acks=[(0, 0, [1])]),
        fetch(side, "wrong", 0, member_id=""),
        fetch(side, "wrong", 0, group_id=None),
        fetch(side, "wrong", 0, topic=NOBODY),
        fetch(side, "nobody", 0, max_wait_ms=100),
    ]


def start_offsets(side: Side) -> list[Request]:
    return [
        offsets("offsets"),
        offsets("offsets", topics={"known": [0, 1], "unknown": [0]}),
        delete("offsets", "known"),
        alter("offsets", "known", p0=3, p1=0),
        alter("offsets", "unknown", p0=3),
        alter("offsets", "known", p9=3),
        alter("", "known", p0=3),
        offsets("offsets"),
        offsets("offsets", version=0),
        offsets("offsets", "nobody", topics={"known": [0, 1, 7], "unknown": [0]}),
        delete("offsets", "known", "empty", "unknown"),
        delete("", "known"),
        offsets("offsets"),
        (DeleteGroupsRequest(groups_names=["offsets"]), 2),
    ]


def coordinators(side: Side) -> list[Request]:
    return [
        (FindCoordinatorRequest(key_type=2, coordinator_keys=["g:" + "A" * 22 + ":0"]), 6),
        (FindCoordinatorRequest(key_type=2, coordinator_keys=["nonsense"]), 6),
        (FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]), 5),
    ]


def configurations(side: Side) -> list[Request]:
    return [
        configure(
            "configured", share_auto_offset_reset="by_duration:PT1H", share_isolation_level="read_committed"
        ),
        configure("configured", share_auto_offset_reset="never"),
        configure("configured", share_isolation_level="none"),
        configure("configured", share_record_lock_duration_ms="1000"),
        configure("configured", share_delivery_count_limit="99"),
        configure("configured", share_partition_max_record_locks="1"),
        configure("configured", share_session_timeout_ms="1"),
        configure("configured", share_renew_acknowledge_enable="perhaps"),
    ]


INTENDED: dict[str, dict[str, str]] = {
    "acknowledgements_refused": {
        r"^20\.ShareFetch": "Kafka fails with a null pointer at a topic id that it does not know"
    }
}


@pytest.mark.parametrize(
    "case",
    [
        heartbeats_refused, members, records_by_session, a_record_limit, acknowledgements_refused,
        start_offsets, configurations, coordinators,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(share_brokers, case):
    share_brokers.compare(case, INTENDED.get(case.__name__))
