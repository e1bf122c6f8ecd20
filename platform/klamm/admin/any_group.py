"""Groups of all kinds by their names: what they are, and setting their offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klamm.admin import group_reset, share_groups
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, describe_group
from klamm.admin.model import TopicPartition
from klamm.admin.reset import How, Plan, Reset, from_file
from klamm.admin.share_groups import SHARE, describe_share_group
from klamm.admin.streams_groups import StreamsGroup, describe_streams_group
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode


async def describe_any(admin: Admin, group: str) -> Group | StreamsGroup:
    """Return a group of consumers, or of share consumers or Kafka Streams where there is none of that name. Raises AdminError."""
    try:
        return await describe_group(admin, group)
    except AdminError as e:
        if e.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        for describe in (describe_share_group, describe_streams_group):
            try:
                return await describe(admin, group)
            except UnsupportedApi:
                continue
            except AdminError as other:
                if other.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        raise


async def find_any(admin: Admin, group: str) -> Group | StreamsGroup | None:
    """Return what `describe_any` does, or None for a group that does not exist."""
    try:
        return await describe_any(admin, group)
    except AdminError as e:
        if e.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise


def is_share(group: Group | StreamsGroup | None) -> bool:
    """Return whether this is a group of share consumers, whose offsets are the starts of its partitions."""
    return isinstance(group, Group) and group.type == SHARE


async def plan_share_group(
    admin: Admin, group: str, reset: Reset, topics: Sequence[str] | None, *, all_topics: bool
) -> Plan:
    """Return the plan of a reset of a share group's starts, for `topics` or for all that it has begun."""
    starts = await share_groups.starts(admin, group)
    current = {tp: start.offset for tp, start in starts.items() if start.offset is not None}
    partitions: Collection[TopicPartition]
    if reset.how is How.FILE:
        partitions = from_file(reset, group)
    elif all_topics:
        partitions = list(starts)
    else:
        partitions = await group_reset.chosen_partitions(admin, topics or ())
    return await group_reset.plan_partitions(admin, group, reset, partitions, current)
