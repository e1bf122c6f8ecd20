"""Cleaning a `PartitionLog` here and now, as the broker and its cleaner process do it between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from klamm_broker.log.cleaner import plan
from klamm_broker.log.cleaner.filter import LastRecord
from klamm_broker.log.cleaner.job import Cleaned, Done, Job
from klamm_broker.log.cleaner.plan import Candidate, DirtySegment, LogFacts
from klamm_broker.log.cleaner.work import Round
from klamm_broker.log.errors import StorageError
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.batch import BatchHeader, Record, check_crc, decode_records, iter_headers


@dataclass(slots=True)
class Cleaning:
    """A cleaner's memory of a log: up to where it is clean."""

    log: PartitionLog
    clean_offset: int | None = None
    memory: int = 1 << 20
    buffer_bytes: int = 1 << 16

    def candidate(self, now_ms: int) -> Candidate | None:
        log = self.log
        segments = [
            DirtySegment(s.base_offset, s.size, s.largest_timestamp, s.first_batch_timestamp)
            for s in log.segments
        ]
        return plan.candidate(
            LogFacts(
                name=log.name,
                segments=segments,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                last_stable_offset=log.last_stable_offset,
                clean_offset=self.clean_offset,
                config=log.config,
            ),
            now_ms,
        )

    def round(
        self, now_ms: int, in_place: Callable[[Cleaned], None] | None = None
    ) -> tuple[Candidate, Round] | None:
        """Returns the next round, ready to run; None if there is nothing to clean."""
        found = self.candidate(now_ms)
        if found is None or not found.dirty_bytes:
            return None
        log, config = self.log, self.log.config
        job = Job(
            directory=str(log.directory),
            segments=[(s.base_offset, s.size) for s in log.segments if s.base_offset < found.end],
            first_dirty=found.first_dirty,
            end=found.end,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            memory=self.memory,
            load_factor=0.9,
            buffer_bytes=self.buffer_bytes,
            bytes_per_s=1e12,
        )
        producers = {
            entry.producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else None, entry.epoch
            )
            for entry in log.producers.entries.values()
        }
        put = in_place or (lambda cleaned: put_in_place(log, cleaned, now_ms))
        return found, Round(job, producers, self._aborted(found.end), in_place=put)

    def _aborted(self, end: int) -> Iterable[AbortedTxn]:
        for segment in self.log.segments:
            if segment.base_offset >= end:
                yield from segment.txn_index.overlapping(0, end)

    def clean(self, now_ms: int, rounds: int = 100) -> list[Done]:
        """Clean until nothing is dirty; what each round said."""
        done = []
        while len(done) < rounds and (found := self.round(now_ms)):
            done.append(found[1].run())
            self.clean_offset = done[-1].clean_offset
        return done


def put_in_place(log: PartitionLog, cleaned: Cleaned, now_ms: int) -> None:
    """Does what the broker does with a finished segment, in its order."""
    swap = log.begin_swap(cleaned)
    swap.prepare()
    try:
        log.adopt(swap)
    except StorageError:
        swap.undo()
        raise
    try:
        swap.retire()
        log.finish_swap(swap)
        swap.sync()
    except OSError as e:
        raise log.swap_failed(e) from e
    log.end_swap(swap, now_ms)


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yields every batch of a log through its reading side, checksums looked at."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        if piece is None:
            return
        data = os.pread(piece.fd, piece.size, piece.position)
        for pos, header in iter_headers(data):
            check_crc(data, pos, header)
            yield header, decode_records(data, pos)
            offset = header.next_offset


def records(log: PartitionLog) -> list[Record]:
    """Returns the records of a log, those of control batches left out."""
    return [r for header, rows in batches(log) if not header.is_control for r in rows]
