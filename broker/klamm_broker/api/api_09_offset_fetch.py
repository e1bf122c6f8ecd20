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

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.coordinator.model import (
    INVALID_OFFSET,
    NO_TOPIC_ID,
    CommittedOffset,
    FetchResult,
    TopicPartition,
)
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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


@handles(ApiKey.OFFSET_FETCH, versions=(1, 10))
def offset_fetch(
    broker: BrokerState, ctx: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if ctx.api_version >= GROUPS_FROM:
        distinct = {group.group_id: group for group in request.groups}.values()
        by_id, stable = ctx.api_version >= TOPIC_IDS_FROM, request.require_stable
        groups = [_group(broker, group, by_id=by_id, require_stable=stable) for group in distinct]
        return OffsetFetchResponse(groups=groups)
    return _single(broker, ctx.api_version, request)


def _group(
    broker: BrokerState, asked: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
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
        for name, indexes in _all(broker, result):
            topic_id = _topic_id(broker, name)
            if topic_id == NO_TOPIC_ID and by_id:
                continue
            group.topics.append(_topic(name, topic_id, topic_id, indexes, result))
        return group
    for t in asked.topics:
        name, topic_id = t.name, t.topic_id
        if by_id:
            topic = broker.topics.by_id.get(t.topic_id)
            if topic is None:
                group.topics.append(_unknown_id(t.topic_id, t.partition_indexes))
                continue
            name = topic.name
        else:
            topic_id = _topic_id(broker, name)
        group.topics.append(_topic(name, t.topic_id, topic_id, t.partition_indexes, result))
    return group


def _topic_id(broker: BrokerState, name: str) -> bytes:
    """Returns the id of the topic that has this name now; zeros when there is none."""
    topic = broker.topics.by_name.get(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _topic(
    name: str, shown_id: bytes, topic_id: bytes, indexes: Iterable[int], result: FetchResult
) -> OffsetFetchResponseTopics:
    topic = OffsetFetchResponseTopics(name=name, topic_id=shown_id)
    for index in indexes:
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
    return topic


def _find(result: FetchResult, at: TopicPartition, topic_id: bytes) -> tuple[CommittedOffset, ErrorCode]:
    if at in result.unstable:
        return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    found = result.offsets.get(at, _NOTHING)
    return _NOTHING if _is_of_former_topic(found, topic_id) else found, result.error


def _is_of_former_topic(found: CommittedOffset, topic_id: bytes) -> bool:
    """Decides whether the offset was committed for an earlier topic of this name; False when either id is unknown."""
    return NO_TOPIC_ID != found.topic_id != topic_id != NO_TOPIC_ID


def _unknown_id(topic_id: bytes, indexes: Iterable[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=INVALID_OFFSET,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in indexes
        ],
    )


def _single(broker: BrokerState, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    result = broker.groups.coordinator.fetch(request.group_id, require_stable=request.require_stable)
    if request.topics is None:
        asked = _all(broker, result)
    else:
        asked = [(t.name, t.partition_indexes) for t in request.topics]
    ids = {name: _topic_id(broker, name) for name, _ in asked}
    # Version 1 has no error for the whole answer: every partition gets it, as Kafka does in all of these versions.
    return OffsetFetchResponse(
        error_code=result.error if version > 1 else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _partition(index, *_find(result, TopicPartition(name, index), ids[name]))
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


def _all(broker: BrokerState, result: FetchResult) -> list[tuple[str, list[int]]]:
    """Returns every committed partition, by topic, except those of topics that others have replaced."""
    topics: dict[str, list[int]] = {}
    ids: dict[str, bytes] = {}
    for at, committed in result.offsets.items():
        if at.topic not in ids:
            ids[at.topic] = _topic_id(broker, at.topic)
        if not _is_of_former_topic(committed, ids[at.topic]):
            topics.setdefault(at.topic, []).append(at.partition)
    return list(topics.items())
