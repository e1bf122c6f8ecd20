"""The surroundings of share groups: finding and writing them, and the partitions whose state is stored.

A group's partitions can be assigned once the share coordinator holds their state. So a heartbeat that brings a new topic
first notes its partitions as being initialized; once the share coordinator has begun their state, they are noted as
initialized, and the next heartbeat assigns them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.consumer.topics import MetadataHashes, Topics
from klamm_broker.coordinator.effects import ShareKeyLike, Turn
from klamm_broker.coordinator.rebalance import append_error
from klamm_broker.coordinator.share import records
from klamm_broker.coordinator.share.config import ShareConfig
from klamm_broker.coordinator.share.group import ShareGroup
from klamm_broker.coordinator.share.model import NO_OFFSET
from klamm_broker.coordinator.share.records import ShareRecord, TopicState
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

SESSION = "share member"
"""The kind of key of a member's session."""
Failed = Callable[[ErrorCode], None]


@dataclass(slots=True, kw_only=True)
class ShareCore:
    """Finds and writes share groups. `groups` is the coordinator's table of all kinds."""

    config: ShareConfig
    groups: dict[str, Group]
    turn: Turn
    timers: Timers
    journal: Journal
    topics: Topics
    hashes: MetadataHashes
    partition_for: Callable[[str], int]
    max_groups: Callable[[], int]

    def find(self, group_id: str) -> ShareGroup:
        """Returns the group. Raises GroupError when there is none, or one of another kind."""
        group = self.groups.get(group_id)
        if group is not None and group.deleting:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise GroupError(code, code.message)
        if isinstance(group, ShareGroup):
            return group
        what = "not found" if group is None else "is not a share group"
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def find_or_make(self, group_id: str) -> ShareGroup:
        """Returns the group, or a new one that is not in the table yet. Raises GroupError."""
        if group_id in self.groups:
            return self.find(group_id)
        if len(self.groups) >= self.max_groups():
            raise GroupError(ErrorCode.POLICY_VIOLATION, f"There are {len(self.groups)} groups already.")
        return ShareGroup(group_id, partition=self.partition_for(group_id))

    def write(
        self, group: ShareGroup, made: Sequence[ShareRecord], done: Callable[[], None], failed: Failed
    ) -> None:
        """Make these records durable, then apply them."""

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                group.metadata_stale = True
                failed(append_error(error))
                return
            self.groups.setdefault(group.group_id, group)
            for record in made:
                group.apply(record, self.turn.now.wall_ms)
            done()

        self.journal.write(
            group.group_id,
            group.partition,
            [record.encode() for record in made],
            then,
            refuse=lambda: failed(ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    # The partitions whose state is stored

    def to_initialize(self, group: ShareGroup, names: Iterable[str]) -> dict[bytes, TopicState]:
        """Returns the partitions of these topics whose state has to be begun."""
        now_ms = self.turn.now.wall_ms
        found = {}
        for name in names:
            topic = self.topics.by_name(name)
            if topic is None:
                continue
            known: frozenset[int] = frozenset()
            ready, begun = group.initialized.get(topic.id), group.initializing.get(topic.id)
            if ready is not None:
                known |= ready.partitions
            if begun is not None and now_ms - begun.since_ms < self.config.retry_initialize_ms:
                known |= begun.partitions
            missing = frozenset(range(topic.partitions)) - known
            if missing:
                found[topic.id] = TopicState(name, missing, now_ms)
        return found

    def initializing_record(self, group: ShareGroup, begun: Mapping[bytes, TopicState]) -> ShareRecord:
        """Returns the record that notes these partitions as being initialized."""
        deleting = {t: name for t, name in group.deleting_topics.items() if t not in begun}
        both = _united(group.initializing, begun)
        return records.state_partitions(group.group_id, both, group.initialized, deleting)

    def initialize(
        self,
        group: ShareGroup,
        epoch: int,
        begun: Mapping[bytes, Mapping[int, int]],
        told: Callable[[Mapping[ShareKeyLike, ErrorCode]], None],
    ) -> None:
        """Let the share coordinator begin the state of partitions at these offsets; then note them as initialized.

        `told` gets the outcomes as soon as they are known.
        """
        changes: dict[ShareKeyLike, tuple[int, int] | None] = {
            (group.group_id, topic_id, partition): (epoch, offset)
            for topic_id, offsets in begun.items()
            for partition, offset in offsets.items()
        }

        def then(errors: Mapping[ShareKeyLike, ErrorCode]) -> None:
            bad = {error for error in errors.values() if error is not ErrorCode.NONE}
            topics = {topic_id: frozenset(offsets) for topic_id, offsets in begun.items()}
            for error in bad:
                log.error("group %s: states of partitions could not be begun: %s", group.group_id, error.name)
            self.journal.when_free(group.group_id, lambda: self._initialized(group, topics, ok=not bad))
            told(errors)

        self.turn.change_share_states(changes, then)

    def _initialized(self, group: ShareGroup, topics: Mapping[bytes, frozenset[int]], *, ok: bool) -> None:
        """Note partitions as initialized, or after a failure as not being initialized any more."""
        if self.groups.get(group.group_id) is not group or group.deleting:
            return
        now_ms = self.turn.now.wall_ms
        left = {
            topic_id: it._replace(partitions=it.partitions - topics.get(topic_id, frozenset()))
            for topic_id, it in group.initializing.items()
        }
        left = {topic_id: it for topic_id, it in left.items() if it.partitions}
        ready = group.initialized
        if ok:
            named = {t: TopicState(self.name(t), p, now_ms) for t, p in topics.items()}
            ready = _united(ready, named)
        made = records.state_partitions(group.group_id, left, ready, group.deleting_topics)
        self.write(group, [made], lambda: None, lambda error: _not_noted(group, error))

    def name(self, topic_id: bytes) -> str:
        topic = self.topics.by_id(topic_id)
        return "<UNKNOWN>" if topic is None else topic.name

    def forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Forget deleted topics in all groups."""
        for group in list(self.groups.values()):
            if isinstance(group, ShareGroup):
                known = group.initializing.keys() | group.initialized.keys() | group.deleting_topics.keys()
                if not known.isdisjoint(topic_ids):
                    self.journal.when_free(group.group_id, lambda g=group: self._forget(g, topic_ids))  # type: ignore[misc]

    def _forget(self, group: ShareGroup, topic_ids: frozenset[bytes]) -> None:
        if self.groups.get(group.group_id) is not group or group.deleting:
            return
        begun, ready = (
            {t: it for t, it in found.items() if t not in topic_ids}
            for found in (group.initializing, group.initialized)
        )
        deleting = {t: name for t, name in group.deleting_topics.items() if t not in topic_ids}
        made = records.state_partitions(group.group_id, begun, ready, deleting)
        self.write(group, [made], lambda: None, lambda error: _not_noted(group, error))


def from_latest(begun: Mapping[bytes, TopicState]) -> dict[bytes, dict[int, int]]:
    """Returns these partitions without an offset: it is decided by `share.auto.offset.reset` when they are read."""
    return {topic_id: dict.fromkeys(it.partitions, NO_OFFSET) for topic_id, it in begun.items()}


def _united(old: Mapping[bytes, TopicState], new: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    result = dict(old)
    for topic_id, it in new.items():
        before = result.get(topic_id)
        partitions = it.partitions if before is None else it.partitions | before.partitions
        result[topic_id] = it._replace(partitions=partitions)
    return result


def _not_noted(group: ShareGroup, error: ErrorCode) -> None:
    log.error("group %s: the state of its partitions could not be noted: %s", group.group_id, error.name)
