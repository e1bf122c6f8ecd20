"""The records of `__share_group_state`, as Kafka writes and reads them.

A snapshot is the whole state of a share partition, an update what has changed since. A key's int16 version tells which:
0 and 1. A snapshot without a value is a tombstone: the state is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.share.combining import combined
from klamm_broker.coordinator.share.model import NO_OFFSET, ShareKey, StateBatch
from klamm_kafka.wire.errors import MalformedMessage
from klamm_kafka.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)

_VERSION: Final = Struct(">h")
_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VALUE_VERSION: Final = 0
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The stored state of a share partition. `updates` are those since the last snapshot."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    complete_count: int = UNKNOWN
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0
    updates: int = 0

    def merged(self, update: ShareState) -> ShareState:
        """Returns this state after an update."""
        start = self.start_offset if update.start_offset == NO_OFFSET else update.start_offset
        return replace(
            self,
            leader_epoch=self.leader_epoch if update.leader_epoch == UNKNOWN else update.leader_epoch,
            start_offset=start,
            complete_count=update.complete_count,
            batches=tuple(combined(self.batches, update.batches, start)),
            updates=self.updates + 1,
        )


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record: a snapshot, an update, or without a state a tombstone."""

    key: ShareKey
    state: ShareState | None
    is_update: bool = False

    def encode(self) -> KeyValue:
        group_id, topic_id, partition = self.key
        if self.is_update:
            update_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
            key = _VERSION.pack(_UPDATE) + update_key.encode(0)
        else:
            snapshot_key = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
            key = _VERSION.pack(_SNAPSHOT) + snapshot_key.encode(0)
        return KeyValue(key, None if self.state is None else self._value(self.state))

    def _value(self, state: ShareState) -> bytes:
        value: ShareUpdateValue | ShareSnapshotValue
        if self.is_update:
            value = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.complete_count,
                state_batches=[
                    ShareUpdateValueStateBatch(
                        first_offset=b.first, last_offset=b.last, delivery_state=b.state, delivery_count=b.deliveries
                    )
                    for b in state.batches
                ],
            )  # fmt: skip
        else:
            value = ShareSnapshotValue(
                snapshot_epoch=state.snapshot_epoch,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.complete_count,
                create_timestamp=state.created_ms,
                write_timestamp=state.written_ms,
                state_batches=[
                    ShareSnapshotValueStateBatch(
                        first_offset=b.first, last_offset=b.last, delivery_state=b.state, delivery_count=b.deliveries
                    )
                    for b in state.batches
                ],
            )  # fmt: skip
        return _VERSION.pack(_VALUE_VERSION) + value.encode(_VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> StateRecord | None:
    """Returns a stored record; None for one of an unknown kind. Raises a ProtocolError for bytes that are no such record."""
    kind = _version(key, "key")
    if kind == _SNAPSHOT:
        snapshot, _ = ShareSnapshotKey.decode(key, 0, _VERSION.size)
        at = ShareKey(snapshot.group_id, snapshot.topic_id, snapshot.partition)
        return StateRecord(at, None if value is None else _snapshot(value))
    if kind == _UPDATE and value is not None:
        update, _ = ShareUpdateKey.decode(key, 0, _VERSION.size)
        return StateRecord(
            ShareKey(update.group_id, update.topic_id, update.partition), _update(value), is_update=True
        )
    return None


def _snapshot(value: bytes) -> ShareState:
    stored, _ = ShareSnapshotValue.decode(value, _version(value, "value"), _VERSION.size)
    return ShareState(
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        complete_count=stored.delivery_complete_count,
        batches=_batches(stored.state_batches),
        created_ms=stored.create_timestamp,
        written_ms=stored.write_timestamp,
    )


def _update(value: bytes) -> ShareState:
    stored, _ = ShareUpdateValue.decode(value, _version(value, "value"), _VERSION.size)
    return ShareState(
        snapshot_epoch=stored.snapshot_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        complete_count=stored.delivery_complete_count,
        batches=_batches(stored.state_batches),
    )


def _batches(
    stored: list[ShareSnapshotValueStateBatch] | list[ShareUpdateValueStateBatch],
) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in stored
    )


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("share state record", what, 0, f"{len(data)} bytes, too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
