"""Rebuilds the groups of one partition of `__consumer_offsets` from its records.

Only the last record of a key counts. So records are kept as bytes by key, and only the last ones are decoded: a log of a
million commits to a hundred partitions costs a million dictionary writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from sys import intern
from typing import TYPE_CHECKING

from klamm_broker.coordinator import kinds, records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.group import ClassicGroup, Member
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.model import CommittedOffset, Protocol, TopicPartition
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.coordinator.records import GroupRecord, OffsetRecord
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages.group_records import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from klamm_broker.coordinator.kinds import Record

log = logging.getLogger(__name__)


class InconsistentGroup(ValueError):
    """A stored group contradicts itself."""


class Loader:
    """Takes the records of one partition in order, then returns its groups."""

    def __init__(self) -> None:
        self._live: dict[bytes, bytes] = {}
        self._transactions: dict[int, dict[bytes, tuple[int, bytes] | None]] = {}
        """By producer: order and value of offsets that wait for a marker; None where a later commit superseded one."""
        self._order = 0

    def replay(self, batch: Iterable[KeyValue], producer_id: int = NO_PRODUCER_ID) -> None:
        """Take in records; a tombstone forgets its key."""
        if producer_id != NO_PRODUCER_ID:
            self._order += 1
            pending = self._transactions.setdefault(producer_id, {})
            pending.update({key: (self._order, value) for key, value in batch if value is not None})
            return
        if self._transactions:
            batch = list(batch)
            self._supersede(batch)
        for key, value in batch:
            if value is None:
                self._live.pop(key, None)
            else:
                self._live[key] = value

    def _supersede(self, batch: Iterable[KeyValue]) -> None:
        for key, value in batch:
            for pending in self._transactions.values():
                if key in pending and value is None:
                    del pending[key]
                elif key in pending:
                    pending[key] = None

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """Take in a marker: the records that waited for it count, unless later ones have come, or are dropped."""
        done = self._transactions.pop(producer_id, {})
        if not committed:
            return
        for key, entry in done.items():
            if entry is None:
                continue
            self._live[key] = entry[1]
            for pending in self._transactions.values():
                other = pending.get(key)
                if other is not None and other[0] < entry[0]:
                    pending[key] = None

    def in_transactions(self) -> Iterator[tuple[int, str, TopicPartition, CommittedOffset | None]]:
        """Yields the offsets that still wait, in the order of the log: producer, group, partition, offset (None: superseded)."""
        waiting = [
            (entry or (-1, b""), producer_id, key)
            for producer_id, pending in self._transactions.items()
            for key, entry in pending.items()
        ]
        for (order, value), producer_id, key in sorted(waiting, key=lambda item: item[0][0]):
            record = records.decode(key, value if order >= 0 else None)
            if isinstance(record, OffsetRecord):
                at = record.topic_partition
                yield (
                    producer_id,
                    record.group_id,
                    TopicPartition(intern(at.topic), at.partition),
                    record.value,
                )

    def groups(self, partition: int) -> list[Group]:
        """Returns the stored groups and empties the loader. A classic group is Stable with members, Empty without."""
        groups: dict[str, Group] = {}
        foreign = 0
        live, self._live = self._live, {}
        for key, value in live.items():
            try:
                record = records.decode(key, value)
            except ProtocolError as e:
                # The record is lost either way, but the groups of the other records are not.
                log.error("__consumer_offsets-%d: a record cannot be read: %s", partition, e)  # noqa: TRY400
                continue
            if record is None:
                foreign += 1
                continue
            group = groups.get(record.group_id)
            if group is None or not kinds.fits(group, record):
                groups[record.group_id] = group = kinds.made(record, partition, group)
            try:
                _apply(group, record)
            except InconsistentGroup as e:
                log.error("__consumer_offsets-%d: group %s: %s", partition, record.group_id, e)  # noqa: TRY400
        if foreign:
            log.warning(
                "__consumer_offsets-%d: %d records of group types that this broker does not have are left alone",
                partition,
                foreign,
            )
        return list(groups.values())


def _apply(group: Group, record: Record) -> None:
    if isinstance(record, OffsetRecord):
        assert record.value is not None
        at = record.topic_partition
        group.offsets[TopicPartition(intern(at.topic), at.partition)] = record.value
    elif isinstance(record, GroupRecord):
        assert record.value is not None
        assert isinstance(group, ClassicGroup)
        _restore(group, record.value)
    else:
        group.apply(record)


def _restore(group: ClassicGroup, stored: GroupMetadataValue) -> None:
    """Restores members and state. Raises InconsistentGroup: then the group stays without members, and they join again."""
    group.has_metadata_record = True
    for what, names in (
        ("members", [m.member_id for m in stored.members]),
        ("group instances", [m.group_instance_id for m in stored.members if m.group_instance_id is not None]),
    ):
        if len(names) != len(set(names)):
            raise InconsistentGroup(f"two of its {what} have one id, so that all have to join again: {names}")
    group.generation_id = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol
    group.leader_id = stored.leader
    group.state_since_ms = stored.current_state_timestamp
    if stored.members:
        group.state = GroupState.STABLE  # a record of a generation with members means this state
    for member in stored.members:
        group.add(_restore_member(member, stored.protocol or ""))
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)
    group.refresh_subscribed_topics()


def _restore_member(stored: MemberMetadata, protocol: str) -> Member:
    rebalance_timeout_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        protocols=(Protocol(protocol, stored.subscription),),
        assignment=stored.assignment,
    )
