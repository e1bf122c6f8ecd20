"""Requests of group members, of either protocol: finds the group and hands them to the handler of its kind.

A request of the classic protocol may find a consumer group, and the other way round. Then the group changes its kind, or
takes in members of both (`consumer/`). While such a change is being written, requests for that group wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm_broker.coordinator import kinds, records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer.classic_members import ClassicMembers
from klamm_broker.coordinator.consumer.core import Core
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.heartbeats import Heartbeats
from klamm_broker.coordinator.consumer.model import HeartbeatRequest, HeartbeatResult
from klamm_broker.coordinator.effects import Token, Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.membership import Membership
from klamm_broker.coordinator.model import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klamm_broker.coordinator.rebalance import append_error
from klamm_broker.coordinator.table import GroupTable
from klamm_kafka.wire.errors import ErrorCode


class Members:
    """Dispatches members' requests. `drop_if_void` forgets a group that a request has left empty."""

    def __init__(
        self,
        table: GroupTable,
        turn: Turn,
        membership: Membership,
        core: Core,
        drop_if_void: Callable[[ClassicGroup], None],
    ) -> None:
        self._table = table
        self._turn = turn
        self._membership = membership
        self._core = core
        self._heartbeats = Heartbeats(core)
        self._classic_members = ClassicMembers(core)
        self._drop_if_void = drop_if_void

    # The consumer protocol

    def consumer_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        """Handle a ConsumerGroupHeartbeat. The reply is a HeartbeatResult."""
        error = self._table.unavailable(request.group_id)
        if not self._core.config.enabled:
            error = ErrorCode.UNSUPPORTED_VERSION
        if error is not ErrorCode.NONE:
            self._turn.reply(token, HeartbeatResult(error=error, error_message=error.message))
        else:
            self._heartbeats.heartbeat(request, token)

    # The classic protocol

    def join(self, request: JoinRequest, token: Token) -> None:
        """Handle a JoinGroup. The reply is a JoinResult."""
        self._core.journal.when_free(
            request.group_id,
            lambda: self._join(request, token),
            lambda: self._refuse_join(request, token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _join(self, request: JoinRequest, token: Token) -> None:
        error = self._refused(request)
        group = self._table.groups.get(request.group_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(request, token, error)
        elif isinstance(group, ConsumerGroup):
            if group.is_empty:
                self._make_classic(group, request, token)
            else:
                self._classic_members.join(group, request, token)
        elif group is not None and group.kind == "streams" and group.is_empty:
            self._make_classic(group, request, token)
        elif group is not None and not isinstance(group, ClassicGroup):
            self._refuse_join(request, token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif group is None and request.member_id != UNKNOWN_MEMBER_ID:
            self._refuse_join(request, token, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            error, group = self._table.found_or_made(request.group_id, self._turn.now.wall_ms)
            if isinstance(group, ClassicGroup):
                self._membership.join(group, request, token)
                self._drop_if_void(group)
            else:
                self._refuse_join(request, token, error)

    def _refused(self, request: JoinRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        error = self._table.unavailable(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        config = self._table.config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _refuse_join(self, request: JoinRequest, token: Token, error: ErrorCode) -> None:
        self._turn.reply(token, JoinResult(error=error, member_id=request.member_id))

    def _make_classic(self, group: Group, request: JoinRequest, token: Token) -> None:
        """Make a consumer or Streams group without members a classic one; its offsets stay."""
        if request.member_id != UNKNOWN_MEMBER_ID:
            self._refuse_join(request, token, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        classic = ClassicGroup(group.group_id, partition=group.partition, wall_ms=self._turn.now.wall_ms)
        classic.has_metadata_record = True
        classic.take_offsets(group)

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._refuse_join(request, token, append_error(error))
                return
            self._table.groups[group.group_id] = classic
            self._membership.join(classic, request, token)

        made = [*kinds.tombstones(group), records.group_metadata(classic, {})]
        self._core.journal.write(
            group.group_id,
            group.partition,
            made,
            done,
            refuse=lambda: self._refuse_join(request, token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def sync(self, request: SyncRequest, token: Token) -> None:
        """Handle a SyncGroup. The reply is a SyncResult."""
        self._core.journal.when_free(
            request.group_id,
            lambda: self._sync(request, token),
            lambda: self._turn.reply(token, SyncResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)),
        )

    def _sync(self, request: SyncRequest, token: Token) -> None:
        error = ErrorCode.INVALID_GROUP_ID
        group = None
        if request.group_id:
            error, group = self._table.found(request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ClassicGroup):
            self._membership.sync(group, request, token)
        elif isinstance(group, ConsumerGroup):
            self._classic_members.sync(group, request, token)
        else:
            self._turn.reply(token, SyncResult(error=error))

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Answer a Heartbeat. Only durable state decides, so it never waits."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        error, group = self._table.found(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ClassicGroup):
            return self._membership.heartbeat(group, member_id, group_instance_id, generation_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, member_id, group_instance_id, generation_id)
        return error

    def leave(self, group_id: str, members: Sequence[LeavingMember], token: Token) -> None:
        """Handle a LeaveGroup. The reply is a LeaveResult."""
        self._core.journal.when_free(
            group_id,
            lambda: self._leave(group_id, members, token),
            lambda: self._turn.reply(token, LeaveResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)),
        )

    def _leave(self, group_id: str, members: Sequence[LeavingMember], token: Token) -> None:
        error = ErrorCode.INVALID_GROUP_ID
        group = None
        if group_id:
            error, group = self._table.found(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ClassicGroup):
            self._turn.reply(token, self._membership.leave(group, members))
            self._drop_if_void(group)
        elif isinstance(group, ConsumerGroup):
            self._classic_members.leave(group, members, token)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._turn.reply(token, LeaveResult(members=tuple((m, error) for m in members)))
        else:
            self._turn.reply(token, LeaveResult(error=error))
