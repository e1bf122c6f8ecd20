"""The groups of all kinds by name, and the check whether a group is available at the moment."""

from __future__ import annotations

import logging

from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.model import GroupConfig
from klamm_broker.coordinator.partitioning import partition_for
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class GroupTable:
    """The table. `loading` are the partitions of `__consumer_offsets` that are being replayed: their groups are unknown yet."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.loading: set[int] = set()
        self.closing = False

    def unavailable(self, group_id: str) -> ErrorCode:
        """Returns why nothing can be done with this group now; NONE when something can."""
        if self.closing:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = self.groups.get(group_id)
        if group is not None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if group.deleting else ErrorCode.NONE
        if self.loading and self.partition_for(group_id) in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def found(self, group_id: str, missing: ErrorCode) -> tuple[ErrorCode, Group | None]:
        """Returns the group, or the error why there is none: `missing` when it does not exist."""
        error = self.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return error, None
        return missing, self.groups.get(group_id)

    def found_or_made(self, group_id: str, wall_ms: int) -> tuple[ErrorCode, Group | None]:
        """Returns the group, if necessary a new classic one."""
        group = self.groups.get(group_id)
        if group is None:
            if len(self.groups) >= self.config.max_groups:
                # The error is not retriable on purpose: waiting does not help, and the client's log should say so.
                return ErrorCode.POLICY_VIOLATION, None
            group = self.make(group_id, wall_ms)
        return ErrorCode.NONE, group

    def make(self, group_id: str, wall_ms: int) -> ClassicGroup:
        """Make a new classic group, which replaces any group of that name."""
        group = ClassicGroup(group_id, partition=self.partition_for(group_id), wall_ms=wall_ms)
        self.groups[group_id] = group
        return group

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.config.offsets_topic_partitions)

    def on_offsets_topic_created(self, partitions: int) -> None:
        """Take over the number of partitions of the new, empty `__consumer_offsets`; its creator chose it."""
        self.config = self.config._replace(offsets_topic_partitions=partitions)
        for group in self.groups.values():
            group.partition = self.partition_for(group.group_id)
