"""Notices that a copy is not the one any more that the mirror has written to; stops its partition then.

A copy that was deleted at the target and made anew has another topic id. One that lost its end ends before the end that is
committed with the source offset, or takes a batch before the end that was acknowledged: neither compaction nor retention
moves a log's end back. Copies that keep offsets begin again by themselves (`klamm_mirror.copy.copies`). Pure, except for the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.stops import Kind, Stop
from klamm_mirror.topic_ids import to_text

log = logging.getLogger(__name__)


def identify(partitions: Iterable[MirrorPartition], answer: MetadataResponse) -> None:
    """Compares the copies' ids in a metadata answer of the target with those that are known. Takes new ones."""
    ids = {t.name: t.topic_id for t in answer.topics if not t.error_code and t.topic_id != UUID_ZERO}
    for partition in partitions:
        there = ids.get(partition.remote)
        if there is None or partition.whole or partition.promoted:
            continue
        if partition.copy_id is None:
            partition.copy_id = there
            partition.changed()
        elif there != partition.copy_id:
            was, now = to_text(partition.copy_id), to_text(there)
            _stop(partition, f"was deleted at the target and made anew (id {was} became {now})", there)


def ends_are(partitions: Iterable[MirrorPartition], ends: Mapping[tuple[str, int], int]) -> None:
    """Compares the ends of the copies' logs, by remote topic and partition, with those that are known."""
    for partition in partitions:
        end = ends.get((partition.remote, partition.partition), partition.copy_end)
        if not partition.whole and end < partition.copy_end:
            lost = f"ends at offset {end}, though it had acknowledged all before {partition.copy_end}: it has lost records"
            _stop(partition, lost, partition.copy_id)


def acknowledged(partition: MirrorPartition, base: int) -> None:
    """Compares the offset that the target gave a batch with the end of what it has acknowledged before."""
    if not partition.whole and 0 <= base < partition.copy_end:
        lost = f"took a batch at offset {base}, though it had acknowledged all before {partition.copy_end}: it has lost records"
        _stop(partition, lost, partition.copy_id)


def _stop(partition: MirrorPartition, what: str, new_id: bytes | None) -> None:
    if partition.unsent:
        return
    why = (
        f"{partition.remote} {what}, and lacks records that were copied. To copy the topic again: klamm mirror offsets reset, "
        f"or klamm mirror resolve with --append; --skip goes on without them"
    )
    log.error("%s stops: %s", partition, why)
    partition.stopped = Stop(
        kind=Kind.COPY_LOST, start=0, end=max(partition.done, 0), why=why, new_id=new_id,
        since_ms=time.time_ns() // 1_000_000,
    )  # fmt: skip
