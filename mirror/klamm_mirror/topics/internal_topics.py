"""The mirror's own topics, with one partition, compaction and small records: creates, reads and writes them.

They hold offset syncs, checkpoints and heartbeats, not mirrored data. Every function waits for the broker's
answer and leaves retries to its caller's loop. Raises ClientError.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, Protocol

from klamm_base.backoff import Backoff
from klamm_kafka.client import BrokerError, ClientError, Cluster, Connection, broker_error
from klamm_kafka.wire.batch import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
)
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_kafka.wire.struct import Message
from klamm_mirror.raw import Aborted, whole_batches
from klamm_mirror.target_admin import Admin
from klamm_mirror.topics import leaders
from klamm_plugins.mirror import NewTopic

log = logging.getLogger(__name__)

ACKS_ALL: Final = -1
FETCH_BYTES: Final = 1024 * 1024
WAIT_MS: Final = 250
KNOWN_FIRST_S: Final = 0.01
KNOWN_LONGEST_S: Final = 0.1
KNOWN_S: Final = 5.0
"""The time that brokers have to hear of a new topic."""
PRODUCE_TIMEOUT_MS: Final = 30_000
# The last versions in which topics have names; later versions know them by id only.
_FETCH_VERSION: Final = 12
_PRODUCE_VERSION: Final = 12
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Entry(Protocol):
    """Something that is written as a record."""

    def encode(self) -> tuple[bytes, bytes | None]:
        """Returns key and value."""
        ...


def as_records(entries: Iterable[Entry], now_ms: int) -> list[Record]:
    """Returns entries as records of now."""
    pairs = [entry.encode() for entry in entries]
    return [Record(timestamp=now_ms, key=key, value=value) for key, value in pairs]


async def create(
    cluster: Cluster, topic: str, replication_factor: int, *, admin: Admin | None = None
) -> bool:
    """Creates the topic, compacted, with one partition and at most as many replicas as there are brokers.

    Returns False when it exists already. `admin` creates it instead of a request to the cluster.
    """
    if not cluster.brokers:
        await cluster.refresh([])
    brokers = len(cluster.brokers)
    if admin is not None:
        made = await _create_by(admin, cluster, topic, min(replication_factor, brokers))
    else:
        made = await _create(cluster, topic, replication_factor, brokers)
    if made:
        log.info("made %s", topic)
    return made


async def _create(cluster: Cluster, topic: str, replication_factor: int, brokers: int) -> bool:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=min(replication_factor, brokers or replication_factor),
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
    )
    controller = cluster.metadata.controller_id if cluster.metadata is not None else -1
    connection = await (cluster.broker(controller) if controller >= 0 else cluster.any_broker())
    answer: CreateTopicsResponse = await connection.request(CreateTopicsRequest(topics=[wanted]))
    result = answer.topics[0]
    if result.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
        await _known(cluster, topic)
        made = result.error_code == ErrorCode.NONE
        if made and replication_factor > brokers:
            log.warning(
                "%s has %d replicas instead of %d: there are no more brokers",
                topic,
                brokers,
                replication_factor,
            )
        return made
    said = f" ({result.error_message})" if result.error_message else ""
    raise broker_error(result.error_code, f"topic {topic} with {replication_factor} replicas{said}")


async def _create_by(admin: Admin, cluster: Cluster, topic: str, replicas: int) -> bool:
    there = (await cluster.refresh([topic])).topics
    if any(t.name == topic and not t.error_code for t in there):
        return False
    wanted = NewTopic(
        name=topic, num_partitions=1, replication_factor=replicas, configs={"cleanup.policy": "compact"}
    )
    refused = await admin.create_topics([wanted])
    if refused:
        why = refused.get(topic, refused)
        raise broker_error(ErrorCode.POLICY_VIOLATION, f"the forwarding admin makes no topic {topic} ({why})")
    await _known(cluster, topic)
    return True


async def _known(cluster: Cluster, topic: str) -> None:
    """Waits a moment until the brokers name a leader: they hear of a new topic one after the other."""
    until = time.monotonic() + KNOWN_S
    backoff = Backoff(KNOWN_FIRST_S, KNOWN_LONGEST_S)
    while (now := time.monotonic()) < until:
        found = (await cluster.refresh([topic])).topics
        if any(p.leader_id >= 0 for t in found if t.name == topic for p in t.partitions):
            return
        await asyncio.sleep(backoff.failed(now, "it has no leader"))
    log.info("the brokers do not know of %s yet", topic)


async def produce(cluster: Cluster, topic: str, records: Sequence[Record], *, partition: int = 0) -> int:
    """Appends records, acknowledged by all in-sync replicas. Returns the first record's offset."""
    data = TopicProduceData(
        name=topic,
        partition_data=[PartitionProduceData(index=partition, records=encode_batch(records))],
    )
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
    answer = await _ask_leader(cluster, topic, partition, request, _PRODUCE_VERSION)
    result = answer.responses[0].partition_responses[0]
    await _check(cluster, topic, result.error_code, f"producing to {topic}-{partition}")
    return int(result.base_offset)


async def topic_id(cluster: Cluster, topic: str) -> bytes:
    """Returns the id of a topic, which a topic of the same name that is made later does not have. Zeros: brokers give none."""
    found = (await cluster.refresh([topic])).topics[0]
    if found.error_code:
        raise broker_error(found.error_code, f"topic {topic}")
    return found.topic_id


async def offset_of(
    cluster: Cluster, topic: str, which: int, *, partition: int = 0, committed: bool = False
) -> int:
    """Returns the partition's first offset (EARLIEST), the offset after its last record (LATEST), or that of the first
    record from a timestamp on (-1: there is none).

    `committed`: the end lies before the first open transaction.
    """
    asked = ListOffsetsPartition(partition_index=partition, timestamp=which)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    answer = await _ask_leader(cluster, topic, partition, request)
    result = answer.topics[0].partitions[0]
    await _check(cluster, topic, result.error_code, f"offsets of {topic}-{partition}")
    return int(result.offset)


async def offsets_of(
    cluster: Cluster, partitions: Sequence[tuple[str, int]], which: int, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """Returns `offset_of` for each partition that answers; one request for each leader."""
    await cluster.refresh(sorted({topic for topic, _ in partitions}))
    found = await leaders.offsets_at(cluster, dict.fromkeys(partitions, which), committed=committed)
    for answer in found.values():
        if isinstance(answer, ClientError) and not isinstance(answer, BrokerError):
            raise answer
    return {place: offset for place, offset in found.items() if isinstance(offset, int)}


async def read(
    cluster: Cluster, topic: str, start: int, end: int, *, partition: int = 0, committed: bool = False
) -> AsyncIterator[Record]:
    """Yields records from `start` up to, not including, `end`. Leaves out control records.

    `committed`: leaves out aborted records, too.
    """
    offset = start
    while offset < end:
        data = await fetch(cluster, topic, offset, partition=partition, committed=committed)
        for record in records_of(data, offset):
            if record.offset >= end:
                return
            yield record
        offset = max(next_offset(data), offset)


async def read_present(cluster: Cluster, topic: str, *, last: int | None = None) -> AsyncIterator[Record]:
    """Yields the records that are there now; `last`: only those of so many last offsets."""
    start = await offset_of(cluster, topic, EARLIEST)
    end = await offset_of(cluster, topic, LATEST)
    async for record in read(cluster, topic, start if last is None else max(start, end - last), end):
        yield record


async def fetch(
    cluster: Cluster,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    committed: bool = False,
    size: int = FETCH_BYTES,
) -> PartitionData:
    """Returns one answer to a Fetch at `offset`; it is empty when nothing arrived within a moment.

    `committed`: the answer lists aborted transactions, and ends before the first open one.
    """
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=size,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = await _ask_leader(cluster, topic, partition, request, _FETCH_VERSION)
    data: PartitionData = answer.responses[0].partitions[0]
    await _check(cluster, topic, data.error_code, f"reading {topic}-{partition} at {offset}")
    return data


def records_of(data: PartitionData, start: int) -> list[Record]:
    """Returns the records of a Fetch answer from `start` on (brokers send whole batches).

    Leaves out control records, and those that a read_committed answer names as aborted.
    """
    found: list[Record] = []
    buffer = data.records or b""
    aborted = Aborted.of([(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()])
    for pos, header in whole_batches(buffer):
        check_crc(buffer, pos, header)
        if header.is_control:
            aborted.end(header, decode_records(buffer, pos))
        elif not aborted.hides(header):
            found += (r for r in decode_records(buffer, pos) if r.offset >= start)
    return found


def next_offset(data: PartitionData) -> int:
    """Returns the offset to continue from after this answer; -1 when the answer is empty."""
    return max((h.last_offset + 1 for _, h in whole_batches(data.records or b"")), default=-1)


async def _ask_leader(
    cluster: Cluster, topic: str, partition: int, request: Message, version_max: int | None = None
) -> Any:
    connection: Connection
    try:
        connection = await cluster.leader(topic, partition)
        version = connection.version_for(type(request))
        if version_max is not None:
            version = min(version, version_max)
        return await connection.request(request, version)
    except ClientError as e:
        if e.retriable:
            cluster.metadata = None  # another broker may lead by the next time
        raise


async def _check(cluster: Cluster, topic: str, code: int, what: str) -> None:
    if code == ErrorCode.NONE:
        return
    if code in _MOVED:
        cluster.metadata = None
    raise broker_error(code, what)
