"""OffsetFetch, key 9: versions 1 to 10.

Behaviour: answers offset -1 where nothing is committed, also for groups that do not exist. A commit to a deleted topic
of the same name counts as nothing (its tombstone may not be written yet). Null topics mean all of the group's. With
`require_stable` an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT.
Versions: 8 asks for several groups; 10 names topics by id (a deleted topic is left out of "all").
From 9 on members of the consumer protocol say who they are (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.coordinator.model import (
    INVALID_OFFSET,
    NO_TOPIC_ID,
    CommittedOffset,
    FetchResult,
    TopicPartition,
)
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

GROUPS_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
_NOTHING: Final = CommittedOffset(offset=INVALID_OFFSET, commit_timestamp_ms=-1)


@handles(
    ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "topics that may not be described are left out where all are asked for",
        ),
    ],
)
def offset_fetch(
    broker: BrokerState, ctx: RequestContext, request: OffsetFetchRequest
) -> Steps[OffsetFetchResponse]:
    if ctx.api_version >= GROUPS_FROM:
        distinct = {group.group_id: group for group in request.groups}.values()
        by_id, stable = ctx.api_version >= TOPIC_IDS_FROM, request.require_stable
        groups = []
        for group in distinct:
            found = yield from _group(broker, ctx, group, by_id=by_id, require_stable=stable)
            groups.append(found)
        return OffsetFetchResponse(groups=groups)
    return _single(broker, ctx, request)


def _group(
    broker: BrokerState,
    ctx: RequestContext,
    asked: OffsetFetchRequestGroup,
    *,
    by_id: bool,
    require_stable: bool,
) -> Steps[OffsetFetchResponseGroup]:
    if not ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return OffsetFetchResponseGroup(
            group_id=asked.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
    result = broker.groups.coordinator.fetch(
        asked.group_id,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        require_stable=require_stable,
    )
    group = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=result.error)
    if result.error is not ErrorCode.NONE:
        return group
    if asked.topics is None:
        for name, indexes in _all(broker, ctx, result):
            topic_id = _topic_id(broker, name)
            if topic_id == NO_TOPIC_ID and by_id:
                continue
            group.topics.append((yield from _topic(name, topic_id, topic_id, indexes, result)))
        return group
    for t in asked.topics:
        name, topic_id = t.name, t.topic_id
        if by_id:
            topic = broker.topics.by_id.get(t.topic_id)
            if topic is None:
                group.topics.append(_refused(t, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            name = topic.name
        else:
            topic_id = _topic_id(broker, name)
        if not _may_describe(ctx, name):
            group.topics.append(_refused(t, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        group.topics.append((yield from _topic(name, t.topic_id, topic_id, t.partition_indexes, result)))
    return group


def _topic_id(broker: BrokerState, name: str) -> bytes:
    """Returns the id of the topic that has this name now; zeros when there is none."""
    topic = broker.topics.by_name.get(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _topic(
    name: str, shown_id: bytes, topic_id: bytes, indexes: Iterable[int], result: FetchResult
) -> Steps[OffsetFetchResponseTopics]:
    topic = OffsetFetchResponseTopics(name=name, topic_id=shown_id)
    for number, index in enumerate(indexes, 1):
        if not number % STEP:
            yield None
        found, error = _find(result, TopicPartition(name, index), topic_id)
        topic.partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=error,
            )
        )
    yield None
    return topic


def _find(result: FetchResult, at: TopicPartition, topic_id: bytes) -> tuple[CommittedOffset, ErrorCode]:
    if at in result.unstable:
        return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    found = result.offsets.get(at, _NOTHING)
    return _NOTHING if _is_of_former_topic(found, topic_id) else found, result.error


def _is_of_former_topic(found: CommittedOffset, topic_id: bytes) -> bool:
    """Decides whether the offset was committed for an earlier topic of this name; False when either id is unknown."""
    return NO_TOPIC_ID != found.topic_id != topic_id != NO_TOPIC_ID


def _may_describe(ctx: RequestContext, topic: str, *, tell: bool = True) -> bool:
    return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, tell=tell)


def _refused(asked: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=INVALID_OFFSET,
                metadata="",
                error_code=error,
            )
            for index in asked.partition_indexes
        ],
    )


def _single(broker: BrokerState, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = ctx.api_version
    if ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        result = broker.groups.coordinator.fetch(request.group_id, require_stable=request.require_stable)
    else:
        result = FetchResult(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.topics is None:
        asked = _all(broker, ctx, result)
    elif result.error is not ErrorCode.NONE and version > 1:
        asked = []
    else:
        asked = [(t.name, t.partition_indexes) for t in request.topics]
    ids = {name: _topic_id(broker, name) for name, _ in asked}
    denied = {name for name, _ in asked if not _may_describe(ctx, name)}
    # Version 1 has no error for the whole answer: every partition gets it, as Kafka does in all of these versions.
    return OffsetFetchResponse(
        error_code=result.error if version > 1 else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _partition(index, *_find(result, TopicPartition(name, index), ids[name]))
                    if name not in denied
                    else _partition(index, _NOTHING, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ],
    )


def _partition(index: int, found: CommittedOffset, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=error,
    )


def _all(broker: BrokerState, ctx: RequestContext, result: FetchResult) -> list[tuple[str, list[int]]]:
    """Returns every committed partition, by topic, except those of topics that others have replaced or the sender may not see."""
    topics: dict[str, list[int]] = {}
    ids: dict[str, bytes] = {}
    for at, committed in result.offsets.items():
        if at.topic not in ids:
            ids[at.topic] = _topic_id(broker, at.topic)
        if not _is_of_former_topic(committed, ids[at.topic]):
            topics.setdefault(at.topic, []).append(at.partition)
    return [item for item in topics.items() if _may_describe(ctx, item[0], tell=False)]
