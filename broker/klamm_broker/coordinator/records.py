"""The records of `__consumer_offsets`, as Kafka writes and reads them.

Key and value are an int16 version and then the message's body. The version of a key also tells the kind of
record: 0 and 1 a committed offset, 2 a classic group, 3 to 8 and 16 parts of a consumer group
(`consumer/records.py`), 10 to 15 of a share group (`share/records.py`), 17 and 19 to 23 of a Streams group
(`streams/records.py`). The loader skips and counts versions that are unknown. A record without a value is a tombstone.

The versions written are those of Kafka 4.3: group metadata 3, offsets 4 with the topic's id (1 where the
commit brought its own expiry, as nothing newer can hold it). All versions are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

from klamm_broker.coordinator.consumer import records as consumer_records
from klamm_broker.coordinator.consumer.records import ConsumerRecord
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.model import CommittedOffset, TopicPartition
from klamm_kafka.wire.errors import MalformedMessage
from klamm_kafka.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.records import ShareRecord
    from klamm_broker.coordinator.streams.records import StreamsRecord

    MemberRecord = ConsumerRecord | ShareRecord | StreamsRecord

_VERSION: Final = Struct(">h")
_OFFSET_KEY: Final = 1
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_SHARE_KEYS: Final = range(10, 16)
_STREAMS_KEYS: Final = frozenset({17, 19, 20, 21, 22, 23})
_OFFSET_VALUE: Final = 4
_OFFSET_VALUE_WITH_EXPIRY: Final = 1
_GROUP_VALUE: Final = 3


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as it was stored; None when it was deleted."""

    kind: ClassVar = "classic"
    group_id: str
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset as it was stored; None when it was deleted. It can belong to any kind of group."""

    kind: ClassVar = None
    group_id: str
    topic_partition: TopicPartition
    value: CommittedOffset | None


def group_metadata(group: ClassicGroup, assigned: Mapping[str, bytes]) -> KeyValue:
    """Returns the record of a group with these assignments (they may not be the members' own yet)."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata(group.protocol_name),
                assignment=assigned[m.member_id],
            )
            for m in group.members.values()
        ],
    )
    return KeyValue(_group_key(group.group_id), _VERSION.pack(_GROUP_VALUE) + value.encode(_GROUP_VALUE))


def group_tombstone(group_id: str) -> KeyValue:
    return KeyValue(_group_key(group_id), None)


def committed_offset(group_id: str, at: TopicPartition, committed: CommittedOffset) -> KeyValue:
    """Returns the record of a committed offset."""
    has_expiry = committed.expire_timestamp_ms != -1
    version = _OFFSET_VALUE_WITH_EXPIRY if has_expiry else _OFFSET_VALUE
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return KeyValue(_offset_key(group_id, at), _VERSION.pack(version) + value.encode(version))


def offset_tombstone(group_id: str, at: TopicPartition) -> KeyValue:
    return KeyValue(_offset_key(group_id, at), None)


def _group_key(group_id: str) -> bytes:
    return _VERSION.pack(_GROUP_KEY) + GroupMetadataKey(group=group_id).encode(0)


def _offset_key(group_id: str, at: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=at.topic, partition=at.partition)
    return _VERSION.pack(_OFFSET_KEY) + key.encode(0)


def decode(key: bytes, value: bytes | None) -> GroupRecord | OffsetRecord | MemberRecord | None:
    """Returns the content of a record; None for a kind of record that this broker does not have.

    Raises a ProtocolError for bytes that are no such record.
    """
    kind = _version(key, "key")
    if kind in _OFFSET_KEYS:
        name, _ = OffsetCommitKey.decode(key, 0, _VERSION.size)
        at = TopicPartition(name.topic, name.partition)
        return OffsetRecord(name.group, at, None if value is None else _decode_offset(value))
    if kind == _GROUP_KEY:
        group, _ = GroupMetadataKey.decode(key, 0, _VERSION.size)
        if value is None:
            return GroupRecord(group.group, None)
        stored, _ = GroupMetadataValue.decode(value, _version(value, "value"), _VERSION.size)
        return GroupRecord(group.group, stored)
    return None if value is None else _decoder(kind)(kind, key, value)


def _decoder(kind: int) -> Callable[[int, bytes, bytes], MemberRecord | None]:
    """Returns what reads the records of a kind of group. Modules of share and Streams groups come with their first record."""
    if kind in _SHARE_KEYS:
        from klamm_broker.coordinator.share import records as share_records

        return share_records.ShareRecord.decode
    if kind in _STREAMS_KEYS:
        from klamm_broker.coordinator.streams import records as streams_records

        return streams_records.StreamsRecord.decode
    return consumer_records.ConsumerRecord.decode


def _decode_offset(value: bytes) -> CommittedOffset:
    stored, _ = OffsetCommitValue.decode(value, _version(value, "value"), _VERSION.size)
    return CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp,
        topic_id=stored.topic_id,
    )


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("group record", what, 0, f"{len(data)} bytes, too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
