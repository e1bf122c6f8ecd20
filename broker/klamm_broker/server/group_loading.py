"""Reads `__consumer_offsets` into the group coordinator when the broker starts.

It runs as a task of the event loop and lets others run after every slice, so that a long log delays only
its own groups (they answer COORDINATOR_LOAD_IN_PROGRESS). There is no log cleaner yet, so a log holds every
commit that was ever made: batches are decoded in bulk and only a key's last value is kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.wire.batch import check_crc, decode_records, iter_headers
from klamm_broker.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.topics import Partition

log = logging.getLogger(__name__)

_SLICE_BYTES: Final = 128 * 1024
"""About 3 ms of decoding (1,500 commits): what a request may have to wait for."""


def load(
    shell: GroupShell, partitions: Sequence[Partition], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None] | None:
    """Load these partitions; None when all are empty, and then it is done already."""
    coordinator = shell.coordinator
    full = [p for p in partitions if p.log.log_end_offset > p.log.log_start_offset]
    for partition in full:
        coordinator.start_loading(partition.index)
    coordinator.start(shell.now())
    return loop.create_task(_load_all(shell, full)) if full else None


async def _load_all(shell: GroupShell, partitions: Sequence[Partition]) -> None:
    started = time.monotonic()
    records = 0
    for partition in partitions:
        try:
            records += await _load(shell, partition)
        except (ProtocolError, OSError) as e:
            # Serving these groups from a part of their records would take offsets back.
            log.error("%s cannot be read, its groups stay unavailable: %s", partition, e)  # noqa: TRY400
            continue
        shell.run(shell.coordinator.finish_loading(partition.index, shell.now()))
    topic_ids = {topic.name: topic.id for topic in shell.broker.topics}
    shell.run(shell.coordinator.forget_deleted_topics(topic_ids, shell.now()))
    took_ms = (time.monotonic() - started) * 1000
    log.info("loaded %d groups from %d records in %d ms", len(shell.coordinator.groups), records, took_ms)


async def _load(shell: GroupShell, partition: Partition) -> int:
    offset, end, records = partition.log.log_start_offset, partition.log.log_end_offset, 0
    while offset < end:
        piece = partition.log.read(offset, _SLICE_BYTES, up_to=end)
        if piece is None:
            break
        data = os.pread(piece.fd, piece.size, piece.position)
        if len(data) != piece.size:
            raise OSError(f"{len(data)} of {piece.size} bytes could be read at offset {offset}")
        for pos, header in iter_headers(data):
            check_crc(data, pos, header)
            offset = header.last_offset + 1
            if header.is_control:
                continue
            batch = decode_records(data, pos)
            shell.coordinator.replay(
                partition.index, [KeyValue(r.key, r.value) for r in batch if r.key is not None]
            )
            records += len(batch)
        await asyncio.sleep(0)
    return records
