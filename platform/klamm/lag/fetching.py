"""Fetch requests to the leaders of partitions: record batches from an offset on, headers of batches, ends without markers.

Raises ClientError where no broker answers. What a leader refuses is an AdminError for its partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition, by_topic
from klamm_kafka.wire.batch import BatchHeader, read_header
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.raw import whole_batches

_NAMES_UP_TO: Final = 12  # Fetch: later versions speak of topics by their ids only
_WAIT_MS: Final = 500
_ANSWER_BYTES: Final = 16 << 20
_PARTITION_BYTES: Final = 1 << 20
_MARKERS_MAX: Final = 8
_HEADER_BYTES: Final = 4096
"""A batch's header is enough. The first batch of an answer comes whole all the same."""

Batches = Mapping[TopicPartition, PartitionData | AdminError]


async def fetch(
    admin: Admin,
    offsets: Mapping[TopicPartition, int],
    *,
    wait_ms: int = _WAIT_MS,
    partition_bytes: int = _PARTITION_BYTES,
    again: bool = True,
) -> Batches:
    """Returns what is in each partition from an offset on, after `wait_ms` perhaps nothing. `again`: as in `Admin.by_leader`."""

    async def call(node_id: int, mine: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=p,
                        fetch_offset=offsets[TopicPartition(topic, p)],
                        partition_max_bytes=partition_bytes,
                    )
                    for p in ids
                ],
            )
            for topic, ids in by_topic(mine).items()
        ]
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=_ANSWER_BYTES, topics=topics)
        answer = await admin.ask_broker(node_id, request, cap=_NAMES_UP_TO)
        return {
            tp: AdminError(p.error_code, str(tp)) if p.error_code else p
            for t in answer.responses
            for p in t.partitions
            for tp in [TopicPartition(t.topic, p.partition_index)]
        }

    return await admin.by_leader(list(offsets), call, again=again)


async def headers(admin: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
    """Returns the header of the first batch at or behind each offset; leaves out those that are not known."""
    found = await fetch(admin, offsets, wait_ms=0, partition_bytes=_HEADER_BYTES)
    known = {}
    for tp, data in found.items():
        if isinstance(data, AdminError) or not data.records:
            continue
        try:
            known[tp] = read_header(data.records)
        except ProtocolError:
            continue  # an old format, or less than a header: the log's history tells the age
    return known


async def without_markers(admin: Admin, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the ends of logs without the markers of transactions there, which nobody reads; leaves out those that are not known."""
    found: dict[TopicPartition, int] = {}
    left = dict(ends)
    for _ in range(_MARKERS_MAX):
        last = await headers(admin, {tp: end - 1 for tp, end in left.items() if end > 0}) if left else {}
        found |= {tp: left[tp] for tp in left if tp in last or left[tp] == 0}
        left = {tp: h.base_offset for tp, h in last.items() if h.is_control and h.base_offset < left[tp]}
        found |= left
    return found


def time_at(header: BatchHeader, offset: int) -> int:
    """Returns the time of the record at an offset in a batch, or of the first one for an offset before it.

    A record between the first and the last of its batch has a time between theirs.
    """
    if header.timestamp_type or not header.last_offset_delta:
        return header.max_timestamp
    share = min(max(offset - header.base_offset, 0) / header.last_offset_delta, 1.0)
    return header.base_timestamp + int((header.max_timestamp - header.base_timestamp) * share)


def whole(data: Buffer) -> memoryview:
    """Returns the whole batches of an answer, without the cut one at its end."""
    view, end = memoryview(data), 0
    for at, header in whole_batches(view):
        end = at + header.size
    return view[:end]
