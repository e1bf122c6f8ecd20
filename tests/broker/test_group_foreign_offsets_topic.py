"""`__consumer_offsets` made by somebody else, with another number of partitions: groups live in what there is."""

from __future__ import annotations

import pytest
from support.broker import new_topic, wait_until
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

GROUPS = [f"group-{i}" for i in range(20)]


@pytest.fixture
def running(processes, tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        yield broker


def create_offsets_topic(client, partitions):
    topic = CreatableTopic(
        name="__consumer_offsets", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert answer.topics[0].error_code == 0


def commit(client, group, topic, offset):
    where = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[where])],
    )
    return client.request(request, 8).topics[0].partitions[0].error_code


def committed(client, group, topic):
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    answer = wait_until(
        lambda: (a := client.request(request, 7)).error_code != E.COORDINATOR_LOAD_IN_PROGRESS and a, "loaded"
    )
    assert answer.error_code == 0
    return answer.topics[0].partitions[0].committed_offset


def test_created_by_a_client(running):
    topic = new_topic(running)
    with RawClient(running.port) as client:
        create_offsets_topic(client, 3)
        assert {commit(client, group, topic, 5) for group in GROUPS} == {0}
    running.stop()
    running.start()
    with RawClient(running.port) as client:
        assert {committed(client, group, topic) for group in GROUPS} == {5}


def test_created_again_while_groups_live(running):
    topic = new_topic(running)
    with RawClient(running.port) as client:
        assert {commit(client, group, topic, 5) for group in GROUPS} == {0}
        gone = DeleteTopicState(name="__consumer_offsets", topic_id=bytes(16))
        answer = client.request(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6)
        assert answer.responses[0].error_code == 0
        create_offsets_topic(client, 2)
        assert {commit(client, group, topic, 6) for group in GROUPS} == {0}
    running.stop()
    running.start()
    with RawClient(running.port) as client:
        assert {committed(client, group, topic) for group in GROUPS} == {6}
