"""A cluster's consumer groups: their names, states and committed offsets.

Raises ClientError. After a coordinator has moved, the next call looks for it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_kafka.client import Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from klamm_kafka.wire.struct import Message
from klamm_mirror.offsets.translation import Partition

CONSUMER: Final = "consumer"
IDLE: Final = frozenset({"Empty", "Dead"})
"""States of a group that nobody reads with: its offsets may be set from outside."""

# Later versions know topics by id only, or ask for several groups at a time.
_OFFSET_FETCH_VERSION: Final = 7
_OFFSET_COMMIT_VERSION: Final = 9
_DESCRIBE_VERSION: Final = 5
_COORDINATOR_ERRORS: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_REFUSALS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset (of the next record to read) and the consumer's metadata for it."""

    offset: int
    metadata: str = ""


async def consumer_groups(cluster: Cluster) -> dict[str, str]:
    """Returns all groups of consumers, of either protocol or with offsets only, with their states. Asks every broker."""
    await cluster.refresh([])
    found: dict[str, str] = {}
    for node_id in sorted(cluster.brokers):
        answer: ListGroupsResponse = await (await cluster.broker(node_id)).request(ListGroupsRequest())
        _check(cluster, None, answer.error_code, f"the groups of broker {node_id}")
        # A group whose offsets were only ever set from outside has no protocol type.
        found |= {g.group_id: g.group_state for g in answer.groups if g.protocol_type in {CONSUMER, ""}}
    # Brokers before Kafka 2.6 list no states. They know no groups but those of the classic protocol.
    return {group: found[group] or await group_state(cluster, group) for group in sorted(found)}


async def committed_offsets(cluster: Cluster, group: str) -> dict[Partition, Committed]:
    """Returns all committed offsets of a group; an empty dict when the group does not exist."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    answer: OffsetFetchResponse = await _ask(cluster, group, request, _OFFSET_FETCH_VERSION)
    _check(cluster, group, answer.error_code, f"offsets of group {group}")
    found: dict[Partition, Committed] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            place = f"offset of group {group} in {topic.name}-{each.partition_index}"
            _check(cluster, group, each.error_code, place)
            if each.committed_offset >= 0:
                found[topic.name, each.partition_index] = Committed(
                    each.committed_offset, each.metadata or ""
                )
    return found


async def group_state(cluster: Cluster, group: str) -> str:
    """Returns the state of a group of the classic protocol: `Empty`, `Stable`, …; `Dead` for any other."""
    answer: DescribeGroupsResponse = await _ask(
        cluster, group, DescribeGroupsRequest(groups=[group]), _DESCRIBE_VERSION
    )
    described = answer.groups[0]
    _check(cluster, group, described.error_code, f"group {group}")
    return str(described.group_state)


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[Partition, Committed]
) -> dict[Partition, int]:
    """Sets a group's offsets from outside. Returns the error codes of justified refusals.

    The coordinator refuses when the group has members by now, which keep their own offsets, or when the
    partition does not exist.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), committed in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()]
    )
    answer: OffsetCommitResponse = await _ask(cluster, group, request, _OFFSET_COMMIT_VERSION)
    refused: dict[Partition, int] = {}
    for result in answer.topics:
        for each in result.partitions:
            if each.error_code in _REFUSALS:
                refused[result.name, each.partition_index] = each.error_code
                continue
            place = f"setting the offset of group {group} in {result.name}-{each.partition_index}"
            _check(cluster, group, each.error_code, place)
    return refused


async def _ask(cluster: Cluster, group: str, request: Message, version_max: int) -> Any:
    connection = await cluster.coordinator(group)
    return await connection.request(request, min(connection.version_for(type(request)), version_max))


def _check(cluster: Cluster, group: str | None, code: int, what: str) -> None:
    if code == ErrorCode.NONE:
        return
    if group is not None and code in _COORDINATOR_ERRORS:
        cluster.forget_coordinator(group)
    raise broker_error(code, what)
