"""Asks leaders about many partitions at a time: one request for each leader, whatever the number of partitions.

An answer is a value or an error for each partition. An error of a whole request is that of each partition in it, so that a
broker that is away holds up no partitions of others. Raises ClientError where no repetition helps.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from klamm_kafka.client import BrokerError, ClientError, Cluster, Connection, ConnectionLost, broker_error
from klamm_kafka.wire.batch import read_header
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

DELETE_TIMEOUT_MS: Final = 30_000
EPOCH_BYTES: Final = 64 * 1024
"""The bytes of a partition's last batch for which an answer has room. The first of an answer may be larger."""
ANSWER_BYTES: Final = 16 << 20
WAIT_MS: Final = 250
_FETCH_VERSION: Final = 12
"""The last version of Fetch in which topics have names."""

Place = tuple[str, int]
"""Topic and partition."""
_T = TypeVar("_T")
Found = dict[Place, _T | ClientError]


async def ask_leaders(
    cluster: Cluster,
    places: Iterable[Place],
    ask: Callable[[Connection, list[Place]], Awaitable[Found[_T]]],
) -> Found[_T]:
    """Calls `ask` once for each leader, with the partitions that it leads. After an error, leaders are asked for again."""
    places = list(places)
    if any(cluster.leader_id(*place) is None for place in places):
        await cluster.refresh(sorted({topic for topic, _ in places}))
    found: Found[_T] = {}
    by_leader: dict[int, list[Place]] = defaultdict(list)
    for place in places:
        node = cluster.leader_id(*place)
        if node is None or node < 0:
            found[place] = cluster.no_leader(*place)
        else:
            by_leader[node].append(place)

    async def of(node: int, theirs: list[Place]) -> Found[_T]:
        try:
            answer = await ask(await cluster.broker(node), theirs)
        except ClientError as e:
            if not e.retriable and not isinstance(e, BrokerError):
                raise
            return dict.fromkeys(theirs, e)
        return {p: answer.get(p, ConnectionLost("an answer without the partition")) for p in theirs}

    for part in await asyncio.gather(*(of(node, theirs) for node, theirs in by_leader.items())):
        found |= part
    if any(isinstance(answer, ClientError) and answer.retriable for answer in found.values()):
        cluster.metadata = None
    return found


async def offsets_at(cluster: Cluster, wanted: Mapping[Place, int], *, committed: bool = False) -> Found[int]:
    """Returns an offset of each partition: its first (EARLIEST), the one after its last record (LATEST), or that of the first
    record from a timestamp on (-1: there is none). `committed`: an end lies before the first open transaction.
    """

    async def ask(connection: Connection, theirs: list[Place]) -> Found[int]:
        return await offsets_by(connection, {place: wanted[place] for place in theirs}, committed=committed)

    return await ask_leaders(cluster, wanted, ask)


async def offsets_by(
    connection: Connection, wanted: Mapping[Place, int], *, committed: bool = False
) -> Found[int]:
    """Returns the same as one broker tells it, which leads the partitions. Leaves out what is not in its answer."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=n, timestamp=wanted[topic, n]) for n in numbers],
        )
        for topic, numbers in _by_topic(wanted).items()
    ]  # fmt: skip
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
    answer = await connection.request(request)
    return {
        (t.name, p.partition_index): _value(
            p.offset, p.error_code, f"offsets of {t.name}-{p.partition_index}"
        )
        for t in answer.topics
        for p in t.partitions
    }


async def delete_before(cluster: Cluster, wanted: Mapping[Place, int]) -> Found[int]:
    """Deletes the records before an offset of each partition. Returns the log starts."""

    async def ask(connection: Connection, theirs: list[Place]) -> Found[int]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=n, offset=wanted[topic, n]) for n in numbers],
            )
            for topic, numbers in _by_topic(theirs).items()
        ]  # fmt: skip
        request = DeleteRecordsRequest(topics=topics, timeout_ms=DELETE_TIMEOUT_MS)
        answer = await connection.request(request, timeout_s=DELETE_TIMEOUT_MS / 1000 + 5)
        return {
            (place := (t.name, p.partition_index)): _value(
                p.low_watermark, p.error_code,
                f"deleting the records of {t.name}-{p.partition_index} before offset {wanted[place]}",
            )
            for t in answer.topics
            for p in t.partitions
        }  # fmt: skip

    return await ask_leaders(cluster, wanted, ask)


async def epochs_before(cluster: Cluster, wanted: Mapping[Place, int]) -> Found[int]:
    """Returns the leader epoch of the last record before an offset of each partition; -1 where there is none.

    An answer has room for the batches of many partitions, but perhaps not of all: the others are asked for again.
    """
    found: Found[int] = {}
    while left := [place for place in wanted if place not in found]:
        answer = await ask_leaders(cluster, left, lambda c, theirs: _fetch_epochs(c, theirs, wanted))
        found |= {place: epoch for place, epoch in answer.items() if epoch != -1}
        if all(epoch == -1 for epoch in answer.values()):
            found |= answer
    return found


async def _fetch_epochs(
    connection: Connection, theirs: list[Place], wanted: Mapping[Place, int]
) -> Found[int]:
    """Asks for one batch of each partition. Returns -1 for those that the answer has no whole header of."""
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(partition=n, fetch_offset=wanted[topic, n] - 1, partition_max_bytes=EPOCH_BYTES)
                for n in numbers
            ],
        )
        for topic, numbers in _by_topic(theirs).items()
    ]  # fmt: skip
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=ANSWER_BYTES, topics=topics)
    answer = await connection.request(request, min(connection.version_for(FetchRequest), _FETCH_VERSION))
    return {
        (t.topic, p.partition_index): _value(
            read_header(p.records).leader_epoch if p.records else -1,
            p.error_code,
            f"reading the end of {t.topic}-{p.partition_index}",
        )
        for t in answer.responses
        for p in t.partitions
    }


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


def _value(value: Any, code: int, what: str) -> Any:
    return broker_error(code, what) if code else value
