"""Asks the coordinators of a cluster: which groups are what, who reads which partition, and where share groups are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, GroupListing, list_groups
from klamm.admin.members import with_members
from klamm.admin.model import TopicPartition
from klamm.lag.model import Owner
from klamm.lag.sources import Position, WholeSource
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

CONNECT_PREFIX: Final = "connect-"
"""A sink's tasks are the members of the group `connect-NAME`."""


@dataclass(frozen=True, slots=True)
class Known:
    """A group: its kind, and the owners of partitions."""

    kind: str
    owners: dict[TopicPartition, Owner] = field(default_factory=dict)


async def describe_all(admin: Admin) -> dict[str, Known]:
    """Returns the groups of a cluster. Members are known for groups of consumers. Raises AdminError, ClientError."""
    return {
        listing.group: Known(kind, _owners(group) if isinstance(group, Group) else {})
        for listing, group in await with_members(admin, consumers_only=False)
        if (kind := kind_of(listing)) is not None
    }


def kind_of(group: GroupListing) -> str | None:
    """Returns what a group is; None for one that has no offsets, such as a group of workers."""
    if group.type in {"Share", "Streams"}:
        return group.type.lower()
    if group.protocol_type not in {"", "consumer"}:
        return None
    return "connect" if group.group.startswith(CONNECT_PREFIX) else "consumer"


def _owners(group: Group) -> dict[TopicPartition, Owner]:
    return {tp: Owner(m.host.removeprefix("/"), m.client_id) for m in group.members for tp in m.assignment}


class ShareSource(WholeSource):
    """The share groups of a cluster: where each partition begins that is not yet acknowledged.

    A share group tells no time of its commits. While it has members it counts as committing at each poll.
    """

    name = "share groups"
    caught_up = True

    def __init__(self, admin: Admin, cluster: str) -> None:
        self._admin = admin
        self._cluster = cluster
        self._last: dict[tuple[str, TopicPartition], tuple[tuple[int, int], int]] = {}

    def places(self) -> dict[TopicPartition, int]:
        return {}

    async def poll(self, now_ms: int) -> list[Position]:
        try:
            listed = await list_groups(self._admin, types=["Share"])
        except (AdminError, UnsupportedApi):
            return []  # a cluster without share groups
        found: list[Position] = []
        for group in listed:
            found += await self._of(group, now_ms)
        return found

    async def _of(self, group: GroupListing, now_ms: int) -> list[Position]:
        asked = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group.group, topics=None)]
        )
        answer = await self._admin.ask_coordinator(group.group, asked)
        found = []
        for topic in answer.groups[0].topics:
            for p in topic.partitions:
                if p.error_code or p.start_offset < 0:
                    continue
                tp = TopicPartition(topic.topic_name, p.partition_index)
                place = (p.start_offset, p.lag)
                before, at_ms = self._last.get((group.group, tp), (None, now_ms))
                if group.state != "Empty" or place != before:
                    at_ms = now_ms
                self._last[group.group, tp] = (place, at_ms)
                lag = p.lag if p.lag >= 0 else None
                found.append(
                    Position(self._cluster, group.group, "share", tp, p.start_offset, at_ms, at_ms, lag)
                )
        return found
