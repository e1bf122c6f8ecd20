"""Applies a batch in the log to the state of its producer: when a log is opened, and after each append."""

from __future__ import annotations

from klamm_broker.log.producer_state import BatchMetadata, ProducerState
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.batch import BatchHeader, EndTxnMarker, decode_records, read_end_txn_marker


def marker_of(data: bytearray | memoryview, position: int) -> EndTxnMarker | None:
    """Returns the transaction marker in the control batch at `position`; None for others and for emptied ones."""
    records = decode_records(data, position)
    return read_end_txn_marker(records[0]) if records else None


def apply_batch(
    producers: ProducerState, data: bytearray | memoryview, position: int, header: BatchHeader
) -> AbortedTxn | None:
    """Take note of a batch with its final offsets. Returns the aborted transaction that it ends, if any."""
    if header.producer_id < 0:
        return None
    if header.is_control:
        marker = marker_of(data, position)
        if marker is None:
            # The cleaner has left only the existence of the producer, and its epoch.
            producers.note_epoch(header.producer_id, header.producer_epoch, timestamp=header.max_timestamp)
            return None
        done = producers.end_transaction(
            header.producer_id,
            header.producer_epoch,
            offset=header.base_offset,
            aborted=not marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=header.max_timestamp,
        )
        if done is None or not done.aborted:
            return None
        undecided = producers.first_undecided_offset
        stable = done.last_offset + 1 if undecided is None else undecided
        return AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable)
    producers.update(
        header.producer_id,
        header.producer_epoch,
        BatchMetadata(
            header.last_sequence, header.base_offset + header.last_offset_delta, header.last_offset_delta,
            header.max_timestamp,
        ),
        transactional=header.is_transactional,
        timestamp=header.max_timestamp,
    )  # fmt: skip
    return None
