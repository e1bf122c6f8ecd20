"""The door of share groups: what the group coordinator does for them. Each call is as one of `GroupCoordinator`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.effects import Effect, Now, Token, Turn
from klamm_broker.coordinator.share.core import ShareCore
from klamm_broker.coordinator.share.group import ShareGroup
from klamm_broker.coordinator.share.heartbeats import ShareHeartbeats
from klamm_broker.coordinator.share.model import (
    AlteredOffsets,
    DeletedOffsets,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
)
from klamm_broker.coordinator.share.offsets import ShareOffsets
from klamm_broker.coordinator.table import GroupTable
from klamm_kafka.wire.errors import ErrorCode


class ShareGroups:
    """Connects requests to the modules of share groups; groups that load or are gone are answered here."""

    def __init__(self, *, table: GroupTable, turn: Turn, core: ShareCore) -> None:
        self._table = table
        self._turn = turn
        self._core = core
        self.members = ShareHeartbeats(core)
        self.offsets = ShareOffsets(core)

    def heartbeat(self, request: ShareHeartbeat, token: Token, now: Now) -> list[Effect]:
        """Handle a ShareGroupHeartbeat. The reply is a ShareHeartbeatResult."""
        self._turn.begin(now)
        error = self._table.unavailable(request.group_id)
        if error is ErrorCode.NONE:
            self.members.heartbeat(request, token)
        else:
            self._turn.reply(token, ShareHeartbeatResult(error=error, error_message=error.message))
        return self._turn.end()

    def describe(self, group_id: str) -> ShareGroupDescription:
        """Answer a ShareGroupDescribe for one group."""
        error = self._table.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return ShareGroupDescription(group_id=group_id, error=error, error_message=error.message)
        return self.members.describe(group_id)

    def partitions(self, group_id: str) -> tuple[ErrorCode, Mapping[bytes, Collection[int]]]:
        """Returns the partitions whose state is stored, by topic id."""
        return self._table.unavailable(group_id), self.offsets.initialized(group_id)

    def alter_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]], token: Token, now: Now
    ) -> list[Effect]:
        """Handle an AlterShareGroupOffsets. The reply is an AlteredOffsets."""
        self._turn.begin(now)
        error = self._table.unavailable(group_id)
        if error is ErrorCode.NONE:
            self.offsets.alter(group_id, offsets, token)
        else:
            self._turn.reply(token, AlteredOffsets(error, error.message))
        return self._turn.end()

    def delete_offsets(self, group_id: str, topics: Sequence[str], token: Token, now: Now) -> list[Effect]:
        """Handle a DeleteShareGroupOffsets. The reply is a DeletedOffsets."""
        self._turn.begin(now)
        error = self._table.unavailable(group_id)
        if error is ErrorCode.NONE:
            self.offsets.delete(group_id, topics, token)
        else:
            self._turn.reply(token, DeletedOffsets(error, error.message))
        return self._turn.end()

    def watch(self, group: Group) -> None:
        """Start the sessions of all members of a group that was loaded."""
        assert isinstance(group, ShareGroup)
        for member_id in group.members:
            self.members.restart_session(group, member_id)

    def delete_states(self, group: Group, then: Callable[[ErrorCode], None]) -> None:
        """Delete the states of all its partitions, before the group itself goes. `then` gets the first error."""
        assert isinstance(group, ShareGroup)
        self.offsets.delete_states(group, then)

    def known_topics(self) -> frozenset[bytes]:
        """Returns the ids of all topics whose partitions have a state in some group."""
        groups = [g for g in self._core.groups.values() if isinstance(g, ShareGroup)]
        return frozenset(
            topic_id
            for group in groups
            for topics in (group.initializing, group.initialized, group.deleting_topics)
            for topic_id in topics
        )

    def on_topics_deleted(self, topic_ids: frozenset[bytes], now: Now) -> list[Effect]:
        """Forget deleted topics."""
        self._turn.begin(now)
        self._core.forget_topics(topic_ids)
        return self._turn.end()
