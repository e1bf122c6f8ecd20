"""ShareGroupHeartbeat: members of a share group join, report and leave.

A heartbeat that changes something is answered once the change is durable, any other one at once. Members have nothing to
give up: they follow the target assignment with their next heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.model import NamedPartitions
from klamm_broker.coordinator.effects import Token
from klamm_broker.coordinator.share import records
from klamm_broker.coordinator.share.core import SESSION, Failed, ShareCore, from_latest
from klamm_broker.coordinator.share.group import ShareGroup
from klamm_broker.coordinator.share.member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from klamm_broker.coordinator.share.model import (
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareMemberDescription,
)
from klamm_broker.coordinator.share.records import ShareRecord
from klamm_broker.coordinator.share.simple_assignor import Assignment, Reader, assign
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_AGAIN_MS = 500
"""The pause before the removal of a member is tried again after a failed append."""
_ID_MAX = 36


class ShareHeartbeats:
    """Handles the members of share groups."""

    def __init__(self, core: ShareCore) -> None:
        self._core = core

    def heartbeat(self, request: ShareHeartbeat, token: Token) -> None:
        """Handle a heartbeat of a loaded group. The reply is a ShareHeartbeatResult."""
        try:
            _check(request)
        except GroupError as e:
            self._refuse(token, e)
            return
        self._core.journal.when_free(
            request.group_id,
            lambda: self._handle(request, token),
            lambda: self._failed(token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _handle(self, request: ShareHeartbeat, token: Token) -> None:
        try:
            if request.member_epoch == LEAVE_EPOCH:
                self._leave(request, token)
            else:
                self._heartbeat(request, token)
        except GroupError as e:
            self._refuse(token, e)

    def _refuse(self, token: Token, error: GroupError) -> None:
        self._core.turn.reply(token, ShareHeartbeatResult(error=error.code, error_message=str(error)))

    def _failed(self, token: Token, error: ErrorCode) -> None:
        self._core.turn.reply(token, ShareHeartbeatResult(error=error, error_message=error.message))

    # Heartbeat

    def _heartbeat(self, request: ShareHeartbeat, token: Token) -> None:
        core = self._core
        group, member = self._member(request)
        updated = replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            topics=member.topics if request.topics is None else frozenset(request.topics),
            client_id=request.client_id,
            client_host=request.client_host,
        )
        known = member.member_id in group.members
        made = [] if known and updated == member else [records.member(group.group_id, updated)]
        bump = updated.topics != member.topics
        if group.target_epoch >= group.epoch:
            bump |= _is_behind(group)
        epoch = group.epoch
        names = group.topics_with(member if known else None, updated)
        if bump or group.metadata_stale:
            hashed = core.hashes.of(names)
            bump |= hashed != group.metadata_hash
            if bump:
                epoch += 1
                made.append(records.group_epoch(group.group_id, epoch, hashed))
            group.metadata_stale = False  # before the append: topics may change while it is under way
        target_epoch, target = self._assign(group, epoch, updated, made)
        result = self._reconciled(updated, target_epoch, target, bump=bump)
        if result != updated:
            made.append(records.current(group.group_id, result))
        begun = core.to_initialize(group, names)
        if begun:
            made.append(core.initializing_record(group, begun))
        tell = request.member_epoch == JOIN_EPOCH or request.topics is not None
        tell |= result.assigned != member.assigned

        def done() -> None:
            self.restart_session(group, result.member_id)
            core.turn.reply(token, self._answer(group, result, tell=tell))
            if begun:
                core.initialize(group, epoch, from_latest(begun), lambda _: None)

        core.write(group, made, done, lambda error: self._failed(token, error))

    def _member(self, request: ShareHeartbeat) -> tuple[ShareGroup, ShareMember]:
        """Returns the group and the member that sends this, if necessary new ones. Raises GroupError."""
        core, group_id, epoch = self._core, request.group_id, request.member_epoch
        if epoch == JOIN_EPOCH:
            group = core.find_or_make(group_id)
        elif group_id in core.groups:
            group = core.find(group_id)
        else:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        member = group.members.get(request.member_id)
        if member is None and len(group.members) >= core.config.max_size:
            why = f"The share group has reached its maximum capacity of {core.config.max_size} members."
            raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        if member is None:
            if epoch != JOIN_EPOCH:
                raise _unknown(group, request.member_id)
            log.info("group %s: member %s joins", group_id, request.member_id)
            member = ShareMember(member_id=request.member_id)
        _check_epoch(member, epoch)
        return group, member

    def _assign(
        self, group: ShareGroup, epoch: int, updated: ShareMember, made: list[ShareRecord]
    ) -> tuple[int, Assignment]:
        """Compute the target assignment if it is behind. Returns its epoch, and the member's part of it."""
        core, now_ms = self._core, self._core.turn.now.wall_ms
        interval_ms = core.config.settings(group.group_id).assignment_interval_ms
        early = group.target_at_ms != 0 and now_ms < group.target_at_ms + interval_ms
        if group.target_epoch >= epoch or early:
            return group.target_epoch, group.target.get(updated.member_id, {})
        members = {**group.members, updated.member_id: updated}
        readers = {
            member_id: Reader(self._topic_ids(members[member_id]), group.target.get(member_id, {}))
            for member_id in java_order.strings(members)
        }
        result = assign(readers, {t: it.partitions for t, it in group.initialized.items()})
        for member_id, target in result.items():
            if group.target.get(member_id) != target:
                made.append(records.target(group.group_id, member_id, target))
        made.append(records.target_epoch(group.group_id, epoch, now_ms))
        return epoch, result[updated.member_id]

    def _topic_ids(self, member: ShareMember) -> frozenset[bytes]:
        found = (self._core.topics.by_name(name) for name in member.topics)
        return frozenset(topic.id for topic in found if topic is not None)

    def _reconciled(
        self, member: ShareMember, target_epoch: int, target: Assignment, *, bump: bool
    ) -> ShareMember:
        """Returns the member with its part of the target."""
        if member.epoch == target_epoch and not bump:
            return member
        subscribed = self._topic_ids(member)
        assigned = {t: frozenset(p) for t, p in target.items() if t in subscribed}
        if member.epoch == target_epoch:
            return replace(member, assigned=assigned)
        return replace(member, epoch=target_epoch, previous_epoch=member.epoch, assigned=assigned)

    def _answer(self, group: ShareGroup, member: ShareMember, *, tell: bool) -> ShareHeartbeatResult:
        return ShareHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._core.config.settings(group.group_id).heartbeat_interval_ms,
            assignment={t: sorted(p) for t, p in member.assigned.items()} if tell else None,
        )

    # Members that go

    def _leave(self, request: ShareHeartbeat, token: Token) -> None:
        group = self._core.find(request.group_id)
        member = group.members.get(request.member_id)
        if member is None:
            raise _unknown(group, request.member_id)
        log.info("group %s: member %s leaves", group.group_id, member.member_id)
        answer = ShareHeartbeatResult(member_id=member.member_id, member_epoch=request.member_epoch)
        self._remove(
            group,
            member,
            lambda: self._core.turn.reply(token, answer),
            lambda error: self._failed(token, error),
        )

    def _remove(
        self, group: ShareGroup, member: ShareMember, done: Callable[[], None], failed: Failed
    ) -> None:
        core = self._core
        hashed = core.hashes.of(group.topics_with(member, None))
        made = records.member_tombstones(group.group_id, member.member_id)
        made.append(records.group_epoch(group.group_id, group.epoch + 1, hashed))

        def removed() -> None:
            core.timers.cancel((SESSION, group.group_id, member.member_id))
            done()

        core.write(group, made, removed, failed)

    # Sessions

    def restart_session(self, group: ShareGroup, member_id: str) -> None:
        """Restart the session of a member that was heard of."""
        timeout_ms = self._core.config.settings(group.group_id).session_timeout_ms
        self._set((SESSION, group.group_id, member_id), timeout_ms)

    def expire(self, key: tuple[str, ...]) -> None:
        """Handle the end of a member's session."""
        self._core.journal.when_free(key[1], lambda: self._expire(key), lambda: self._set(key, _AGAIN_MS))

    def _expire(self, key: tuple[str, ...]) -> None:
        _, group_id, member_id = key
        group = self._core.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if member is None or not isinstance(group, ShareGroup) or key in self._core.timers:
            return  # the member has gone, or was heard of meanwhile
        log.info("group %s: member %s is fenced because the member session expired", group_id, member_id)

        def failed(error: ErrorCode) -> None:
            log.warning("group %s: %s could not be fenced: %s", group_id, member_id, error.name)
            self._set(key, _AGAIN_MS)

        self._remove(group, member, lambda: None, failed)

    def _set(self, key: tuple[str, ...], after_ms: int) -> None:
        self._core.timers.set(key, self._core.turn.now.mono_ms + max(after_ms, 1))

    # Description

    def describe(self, group_id: str) -> ShareGroupDescription:
        """Describe a group with its members; partitions of topics that are gone are left out."""
        try:
            group = self._core.find(group_id)
        except GroupError as e:
            return ShareGroupDescription(group_id=group_id, error=e.code, error_message=str(e))
        return ShareGroupDescription(
            group_id=group_id,
            state=group.state_name,
            epoch=group.epoch,
            target_epoch=group.target_epoch,
            members=[self._described(m) for m in group.members.values()],
        )

    def _described(self, member: ShareMember) -> ShareMemberDescription:
        found = ((self._core.topics.by_id(t), partitions) for t, partitions in member.assigned.items())
        return ShareMemberDescription(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=sorted(member.topics),
            assignment=[NamedPartitions(t.id, t.name, sorted(p)) for t, p in found if t is not None],
        )


def _check(request: ShareHeartbeat) -> None:
    """Raises GroupError (INVALID_REQUEST) for a malformed request."""
    if not 0 < len(request.member_id) <= _ID_MAX:
        raise GroupError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    names = {"MemberId": request.member_id, "GroupId": request.group_id, "RackId": request.rack_id}
    for name, value in names.items():
        if value is not None and not value.strip():
            raise GroupError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.topics:
        raise GroupError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise GroupError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raises GroupError (FENCED_MEMBER_EPOCH) unless the epoch is the member's, or the previous one after a lost answer."""
    if epoch in (JOIN_EPOCH, member.epoch, member.previous_epoch) and epoch <= member.epoch:
        return
    greater = epoch > member.epoch
    more = "" if greater else f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if greater else 'smaller'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.epoch}){more}. The member must abandon all its partitions and "
        "rejoin.",
    )


def _unknown(group: ShareGroup, member_id: str) -> GroupError:
    return GroupError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )


def _is_behind(group: ShareGroup) -> bool:
    """Decides whether partitions have been initialized since the target was computed."""
    if group.is_empty:
        return False
    assigned: dict[bytes, set[int]] = {}
    for target in group.target.values():
        for topic_id, partitions in target.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        it.name in group.topic_counts and assigned.get(topic_id, set()) != it.partitions
        for topic_id, it in group.initialized.items()
    )
