"""ListOffsets, key 2: versions 1 to 11.

Behaviour: finds an offset by timestamp (the first record at or after it), or by a special timestamp: -1 latest (the last
stable offset for `read_committed`), -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5 latest
tiered and -6 earliest pending upload. Without tiered storage -4 is the log start, and -5 and -6 answer "none" (-1).
A special timestamp that the request's version does not have is refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.log.errors import LogError
from klamm_broker.log.steps import Steps
from klamm_broker.server.fetching import READ_COMMITTED, epoch_error
from klamm_broker.server.topics import Partition
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from klamm_kafka.wire.offset_specs import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    SINCE,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch; each is -1 if there is none."""
_NONE: Final[Found] = (-1, -1, -1)


@handles(
    ApiKey.LIST_OFFSETS,
    versions=(1, 11),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ],
)
def list_offsets(
    broker: BrokerState, ctx: RequestContext, request: ListOffsetsRequest
) -> Steps[ListOffsetsResponse]:
    committed = request.isolation_level == READ_COMMITTED
    named = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    topics = []
    for topic in request.topics:
        answers = []
        may = ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for number, asked in enumerate(topic.partitions, 1):
            if not number % STEP:
                yield None
            where = (topic.name, asked.partition_index)
            times = named.pop(where, 0)
            if not times:
                continue  # refused already
            partition = broker.partition(*where) if may else None
            if not may:
                answers.append(_error(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif times > 1:
                answers.append(_error(asked, ErrorCode.INVALID_REQUEST))
            elif partition is None:
                answers.append(_error(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                answer = yield from _answer(partition, asked, ctx.api_version, committed=committed)
                answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        yield None
    return ListOffsetsResponse(topics=topics)


def _answer(
    partition: Partition, asked: ListOffsetsPartition, version: int, *, committed: bool
) -> Steps[ListOffsetsPartitionResponse]:
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE.get(asked.timestamp, 0):
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    if partition.log.offline:
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    error = epoch_error(asked.current_leader_epoch, partition.log.leader_epoch)
    if error is not None:
        return _error(asked, error)
    try:
        timestamp, offset, epoch = yield from _find(partition, asked.timestamp, committed=committed)
    except LogError as e:
        return _error(asked, e.code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


def _find(partition: Partition, timestamp: int, *, committed: bool) -> Steps[Found]:
    log = partition.log
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return -1, end, log.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        start = log.log_start_offset
        epochs = [epoch for epoch, begins in log.epochs.entries if begins <= start]
        return -1, start, epochs[-1] if epochs else log.leader_epoch
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _NONE
    found = yield from log.finding_timestamp(None if timestamp == MAX_TIMESTAMP else timestamp)
    return found if found is not None and found[1] < end else _NONE


def _error(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
