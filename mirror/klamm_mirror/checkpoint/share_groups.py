"""The start offsets of share groups (KIP-932), in place of committed offsets.

All records before a partition's start offset are finished. Behind it, records are acknowledged one by one, which no
request tells or sets. A group that goes on elsewhere from its start offset skips no record.

Raises ClientError: NoShareGroups for a cluster that does not know the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from klamm_kafka.client import ClientError, Cluster, UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from klamm_kafka.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from klamm_kafka.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from klamm_kafka.wire.struct import Message
from klamm_mirror.checkpoint.coordinators import Committed, ask, check
from klamm_mirror.offsets.translation import Partition

SHARE_MARK: Final = "klamm:share-group"
"""The metadata of a share group's start offset. A checkpoint has no other place for the kind of its group."""
REFUSALS: Final = frozenset(
    {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Errors of a group that has members, whose name another kind of group has, or that lacks the topic."""


class NoShareGroups(ClientError):
    """The cluster does not know share groups."""


async def start_offsets(cluster: Cluster, group: str) -> dict[Partition, Committed]:
    """Returns a share group's start offsets; an empty dict when the group does not exist."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    answer: DescribeShareGroupOffsetsResponse = await _ask(
        cluster, group, DescribeShareGroupOffsetsRequest(groups=[wanted])
    )
    described = answer.groups[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    _check(cluster, group, described, f"start offsets of share group {group}")
    found: dict[Partition, Committed] = {}
    for topic in described.topics:
        for each in topic.partitions:
            place = f"start offset of share group {group} in {topic.topic_name}-{each.partition_index}"
            _check(cluster, group, each, place)
            found[topic.topic_name, each.partition_index] = Committed(
                each.start_offset, SHARE_MARK, each.lag if each.lag >= 0 else None
            )
    return found


async def set_start_offsets(
    cluster: Cluster, group: str, offsets: Mapping[Partition, Committed]
) -> dict[Partition, int]:
    """Sets start offsets of a share group, which begins to exist by that. Returns the error codes of justified refusals.

    Forgets what the group has acknowledged behind its former start offsets.
    """
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), start in offsets.items():
        topics.setdefault(topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=start.offset)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=t, partitions=p) for t, p in topics.items()],
    )
    answer: AlterShareGroupOffsetsResponse = await _ask(cluster, group, request)
    if answer.error_code in REFUSALS:
        return dict.fromkeys(offsets, answer.error_code)
    _check(cluster, group, answer, f"setting start offsets of share group {group}")
    refused: dict[Partition, int] = {}
    for result in answer.responses:
        for each in result.partitions:
            if each.error_code in REFUSALS:
                refused[result.topic_name, each.partition_index] = each.error_code
                continue
            place = f"setting the start offset of share group {group} in {result.topic_name}-{each.partition_index}"
            _check(cluster, group, each, place)
    return refused


async def forget_start_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> dict[str, int]:
    """Deletes a share group's start offsets in whole topics. Returns the error codes of refusals by topic."""
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=t) for t in topics]
    answer: DeleteShareGroupOffsetsResponse = await _ask(
        cluster, group, DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted)
    )
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    _check(cluster, group, answer, f"deleting start offsets of share group {group}")
    return {t.topic_name: t.error_code for t in answer.responses if t.error_code}


async def _ask(cluster: Cluster, group: str, request: Message) -> Any:
    try:
        return await ask(cluster, group, request, type(request).MAX_VERSION)
    except UnsupportedApi as e:
        raise NoShareGroups(
            f"the cluster does not know share groups ({e}); Apache Kafka knows them from 4.1 on"
        ) from e


def _check(cluster: Cluster, group: str, answer: Any, what: str) -> None:
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise NoShareGroups(f"{what}: {answer.error_message or 'the cluster has share groups switched off'}")
    check(cluster, group, answer.error_code, what)
