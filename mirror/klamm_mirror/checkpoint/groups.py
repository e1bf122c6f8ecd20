"""A cluster's groups: their names, kinds, states and committed offsets, which a share group has start offsets for.

Raises ClientError. After a coordinator has moved, the next call looks for it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from klamm_kafka.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from klamm_kafka.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from klamm_mirror.checkpoint import share_groups
from klamm_mirror.checkpoint.coordinators import Committed, ask, check
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.topics.formats import Checkpoint

IDLE: Final = frozenset({"Empty", "Dead"})
"""States of a group that nobody reads with: its offsets may be set from outside."""

# Later versions know topics by id only, or ask for several groups at a time.
_OFFSET_FETCH_VERSION: Final = 7
_OFFSET_COMMIT_VERSION: Final = 9
_DESCRIBE_VERSION: Final = 5
_REFUSALS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Kind(StrEnum):
    """The kinds of groups that a flow follows."""

    CONSUMER = "consumer"
    """Groups of the classic protocol and of KIP-848, and such with offsets only: they commit offsets alike."""
    SHARE = "share"


# A group whose offsets were only ever set from outside has no protocol type.
_KINDS: Final = {"": Kind.CONSUMER, "consumer": Kind.CONSUMER, "share": Kind.SHARE}


@dataclass(frozen=True, slots=True)
class Group:
    """A group in a list."""

    kind: Kind
    state: str

    @property
    def idle(self) -> bool:
        """Returns True when nobody reads with the group."""
        return self.state in IDLE


def kind_of(checkpoint: Checkpoint) -> Kind:
    """Returns the kind of a checkpoint's group."""
    return Kind.SHARE if checkpoint.metadata == share_groups.SHARE_MARK else Kind.CONSUMER


async def list_groups(cluster: Cluster) -> dict[str, Group]:
    """Returns the groups that read topics, by name. Asks every broker."""
    await cluster.refresh([])
    listed: dict[str, ListedGroup] = {}
    for node_id in sorted(cluster.brokers):
        answer: ListGroupsResponse = await (await cluster.broker(node_id)).request(ListGroupsRequest())
        check(cluster, None, answer.error_code, f"the groups of broker {node_id}")
        listed |= {g.group_id: g for g in answer.groups if g.protocol_type in _KINDS}
    # Brokers before Kafka 2.6 list no states. They know no groups but those of the classic protocol.
    return {
        name: Group(_KINDS[g.protocol_type], g.group_state or await group_state(cluster, name))
        for name, g in sorted(listed.items())
    }


async def committed_offsets(
    cluster: Cluster, group: str, kind: Kind = Kind.CONSUMER
) -> dict[Partition, Committed]:
    """Returns all committed offsets of a group; an empty dict when the group does not exist."""
    if kind is Kind.SHARE:
        return await share_groups.start_offsets(cluster, group)
    request = OffsetFetchRequest(group_id=group, topics=None)
    answer: OffsetFetchResponse = await ask(cluster, group, request, _OFFSET_FETCH_VERSION)
    check(cluster, group, answer.error_code, f"offsets of group {group}")
    found: dict[Partition, Committed] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            place = f"offset of group {group} in {topic.name}-{each.partition_index}"
            check(cluster, group, each.error_code, place)
            if each.committed_offset >= 0:
                found[topic.name, each.partition_index] = Committed(
                    each.committed_offset, each.metadata or ""
                )
    return found


async def group_state(cluster: Cluster, group: str) -> str:
    """Returns the state of a group of the classic protocol: `Empty`, `Stable`, …; `Dead` for any other."""
    answer: DescribeGroupsResponse = await ask(
        cluster, group, DescribeGroupsRequest(groups=[group]), _DESCRIBE_VERSION
    )
    described = answer.groups[0]
    check(cluster, group, described.error_code, f"group {group}")
    return str(described.group_state)


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[Partition, Committed], kind: Kind = Kind.CONSUMER
) -> dict[Partition, int]:
    """Sets a group's offsets from outside. Returns the error codes of justified refusals.

    The coordinator refuses when the group has members by now, which keep their own offsets, or when the
    partition does not exist.
    """
    if kind is Kind.SHARE:
        return await share_groups.set_start_offsets(cluster, group, offsets)
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
    answer: OffsetCommitResponse = await ask(cluster, group, request, _OFFSET_COMMIT_VERSION)
    refused: dict[Partition, int] = {}
    for result in answer.topics:
        for each in result.partitions:
            if each.error_code in _REFUSALS:
                refused[result.name, each.partition_index] = each.error_code
                continue
            place = f"setting the offset of group {group} in {result.name}-{each.partition_index}"
            check(cluster, group, each.error_code, place)
    return refused


async def forget_offsets(
    cluster: Cluster, group: str, partitions: Sequence[Partition], kind: Kind = Kind.CONSUMER
) -> dict[Partition, int]:
    """Deletes offsets of a group; of a share group in whole topics. Returns the error codes of refusals."""
    if kind is Kind.SHARE:
        by_topic = await share_groups.forget_start_offsets(cluster, group, sorted({t for t, _ in partitions}))
        return {(t, p): by_topic[t] for t, p in partitions if t in by_topic}
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=t, partitions=p) for t, p in topics.items()]
    )
    answer: OffsetDeleteResponse = await ask(cluster, group, request, OffsetDeleteRequest.MAX_VERSION)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(cluster, group, answer.error_code, f"deleting offsets of group {group}")
    return {
        (topic.name, p.partition_index): p.error_code
        for topic in answer.topics for p in topic.partitions if p.error_code
    }  # fmt: skip
