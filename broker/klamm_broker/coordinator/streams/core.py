"""The surroundings of changes of Streams groups: opening, writing, removed members, deadlines.

Keys of deadlines: `streams-member` (a member's session), `streams-revoke` (to give up tasks), and `streams-delay` (the
first assignment of a new group). A deadline of a member is set once its cause is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm_broker.coordinator import records as classic_records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.rebalance import Rebalancer, append_error
from klamm_broker.coordinator.streams import records
from klamm_broker.coordinator.streams.change import Change, Steps
from klamm_broker.coordinator.streams.config import StreamsConfig
from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.member import MemberState, StreamsMember
from klamm_broker.coordinator.table import GroupTable
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_SESSION: Final = "streams-member"
_REVOKE: Final = "streams-revoke"
_DELAY: Final = "streams-delay"
DEADLINES: Final = frozenset({_SESSION, _REVOKE, _DELAY})
_AGAIN_MS: Final = 500
"""The pause before the removal of a member is tried again after a failed append."""
_WHY: Final = {
    _SESSION: "the member session expired",
    _REVOKE: "it failed to give up tasks within its rebalance timeout",
}
Failed = Callable[[ErrorCode], None]


@dataclass(slots=True, kw_only=True)
class StreamsCore:
    """Opens and writes changes, removes members, keeps deadlines."""

    config: StreamsConfig
    table: GroupTable
    turn: Turn
    timers: Timers
    journal: Journal
    steps: Steps
    rebalancer: Rebalancer

    # Changes

    def open(self, group_id: str, *, create: bool) -> Change:
        """Begin a change; with `create` also of a new group, or in place of an empty classic one. Raises GroupError."""
        group, now = self.table.groups.get(group_id), self.turn.now
        if group is not None and group.deleting:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise GroupError(code, code.message)
        if isinstance(group, StreamsGroup):
            return Change(group=group, now=now)
        if group is None and not create:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        if group is None:
            if len(self.table.groups) >= self.table.config.max_groups:
                count = len(self.table.groups)
                raise GroupError(ErrorCode.POLICY_VIOLATION, f"There are {count} groups already.")
            fresh = StreamsGroup(group_id, partition=self.table.partition_for(group_id))
            return Change(group=fresh, now=now)
        if not create or not isinstance(group, ClassicGroup) or not group.is_empty:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        prelude = [classic_records.group_tombstone(group_id)] if group.has_metadata_record else []
        fresh = StreamsGroup(group_id, partition=group.partition)
        return Change(group=fresh, now=now, replaces=group, prelude=prelude)

    def write(self, change: Change, done: Callable[[], None], failed: Failed) -> None:
        """Make the change durable, then apply it. After an error `failed` gets the error for the member."""
        group = change.group
        if change.refreshed:
            group.metadata_stale = False  # before the append: topics may change while it is under way

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                group.metadata_stale = True
                failed(append_error(error))
                return
            is_new = self.table.groups.get(group.group_id) is not group
            if is_new:
                self._publish(change)
            change.commit()
            if change.configured is not None and not is_new:
                group.configured = change.configured
            done()

        self.journal.write(
            group.group_id,
            group.partition,
            change.encoded(),
            then,
            refuse=lambda: failed(ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _publish(self, change: Change) -> None:
        group, known = change.group, self.table.groups.get(change.group.group_id)
        if change.replaces is not None:
            self.rebalancer.retire(change.replaces)
            log.info("group %s is a Streams group now (it was an empty classic one)", group.group_id)
        if known is not None:
            group.take_offsets(known)  # a commit may have made it meanwhile
        # It was not in the table while it was written, so it missed topics that were created meanwhile.
        group.metadata_stale = True
        self.table.groups[group.group_id] = group

    def fence(
        self, group: StreamsGroup, member: StreamsMember, done: Callable[[], None], failed: Failed
    ) -> None:
        """Remove a member; the others get its tasks with their next heartbeats."""
        change = Change(group=group, now=self.turn.now)
        change.records += records.member_tombstones(group.group_id, member.member_id)
        change.records.append(
            records.group_epoch(
                group.group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )

        def removed() -> None:
            self.forget_deadlines(group, member.member_id)
            done()

        self.write(change, removed, failed)

    # The first assignment

    def delay_assignment(self, group: StreamsGroup, delay_ms: int) -> None:
        """Let the first assignment of a new group wait for more members, unless it waits already."""
        key = (_DELAY, group.group_id)
        if delay_ms > 0 and key not in self.timers:
            self._set(key, delay_ms)

    def is_delayed(self, group: StreamsGroup) -> bool:
        return (_DELAY, group.group_id) in self.timers

    def _assign_delayed(self, group: StreamsGroup) -> None:
        """Compute the assignment of the members that have come. Without a known topology the next heartbeat does it."""
        if group.is_empty or group.configured is None or group.epoch <= group.target_epoch:
            return
        change = Change(group=group, now=self.turn.now)
        settings = self.config.settings(group.group_id)
        if not self.steps.may_assign(change, settings.assignment_interval_ms):
            return
        standbys = int(group.assignment_configs.get("num.standby.replicas", "0"))
        self.steps.assign(change, group.epoch, group.configured, standbys, None)

        def failed(error: ErrorCode) -> None:
            log.warning("group %s: its first assignment is not stored: %s", group.group_id, error.name)

        self.write(change, lambda: None, failed)

    # Deadlines

    def watch(self, group: StreamsGroup) -> None:
        """Start the deadlines of all members of a group that was loaded."""
        for member in group.members.values():
            self.restart_session(group, member)
            if member.state is MemberState.UNREVOKED_TASKS:
                self.watch_revocation(group, member)

    def restart_session(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Restart the session of a member that was heard of."""
        timeout_ms = self.config.settings(group.group_id).session_timeout_ms
        self._set((_SESSION, group.group_id, member.member_id), timeout_ms)

    def watch_revocation(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Set the deadline of a member that has to give up tasks."""
        key = (_REVOKE, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            group.revocation_epochs[member.member_id] = member.epoch
            self._set(key, member.rebalance_timeout_ms)
        else:
            group.revocation_epochs.pop(member.member_id, None)
            self.timers.cancel(key)

    def forget_deadlines(self, group: StreamsGroup, member_id: str) -> None:
        for kind in (_SESSION, _REVOKE):
            self.timers.cancel((kind, group.group_id, member_id))
        group.revocation_epochs.pop(member_id, None)

    def expire(self, key: tuple[str, ...]) -> None:
        """Handle a deadline that has come."""
        self.journal.when_free(key[1], lambda: self._expire(key), lambda: self._set(key, _AGAIN_MS))

    def _expire(self, key: tuple[str, ...]) -> None:
        group: Group | None = self.table.groups.get(key[1])
        if not isinstance(group, StreamsGroup) or group.deleting or key in self.timers:
            return
        if key[0] == _DELAY:
            self._assign_delayed(group)
            return
        member = group.members.get(key[2])
        if member is None or (key[0] == _REVOKE and member.epoch != group.revocation_epochs.get(key[2])):
            return
        log.info("group %s: member %s is removed: %s", group.group_id, member.member_id, _WHY[key[0]])

        def failed(error: ErrorCode) -> None:
            log.warning("group %s: member %s is not removed yet: %s", group.group_id, key[2], error.name)
            self._set(key, _AGAIN_MS)

        self.fence(group, member, lambda: None, failed)

    def _set(self, key: tuple[str, ...], delay_ms: int) -> None:
        self.timers.set(key, self.turn.now.mono_ms + delay_ms)
