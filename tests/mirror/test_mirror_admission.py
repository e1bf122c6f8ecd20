"""Partitions join a transaction, or wait, by metadata, acknowledgements and the topic's setting."""

from __future__ import annotations

import pytest

from klamm_kafka.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm_mirror.copy.admission import CONFIG_S, FRESH_S, Admission
from klamm_mirror.copy.partition import MirrorPartition


def partition(*, scarce: bool = False) -> MirrorPartition:
    return MirrorPartition(topic="t", partition=0, remote="A.t", scarce=scarce)


def metadata(in_sync: int, replicas: int) -> MetadataResponse:
    place = MetadataResponsePartition(
        partition_index=0, isr_nodes=list(range(in_sync)), replica_nodes=list(range(replicas))
    )
    return MetadataResponse(topics=[MetadataResponseTopic(name="A.t", partitions=[place])])


@pytest.mark.parametrize(
    ("in_sync", "replicas", "min_isr", "scarce", "lack"),
    [
        (3, 3, 2, False, None),
        (2, 3, 2, False, None),
        (1, 3, 2, False, "A.t-0 has 1 replica in sync, and needs 2 (min.insync.replicas)"),
        (0, 3, 1, False, "A.t-0 has 0 replicas in sync, and needs 1 (min.insync.replicas)"),
        (1, 1, 2, False, None),  # Apache Kafka never wants more than there are
        (1, 1, 2, True, "A.t-0 has 1 replica in sync, and needs 2 (min.insync.replicas)"),
        (1, 1, 1, True, None),
    ],
)
def test_a_partition_joins_with_as_many_replicas_in_sync_as_it_needs(
    in_sync, replicas, min_isr, scarce, lack
):
    admission, p = Admission(), partition(scarce=scarce)
    assert not admission.knows(p, 100)
    admission.learned(metadata(in_sync, replicas), 100)
    asked = admission.topics_to_ask([p], 100)
    assert asked == ([] if in_sync == replicas and not scarce else ["A.t"])
    assert admission.knows(p, 100) is not bool(asked)
    admission.configured(dict.fromkeys(asked, min_isr), 100)
    assert admission.knows(p, 100)
    assert admission.lack(p) == lack
    assert not admission.knows(p, 100 + FRESH_S)
    admission.learned(metadata(in_sync, replicas), 100 + CONFIG_S)
    assert admission.topics_to_ask([p], 100 + CONFIG_S) == asked


def test_a_partition_that_was_acknowledged_a_moment_ago_joins_without_a_question():
    admission, p = Admission(), partition()
    admission.learned(metadata(1, 2), 100)
    admission.configured({"A.t": 2}, 100)
    admission.acked(p, 101)
    assert admission.knows(p, 101)
    assert admission.lack(p) is None
    assert not admission.knows(p, 101 + FRESH_S)
    admission.learned(metadata(1, 2), 102)
    assert admission.lack(p) is not None
