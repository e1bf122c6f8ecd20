"""Lines for `.snapshot` files: what a partition remembered of its producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from klamm.logdump.errors import DumpError
from klamm_broker.log import producer_snapshot
from klamm_broker.log.errors import LogError


def dump_snapshot(path: Path) -> Iterator[str]:
    """One line for each producer. Raises DumpError."""
    try:
        entries = producer_snapshot.decode(path.read_bytes(), path)
    except OSError as e:
        raise DumpError(f"{path} cannot be read: {e.strerror}") from None
    except LogError as e:
        raise DumpError(str(e)) from None
    for entry in entries:
        first = entry.current_txn_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'}"
            f" lastTimestamp: {entry.last_timestamp}"
        )
        if entry.batches:
            last = entry.batches[0]
            line += (
                f" firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} lastOffset: {last.last_offset}"
                f" offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
            )
        yield line
