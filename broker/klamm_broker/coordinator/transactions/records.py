"""The records of `__transaction_state`, in Kafka's format: both ways.

A value of version 1 (from transaction version 1 on) also has the producer ids before and after, and the client's
version. A record without a value is the tombstone of an expired id.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions.state import TransactionState
from klamm_broker.coordinator.transactions.transaction import Recorded
from klamm_kafka.wire.errors import MalformedMessage
from klamm_kafka.wire.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_VERSION: Final = Struct(">h")
_KEY: Final = 0
_VALUES: Final = (0, 1)


def encode(transactional_id: str, recorded: Recorded, *, transaction_version: int) -> KeyValue:
    """Returns the record of a transactional id; `transaction_version` is the broker's feature level."""
    version = 1 if transaction_version >= 1 else 0
    value = TransactionLogValue(
        producer_id=recorded.producer_id,
        producer_epoch=recorded.epoch,
        transaction_timeout_ms=recorded.timeout_ms,
        transaction_status=int(recorded.state),
        transaction_partitions=None
        if recorded.state is TransactionState.EMPTY
        else _by_topic(recorded.partitions),
        transaction_last_update_timestamp_ms=recorded.updated_ms,
        transaction_start_timestamp_ms=recorded.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = recorded.previous_producer_id
        value.next_producer_id = recorded.next_producer_id
        value.client_transaction_version = recorded.client_version
    return KeyValue(_key(transactional_id), _VERSION.pack(version) + value.encode(version))


def tombstone(transactional_id: str) -> KeyValue:
    return KeyValue(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY) + TransactionLogKey(transactional_id=transactional_id).encode(0)


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for at in sorted(partitions):
        topics.setdefault(at.topic, []).append(at.partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def decode(key: bytes, value: bytes) -> tuple[str, Recorded] | None:
    """Returns a transactional id and its record; None for an unknown version.

    Raises a ProtocolError for bytes that are no such record.
    """
    if _version(key, "key") != _KEY:
        return None
    version = _version(value, "value")
    if version not in _VALUES:
        return None
    name, _ = TransactionLogKey.decode(key, 0, _VERSION.size)
    stored, _ = TransactionLogValue.decode(value, version, _VERSION.size)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise MalformedMessage(
            "transaction record", "transaction_status", 0, f"{stored.transaction_status} is no state"
        ) from None
    return name.transactional_id, Recorded(
        producer_id=stored.producer_id,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in stored.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        client_version=stored.client_transaction_version,
    )


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("transaction record", what, 0, f"{len(data)} bytes, too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
