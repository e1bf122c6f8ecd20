"""The brokers that partitions are read from: leaders, and the replicas that these name. Pure."""

from __future__ import annotations

import pytest

from klamm_kafka.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm_mirror.copy.fetch_settings import NEAREST_MS, FetchSettings
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import SourceMetadata

NEAREST_S = NEAREST_MS / 1000
NEAR, OTHER = ("t", 0), ("t", 1)


def answer(
    *, leader: int = 1, epoch: int = 5, alive: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)
) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=list(replicas),
            offline_replicas=[node for node in replicas if node not in alive],
        )
        for number in range(2)
    ]  # fmt: skip
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=1) for node in alive],
        topics=[MetadataResponseTopic(name="t", topic_id=b"1" * 16, partitions=partitions)],
    )


@pytest.fixture
def metadata() -> SourceMetadata:
    found = SourceMetadata()
    found.learn(answer(), 0.0)
    assert found.read_from(NEAR, 2, 10.0)
    return found


def test_a_partition_stays_at_its_replica_while_others_make_the_metadata_stale(metadata):
    changes = metadata.changes
    for now in (11.0, 100.0, 10 + NEAREST_S - 1):
        metadata.learn(answer(), now)
        assert (metadata.broker(NEAR), metadata.broker(OTHER)) == (2, 1)
    assert metadata.changes == changes


@pytest.mark.parametrize(
    ("news", "now", "expected"),
    [
        ({}, 10 + NEAREST_S, 1),  # the leader is asked again: another replica may be nearer by now
        ({"epoch": 6}, 20.0, 1),
        ({"leader": 3, "epoch": 6, "alive": (2, 3)}, 20.0, 3),
        ({"alive": (1,)}, 20.0, 1),
        ({"replicas": (1, 3), "alive": (1, 2, 3)}, 20.0, 1),
    ],
)
def test_a_partition_goes_back_to_its_leader(metadata, news, now, expected):
    changes = metadata.changes
    metadata.learn(answer(**news), now)
    assert metadata.broker(NEAR) == expected
    assert metadata.changes == changes + 1
    assert not metadata.leave_replica(NEAR)


def test_a_replica_is_the_nearest_for_the_age_of_metadata():
    """As in Kafka's consumer, whose default is another one than that of our metadata."""
    assert (FetchSettings.of({}, 500).nearest_s, FetchSettings.of({}, 500).metadata_s) == (300.0, 30.0)
    settings = FetchSettings.of({"metadata.max.age.ms": "60000"}, 500)
    assert (settings.nearest_s, settings.metadata_s) == (60.0, 60.0)
    found = SourceMetadata(settings.nearest_s)
    found.learn(answer(), 0.0)
    found.read_from(NEAR, 2, 10.0)
    found.learn(answer(), 69.0)
    assert found.broker(NEAR) == 2
    found.learn(answer(), 70.0)
    assert found.broker(NEAR) == 1


def test_a_replica_that_refuses_is_left_until_it_is_named_again(metadata):
    assert metadata.leave_replica(NEAR)
    assert metadata.stale
    metadata.learn(answer(), 20.0)
    assert metadata.broker(NEAR) == 1
    assert not metadata.read_from(NEAR, 2, 21.0)  # the same as before
    assert metadata.broker(NEAR) == 2


async def test_a_new_position_is_asked_for_at_the_leader_only(metadata):
    """A follower answers NOT_LEADER_OR_FOLLOWER about the ends of epochs."""
    partition = MirrorPartition(topic="t", partition=0, remote="A.t", named="A.t")
    partition.epoch = 5
    check = SourceCheck(None, [partition])  # type: ignore[arg-type]
    assert await check.validate(None, [partition], metadata) == []  # type: ignore[arg-type]
    assert metadata.stale
    assert partition.reading.why is None
    metadata.learn(answer(), 20.0)
    assert metadata.broker(NEAR) == 1
    partition.checked = 5  # by the leader
    metadata.read_from(NEAR, 2, 21.0)
    assert await check.validate(None, [partition], metadata) == [partition]  # type: ignore[arg-type]
    assert metadata.broker(NEAR) == 2
