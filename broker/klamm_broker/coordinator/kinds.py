"""The kinds of groups: the records that belong to each, and the tombstones that end it.

This is the one module that lists them. A kind is a subclass of `base.Group`, whose records are of one class; both tell it as
`kind`. The modules of share and Streams groups are imported with the first group: most brokers never have one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm_broker.coordinator import records
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer import migration
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.group import ClassicGroup

if TYPE_CHECKING:
    from klamm_broker.coordinator.records import GroupRecord, MemberRecord, OffsetRecord

    Record = GroupRecord | OffsetRecord | MemberRecord

log = logging.getLogger(__name__)


def fits(group: Group, record: Record) -> bool:
    """Decides whether a record can belong to a group of this kind. Offsets belong to any kind."""
    return record.kind is None or record.kind == group.kind


def made(record: Record, partition: int, old: Group | None) -> Group:
    """Returns a new group of the kind that the record belongs to, in place of `old`."""
    group: Group
    match record.kind:
        case "consumer":
            group = ConsumerGroup(record.group_id, partition=partition)
        case "streams":
            from klamm_broker.coordinator.streams.group import StreamsGroup

            group = StreamsGroup(record.group_id, partition=partition)
        case "share":
            from klamm_broker.coordinator.share.group import ShareGroup

            group = ShareGroup(record.group_id, partition=partition)
        case _:
            group = ClassicGroup(record.group_id, partition=partition, wall_ms=-1)
    if old is not None:
        group.take_offsets(old)
        if not isinstance(old, ClassicGroup) or old.has_metadata_record:
            # The append of a conversion was reported as failed, but is in the log.
            log.warning("group %s is stored as two kinds of group: it is the later one", group.group_id)
    return group


def tombstones(group: Group) -> list[KeyValue]:
    """Returns the tombstones of all records of a group, except its offsets."""
    if isinstance(group, ConsumerGroup):
        return migration.tombstones(group)
    if group.kind == "streams":
        from klamm_broker.coordinator.streams import group as streams

        assert isinstance(group, streams.StreamsGroup)
        return [record.encode() for record in streams.tombstones(group)]
    if group.kind == "share":
        from klamm_broker.coordinator.share import group as share

        assert isinstance(group, share.ShareGroup)
        return [record.encode() for record in share.tombstones(group)]
    return [records.group_tombstone(group.group_id)]
