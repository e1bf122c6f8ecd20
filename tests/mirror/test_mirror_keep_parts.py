"""Parts of flows that keep offsets, without brokers: where a copy goes on, which log starts move, unknown leader epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from klamm_mirror.copy.copies import LOOK_PARTITIONS, BeginAgain, Copies
from klamm_mirror.copy.keeping_sender import KeepingSender
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import SourceMetadata
from klamm_mirror.raw import Batch
from klamm_mirror.settings.keep_offsets import MIRROR
from klamm_mirror.stops import Kind

NOWHERE = "127.0.0.1:1"


def copy_of(number: int = 0, **more: Any) -> MirrorPartition:
    partition = MirrorPartition(topic="t", partition=number, remote="t", named="t", whole=True, **more)
    partition.begin(1000)
    return partition


def test_a_copy_goes_on_at_its_end_which_is_asked_for():
    partition = copy_of(copy_start=0, copy_end=1000, copy_id=b"1" * 16)
    partition.move(1200, (-1, -1))  # a range is left out
    assert (partition.position, partition.copy_end, partition.copy_id) == (1200, 1000, b"1" * 16)
    partition.move(-1, (-1, -1))
    assert (partition.position, partition.done) == (-1, -1)
    assert (partition.copy_start, partition.copy_end, partition.copy_id) == (-1, -1, None)


def test_an_acknowledgement_after_the_promotion_leaves_nothing_buffered():
    partition = copy_of()
    partition.add([Batch(bytearray(10), 1000, 1000, 1, 0, 0)], 1001)
    batch = partition.take(0.0)
    assert batch is not None
    partition.promote()
    partition.acked(batch, 1000, 0)
    assert partition.buffered == 0


class Starts(Copies):
    """Copies whose first partition cannot be moved."""

    async def _set_starts(self, wanted: Mapping[MirrorPartition, int]) -> dict[MirrorPartition, ClientError]:
        for partition, offset in wanted.items():
            if partition.partition:
                partition.copy_start = offset
        return {p: broker_error(ErrorCode.POLICY_VIOLATION, "no") for p in wanted if p.partition == 0}


async def test_log_starts_move_one_by_one_and_only_those_of_mirror_topics():
    partitions = [copy_of(number, copy_start=0, copy_end=1000, source_start=500) for number in range(3)]
    copies = Starts(Cluster(NOWHERE), Cluster(NOWHERE), partitions)
    await copies._move_starts(partitions)  # their states are not known
    assert [p.copy_start for p in partitions] == [0, 0, 0]
    copies._states["t"] = MIRROR
    with pytest.raises(BrokerError):
        await copies._move_starts(partitions)
    assert [p.copy_start for p in partitions] == [0, 500, 500]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_copy_with_an_epoch_that_its_source_never_had_is_not_continued(whole):
    class Leader:
        async def request(self, request: object) -> OffsetForLeaderEpochResponse:
            end = EpochEndOffset(partition=0, error_code=0, leader_epoch=-1, end_offset=-1)
            return OffsetForLeaderEpochResponse(
                topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
            )

    partition = copy_of(epoch=7)
    partition.whole = whole
    check = SourceCheck(Cluster(NOWHERE), [partition])
    metadata = SourceMetadata()
    metadata.epochs = {("t", 0): 3}
    fit = await check.validate(Leader(), [partition], metadata)
    assert fit == []
    assert partition.stopped is not None
    assert partition.stopped.kind is Kind.TRUNCATED
    assert ("Delete it at the target" in partition.stopped.why) is whole


async def test_a_leader_that_changes_while_the_former_one_answers_is_asked_before_a_fetch():
    metadata = SourceMetadata()

    class Leader:
        async def request(self, request: object) -> OffsetForLeaderEpochResponse:
            if metadata.epochs["t", 0] == 3:
                metadata.epochs = {("t", 0): 4}
            end = EpochEndOffset(partition=0, error_code=0, leader_epoch=2, end_offset=1000)
            return OffsetForLeaderEpochResponse(
                topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
            )

    partition = copy_of(epoch=2)
    check = SourceCheck(Cluster(NOWHERE), [partition])
    metadata.epochs = {("t", 0): 3}
    assert await check.validate(Leader(), [partition], metadata) == []
    assert await check.validate(Leader(), [partition], metadata) == [partition]


async def test_a_failed_parcel_makes_the_sender_ask_for_the_end_again(monkeypatch):
    partition = copy_of(copy_end=1000)
    sender = KeepingSender.__new__(KeepingSender)
    sender._known = {partition: object()}
    sender.failed(partition, broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "producing"))
    assert sender._known == {}
    with pytest.raises(BeginAgain):
        sender.failed(partition, broker_error(ErrorCode.UNKNOWN_TOPIC_ID, "producing"))


def test_many_copies_are_looked_at_in_turn():
    sizes = {"a": 150, "b": 40, "c": 20, "d": 500, "e": 1, "f": 1}
    all_ = [MirrorPartition(topic=t, partition=n, remote=t) for t, size in sizes.items() for n in range(size)]
    looked_at = Copies(None, None, all_)  # type: ignore[arg-type]

    def turns(count: int) -> list[str]:
        return ["".join(sorted({p.remote for p in looked_at._due()})) for _ in range(count)]

    assert turns(6) == ["ab", "c", "d", "abef", "c", "d"]
    for partition in all_:
        partition.promoted = partition.topic == "d"
    assert turns(3) == ["abef", "acef", "bcef"], "nothing copies to d any more"


def test_some_copies_are_looked_at_each_time():
    few = [MirrorPartition(topic=f"t{n}", partition=0, remote=f"t{n}") for n in range(LOOK_PARTITIONS)]
    looked_at = Copies(None, None, few)  # type: ignore[arg-type]
    assert set(looked_at._due()) == set(looked_at._due()) == set(few)
