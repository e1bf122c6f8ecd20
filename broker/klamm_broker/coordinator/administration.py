"""Changes of groups by administrators and by time: offsets are deleted or expire, and whole groups are removed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from klamm_broker.coordinator import kinds
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.effects import Token, Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.model import NO_TOPIC_ID, CommitResult, TopicPartition
from klamm_broker.coordinator.offsets import Offsets, mark_removed
from klamm_broker.coordinator.rebalance import Rebalancer, append_error
from klamm_broker.coordinator.table import GroupTable
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_GROUPS_PER_CLEANUP: Final = 200
_OFFSETS_PER_CLEANUP: Final = 5_000
"""Groups, and offsets of them, that one tick checks for expiry: some milliseconds, so that no request waits long."""


class Administration:
    """Deletes and expires offsets and groups."""

    def __init__(
        self,
        table: GroupTable,
        turn: Turn,
        offsets: Offsets,
        rebalancer: Rebalancer,
        journal: Journal,
        *,
        delete_share_states: Callable[[Group, Callable[[ErrorCode], None]], None],
    ) -> None:
        self._table = table
        self._turn = turn
        self._offsets = offsets
        self._rebalancer = rebalancer
        self._journal = journal
        self._delete_share_states = delete_share_states
        self._to_clean: deque[str] = deque()

    # Offsets

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], token: Token) -> None:
        """Handle an OffsetDelete. The reply is a CommitResult: an error of the whole, or one per partition."""
        self._journal.when_free(
            group_id,
            lambda: self._find_and_delete_offsets(group_id, partitions, token),
            lambda: self._turn.reply(token, CommitResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)),
        )

    def _find_and_delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], token: Token
    ) -> None:
        error, group = self._table.found(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            self._turn.reply(token, CommitResult(error=error))
        elif not group.may_lose_offsets:
            self._turn.reply(token, CommitResult(error=ErrorCode.NON_EMPTY_GROUP))
        else:
            self._delete_offsets(group, partitions, token)

    def _delete_offsets(self, group: Group, partitions: Sequence[TopicPartition], token: Token) -> None:
        results = {
            at: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(at.topic) else ErrorCode.NONE
            for at in partitions
        }
        known = set(self._offsets.known(group))
        targets = [at for at, error in results.items() if error is ErrorCode.NONE and at in known]

        def done(error: ErrorCode) -> None:
            told = append_error(error)
            results.update(dict.fromkeys(targets, told))
            self._turn.reply(token, CommitResult(partitions=results))

        if targets:
            self._offsets.delete(group, targets, done)
        else:
            self._turn.reply(token, CommitResult(partitions=results))

    def forget_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of deleted partitions."""
        gone = set(partitions)
        for group in self._table.groups.values():
            # Loop over the smaller side: a topic has some partitions, all groups together may have a million offsets.
            few = len(gone) < len(group.offsets)
            known = gone if few else self._offsets.known(group)
            self.forget(group, [at for at in known if at in gone and self._offsets.knows(group, at)])

    def forget_deleted_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """Forget the offsets of topics that are not among these, or have another id here."""
        for group in self._table.groups.values():
            stale = [
                at
                for at, committed in group.offsets.items()
                if committed.topic_id not in (NO_TOPIC_ID, topic_ids.get(at.topic))
            ]
            self.forget(group, stale)

    def forget(self, group: Group, partitions: Sequence[TopicPartition]) -> None:
        """Write tombstones for these offsets; nobody waits for them."""
        if partitions and not group.deleting:
            log.info("group %s: offsets of %d deleted partitions go", group.group_id, len(partitions))
            self._offsets.delete(group, partitions, lambda _: None)

    def expire_offsets(self) -> int:
        """Expire offsets, some groups at a time. Returns the milliseconds until the next call."""
        if not self._to_clean:
            self._to_clean.extend(self._table.groups)
        looked_at = 0
        for _ in range(min(_GROUPS_PER_CLEANUP, len(self._to_clean))):
            if looked_at >= _OFFSETS_PER_CLEANUP:
                break
            group = self._table.groups.get(self._to_clean.popleft())
            looked_at += 0 if group is None else len(group.offsets)
            if group is None or group.deleting or self._journal.is_busy(group.group_id):
                continue
            if self._offsets.expire(group):
                log.info("group %s is empty and its offsets have expired", group.group_id)
                self._delete(group, lambda _: None)
        return 1 if self._to_clean else self._table.config.offsets_retention_check_interval_ms

    # Groups

    def delete_group(self, group_id: str, token: Token) -> None:
        """Handle a DeleteGroups for one group. The reply is an ErrorCode."""
        self._journal.when_free(
            group_id,
            lambda: self._delete_group(group_id, token),
            lambda: self._turn.reply(token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _delete_group(self, group_id: str, token: Token) -> None:
        error, group = self._table.found(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            self._turn.reply(token, error)
        elif not group.is_empty:
            self._turn.reply(token, ErrorCode.NON_EMPTY_GROUP)
        elif group.kind == "share":
            self._delete_share_group(group, token)
        else:
            self._delete(group, lambda error: self._turn.reply(token, append_error(error)))

    def _delete_share_group(self, group: Group, token: Token) -> None:
        """Delete a share group after the states of its partitions."""

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._turn.reply(token, error)
            else:
                self._journal.when_free(group.group_id, delete)

        def delete() -> None:
            if group.is_empty and not group.deleting:
                self._delete(group, lambda error: self._turn.reply(token, append_error(error)))
            else:
                self._turn.reply(token, ErrorCode.NON_EMPTY_GROUP)

        self._delete_share_states(group, then)

    def _delete(self, group: Group, done: Callable[[ErrorCode], None]) -> None:
        group.deleting = True

        def then(error: ErrorCode) -> None:
            group.deleting = False
            if error is ErrorCode.NONE:
                self.remove(group)
            else:
                log.warning("group %s could not be deleted: %s", group.group_id, error.name)
            done(error)

        self._offsets.delete(group, self._offsets.known(group), then, last=kinds.tombstones(group))

    def remove(self, group: Group) -> None:
        """Forget a group that has nothing in the log."""
        if isinstance(group, ClassicGroup):
            for member_id in list(group.pending_members):
                self._rebalancer.remove_member(group, member_id)
            mark_removed(group, self._turn.now.wall_ms)
        del self._table.groups[group.group_id]
