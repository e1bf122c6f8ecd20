"""Requests of members of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each request is checked against the present group, and answered at once or parked; `rebalance.py` does what follows from
it. The order of the checks is Kafka's, because clients act on the first error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from klamm_broker.coordinator import records
from klamm_broker.coordinator.effects import Token, Turn
from klamm_broker.coordinator.group import ClassicGroup, Member
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.model import (
    UNKNOWN_MEMBER_ID,
    GroupConfig,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klamm_broker.coordinator.rebalance import Rebalancer, append_error
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_MEMBER_ID_STEM_MAX: Final = 8_000
"""Characters of a client or instance id that go into a member id: at four bytes each, with the UUID, they
fit the 32,767 bytes of a string on the wire."""


class Membership:
    """Requests of members, on one group each. The coordinator finds and creates groups."""

    def __init__(
        self, config: GroupConfig, rebalancer: Rebalancer, turn: Turn, *, new_uuid: Callable[[], str]
    ) -> None:
        self._config = config
        self._rebalancer = rebalancer
        self._turn = turn
        self._new_uuid = new_uuid

    # JoinGroup

    def join(self, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
        """Handle a JoinGroup whose group exists (it may have been made for this request)."""
        member_id = request.member_id
        if not self._has_room_for(group, member_id):
            self._rebalancer.remove_member(group, member_id)
            self._rebalancer.complete_join_if_all_joined(group)
            self._refuse_join(token, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse_join(token, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, token)
        elif member_id in group.pending_members:
            if request.group_instance_id is None:
                self._add(group, request, member_id, token)
            else:  # the id was given to a dynamic member
                self._refuse_join(token, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            error = group.validate_member(member_id, request.group_instance_id)
            if error is ErrorCode.NONE:
                self._join_again(group, request, group.members[member_id], token)
            else:
                self._refuse_join(token, member_id, error)

    def _refuse_join(self, token: Token, member_id: str, error: ErrorCode) -> None:
        self._turn.reply(token, JoinResult(error=error, member_id=member_id))

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                # Members that wait count, not all members: if group.max.size was lowered, the last to join again are turned away.
                member = group.members.get(member_id)
                waits = member is not None and member.join_token is not None
                return waits or group.num_awaiting_join < self._config.max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member_id in group.members or len(group.members) < self._config.max_size
            case _:
                return True

    def _join_new(self, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
        instance_id = request.group_instance_id
        stem = request.client_id if instance_id is None else instance_id
        member_id = f"{stem[:_MEMBER_ID_STEM_MAX]}-{self._new_uuid()}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                self._add(group, request, member_id, token)
            else:
                self._replace_static(group, request, old_id, member_id, token)
        elif not request.requires_known_member_id:
            self._add(group, request, member_id, token)
        elif len(group.pending_members) >= self._config.max_pending_members:
            self._refuse_join(token, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            self._rebalancer.expect_pending_member(group, member_id, request.session_timeout_ms)
            self._refuse_join(token, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str, token: Token) -> None:
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.initial_delay is not None:
            group.initial_delay.member_added = True
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            join_token=token,
        )
        group.add(member)
        self._rebalancer.restart_session(group, member)
        self._rebalancer.prepare_or_complete(group, f"{member_id} joins; client reason: {request.reason}")

    def _join_again(self, group: ClassicGroup, request: JoinRequest, member: Member, token: Token) -> None:
        changed = member.protocols != request.protocols
        leads = group.leader_id == member.member_id
        if group.state is GroupState.COMPLETING_REBALANCE and not changed:
            # The answer to its last JoinGroup was lost.
            self._turn.reply(token, self._rebalancer.generation(group, member))
        elif group.state is GroupState.STABLE and not changed and not leads:
            self._turn.reply(token, self._rebalancer.generation(group, member))
        else:
            # A leader that joins again asks for a rebalance, as the input of its assignment has changed.
            self._update(group, request, member)
            self._rebalancer.park_join(group, member, token)
            self._rebalancer.prepare_or_complete(
                group, f"{member.member_id} joins again; client reason: {request.reason}"
            )

    def _update(self, group: ClassicGroup, request: JoinRequest, member: Member) -> None:
        group.update(
            member,
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
        )

    # Static membership

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, old_id: str, new_id: str, token: Token
    ) -> None:
        """Let a restarted static member take the place of its former self, which is fenced."""
        member = group.members[old_id]
        log.info("group %s: static member %s replaces %s", group.group_id, new_id, old_id)
        self._rebalancer.release(group, member, ErrorCode.FENCED_INSTANCE_ID, answer_as=old_id)
        self._rebalancer.forget_session(group, old_id)
        was_leader = group.leader_id
        group.replace_static_member(old_id, new_id)
        self._update(group, request, member)
        member.client_id, member.client_host = request.client_id, request.client_host
        self._rebalancer.restart_session(group, member)
        group.set_join_token(member, token)
        reason = f"static member {new_id} replaces {old_id}; client reason: {request.reason}"
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._store_replacement(group, request, member, token, was_leader or "")
        else:
            # In CompletingRebalance the leader may assign to the old id, so that generation is lost.
            self._rebalancer.prepare_or_complete(group, reason)

    def _store_replacement(
        self, group: ClassicGroup, request: JoinRequest, member: Member, token: Token, was_leader: str
    ) -> None:
        """Persist the new id; once it is durable the member goes on with its old assignment."""
        generation_id = group.generation_id

        def then(error: ErrorCode) -> None:
            if (
                group.state is not GroupState.STABLE
                or group.generation_id != generation_id
                or member.join_token is not token
            ):
                return  # a rebalance has begun and answers the member
            if error is not ErrorCode.NONE:
                # A restart would not find the live state, so the group makes a new generation.
                self._rebalancer.answer_join(group, member, JoinResult(error=append_error(error)))
                self._rebalancer.prepare(group, f"error {error.name} when storing {member.member_id}")
                return
            result = self._rebalancer.generation(group, member)
            if request.supports_skipping_assignment:
                leads = group.leader_id == member.member_id
                result = self._rebalancer.generation(group, member, skip_assignment=leads)
            else:
                # An older client that found itself leader would assign, so it is told its former id.
                result = JoinResult(
                    generation_id=result.generation_id,
                    protocol_type=result.protocol_type,
                    protocol_name=result.protocol_name,
                    leader=was_leader,
                    member_id=result.member_id,
                )
            self._rebalancer.answer_join(group, member, result)

        assigned = {id_: m.assignment for id_, m in group.members.items()}
        self._turn.append(group.partition, [records.group_metadata(group, assigned)], then)

    # SyncGroup

    def sync(self, group: ClassicGroup, request: SyncRequest, token: Token) -> None:
        """Handle a SyncGroup whose group exists."""
        error = self._validate_sync(group, request)
        if error is not ErrorCode.NONE:
            self._turn.reply(token, SyncResult(error=error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._rebalancer.park_sync(group, member, token)
            if group.leader_id == member.member_id:
                self._rebalancer.store_assignment(group, request.assignments)
        else:
            self._rebalancer.sync_received(group, member)
            self._turn.reply(token, self._rebalancer.assignment(group, member))

    def _validate_sync(self, group: ClassicGroup, request: SyncRequest) -> ErrorCode:
        error = group.validate_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if _differ(request.protocol_type, group.protocol_type) or _differ(
            request.protocol_name, group.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Heartbeat

    def heartbeat(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Handle a Heartbeat whose group exists."""
        error = group.validate_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalancer.restart_session(group, group.members[member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # LeaveGroup

    def leave(self, group: ClassicGroup, members: Sequence[LeavingMember]) -> LeaveResult:
        """Handle a LeaveGroup whose group exists."""
        results = tuple((member, self._leave(group, member)) for member in members)
        left = [member for member, error in results if error is ErrorCode.NONE]
        if left:
            names = ", ".join(m.member_id or str(m.group_instance_id) for m in left)
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalancer.prepare(group, f"{names} left; client reason: {left[0].reason}")
            else:
                self._rebalancer.complete_join_if_all_joined(group)
        return LeaveResult(members=results)

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes static members by their instance id.
            found = group.static_members.get(leaving.group_instance_id or "")
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in group.pending_members:
            error = group.validate_member(member_id, leaving.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalancer.remove_member(group, member_id)
        return ErrorCode.NONE


def _differ(asked: str | None, current: str | None) -> bool:
    return asked is not None and current is not None and asked != current
