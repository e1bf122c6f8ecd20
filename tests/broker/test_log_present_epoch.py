"""The leader's present epoch is known before its first record, so that consumers do not start over."""

from __future__ import annotations

import pytest
from support.broker import new_topic
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.mark.parametrize(
    ("wrote", "present", "asked", "answer"),
    [
        ([], 0, 0, (0, 9)),
        ([], 3, 1, (1, 9)),
        ([(0, 0)], 2, 2, (2, 9)),
        ([(0, 0)], 2, 1, (0, 9)),
        ([(0, 0)], 2, 0, (0, 9)),
        ([(0, 0), (2, 5)], 2, 1, (0, 5)),
        ([(0, 0)], 2, 3, (-1, -1)),
        ([(0, 0)], 2, -1, (-1, -1)),
        ([], -1, 0, (-1, -1)),
    ],
)
def test_epochs_without_records(tmp_path, wrote, present, asked, answer):
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint", wrote)
    assert cache.end_offset(asked, 9, present) == answer


@pytest.mark.usefixtures("processes")
def test_a_place_learned_before_a_restart_is_known_after_it(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker)
        broker.stop()
        broker.start()
        part = ListOffsetsPartition(partition_index=0, timestamp=-1)
        asked = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])], timeout_ms=5000
        )
        with RawClient(broker.port) as client:
            place = client.request(asked, 10).topics[0].partitions[0]
        broker.stop()
        broker.start()
        part = OffsetForLeaderPartition(partition=0, leader_epoch=place.leader_epoch)
        asked = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])]
        )
        with RawClient(broker.port) as client:
            known = client.request(asked, 4).topics[0].partitions[0]
        assert place.leader_epoch > 0
        assert (known.leader_epoch, known.end_offset) == (place.leader_epoch, place.offset)
