"""StreamsGroupHeartbeat and StreamsGroupDescribe of a real broker, also after `kill -9`."""

from __future__ import annotations

import pytest
from support.broker import wait_until
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm_kafka.wire.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

CONFIG = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}


@pytest.fixture
def broker(processes, tmp_path):
    with EmbeddedBroker(tmp_path / "data", config=CONFIG) as running:
        yield running


def beat(client, epoch, **more):
    if epoch == 0:
        log = TopicInfo(name="app-log", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
        made = Subtopology(subtopology_id="0", source_topics=["in"], state_changelog_topics=[log])
        more = {
            "rebalance_timeout_ms": 60_000, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": "p",
            "client_tags": [], "topology": Topology(epoch=0, subtopologies=[made]), **more,
        }  # fmt: skip
    request = StreamsGroupHeartbeatRequest(group_id="app", member_id="m", member_epoch=epoch, **more)
    return client.request(request, 0)


def describe(client):
    return client.request(StreamsGroupDescribeRequest(group_ids=["app"]), 0).groups[0]


def create(client, name, partitions):
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert client.request(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def start(client):
    """Joins; returns the epoch in which the member has its tasks."""
    create(client, "in", 3)
    told = beat(client, 0)
    assert [s.status_detail for s in told.status] == ["Internal topics are missing: app-log"]
    answers = [told]

    def assigned():
        answers.append(beat(client, answers[-1].member_epoch))
        return answers[-1].active_tasks

    assert [t.partitions for t in wait_until(assigned, "the tasks")] == [[0, 1, 2]]
    return answers[-1].member_epoch


def test_internal_topics_are_made_with_their_configuration(broker):
    with RawClient(broker.port) as client:
        start(client)
        asked = DescribeConfigsResource(resource_type=2, resource_name="app-log")
        configs = client.request(DescribeConfigsRequest(resources=[asked]), 4).results[0].configs
        assert {c.value for c in configs if c.name == "cleanup.policy"} == {"compact"}
        listed = client.request(ListGroupsRequest(types_filter=["streams"]), 5).groups
        assert [(g.group_id, g.group_type, g.protocol_type) for g in listed] == [
            ("app", "streams", "streams")
        ]


def test_a_group_lives_on_after_kill_9(broker):
    with RawClient(broker.port) as client:
        epoch = start(client)
        before = describe(client)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        wait_until(lambda: describe(client).error_code == 0, "the group")
        assert beat(client, epoch).error_code == 0
        assert describe(client) == before


def test_the_feature_switches_it_off(broker):
    with RawClient(broker.port) as client:
        start(client)
        off = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        assert client.request(UpdateFeaturesRequest(feature_updates=[off]), 1).error_code == 0
        assert beat(client, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert describe(client).error_code == ErrorCode.UNSUPPORTED_VERSION
