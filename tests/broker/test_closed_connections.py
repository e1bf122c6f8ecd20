"""Nothing of a connection stays when it is closed: no reference cycle waits for the collector, which looks seldom."""

from __future__ import annotations

import asyncio
import gc

import pytest
from support.inprocess import connect, produce, serving
from support.topic_requests import alteration, deletion, growth, topics

from klamm_broker.server.connection import Connection
from klamm_kafka.wire.messages.alter_configs import AlterConfigsRequest
from klamm_kafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest
from klamm_kafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest

REFUSED = {
    "CreateTopics": (topics("t"), 7),
    "CreateTopics, a bad name": (topics("no/name"), 7),
    "CreateTopics, too many partitions": (topics("u", partitions=1 << 20), 7),
    "CreatePartitions": (growth(1, "t"), 3),
    "CreatePartitions, no topic": (growth(3, "nope"), 3),
    "DeleteTopics": (deletion("nope"), 6),
    "AlterConfigs": (alteration("retention.ms", "long", "t", kind=AlterConfigsRequest), 1),
    "IncrementalAlterConfigs": (
        alteration("retention.ms", "long", "t", "nope", kind=IncrementalAlterConfigsRequest),
        1,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="nope", configuration_keys=None)
            ]
        ),
        4,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=99)]
                )
            ],
            timeout_ms=1000,
        ),
        2,
    ),
    "ListOffsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=7, timestamp=-1)])
            ],
        ),
        6,
    ),
    "Metadata": (
        MetadataRequest(topics=[MetadataRequestTopic(name="no/name")], allow_auto_topic_creation=True),
        9,
    ),
    "Heartbeat": (HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 3),
    "SyncGroup": (SyncGroupRequest(group_id="g", generation_id=3, member_id="m", assignments=[]), 3),
    "ConsumerGroupHeartbeat": (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5),
        0,
    ),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=["nope"]), 2),
}


@pytest.fixture
async def server(tmp_path):
    async with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections():
    return [found for found in gc.get_objects() if isinstance(found, Connection)]


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_request_leaves_nothing_of_its_connection(server, no_collector, name):
    first = await connect(server)
    await first.request(topics("t"), 7)
    await produce(first, "t", b"x")
    await first.close()
    await gone()
    before = len(connections())
    request, version = REFUSED[name]
    for _ in range(3):
        one = await connect(server)
        await one.request(request, version)
        await one.close()
    await gone()
    assert len(connections()) <= before


async def gone():
    """Lets the server see that clients have gone."""
    for _ in range(50):
        await asyncio.sleep(0.002)


async def test_a_closed_connection_gives_its_buffer_back(server):
    one = await connect(server)
    (held,) = connections()
    await produce(one, "t", bytes(300_000))
    await one.close()
    while not held.closed:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert len(held._buf) == 0
