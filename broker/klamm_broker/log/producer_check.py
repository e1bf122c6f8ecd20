"""Checks the batches of an append against the partition's state of their producers. It changes nothing; no I/O."""

from __future__ import annotations

from klamm_broker.log.errors import InvalidRecordBatch, TransactionalIdMissing
from klamm_broker.log.producer_state import EPOCH_BUMP_FROM, BatchMetadata, ProducerState
from klamm_broker.log.replay import apply_batch, marker_of
from klamm_broker.log.validation import Batch, Buffer
from klamm_kafka.wire.batch import BatchHeader


def check_producers(
    producers: ProducerState,
    data: Buffer,
    batches: list[Batch],
    *,
    transaction_version: int | None,
    from_client: bool,
    next_offset: int,
    where: str,
) -> list[BatchMetadata]:
    """Refuse batches that break a producer's sequence or transaction. Returns the earlier batches if this is a repetition.

    Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTxnState, TransactionCoordinatorFenced,
    TransactionalIdMissing, and InvalidRecordBatch for a record set of which a part was written before.
    """
    state = producers
    if len(batches) > 1 and any(header.producer_id >= 0 for _, header in batches):
        state = state.copy()  # each batch is checked after the ones before it
    repeated: list[BatchMetadata] = []
    for position, header in batches:
        if header.producer_id >= 0:
            if header.is_control:
                if (marker := marker_of(data, position)) is not None:
                    state.check_marker(
                        header.producer_id,
                        header.producer_epoch,
                        marker.coordinator_epoch,
                        transaction_version=transaction_version or 0,
                        where=where,
                    )
            elif not from_client:
                state.check_epoch(header.producer_id, header.producer_epoch, where=where)
            elif (earlier := _check_records(state, header, transaction_version, where)) is not None:
                repeated.append(earlier)
                continue
        if state is not producers:
            apply_batch(state, data, position, header._replace(base_offset=next_offset))
            next_offset += header.last_offset_delta + 1
    if repeated and len(repeated) < len(batches):  # no answer fits: a part is written, a part is not
        raise InvalidRecordBatch(
            f"{where}: {len(repeated)} of {len(batches)} batches in one record set were written before; "
            "send the others by themselves"
        )
    return repeated


def _check_records(
    state: ProducerState, header: BatchHeader, version: int | None, where: str
) -> BatchMetadata | None:
    transactional = header.is_transactional
    if transactional and version is None:
        raise TransactionalIdMissing(f"{where}: a transactional batch without a transactional id")
    return state.check(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        transactional=transactional,
        from_zero=transactional and version == EPOCH_BUMP_FROM,
        where=where,
    )
