"""Reads the partitions of an internal topic into its coordinator when the broker starts.

It is a task of the event loop and lets others run after every slice, so that a long log delays only its own
coordinator's clients. Batches are decoded in bulk, with their headers: a coordinator that knows transactions needs the
producer and the markers, the others skip control batches.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError
from klamm_kafka.wire.batch import BatchHeader, Record, check_crc, decode_records, iter_headers
from klamm_kafka.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm_broker.server.topics import Partition, Topic

log = logging.getLogger(__name__)

_SLICE_BYTES: Final = 128 * 1024
"""About 3 ms of decoding (1,500 commits): the time that a request may have to wait."""

Take = Callable[[int, BatchHeader, Sequence[Record]], None]
"""Takes partition, header and records of each batch, in the order of the log."""


def partitions_to_load(topic: Topic) -> list[Partition]:
    """Returns the partitions that hold records, or may hold some because they are offline."""
    return [p for p in topic.partitions if p.log.offline or p.log.log_end_offset > p.log.log_start_offset]


async def read_partitions(
    partitions: Sequence[Partition], take: Take, loaded: Callable[[Partition], None]
) -> int:
    """Give every batch of these partitions to `take`, and each finished partition to `loaded`. Returns the number of records.

    A partition that cannot be read is logged and never `loaded`: to serve a part of its records would take state back.
    """
    records = 0
    for partition in partitions:
        try:
            records += await _read(partition, take)
        except (LogError, ProtocolError, OSError) as e:
            log.error("%s cannot be read, what is in it stays unavailable: %s", partition, e)  # noqa: TRY400
            continue
        loaded(partition)
    return records


async def _read(partition: Partition, take: Take) -> int:
    if partition.log.offline:
        partition.log.read(0, 0, up_to=0)  # says why not
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
            batch = decode_records(data, pos)
            take(partition.index, header, batch)
            records += len(batch)
        await asyncio.sleep(0)
    return records
