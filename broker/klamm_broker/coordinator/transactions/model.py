"""Questions and answers of the transaction coordinator: plain values, free of protocol versions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_kafka.wire.errors import ErrorCode


class TransactionConfig(NamedTuple):
    """Kafka's properties of transactions."""

    log_partitions: int = 50
    """transaction.state.log.num.partitions."""
    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms."""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms."""
    timeout_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms."""
    expiry_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms."""


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None
    """The producer id and epoch that the producer believes to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRequest:
    """A request of a producer about its transaction, by transactional id, producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest(ProducerRequest):
    """AddPartitionsToTxn, AddOffsetsToTxn, or the partitions that Produce and TxnOffsetCommit add by themselves."""

    partitions: frozenset[TopicPartition]
    client_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest(ProducerRequest):
    """EndTxn."""

    committed: bool
    client_version: int


class EndResult(NamedTuple):
    """EndTxn's answer, with the id and epoch to go on with, which only clients of version 2 are told."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionDescription(NamedTuple):
    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Collection[TopicPartition] = ()


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListFilter(NamedTuple):
    """A filter; empty, -1 and None let everything pass."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    pattern: str | None = None


class ListResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()
