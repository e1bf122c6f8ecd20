"""The audit log's lines of changes to topics and groups: those that were made, and none for those that were refused; in-process."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_kafka.client import Connection
from klamm_kafka.wire.messages import alter_share_group_offsets as alter_share
from klamm_kafka.wire.messages import delete_records as records
from klamm_kafka.wire.messages import delete_share_group_offsets as delete_share
from klamm_kafka.wire.messages import offset_commit as commit
from klamm_kafka.wire.messages import offset_delete
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture
async def client(tmp_path):
    text = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    loop = asyncio.get_running_loop()
    broker = Broker(BrokerConfig.load(text), loop)
    server = Server(broker, loop)
    broker.listeners = {listener.name: listener for listener in server.bind()}
    broker.open()
    server.serve()
    async with await Connection.open("127.0.0.1", broker.listeners["PLAINTEXT"].port) as connection:
        yield connection
    server.quiesce()
    await server.drain(1)
    await broker.close()


@pytest.fixture
def changes(caplog):
    """Returns the lines since the last call, without who and where."""
    caplog.set_level(logging.INFO, "klamm.audit")

    def taken() -> list[dict]:
        lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "klamm.audit"]
        caplog.clear()
        for line in lines:
            assert line.pop("principal") == "User:ANONYMOUS"
            assert line.pop("peer").startswith("127.0.0.1:")
            assert line.pop("listener") == "PLAINTEXT"
        return lines

    return taken


async def create(client: Connection) -> None:
    answer = await client.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert answer.topics[0].error_code == 0


async def test_topics_that_are_made_by_asking(client, changes):
    await create(client)
    assert changes() == [{"event": "topics changed", "created": ["t"]}]
    await create(client)
    assert changes() == []


async def test_deleted_records(client, changes):
    await create(client)
    changes()
    asked = [records.DeleteRecordsPartition(partition_index=index, offset=-1) for index in (0, 7)]
    topics = [records.DeleteRecordsTopic(name=name, partitions=asked) for name in ("t", "none")]
    topics.insert(1, records.DeleteRecordsTopic(name="t", partitions=asked[1:]))  # hides nothing
    await client.request(records.DeleteRecordsRequest(topics=topics, timeout_ms=1))
    assert changes() == [{"event": "records changed", "deleted": {"t": {"0": 0}}}]
    await client.request(records.DeleteRecordsRequest(topics=topics[2:], timeout_ms=1))
    assert changes() == []


async def test_deleted_offsets_and_groups(client, changes):
    await create(client)
    at = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=None)
    topic = commit.OffsetCommitRequestTopic(name="t", partitions=[at])
    answer = await client.request(commit.OffsetCommitRequest(group_id="g", member_id="", topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == 0
    changes()
    gone = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)]
    request = offset_delete.OffsetDeleteRequest(
        group_id="g", topics=[offset_delete.OffsetDeleteRequestTopic(name="t", partitions=gone)]
    )
    await client.request(request)
    assert changes() == [{"event": "offsets changed", "group": "g", "deleted": {"t": [0]}}]
    request.group_id = "none"
    await client.request(request)
    assert changes() == []
    await client.request(commit.OffsetCommitRequest(group_id="g", member_id="", topics=[topic]), 8)
    await client.request(DeleteGroupsRequest(groups_names=["g", "none"]))
    assert changes() == [{"event": "groups changed", "deleted": ["g"]}]


async def test_offsets_of_share_groups(client, changes):
    await create(client)
    changes()
    at = alter_share.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topics = [
        alter_share.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[at])
        for name in ("t", "none")
    ]
    request = alter_share.AlterShareGroupOffsetsRequest(group_id="s", topics=topics)
    await client.request(request)
    assert changes() == [{"event": "offsets changed", "group": "s", "set": {"t": {"0": 0}}}]
    names = [delete_share.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "none")]
    await client.request(delete_share.DeleteShareGroupOffsetsRequest(group_id="s", topics=names))
    assert changes() == [{"event": "offsets changed", "group": "s", "deleted": ["t"]}]
    await client.request(delete_share.DeleteShareGroupOffsetsRequest(group_id="none", topics=names))
    assert changes() == []


async def test_whoever_switches_the_audit_log_off_or_on_is_told_of(client, changes):
    async def level(text: str) -> None:
        config = AlterableConfig(name="klamm.audit", config_operation=0, value=text)
        resource = AlterConfigsResource(
            resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configs=[config]
        )
        answer = await client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0

    await level("ERROR")
    told = {
        "event": "configurations changed",
        "resource_type": "BROKER_LOGGER",
        "resource": "1",
        "keys": ["klamm.audit"],
    }
    assert changes() == [told]
    await create(client)
    assert changes() == []
    await level("INFO")
    assert changes() == [told]
