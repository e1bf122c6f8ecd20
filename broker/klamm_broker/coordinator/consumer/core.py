"""The surroundings of changes of consumer groups: opening, writing, removed members, deadlines.

Regular expressions are matched some at a time: the key `regex` brings the next turn. Keys of members' deadlines start
with `member` (its session), `revoke` (to give up partitions), and, for classic members, `rejoin` and `resync` (to send
JoinGroup and SyncGroup). A deadline is set once its cause is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_broker.coordinator import records as classic_records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer import migration, records
from klamm_broker.coordinator.consumer import regex as regexes
from klamm_broker.coordinator.consumer.change import Change, Steps
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.consumer.member import ConsumerMember, MemberState
from klamm_broker.coordinator.consumer.model import ConsumerConfig
from klamm_broker.coordinator.consumer.records import ResolvedRegex
from klamm_broker.coordinator.effects import Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.model import GroupConfig
from klamm_broker.coordinator.rebalance import Rebalancer, append_error
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

DEADLINES: Final = frozenset({"member", "revoke", "rejoin", "resync"})
REGEX: Final = "regex"
_NAMES_PER_TURN: Final = 10_000
"""Topic names that one turn matches: about 10 ms. One expression is not divided."""
_AGAIN_MS: Final = 500
"""The pause before the removal of a member is tried again after a failed append."""
_WHY: Final = {
    "member": "the member session expired",
    "revoke": "it failed to give up partitions within its rebalance timeout",
    "rejoin": "the classic member failed to join within the rebalance timeout",
    "resync": "the member failed to sync within timeout",
}
Failed = Callable[[ErrorCode], None]


@dataclass(slots=True, kw_only=True)
class Matching:
    """The regular expressions of a group that are being matched."""

    left: list[str]
    sees: Callable[[str], bool] | None = None
    found: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Core:
    """Opens and writes changes, removes members, keeps deadlines. `groups` is the coordinator's table of all kinds."""

    classic_config: GroupConfig
    config: ConsumerConfig
    groups: dict[str, Group]
    turn: Turn
    timers: Timers
    journal: Journal
    steps: Steps
    rebalancer: Rebalancer
    partition_for: Callable[[str], int]
    new_member_id: Callable[[], str]
    matching: dict[str, Matching] = field(default_factory=dict)
    """The matchings under way, by group."""

    # Changes

    def open(self, group_id: str, *, create: bool) -> Change:
        """Begin a change; with `create` also of a new group, or of a classic one. Raises GroupError."""
        group = self.groups.get(group_id)
        now = self.turn.now
        if group is not None and group.deleting:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise GroupError(code, code.message)
        if isinstance(group, ConsumerGroup):
            return Change(group=group, now=now)
        if group is None:
            if not create:
                raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            if len(self.groups) >= self.classic_config.max_groups:
                raise GroupError(ErrorCode.POLICY_VIOLATION, f"There are {len(self.groups)} groups already.")
            return Change(group=ConsumerGroup(group_id, partition=self.partition_for(group_id)), now=now)
        if not create or not isinstance(group, ClassicGroup):
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group.is_empty:
            fresh = ConsumerGroup(group_id, partition=group.partition)
            prelude = [classic_records.group_tombstone(group_id)] if group.has_metadata_record else []
            return Change(group=fresh, now=now, replaces=group, prelude=prelude)
        migration.check_upgrade(group, self.config)
        result, prelude = migration.upgraded(group, self.steps.topics, self.steps.hashes)
        return Change(group=result, now=now, replaces=group, prelude=prelude)

    def write(self, change: Change, done: Callable[[], None], failed: Failed) -> None:
        """Make the change durable, then apply it. After an error `failed` gets the error for the member."""
        group, replaces = change.group, change.replaces
        if change.refreshed:
            group.metadata_stale = False  # before the append: topics may change while it is under way
        if replaces is not None:
            for member in replaces.members.values():
                self.rebalancer.release(
                    replaces, member, ErrorCode.REBALANCE_IN_PROGRESS, answer_as=member.member_id
                )

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                group.metadata_stale = True
                failed(append_error(error))
                return
            self._publish(change)
            change.commit()
            done()

        def resolve() -> None:
            self.journal.when_free(group.group_id, lambda: self._resolve(group.group_id, change))

        self.journal.write(
            group.group_id,
            group.partition,
            change.encoded(),
            then,
            refuse=lambda: failed(ErrorCode.UNKNOWN_SERVER_ERROR),
            after=resolve if change.resolve else None,
        )

    def _publish(self, change: Change) -> None:
        group = change.group
        known = self.groups.get(group.group_id)
        if known is group:
            return
        if change.replaces is not None:
            self.rebalancer.retire(change.replaces)
            log.info("group %s is a consumer group now (it was a classic one)", group.group_id)
            for member in group.members.values():
                self.restart_session(group, member)
        if known is not None:
            group.take_offsets(known)  # a commit may have made it meanwhile
        # The group was not in the table while it was written, so it missed topics that were created meanwhile.
        group.metadata_stale = group.regexes_stale = True
        self.groups[group.group_id] = group

    # Regular expressions

    def _resolve(self, group_id: str, change: Change) -> None:
        """Begin to match a change's regular expressions against the present topics."""
        expressions = change.resolve
        group = self._with_regexes(group_id)
        if group is None:
            return
        matching = self.matching.get(group_id)
        if matching is not None:
            matching.left += sorted(expressions - set(matching.left) - matching.found.keys())
            return  # it goes on by its timer
        group.regexes_stale = False
        self.matching[group_id] = Matching(left=sorted(expressions, reverse=True), sees=change.sees)
        self._match(group_id)

    def _with_regexes(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group.deleting:
            self.matching.pop(group_id, None)
            return None
        return group

    def _match(self, group_id: str) -> None:
        """Match some expressions, so that nobody waits for all. Once all are matched, store the new matches."""
        group = self._with_regexes(group_id)
        if group is None or group_id not in self.matching:
            return
        matching = self.matching[group_id]
        names = list(filter(matching.sees, self.steps.topics.names()))
        for _ in range(max(1, _NAMES_PER_TURN // max(1, len(names)))):
            if not matching.left:
                break
            expression = matching.left.pop()
            if group.regex_counts[expression]:
                matching.found[expression] = regexes.resolve(expression, names)
        if matching.left:
            self._set((REGEX, group_id), 1)  # not in this tick
            return
        del self.matching[group_id]
        self._store_matches(group, {e: t for e, t in sorted(matching.found.items()) if group.regex_counts[e]})

    def _store_matches(self, group: ConsumerGroup, found: Mapping[str, frozenset[str]]) -> None:
        """Store the topics of these regular expressions; new topics begin a new epoch."""
        group_id = group.group_id
        change = Change(group=group, now=self.turn.now)
        subscribed = set(group.topic_counts)
        for expression, names in found.items():
            resolved = ResolvedRegex(names, self.steps.topics.version, self.turn.now.wall_ms)
            change.records.append(records.regex(group_id, expression, resolved))
        for expression in group.regexes.keys() | found.keys():
            old = group.regexes.get(expression)
            subscribed |= found.get(expression, old.topics if old else frozenset())
        bump = any(
            names != (group.regexes[e].topics if e in group.regexes else frozenset())
            for e, names in found.items()
        )
        hashed = self.steps.hashes.of(subscribed)
        if bump or hashed != group.metadata_hash:
            change.records.append(records.group_epoch(group_id, group.epoch + 1, hashed))
            change.refreshed = True

        def failed(error: ErrorCode) -> None:
            group.regexes_stale = True
            log.warning(
                "group %s: topics of its regular expressions are not stored: %s", group_id, error.name
            )

        self.write(change, lambda: None, failed)

    # Members that go

    def fence(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        done: Callable[[], None],
        failed: Failed,
    ) -> None:
        """Remove these members. If only classic ones are left, the group becomes a classic one. Raises GroupError."""
        if not members:
            done()
            return
        if migration.may_downgrade(group, members, self.config, self.classic_config.max_size):
            reason = "downgrade from consumer to classic, a member left"
            self.downgrade(group, members, None, done, failed, reason=reason)
            return
        change = Change(group=group, now=self.turn.now)
        for member in members:
            change.records += records.member_tombstones(group.group_id, member.member_id)
        gone = [(m, None) for m in members]
        _, left = group.counts_with(gone)
        unused = [e for e in group.regex_counts if e not in left]
        change.records += [records.regex_tombstone(group.group_id, e) for e in unused]
        hashed = self.steps.hashes.of(group.topics_with(gone))
        change.records.append(records.group_epoch(group.group_id, group.epoch + 1, hashed))

        def removed() -> None:
            for member in members:
                self.forget_deadlines(group, member.member_id)
            done()

        self.write(change, removed, failed)

    def downgrade(
        self,
        group: ConsumerGroup,
        without: Sequence[ConsumerMember],
        joining: ConsumerMember | None,
        done: Callable[[], None],
        failed: Failed,
        *,
        reason: str | None,
    ) -> None:
        """Make it a classic group, which rebalances when there is a reason to. Raises GroupError."""
        classic, made = migration.downgraded(
            group, without, joining, self.steps.topics, self.turn.now.wall_ms
        )

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                failed(append_error(error))
                return
            log.info("group %s is a classic group now (it was a consumer group)", group.group_id)
            for member_id in group.members:
                self.forget_deadlines(group, member_id)
            self.groups[group.group_id] = classic
            for member in classic.members.values():
                self.rebalancer.restart_session(classic, member)
            if reason is not None:
                self.rebalancer.prepare(classic, reason)
            done()

        self.journal.write(
            group.group_id,
            group.partition,
            made,
            then,
            refuse=lambda: failed(ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    # Deadlines

    def restart_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the session of a member that was heard of."""
        timeout_ms = self.config.settings(group.group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._set(("member", group.group_id, member.member_id), timeout_ms)

    def watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Set the deadline of a member that has to give up partitions. Classic members have other deadlines."""
        key = ("revoke", group.group_id, member.member_id)
        if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
            group.revocation_epochs[member.member_id] = member.epoch
            self._set(key, member.rebalance_timeout_ms)
        else:
            group.revocation_epochs.pop(member.member_id, None)
            self.timers.cancel(key)

    def expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Set the deadline of a classic member that was told to join again."""
        key = ("rejoin", group.group_id, member.member_id)
        if key not in self.timers:
            self._set(key, member.rebalance_timeout_ms)

    def expect_resync(self, group: ConsumerGroup, member: ConsumerMember, timeout_ms: int) -> None:
        """Set the deadline of a classic member that has joined and has to fetch its assignment."""
        self._set(("resync", group.group_id, member.member_id), timeout_ms)

    def forget(self, kind: str, group: ConsumerGroup, member_id: str) -> None:
        self.timers.cancel((kind, group.group_id, member_id))

    def forget_deadlines(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in DEADLINES:
            self.forget(kind, group, member_id)
        group.revocation_epochs.pop(member_id, None)

    def expire(self, key: tuple[str, ...]) -> None:
        """Handle a deadline that has come."""
        if key[0] == REGEX:
            self.journal.when_free(key[1], lambda: self._match(key[1]), lambda: self._set(key, _AGAIN_MS))
            return
        self.journal.when_free(key[1], lambda: self._expire(key), lambda: self._set(key, _AGAIN_MS))

    def _expire(self, key: tuple[str, ...]) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or not isinstance(group, ConsumerGroup) or key in self.timers:
            return  # the member has gone, or was heard of meanwhile
        if kind == "revoke" and group.revocation_epochs.get(member_id) != member.epoch:
            return
        log.info("group %s: member %s is fenced because %s", group_id, member_id, _WHY[kind])

        def failed(error: ErrorCode) -> None:
            log.warning("group %s: %s could not be fenced: %s", group_id, member_id, error.name)
            self._set(key, _AGAIN_MS)

        try:
            self.fence(group, [member], lambda: None, failed)
        except GroupError as e:
            log.warning("group %s: %s could not be fenced: %s", group_id, member_id, e)
            self._set(key, _AGAIN_MS)

    def _set(self, key: tuple[str, ...], after_ms: int) -> None:
        self.timers.set(key, self.turn.now.mono_ms + max(after_ms, 1))
