"""Checks that the source still has the log that a partition was read from; stops the partition where it has another one.

* A topic that was deleted and made again has another id. `identify` compares it with the id of the committed offset,
  whatever the two topics' lengths are.
* A log that lost its end keeps its topic id. Its leader's epoch has grown, and the earlier epoch ends before our
  position (KIP-320). `validate` asks for that end whenever the epoch has grown.
* A range that the source deleted shows when it is fetched: `out_of_range`.

One event loop.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from klamm_kafka.client import ClientError, Cluster, Connection
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.metadata import MetadataResponseTopic
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_metadata import SourceMetadata
from klamm_mirror.stops import Kind, Stop
from klamm_mirror.topic_ids import to_text
from klamm_mirror.topics import internal_topics, leaders

log = logging.getLogger(__name__)

GONE_S: Final = 5.0
"""Seconds for which a source must deny a topic before it counts as deleted: a broker that starts may not know it yet."""
_RENAMED: Final = frozenset({Kind.RECREATED, Kind.DELETED})


class SourceCheck:
    """The checks of one task. `meta` is a client of the source for questions."""

    def __init__(self, meta: Cluster, partitions: Sequence[MirrorPartition]) -> None:
        self._meta = meta
        self._by_topic: dict[str | None, list[MirrorPartition]] = defaultdict(list)
        for partition in partitions:
            self._by_topic[partition.topic].append(partition)
        self._absent: dict[str, float] = {}

    # ---- topics

    def identify(self, topic: MetadataResponseTopic, now: float) -> list[MirrorPartition]:
        """Compares a topic in a metadata answer with what was read. Returns partitions that got their id by it."""
        ours = self._by_topic.get(topic.name, [])
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            since = self._absent.setdefault(topic.name or "", now)
            if now - since >= GONE_S:
                for partition in ours:
                    _deleted(partition, "the topic was deleted at the source")
            return []
        self._absent.pop(topic.name or "", None)
        if topic.error_code or topic.topic_id == UUID_ZERO:
            return []
        there = {p.partition_index for p in topic.partitions}
        adopted = []
        for partition in ours:
            if partition.topic_id is None:
                partition.topic_id = topic.topic_id
                adopted.append(partition)
            elif topic.topic_id == partition.topic_id:
                _is_back(partition)
            elif topic.topic_id not in partition.former_ids:
                _recreated(partition, topic.topic_id, there=partition.partition in there)
        return adopted

    # ---- logs

    async def validate(
        self, connection: Connection, wanted: Sequence[MirrorPartition], metadata: SourceMetadata
    ) -> list[MirrorPartition]:
        """Asks the leader where earlier epochs ended. Returns the partitions that may be fetched. Raises ClientError.

        A replica does not know: a partition that is read from one goes back to its leader. A leader that changes while the
        former one answers is asked the next time.
        """
        doubtful = [p for p in wanted if _doubtful(p, metadata)]
        if not doubtful:
            return list(wanted)
        refused = {p for p in doubtful if metadata.leave_replica(p.key)}
        if asked := [p for p in doubtful if p not in refused]:
            refused |= await self._compare(connection, asked, {p.key: metadata.epochs[p.key] for p in asked})
        return [p for p in wanted if p.stopped is None and p not in refused and not _doubtful(p, metadata)]

    async def _compare(
        self, connection: Connection, asked: Sequence[MirrorPartition], current: Mapping[tuple[str, int], int]
    ) -> set[MirrorPartition]:
        """Asks a leader, by its current epochs. Returns the partitions without an answer."""
        request = OffsetForLeaderEpochRequest(topics=_topics(asked, current))
        answer: OffsetForLeaderEpochResponse = await connection.request(request)
        ends = {(t.topic, e.partition): e for t in answer.topics for e in t.partitions}
        refused: set[MirrorPartition] = set()
        for partition in asked:
            key = partition.topic, partition.partition
            end = ends.get(key)
            if end is None or end.error_code:
                refused.add(partition)
                partition.reading.failed(
                    time.monotonic(), f"no answer about the leader epochs ({end and end.error_code})"
                )
            elif 0 <= end.end_offset < partition.position:
                _truncated(partition, end.end_offset)
            elif end.end_offset < 0:
                _other_log(partition)
            else:
                partition.checked = current[key]
        return refused

    async def out_of_range(self, partition: MirrorPartition) -> None:
        """Finds out why the source does not have the position. Raises BrokerError."""
        first = await self.offset(partition, EARLIEST)
        end = await self.offset(partition, LATEST)
        if not await self._is_same(partition):
            return  # these were the offsets of another topic: the metadata tell the rest
        if partition.position < first:
            _stop(
                partition, Kind.PURGED, start=partition.position, end=first,
                why=f"the source deleted offsets {partition.position} to {first - 1} "
                f"({first - partition.position} of them) before they were read",
            )  # fmt: skip
        elif partition.position <= end:
            partition.reading.failed(time.monotonic(), f"{partition.position} is not an offset yet")
        else:
            _truncated(partition, end)

    async def offset(self, partition: MirrorPartition, which: int) -> int:
        """Returns the first or the end offset. Raises BrokerError."""
        return await internal_topics.offset_of(
            self._meta, partition.topic, which, partition=partition.partition
        )

    async def offsets(
        self, wanted: Mapping[MirrorPartition, int]
    ) -> dict[MirrorPartition, int | ClientError]:
        """Returns an offset of each partition (see `leaders.offsets_at`), or the error."""
        found = await leaders.offsets_at(self._meta, {p.key: which for p, which in wanted.items()})
        return {p: found[p.key] for p in wanted}

    async def _is_same(self, partition: MirrorPartition) -> bool:
        found = next((t for t in (await self._meta.refresh([partition.topic])).topics), None)
        return found is not None and not found.error_code and (
            partition.topic_id is None or found.topic_id in {partition.topic_id, UUID_ZERO}
        )  # fmt: skip


def unreadable(partition: MirrorPartition, why: str) -> None:
    """Stops a partition that the source does not give, or that nobody can decode."""
    _stop(partition, Kind.UNREADABLE, start=max(partition.position, 0), end=None, why=why, passing=True)


def refused_record(partition: MirrorPartition, offset: int, why: str) -> None:
    """Stops a partition at a record that may not be copied as it is."""
    _stop(partition, Kind.REFUSED, start=offset, end=offset + 1, why=why)


def _topics(
    partitions: Sequence[MirrorPartition], epochs: Mapping[tuple[str, int], int]
) -> list[OffsetForLeaderTopic]:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for p in partitions:
        topic = topics.setdefault(p.topic, OffsetForLeaderTopic(topic=p.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=p.partition,
                current_leader_epoch=epochs[p.topic, p.partition],
                leader_epoch=p.epoch,
            )
        )
    return list(topics.values())


def _truncated(partition: MirrorPartition, end: int) -> None:
    was = partition.position
    _stop(
        partition, Kind.TRUNCATED, start=end, end=was,
        why=f"the source's log lost its end: it went on at offset {end}, the mirror has read up to {was}. The copy "
        f"holds {was - end} offsets that the source no longer has; offsets from {end} on may hold other records now",
    )  # fmt: skip


def _doubtful(partition: MirrorPartition, metadata: SourceMetadata) -> bool:
    """Returns True while the present leader did not confirm what was read."""
    return partition.epoch >= 0 and partition.checked < metadata.epochs.get(partition.key, -1)


def _other_log(partition: MirrorPartition) -> None:
    """Stops a partition that has read a leader epoch which the source never had, or has no more."""
    known = f"the source does not know leader epoch {partition.epoch}, which the last record of {partition.remote} has"
    if partition.whole:
        why = "the copy is not one of this log. Delete it at the target, and it is copied anew"
    else:
        why = "it lost that record, or is another log under the same name"
    _stop(partition, Kind.TRUNCATED, start=partition.position, end=partition.position, why=f"{known}: {why}")


def _recreated(partition: MirrorPartition, new_id: bytes, *, there: bool) -> None:
    assert partition.topic_id is not None
    ids = f"id {to_text(partition.topic_id)} became {to_text(new_id)}"
    if not there:
        _deleted(partition, f"the topic was made anew without this partition ({ids})")
        return
    stop = partition.stopped
    if stop is not None and (stop.kind is Kind.REFUSED or stop.new_id == new_id):
        return  # what the target refused is decided first
    partition.stopped = None
    partition.gone = False
    _stop(
        partition, Kind.RECREATED, start=max(partition.done, 0), end=_known_end(partition), new_id=new_id,
        why=f"the topic was deleted at the source and made anew ({ids})",
    )  # fmt: skip


def _deleted(partition: MirrorPartition, why: str) -> None:
    if partition.gone or (partition.topic_id is None and partition.done < 0):
        return
    if partition.stopped is not None and partition.stopped.kind in {*_RENAMED, Kind.REFUSED}:
        return
    partition.stopped = None
    _stop(partition, Kind.DELETED, start=max(partition.done, 0), end=_known_end(partition), why=why)


def _is_back(partition: MirrorPartition) -> None:
    """Goes on with a topic that a broker did not know for a while."""
    if partition.gone or (partition.stopped is not None and partition.stopped.kind in _RENAMED):
        log.info("%s is there again", partition)
        partition.gone, partition.stopped = False, None


def _known_end(partition: MirrorPartition) -> int | None:
    return None if partition.high_watermark < 0 else max(partition.high_watermark, partition.done, 0)


def _stop(
    partition: MirrorPartition, kind: Kind, *, start: int, end: int | None, why: str, new_id: bytes | None = None,
    passing: bool = False,
) -> None:  # fmt: skip
    if partition.stopped is not None:
        return
    log.error("%s stops: %s", partition, why)
    now_ms = time.time_ns() // 1_000_000
    partition.stopped = Stop(
        kind=kind, start=start, end=end, why=why, since_ms=now_ms, new_id=new_id, passing=passing
    )
