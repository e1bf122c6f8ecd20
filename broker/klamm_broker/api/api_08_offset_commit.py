"""OffsetCommit, key 8: versions 2 to 10.

Behaviour: answers once the offsets are in `__consumer_offsets`, one batch for 500 of them. Each partition that does not
exist gets its own error. Members commit with their generation; a commit without a generation is accepted while the group
has no members.
Versions: 2 to 4 may bring a retention time of their own; 9 knows GROUP_ID_NOT_FOUND and members of the consumer protocol
with their epochs (STALE_MEMBER_EPOCH); 10 names topics by id.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Final

from klamm_broker.api.commits import committing
from klamm_broker.api.registry import LARGE_REQUEST_MAX, STEP, Need, RequestContext, handles
from klamm_broker.coordinator.model import CommitRequest, CommitResult, OffsetToCommit, TopicPartition
from klamm_broker.log.steps import Steps
from klamm_broker.server import heavy
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

TOPIC_IDS_FROM: Final = 10


@handles(
    ApiKey.OFFSET_COMMIT,
    versions=(2, 10),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def offset_commit(
    broker: BrokerState, ctx: RequestContext, request: OffsetCommitRequest
) -> Steps[OffsetCommitResponse | Future[OffsetCommitResponse]]:
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        refused = _Partitions(broker, ctx, by_id=ctx.api_version >= TOPIC_IDS_FROM)
        return (
            yield from refused.responding(request, CommitResult(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        )
    partitions = _Partitions(broker, ctx, by_id=ctx.api_version >= TOPIC_IDS_FROM)
    for topic in request.topics:
        yield from partitions.adding(topic)
    if not partitions.offsets:
        return (yield from partitions.responding(request, CommitResult()))
    commit = CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=None if request.retention_time_ms == -1 else request.retention_time_ms,
        reports_missing_group=ctx.api_version >= 9,
        offsets=partitions.offsets,
    )
    result = yield from committing(broker, commit)
    if isinstance(result, Future):

        def answer(result: CommitResult) -> OffsetCommitResponse:
            return heavy.finished(partitions.responding(request, result))

        return when_done(broker.loop, result, answer)
    return (yield from partitions.responding(request, result))


class _Partitions:
    """The partitions of a request: those that exist, and the errors of the others."""

    def __init__(self, broker: BrokerState, ctx: RequestContext, *, by_id: bool) -> None:
        self.offsets: dict[TopicPartition, OffsetToCommit] = {}
        self._broker = broker
        self._ctx = ctx
        self._by_id = by_id
        self._names: dict[bytes, str] = {}
        self._refused: dict[tuple[str | bytes, int], ErrorCode] = {}

    def adding(self, asked: OffsetCommitRequestTopic) -> Steps[None]:
        """Take in a topic of the request."""
        topics = self._broker.topics
        topic = topics.by_id.get(asked.topic_id) if self._by_id else topics.by_name.get(asked.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None and self._by_id:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        name = asked.name if topic is None else topic.name
        if name and not self._ctx.may(AclOperation.READ, ResourceType.TOPIC, name):
            topic, unknown = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = 0 if topic is None else len(topic.partitions)
        for number, p in enumerate(asked.partitions, 1):
            if not number % STEP:
                yield None
            if topic is not None and 0 <= p.partition_index < count:
                self._names[asked.topic_id] = topic.name
                offset = OffsetToCommit(
                    p.committed_offset, p.committed_leader_epoch, p.committed_metadata, topic.id
                )
                self.offsets[TopicPartition(topic.name, p.partition_index)] = offset
            else:
                self._refused[self._key(asked), p.partition_index] = unknown

    def _key(self, topic: OffsetCommitRequestTopic) -> str | bytes:
        return topic.topic_id if self._by_id else topic.name

    def responding(self, request: OffsetCommitRequest, result: CommitResult) -> Steps[OffsetCommitResponse]:
        """Makes the answer, with every partition in the order of the request."""
        topics = []
        for topic in request.topics:
            answers = []
            for number, p in enumerate(topic.partitions, 1):
                if not number % STEP:
                    yield None
                error = self._error(topic, p.partition_index, result)
                answers.append(
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
                )
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
        return OffsetCommitResponse(topics=topics)

    def _error(self, topic: OffsetCommitRequestTopic, index: int, result: CommitResult) -> ErrorCode:
        refused = self._refused.get((self._key(topic), index))
        if refused is not None:
            return refused
        if result.error is not ErrorCode.NONE:
            return result.error
        name = self._names[topic.topic_id] if self._by_id else topic.name
        return result.partitions[TopicPartition(name, index)]
