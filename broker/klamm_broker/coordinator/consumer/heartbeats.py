"""ConsumerGroupHeartbeat: members of the consumer protocol join, report, reconcile and leave.

A heartbeat that changes something is answered once the change is durable, any other one at once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from klamm_broker.coordinator.consumer import records
from klamm_broker.coordinator.consumer.assignment import Assignment
from klamm_broker.coordinator.consumer.change import Change
from klamm_broker.coordinator.consumer.core import Core
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Owned,
)
from klamm_broker.coordinator.consumer.model import HeartbeatRequest, HeartbeatResult
from klamm_broker.coordinator.effects import Token
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_MUST_REJOIN: Final = "The member must abandon all its partitions and rejoin."


class Heartbeats:
    """Handles heartbeats of members of the consumer protocol."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        """Handle a heartbeat of a loaded group. The reply is a HeartbeatResult."""
        try:
            self._check(request)
        except GroupError as e:
            self._refuse(token, e)
            return
        self._core.journal.when_free(
            request.group_id,
            lambda: self._handle(request, token),
            lambda: self._failed(token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _handle(self, request: HeartbeatRequest, token: Token) -> None:
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                self._leave(request, token)
            else:
                self._heartbeat(request, token)
        except GroupError as e:
            self._refuse(token, e)

    def _refuse(self, token: Token, error: GroupError) -> None:
        self._core.turn.reply(token, HeartbeatResult(error=error.code, error_message=str(error)))

    def _failed(self, token: Token, error: ErrorCode) -> None:
        self._core.turn.reply(token, HeartbeatResult(error=error, error_message=error.message))

    # Malformed requests

    def _check(self, request: HeartbeatRequest) -> None:
        epoch = request.member_epoch
        required = request.brings_member_id or epoch > 0 or epoch == LEAVE_EPOCH
        names = {
            "MemberId": request.member_id if required else None,
            "GroupId": request.group_id,
            "InstanceId": request.instance_id,
            "RackId": request.rack_id,
        }
        for name, value in names.items():
            if value is not None and not value.strip():
                raise _invalid(f"{name} can't be empty.")
        if epoch == JOIN_EPOCH:
            _check_join(request)
        elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        elif epoch < STATIC_LEAVE_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        known = self._core.config.assignors
        if request.server_assignor is not None and request.server_assignor not in known:
            raise GroupError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(known)}.",
            )

    # Heartbeat

    def _heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        core, steps = self._core, self._core.steps
        change = core.open(request.group_id, create=request.member_epoch == JOIN_EPOCH)
        group = change.group
        check_room(group, request.member_id, core.config.max_size)
        member_id = request.member_id or core.new_member_id()
        member = self._member(change, request, member_id)
        updated = _updated(member, request)
        names_changed = steps.describe_member(change, member, updated)
        change.sees = request.sees
        regex_changed, regex_known = steps.update_regexes(change, member, updated)
        # A regular expression that must be matched first begins a new epoch after that.
        bump = names_changed or (regex_changed and regex_known)
        epoch = group.epoch
        if bump or group.metadata_stale:
            epoch = steps.refresh_metadata(change, [(member, updated)], bump=bump)
        target = steps.assign(change, epoch, member, updated)
        result = steps.reconcile(
            change, updated, target, request.owned, subscription_changed=names_changed or regex_changed
        )
        tell = request.member_epoch == JOIN_EPOCH or request.is_full or result.assigned != member.assigned

        def done() -> None:
            core.restart_session(group, result)
            if result != updated:
                core.watch_revocation(group, result)
            core.turn.reply(token, self._answer(group, result, tell=tell))

        core.write(change, done, lambda error: self._failed(token, error))

    def _answer(self, group: ConsumerGroup, member: ConsumerMember, *, tell: bool) -> HeartbeatResult:
        return HeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._core.config.settings(group.group_id).heartbeat_interval_ms,
            assignment={t: sorted(p) for t, p in member.assigned.items()} if tell else None,
        )

    def _member(self, change: Change, request: HeartbeatRequest, member_id: str) -> ConsumerMember:
        """Returns the member that sends this: an existing one or, when it joins, a new one."""
        group, instance_id = change.group, request.instance_id
        joins = request.member_epoch == JOIN_EPOCH
        if instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                if not joins:
                    raise unknown_member(group, member_id)
                log.info("group %s: member %s joins", group.group_id, member_id)
                return ConsumerMember(member_id=member_id)
            _check_epoch(member, request.member_epoch, request.owned)
            return member
        existing = group.static_member(instance_id)
        if not joins:
            found = check_static(group, existing, member_id, instance_id)
            _check_epoch(found, request.member_epoch, request.owned)
            return found
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if existing.classic is None and existing.epoch != STATIC_LEAVE_EPOCH:
            raise GroupError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {existing.member_id} member.",
            )
        log.info("group %s: static member %s replaces %s", group.group_id, member_id, existing.member_id)
        return self._core.steps.replace_static(change, existing, member_id)

    # Leave

    def _leave(self, request: HeartbeatRequest, token: Token) -> None:
        core = self._core
        group = core.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
        if request.instance_id is None:
            found = group.members.get(request.member_id)
            if found is None:
                raise unknown_member(group, request.member_id)
            member = found
        else:
            existing = group.static_member(request.instance_id)
            member = check_static(group, existing, request.member_id, request.instance_id)
        answer = HeartbeatResult(member_id=member.member_id, member_epoch=request.member_epoch)

        def done() -> None:
            core.turn.reply(token, answer)

        def failed(error: ErrorCode) -> None:
            self._failed(token, error)

        if request.member_epoch == STATIC_LEAVE_EPOCH:
            log.info("group %s: static member %s leaves for a while", group.group_id, member.member_id)
            change = Change(group=group, now=core.turn.now)
            away = replace(
                member, epoch=STATIC_LEAVE_EPOCH, assigned=_since_zero(member.assigned), revoking={}
            )
            change.records.append(records.current(group.group_id, away))
            core.write(change, done, failed)
        else:
            log.info("group %s: member %s leaves", group.group_id, member.member_id)
            core.fence(group, [member], done, failed)


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """Returns the member as the request describes it; omitted fields have not changed."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        regex=member.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _invalid(text: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_REQUEST, text)


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Raises GroupError (GROUP_MAX_SIZE_REACHED) when there is no place for another member."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise GroupError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def unknown_member(group: ConsumerGroup, member_id: str) -> GroupError:
    return GroupError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )


def check_static(
    group: ConsumerGroup, existing: ConsumerMember | None, member_id: str, instance_id: str
) -> ConsumerMember:
    """Returns the member of an instance id. Raises GroupError when there is none, or it is another one by now."""
    if existing is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise GroupError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{existing.member_id}.",
        )
    return existing


def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Raises GroupError (FENCED_MEMBER_EPOCH) unless the epoch is the member's, or the previous one after a lost answer."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        what = "greater"
    elif epoch == member.previous_epoch and _is_part_of(owned, member.assigned):
        return  # the answer with the new epoch was lost
    else:
        what = "smaller"
    raise GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {what} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). {_MUST_REJOIN}",
    )


def _is_part_of(owned: Assignment | None, assigned: Owned) -> bool:
    if owned is None:
        return False
    return all(p in assigned.get(topic_id, ()) for topic_id, partitions in owned.items() for p in partitions)


def _since_zero(owned: Owned) -> Owned:
    """Dates the partitions back to epoch 0: the next member under this instance id has had them from the beginning."""
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in owned.items()}
