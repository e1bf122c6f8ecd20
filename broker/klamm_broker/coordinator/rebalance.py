"""The rebalance of a classic group: join phase, sync phase, session expiry.

Invariant: a member's session deadline is set from the moment it is added until it is removed, except while
its JoinGroup or SyncGroup is parked (then the phase's own deadline, which is always set, decides). So no silent member
can stay for ever, and no phase can last longer than the rebalance timeout.

`membership.py` decides whether a request may make a change; this module decides what follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from klamm_broker.coordinator import records
from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.group import ClassicGroup, InitialDelay, Member
from klamm_broker.coordinator.group_state import Event, GroupState
from klamm_broker.coordinator.model import GroupConfig, JoinResult, SyncResult
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_NOT_AVAILABLE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}
)


def append_error(error: ErrorCode, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """Returns the error that a group member gets when its group's records could not be written.

    A member knows nothing of partitions and their leaders, so the error is one about its coordinator.
    """
    if error in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return too_large if error in _TOO_LARGE else error


class Rebalancer:
    """Moves groups through their phases. Its deadlines have keys that start with `join`, `sync`, `session`."""

    def __init__(self, config: GroupConfig, timers: Timers, turn: Turn) -> None:
        self._config = config
        self._timers = timers
        self._turn = turn

    # Start of a rebalance

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance. If one is starting already, end its join phase if that is complete."""
        if group.can_rebalance:
            self.prepare(group, reason)
        else:
            self.complete_join_if_all_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance: everybody has to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs(group)
        initial = group.state is GroupState.EMPTY
        group.handle(Event.REBALANCE, self._turn.now.wall_ms)
        log.debug(
            "group %s prepares to rebalance, generation %d: %s", group.group_id, group.generation_id, reason
        )
        if initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            self._set(("join", group.group_id), delay_ms)
        elif group.has_all_members_joined:
            self.complete_join(group)
        else:
            self._set(("join", group.group_id), max(group.rebalance_timeout_ms, 1))

    # Join phase

    def complete_join_if_all_joined(self, group: ClassicGroup) -> None:
        """End the join phase early. The first one of an empty group always waits for its delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay is None
            and group.has_all_members_joined
        ):
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """End the join phase with the members that came. Static members may stay away without losing their place."""
        self._timers.cancel(("join", group.group_id))
        group.initial_delay = None
        for member in group.not_yet_rejoined():
            if member.group_instance_id is None:
                log.info("group %s: %s did not join again in time", group.group_id, member.member_id)
                self.remove_member(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has come: wait until a member comes or their sessions end.
            log.warning("group %s could not complete its rebalance: no member has joined", group.group_id)
            self._set(("join", group.group_id), max(group.rebalance_timeout_ms, 1))
            return
        group.next_generation(self._turn.now.wall_ms)
        if group.state is GroupState.EMPTY:
            self._store_empty(group)
        else:
            self._answer_joins(group)
            self._set(("sync", group.group_id), max(group.rebalance_timeout_ms, 1))

    def _store_empty(self, group: ClassicGroup) -> None:
        def then(error: ErrorCode) -> None:
            # A restart would find the last generation and time its members out: late, but not wrong.
            if error is not ErrorCode.NONE:
                log.warning("group %s: could not store that it is empty: %s", group.group_id, error.name)

        log.debug("group %s is empty, generation %d", group.group_id, group.generation_id)
        group.has_metadata_record = True
        self._turn.append(group.partition, [records.group_metadata(group, {})], then)

    def _answer_joins(self, group: ClassicGroup) -> None:
        log.info(
            "group %s: generation %d with %d members", group.group_id, group.generation_id, len(group.members)
        )
        for member in list(group.members.values()):
            member.is_new = False
            self.answer_join(group, member, self.generation(group, member))
            self.restart_session(group, member)
            group.pending_sync.add(member.member_id)

    def generation(self, group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        """Returns the current generation for a JoinGroup. Only the leader learns of the other members."""
        is_leader = group.leader_id == member.member_id
        return JoinResult(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=group.joined_members() if is_leader else (),
        )

    def answer_join(self, group: ClassicGroup, member: Member, result: JoinResult) -> None:
        """Answer the member's parked JoinGroup, if it has one. Its session may have run out meanwhile."""
        if member.join_token is not None:
            self._turn.reply(member.join_token, result)
            group.set_join_token(member, None)
            self.restart_session(group, member)

    def park_join(self, group: ClassicGroup, member: Member, token: object) -> None:
        """Park a JoinGroup. Answers one that was parked before: its sender has given up on it."""
        self.answer_join(
            group, member, JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        )
        group.set_join_token(member, token)

    # Sync phase

    def park_sync(self, group: ClassicGroup, member: Member, token: object) -> None:
        """Park a SyncGroup until the assignment is durable. Answers one that was parked before."""
        self._answer_sync(group, member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        self.sync_received(group, member)

    def sync_received(self, group: ClassicGroup, member: Member) -> None:
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(("sync", group.group_id))

    def store_assignment(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Write the leader's assignment; when it is durable, hand it out."""
        if group.assigning_generation == group.generation_id:
            return  # the leader asks again while its first answer is being written: that one counts
        generation_id = group.generation_id
        group.assigning_generation = generation_id
        group.has_metadata_record = True
        assigned = {id_: assignments.get(id_, b"") for id_ in group.members}

        def then(error: ErrorCode) -> None:
            if group.assigning_generation == generation_id:
                group.assigning_generation = None
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # a member joined or left meanwhile, and all were told to join again
            if error is ErrorCode.NONE:
                self._hand_out(group, assigned)
            else:
                self._drop_assignment(group, append_error(error))
                self.prepare(group, f"error {error.name} when storing the assignment")

        self._turn.append(group.partition, [records.group_metadata(group, assigned)], then)

    def _hand_out(self, group: ClassicGroup, assigned: Mapping[str, bytes]) -> None:
        for member in group.members.values():
            member.assignment = assigned[member.member_id]
        group.handle(Event.ASSIGNMENT_STORED, self._turn.now.wall_ms)
        for member in group.members.values():
            self._answer_sync(group, member, self.assignment(group, member))

    def assignment(self, group: ClassicGroup, member: Member) -> SyncResult:
        """Returns the member's current assignment for a SyncGroup."""
        return SyncResult(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    def _drop_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, SyncResult(error=error))

    def _answer_sync(self, group: ClassicGroup, member: Member, result: SyncResult) -> None:
        if member.sync_token is not None:
            self._turn.reply(member.sync_token, result)
            member.sync_token = None
            self.restart_session(group, member)

    def _stop_waiting_for_syncs(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._timers.cancel(("sync", group.group_id))

    # Sessions and deadlines

    def restart_session(self, group: ClassicGroup, member: Member) -> None:
        """Restart the session of a member that was heard of."""
        timeout_ms = self._config.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
        self._set(("session", group.group_id, member.member_id), timeout_ms)

    def expect_pending_member(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Set the deadline for a member to come back with the id that it was given."""
        group.pending_members.add(member_id)
        self._set(("session", group.group_id, member_id), timeout_ms)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(("session", group.group_id, member_id))

    def release(
        self, group: ClassicGroup, member: Member, error: ErrorCode, *, answer_as: str | None = None
    ) -> None:
        """Answer everything that the member has parked with `error`."""
        result = JoinResult(error=error, member_id="" if answer_as is None else answer_as)
        self.answer_join(group, member, result)
        self._answer_sync(group, member, SyncResult(error=error))

    def retire(self, group: ClassicGroup) -> None:
        """End this kind of group: send waiting requests away to ask again, and cancel all deadlines."""
        for member in group.members.values():
            self.release(group, member, ErrorCode.REBALANCE_IN_PROGRESS, answer_as=member.member_id)
        self._timers.cancel(("join", group.group_id))
        self._timers.cancel(("sync", group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self.forget_session(group, member_id)

    def remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or a pending one, and all that belongs to it. Starts no rebalance."""
        member = group.members.get(member_id)
        if member is not None:
            self.release(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        self.forget_session(group, member_id)

    def expire_session(self, group: ClassicGroup, member_id: str) -> None:
        """Handle the deadline of a member, or of a pending one."""
        if member_id in group.pending_members:
            log.info("group %s: %s never came back with its id", group.group_id, member_id)
            self.remove_member(group, member_id)
            self._complete_join_without_delay(group)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.join_token is not None or member.sync_token is not None):
            return  # its request is parked, so it cannot send heartbeats; the answer restarts its session
        log.info("group %s: session of %s has expired", group.group_id, member_id)
        self.remove_member(group, member_id)
        if group.can_rebalance:
            self.prepare(group, f"session of {member_id} has expired")
        else:
            self._complete_join_without_delay(group)

    def expire_join(self, group: ClassicGroup) -> None:
        """Handle the deadline of the join phase. The first join phase goes on while members come in."""
        delay = group.initial_delay
        if delay is None or not delay.member_added or delay.remaining_ms == 0:
            self.complete_join(group)
            return
        delay_ms = min(self._config.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        self._set(("join", group.group_id), delay_ms)

    def expire_sync(self, group: ClassicGroup) -> None:
        """Handle the deadline of the sync phase: remove members that did not sync."""
        missing = [id_ for id_ in group.pending_sync if id_ in group.members]
        if not missing or not group.can_rebalance:
            return
        for member_id in missing:
            self.remove_member(group, member_id)
        self.prepare(group, f"no SyncGroup came from {', '.join(missing)}")

    def _complete_join_without_delay(self, group: ClassicGroup) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self.complete_join(group)

    def _set(self, key: tuple[str, ...], after_ms: int) -> None:
        self._timers.set(key, self._turn.now.mono_ms + after_ms)
