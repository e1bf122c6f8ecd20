"""The change that each step makes. Pure: from the present record to the next one."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Final

from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.coordinator.transactions.state import AT_REST, TransactionState
from klamm_broker.coordinator.transactions.transaction import EPOCH_MAX, NO_TIME, Recorded, Transaction
from klamm_kafka.wire.errors import ErrorCode

EPOCH_BUMP_FROM: Final = 2
"""The transaction version from which on the epoch goes up at each end (KIP-890)."""


def fence(transaction: Transaction) -> Recorded:
    """Raise the epoch above the active producer's (below version 2). The record of the abort that follows is written."""
    recorded = transaction.recorded
    stays = transaction.failed_fence or recorded.epoch == EPOCH_MAX
    epoch = recorded.epoch if stays else recorded.epoch + 1
    return replace(recorded, epoch=epoch, last_epoch=NO_PRODUCER_EPOCH)


def begin_epoch(
    recorded: Recorded, *, timeout_ms: int, expected_epoch: int | None, now_ms: int
) -> Recorded | ErrorCode:
    """InitProducerId: take the next epoch; for a repeated request the same one.

    `expected_epoch` is the epoch that the producer believes to have (KIP-360).
    """
    if recorded.epoch_exhausted:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka: only its own producer may take the next id
    if expected_epoch is None:
        epoch, last_epoch = recorded.epoch + 1, NO_PRODUCER_EPOCH
    elif recorded.epoch in (NO_PRODUCER_EPOCH, expected_epoch):
        epoch, last_epoch = recorded.epoch + 1, recorded.epoch
    elif expected_epoch == recorded.last_epoch:
        epoch, last_epoch = recorded.epoch, recorded.last_epoch
    else:
        return ErrorCode.PRODUCER_FENCED
    return replace(
        recorded,
        state=TransactionState.EMPTY,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=now_ms,
    )


def begin_id(
    recorded: Recorded, producer_id: int, *, timeout_ms: int, record_last_epoch: bool, now_ms: int
) -> Recorded:
    """InitProducerId when the epochs have run out: take a new producer id, from epoch 0 on."""
    return replace(
        recorded,
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        epoch=0,
        last_epoch=recorded.epoch if record_last_epoch else NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        updated_ms=now_ms,
    )


def add_partitions(
    recorded: Recorded, partitions: Set[TopicPartition], *, client_version: int, now_ms: int
) -> Recorded:
    """Add partitions; the first one begins the transaction."""
    return replace(
        recorded,
        state=TransactionState.ONGOING,
        partitions=recorded.partitions | partitions,
        start_ms=now_ms if recorded.state in AT_REST else recorded.start_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def decide(
    recorded: Recorded,
    state: TransactionState,
    *,
    client_version: int,
    next_producer_id: int = NO_PRODUCER_ID,
    began: bool = True,
    now_ms: int,
) -> Recorded:
    """Go to PREPARE_COMMIT or PREPARE_ABORT. `began`: there is a transaction (version 2 may abort without one)."""
    epoch, last_epoch = recorded.epoch, recorded.last_epoch
    if client_version >= EPOCH_BUMP_FROM:
        last_epoch = epoch
        epoch = min(epoch + 1, EPOCH_MAX)
    return replace(
        recorded,
        state=state,
        epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=next_producer_id,
        start_ms=recorded.start_ms if began else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def complete(recorded: Recorded, *, now_ms: int) -> Recorded:
    """Go to COMPLETE_COMMIT or COMPLETE_ABORT, as all markers are written, with the next producer id if there is one."""
    commits = recorded.state is TransactionState.PREPARE_COMMIT
    rotates = recorded.client_version >= EPOCH_BUMP_FROM and recorded.next_producer_id != NO_PRODUCER_ID
    return replace(
        recorded,
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        producer_id=recorded.next_producer_id if rotates else recorded.producer_id,
        epoch=0 if rotates else recorded.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def die(recorded: Recorded) -> Recorded:
    """Let the id expire."""
    return replace(recorded, state=TransactionState.DEAD, partitions=frozenset())
