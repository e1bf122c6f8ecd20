"""DeleteRecords, key 21: versions 0 to 2.

Behaviour: moves the log start offset up to the requested offset; -1 means the high watermark. Readers see it at once,
retention removes the segments. An offset outside the log is OFFSET_OUT_OF_RANGE. Refused for a topic that is only
compacted (POLICY_VIOLATION) and for internal topics, as in Kafka. Of Klamm's own: a mirror topic follows the log start of
its source, compacted or not; an empty one goes on at an offset beyond its end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.log.errors import LogError
from klamm_broker.log.steps import Steps
from klamm_broker.server import audit
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

HIGH_WATERMARK: Final = -1
_STEP: Final = 32
"""Partitions in one step: each may wake readers."""


@handles(
    ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    needs=[
        Need(AclOperation.DELETE, ResourceType.TOPIC),
    ],
)
def delete_records(
    broker: BrokerState, ctx: RequestContext, request: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse | asyncio.Future[DeleteRecordsResponse]]:
    topics = []
    for topic in request.topics:
        may = ctx.may(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for number, p in enumerate(topic.partitions, 1):
            partitions.append(_delete(broker, topic.name, p) if may else _error(p.partition_index, denied))
            if not number % _STEP:
                yield None
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    response = DeleteRecordsResponse(topics=topics)
    moved = [p for t in topics for p in t.partitions if p.error_code == ErrorCode.NONE]
    if not moved:
        return response

    def answer(error: OSError | None) -> DeleteRecordsResponse:
        if error is not None:
            log.error("DeleteRecords: the new log starts are not on the disk: %s", error)
            for partition in moved:
                partition.error_code, partition.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1
        else:
            audit.changed(ctx, "records", deleted=_starts(response))
        return response

    # Once they are answered, the new starts must survive a crash; one write serves all partitions.
    return when_done(broker.loop, broker.topic_changes.run(_checkpoints(broker)), answer)


def _starts(response: DeleteRecordsResponse) -> dict[str, dict[int, int]]:
    """Returns the new log starts of partitions, by topic."""
    starts: dict[str, dict[int, int]] = {}
    for topic in response.topics:  # one may be there twice
        for p in topic.partitions:
            if not p.error_code:
                starts.setdefault(topic.name, {})[p.partition_index] = p.low_watermark
    return starts


def _checkpoints(broker: BrokerState) -> Steps[OSError | None]:
    try:
        yield from broker.logs.writing_checkpoints()
    except OSError as e:
        return e
    return None


def _delete(broker: BrokerState, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    partition = broker.partition(topic, index)
    if partition is None:
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.topic.internal:
        return _error(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    stored = partition.log
    if not stored.config.delete and not stored.config.mirrors:
        return _error(index, ErrorCode.POLICY_VIOLATION)
    offset = stored.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if offset < 0:
        return _error(index, ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        if stored.config.mirrors and offset > stored.log_end_offset:
            stored.begin_copy_at(offset, now_ms=broker.now_ms())
        else:
            stored.advance_log_start_offset(offset)
    except LogError as e:
        return _error(index, e.code)
    broker.waiting.advanced(partition, 0)
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=stored.log_start_offset, error_code=ErrorCode.NONE
    )


def _error(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)
