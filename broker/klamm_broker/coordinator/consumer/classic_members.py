"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Their generation is their member epoch. A join reconciles them as a heartbeat reconciles the others, with the partitions
that their subscription names as owned. A heartbeat tells them when it is time to join again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from klamm_broker.coordinator.consumer import consumer_protocol, migration
from klamm_broker.coordinator.consumer.change import Change
from klamm_broker.coordinator.consumer.core import Core
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.heartbeats import check_room, check_static, unknown_member
from klamm_broker.coordinator.consumer.member import ClassicSide, ConsumerMember, MemberState
from klamm_broker.coordinator.consumer.model import MigrationPolicy
from klamm_broker.coordinator.effects import Token
from klamm_broker.coordinator.model import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klamm_broker.coordinator.subscription import MalformedSubscription
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class ClassicMembers:
    """Requests of classic members. Except for `heartbeat` and `sync`, calls come when the group has no change under way."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest, token: Token) -> None:
        """Handle a JoinGroup for a consumer group with members. The reply is a JoinResult."""
        try:
            self._join(group, request, token)
        except GroupError as e:
            log.info("group %s: no join of %s: %s", group.group_id, request.member_id, e)
            self._core.turn.reply(token, JoinResult(error=e.code))
        except MalformedSubscription as e:
            log.warning("group %s: subscription of %s: %s", group.group_id, request.member_id, e)
            self._core.turn.reply(token, JoinResult(error=ErrorCode.UNKNOWN_SERVER_ERROR))

    def _join(self, group: ConsumerGroup, request: JoinRequest, token: Token) -> None:
        core, steps = self._core, self._core.steps
        if core.config.migration is MigrationPolicy.DISABLED:
            raise _inconsistent("the group migration is disabled")
        is_new = request.member_id == UNKNOWN_MEMBER_ID
        member_id = core.new_member_id() if is_new else request.member_id
        check_room(group, member_id, core.config.max_size)
        if not _supports(group, request):
            raise _inconsistent(f"Member {member_id}'s protocols are not supported.")
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            core.turn.reply(token, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        change = Change(group=group, now=core.turn.now)
        existing = group.static_member(request.group_instance_id)
        member = self._member(change, request, member_id, existing, is_new=is_new)
        downgrades = existing is not None and migration.may_downgrade_with(
            group, existing, core.config, core.classic_config.max_size
        )
        said = consumer_protocol.read_subscription(request.protocols[0].metadata, steps.topics)
        updated = _updated(member, request, said)
        names_changed = steps.describe_member(change, member, updated)
        regex_changed, _ = steps.update_regexes(change, member, updated)
        bump = names_changed or regex_changed
        epoch = group.epoch
        if bump or group.metadata_stale:
            epoch = steps.refresh_metadata(change, [(member, updated)], bump=bump)
        if downgrades:
            self._downgrade(change, epoch, updated, said, token, bump=bump)
            return
        target = steps.assign(change, epoch, member, updated)
        result = steps.reconcile(change, updated, target, said.owned, subscription_changed=bump)

        def done() -> None:
            core.forget("rejoin", group, result.member_id)
            core.restart_session(group, result)
            core.expect_resync(group, result, request.rebalance_timeout_ms)
            core.turn.reply(token, _joined(result))

        core.write(change, done, lambda error: core.turn.reply(token, JoinResult(error=error)))

    def _downgrade(
        self,
        change: Change,
        epoch: int,
        updated: ConsumerMember,
        said: consumer_protocol.Subscription,
        token: Token,
        *,
        bump: bool,
    ) -> None:
        """Put a classic member in the place of the last static member of the consumer protocol."""
        core, group = self._core, change.group
        rebalance = group.target_epoch < epoch
        if not rebalance:
            target = group.target_epoch, group.target_of(updated.member_id, updated.instance_id)
            updated = core.steps.reconcile(change, updated, target, said.owned, subscription_changed=bump)
        reason = "downgrade from consumer to classic with a stale assignment" if rebalance else None
        core.downgrade(
            group,
            (),
            updated,
            lambda: core.turn.reply(token, _joined(updated)),
            lambda error: core.turn.reply(token, JoinResult(error=error)),
            reason=reason,
        )

    def _member(
        self,
        change: Change,
        request: JoinRequest,
        member_id: str,
        existing: ConsumerMember | None,
        *,
        is_new: bool,
    ) -> ConsumerMember:
        group, instance_id = change.group, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if not is_new:
            return check_static(group, existing, member_id, instance_id)
        if existing is None:
            return ConsumerMember(member_id=member_id)
        log.info("group %s: static member %s replaces %s", group.group_id, member_id, existing.member_id)
        return self._core.steps.replace_static(change, existing, member_id)

    # SyncGroup

    def sync(self, group: ConsumerGroup, request: SyncRequest, token: Token) -> None:
        """Handle a SyncGroup. The reply is a SyncResult."""
        core = self._core
        try:
            member, classic = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
                raise _inconsistent("the protocol type is another one")
            if request.protocol_name not in (None, classic.protocols[0].name):
                raise _inconsistent("the protocol name is another one")
            if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                core.expect_rejoin(group, member)
                raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS, "there is a newer assignment")
            metadata = classic.protocols[0].metadata
            assignment = consumer_protocol.write_assignment(member.assigned, metadata, core.steps.topics)
        except GroupError as e:
            core.turn.reply(token, SyncResult(error=e.code))
            return
        core.forget("resync", group, member.member_id)
        core.restart_session(group, member)
        result = SyncResult(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )
        core.turn.reply(token, result)

    # Heartbeat

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Answer a Heartbeat: REBALANCE_IN_PROGRESS when the member has to get or to give up partitions."""
        try:
            member, _ = _classic_member(group, member_id, group_instance_id)
            _check_generation(member, generation_id)
        except GroupError as e:
            return e.code
        self._core.restart_session(group, member)
        waits = member.state is MemberState.UNRELEASED_PARTITIONS
        if (
            member.epoch < group.target_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (waits and not group.waits_for_release(member))
        ):
            self._core.expect_rejoin(group, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # LeaveGroup

    def leave(self, group: ConsumerGroup, members: Sequence[LeavingMember], token: Token) -> None:
        """Handle a LeaveGroup, which may name members of either protocol. The reply is a LeaveResult."""
        turn = self._core.turn
        results: list[tuple[LeavingMember, ErrorCode]] = []
        going: dict[str, ConsumerMember] = {}
        for leaving in members:
            try:
                member = _leaving(group, leaving)
            except GroupError as e:
                results.append((leaving, e.code))
            else:
                results.append((leaving, ErrorCode.NONE))
                going[member.member_id] = member
        try:
            self._core.fence(
                group,
                list(going.values()),
                lambda: turn.reply(token, LeaveResult(members=tuple(results))),
                lambda error: turn.reply(token, LeaveResult(error=error)),
            )
        except GroupError as e:
            turn.reply(token, LeaveResult(error=e.code))


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.group_instance_id is None:
        member = group.members.get(leaving.member_id)
        if member is None:
            raise unknown_member(group, leaving.member_id)
        return member
    existing = group.static_member(leaving.group_instance_id)
    # An administrator removes static members by their instance id alone.
    named = leaving.member_id or ("" if existing is None else existing.member_id)
    return check_static(group, existing, named, leaving.group_instance_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
    else:
        member = check_static(group, group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member, member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.epoch != generation_id:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION, f"the generation is {member.epoch}")


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Decides whether the request is a consumer's and has a protocol that all classic members have."""
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    others = [{p.name for p in m.classic.protocols} for m in group.members.values() if m.classic is not None]
    return any(all(p.name in names for names in others) for p in request.protocols)


def _inconsistent(why: str) -> GroupError:
    return GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)


def _updated(
    member: ConsumerMember, request: JoinRequest, said: consumer_protocol.Subscription
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=said.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=said.topics,
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicSide(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols),
    )


def _joined(member: ConsumerMember) -> JoinResult:
    assert member.classic is not None
    return JoinResult(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0].name,
        member_id=member.member_id,
    )
