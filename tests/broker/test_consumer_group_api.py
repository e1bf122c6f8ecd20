"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on the wire, by version; configurations; a restart and a kill."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from support.broker import new_name, new_topic, wait_until
from support.inprocess import connect, serving
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_broker.server.config import BrokerConfig
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm_kafka.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def heartbeat(group: str, member: str, epoch: int, **more) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        more = {"rebalance_timeout_ms": 5_000, "topic_partitions": [], **more}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_reports_and_leaves(broker, version):
    topic, group = new_topic(broker, 3), new_name("group")
    with RawClient(broker.port) as client:
        asked = heartbeat(group, str(uuid.uuid4()), 0, subscribed_topic_names=[topic])
        if version == 0:
            asked.member_id = ""
        joined = client.request(asked, version)
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (E.NONE, 2, 5_000)
        assert joined.member_id == asked.member_id or version == 0
        [assigned] = joined.assignment.topic_partitions
        assert assigned.partitions == [0, 1, 2]
        owned = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=assigned.topic_id, partitions=[0, 1, 2])
        ]
        again = client.request(heartbeat(group, joined.member_id, 2, topic_partitions=owned), version)
        assert (again.error_code, again.assignment) == (E.NONE, None)
        fenced = client.request(heartbeat(group, joined.member_id, 3), version)
        assert fenced.error_code == E.FENCED_MEMBER_EPOCH
        assert fenced.error_message.startswith("The consumer group member has a greater member epoch (3)")
        left = client.request(heartbeat(group, joined.member_id, -1), version)
        assert (left.error_code, left.member_epoch, left.member_id) == (E.NONE, -1, joined.member_id)


def test_regular_expressions_come_with_version_1(broker):
    with RawClient(broker.port) as client:
        asked = heartbeat(new_name("group"), "m", 0, subscribed_topic_regex="[")
        refused = client.request(asked, 1)
        assert refused.error_code == E.INVALID_REGULAR_EXPRESSION
        assert "is not a valid regular expression: missing closing ]." in refused.error_message


@pytest.mark.parametrize("version", [0, 1])
def test_describe(broker, version):
    topic, group = new_topic(broker, 2), new_name("group")
    with RawClient(broker.port) as client:
        client.request(heartbeat(group, "m", 0, subscribed_topic_names=[topic], rack_id="r"), 1)
        asked = ConsumerGroupDescribeRequest(
            group_ids=[group, "none", group, ""], include_authorized_operations=True
        )
        found, missing, invalid = client.request(asked, version).groups
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
        assert (found.assignor_name, found.authorized_operations) == ("uniform", 3400)
        [member] = found.members
        assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 2)
        assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
        assert member.member_type == (1 if version else -1)
        for part in (member.assignment, member.target_assignment):
            assert [(p.topic_name, p.partitions) for p in part.topic_partitions] == [(topic, [0, 1])]
        assert (missing.error_code, missing.error_message) == (E.GROUP_ID_NOT_FOUND, "Group none not found.")
        assert invalid.error_code == E.INVALID_GROUP_ID
        [classic] = client.request(DescribeGroupsRequest(groups=[group]), 6).groups
        assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
        assert classic.error_message == f"Group {group} is not a classic group."
        listed = client.request(ListGroupsRequest(types_filter=["consumer"]), 5).groups
        assert (group, "consumer", "consumer", "Stable") in {
            (g.group_id, g.protocol_type, g.group_type, g.group_state) for g in listed
        }


@pytest.mark.usefixtures("processes")
def test_a_group_survives_a_kill(tmp_path):
    group = "g"
    with EmbeddedBroker(tmp_path) as broker:
        topic = new_topic(broker, 2)
        with RawClient(broker.port) as client:
            joined = client.request(heartbeat(group, "m", 0, subscribed_topic_names=[topic]), 1)
            client.request(heartbeat(group, "r", 0, subscribed_topic_regex=f"{topic}.*", instance_id="i"), 1)
            describe = ConsumerGroupDescribeRequest(group_ids=[group])
            before = client.request(describe, 1)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            wait_until(lambda: not client.request(describe, 1).groups[0].error_code, "the group is loaded")
            assert client.request(describe, 1) == before
            again = client.request(heartbeat(group, "m", joined.member_epoch), 1)
            assert again.error_code == E.NONE


def test_a_group_has_configurations_of_its_own(broker):
    group = new_name("group")
    configs = [AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="6000")]
    resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=configs)
    with RawClient(broker.port) as client:
        joined = client.request(heartbeat(group, "m", 0, subscribed_topic_names=[]), 1)
        assert joined.heartbeat_interval_ms == 5_000
        changed = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert changed.responses[0].error_code == E.NONE
        again = client.request(heartbeat(group, "m", joined.member_epoch), 1)
        assert again.heartbeat_interval_ms == 6_000


@pytest.mark.usefixtures("processes")
def test_the_protocol_can_be_switched_off(tmp_path):
    config = {"group.coordinator.rebalance.protocols": "classic"}
    with EmbeddedBroker(tmp_path, config=config) as broker, RawClient(broker.port) as client:
        answer = client.request(heartbeat("g", "m", 0, subscribed_topic_names=[]), 1)
        assert answer.error_code == E.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.consumer.session.timeout.ms", "44999"),
        ("group.consumer.session.timeout.ms", "60001"),
        ("group.consumer.heartbeat.interval.ms", "4999"),
        ("group.consumer.max.heartbeat.interval.ms", "4000"),
        ("group.consumer.assignors", "mine"),
        ("group.consumer.migration.policy", "sometimes"),
        ("group.consumer.max.size", "0"),
        ("group.consumer.regex.refresh.interval.ms", "9999"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        BrokerConfig.load({key: value})


async def test_with_durability_fsync_a_group_joins_commits_leaves_and_goes(tmp_path):
    """Every change waits for its fsync, and what comes meanwhile for the change."""
    async with serving(tmp_path, durability="fsync") as server, await connect(server) as conn:
        topic = server.broker.topic_changes.create_topic("t", partitions=2)

        async def beat(member: str, epoch: int, **more) -> ConsumerGroupHeartbeatResponse:
            return await conn.request(heartbeat("g", member, epoch, **more), version=1)

        joins = [beat(name, 0, subscribed_topic_names=["t"]) for name in ("a", "b", "c")]
        joined = await asyncio.gather(*joins)
        assert [j.error_code for j in joined] == [E.NONE] * 3
        assert [j.member_epoch for j in joined] == sorted(j.member_epoch for j in joined)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id="g", member_id="a", generation_id_or_member_epoch=joined[0].member_epoch,
            topics=[OffsetCommitRequestTopic(topic_id=topic.id, partitions=[partition])],
        )  # fmt: skip
        leaves = [beat(name, -1) for name in ("b", "c")]
        answers = await asyncio.gather(conn.request(commit, version=10), *leaves)
        assert answers[0].topics[0].partitions[0].error_code == E.NONE
        assert [a.error_code for a in answers[1:]] == [E.NONE] * 2
        found = server.broker.groups.coordinator.fetch("g")
        assert [o.offset for o in found.offsets.values()] == [7]
        gone = await asyncio.gather(
            beat("a", -1), conn.request(DeleteGroupsRequest(groups_names=["g"]), version=2)
        )
        assert (gone[0].error_code, gone[1].results[0].error_code) == (E.NONE, E.NONE)
        assert not server.broker.groups.coordinator.groups
