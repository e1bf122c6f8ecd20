"""The door of Streams groups: what the group coordinator does for them. Each call is as one of `GroupCoordinator`."""

from __future__ import annotations

from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.effects import Effect, Now, Token
from klamm_broker.coordinator.streams import view
from klamm_broker.coordinator.streams.core import StreamsCore
from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.heartbeats import StreamsHeartbeats
from klamm_broker.coordinator.streams.model import StreamsGroupDescription, StreamsHeartbeat
from klamm_kafka.wire.errors import ErrorCode


class StreamsGroups:
    """Connects requests to the modules of Streams groups; groups that load or are gone are answered here."""

    def __init__(self, core: StreamsCore) -> None:
        self._core = core
        self._members = StreamsHeartbeats(core)

    def heartbeat(self, request: StreamsHeartbeat, token: Token, now: Now) -> list[Effect]:
        """Handle a StreamsGroupHeartbeat. The reply is a StreamsResult."""
        turn = self._core.turn
        turn.begin(now)
        self._members.heartbeat(request, token)
        return turn.end()

    def describe(self, group_id: str) -> StreamsGroupDescription:
        """Answer a StreamsGroupDescribe for one group."""
        error, group = self._core.table.found(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, StreamsGroup):
            return view.describe(group)
        text = error.message
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            text = f"Group {group_id} {'not found' if group is None else 'is not a streams group'}."
        return StreamsGroupDescription(group_id=group_id, error=error, error_message=text)

    def watch(self, group: Group) -> None:
        """Start the deadlines of all members of a group that was loaded."""
        assert isinstance(group, StreamsGroup)
        self._core.watch(group)
