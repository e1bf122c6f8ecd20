"""The stored part of one partition's log: its offsets, its segments, reading, and forcing it to disk.

Nothing here adds or removes records; `PartitionLog` does. Four offsets are kept apart: log start, high watermark
(consumers may read up to it), last stable (below every open transaction) and log end. Not thread-safe; has no clock.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from klamm_base.files import sync_directory
from klamm_broker.log import producer_snapshot, timestamps
from klamm_broker.log.answers import FileSlice
from klamm_broker.log.config import LogConfig
from klamm_broker.log.disk_failure import Report, ignore, is_full
from klamm_broker.log.errors import (
    CorruptMessage,
    OffsetOutOfRange,
    StorageError,
)
from klamm_broker.log.files import OpenFile
from klamm_broker.log.flush_job import FlushJob, files_to_flush
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.log_loader import Loaded
from klamm_broker.log.producer_state import ProducerState
from klamm_broker.log.segment import Segment
from klamm_broker.log.segment_list import SegmentList
from klamm_broker.log.steps import Steps, finish
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord, UnsupportedCompression

log = logging.getLogger(__name__)


BeforeEpoch = Callable[[int], None]
"""Called (with the time in ms) before a log writes the first record of a leader epoch. To refuse it, raise StorageError."""


def _at_once(now_ms: int) -> None:
    """Permit the epoch: the `BeforeEpoch` of a log without an owner."""


class StoredLog:
    """One partition's log without its changes. `config` may be replaced at any time."""

    offline = False  # see `OfflineLog`

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        loaded: Loaded,
        *,
        recovery_point: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.config = config
        self.leader_epoch = max(leader_epoch, loaded.epochs.latest)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_end_offset
        self.recovery_point = min(recovery_point, loaded.log_end_offset)
        self.promotion_epoch = (
            -1
        )  # of a topic that was a mirror: the first leader epoch of this cluster's own
        self.sole_replica = True  # False: the high watermark follows the disk, or other replicas
        self.producers: ProducerState = loaded.producers
        self._ending: deque[tuple[int, int]] = deque()
        """Markers that are not committed yet: their offset, and where their transaction begins."""
        self.epochs: LeaderEpochCache = loaded.epochs
        self._segments = SegmentList(directory, loaded.segments)
        self._snapshot_offset = loaded.snapshot_offset
        self._flushed_ms = now_ms
        self._truncations = 0
        self.cleaning = False  # the cleaner has these segments: retention waits for it
        self.copying = False  # the files are being copied: the cleaner waits
        self.swapping = False  # a segment is getting its names: copying waits for a moment
        self._closed = False
        self._named_base = -1  # base offset of the active segment when the directory was last forced to disk
        self.report: Report = ignore  # told of errors of the disk
        self.before_epoch: BeforeEpoch = _at_once
        self._failed: OSError | None = None  # an fsync failed: nobody knows what is on the disk

    # Facts

    @property
    def size(self) -> int:
        """Bytes in the `.log` files."""
        return self._segments.size

    @property
    def segment_base_offsets(self) -> list[int]:
        return list(self._segments.bases)

    @property
    def segments(self) -> list[Segment]:
        """The segments in order, the active one last, for the copying of their files."""
        return list(self._segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: consumers of committed records may read up to it.

        A marker counts once it is committed: a power cut could still take back an uncommitted one.
        """
        undecided = self.producers.first_undecided_offset
        ending = self._ending
        if undecided is None and not ending:
            return self.high_watermark
        while ending and ending[0][0] < self.high_watermark:
            ending.popleft()
        if ending:
            first = min(start for _, start in ending)
            undecided = first if undecided is None else min(first, undecided)
        if undecided is None:
            return self.high_watermark
        return min(max(undecided, self.log_start_offset), self.high_watermark)

    def _commit(self) -> None:
        """Move the high watermark: to the log end if that many records may be missing on the disk, else to those that are on it."""
        if self.sole_replica and self.log_end_offset - self.recovery_point < self.config.flush_messages:
            self.high_watermark = self.log_end_offset
        else:
            self.advance_high_watermark(self.recovery_point)

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset`. It never goes back by itself and never past the log end."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide the records below `offset` (DeleteRecords); retention removes their segments."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.name}: cannot start the log at {offset}, beyond the high watermark {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    @property
    def truncations(self) -> int:
        """The number of times that the log has been cut: work on its segments must then begin anew."""
        return self._truncations

    @property
    def closed(self) -> bool:
        return self._closed

    def _write_snapshot(self, end: int) -> None:
        """Write the producer state as of the log end, unless that was done already."""
        if end > self._snapshot_offset:
            producer_snapshot.write(self.directory, end, self.producers.entries.values())
            self._snapshot_offset = end

    def _storage_error(self, what: str, error: OSError) -> StorageError:
        """Report a disk error to the directory's owner. Returns the exception to raise."""
        self.report(self.directory.parent, error)
        return StorageError(f"{self.name}: {what} failed: {error}")

    # Read

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> FileSlice | None:
        """Returns the whole batches below `up_to`, from the one that holds `offset` on, within one segment.

        The first may start before `offset`. None when there is nothing to read, or when the first batch is
        larger than `max_bytes` and `min_one_batch` is not set. Raises OffsetOutOfRange,
        and StorageError when the disk fails or the log is closed.
        """
        if self._closed:
            raise StorageError(f"{self.name}: the log is closed")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is not in the log, which holds {self.log_start_offset} to "
                f"{self.log_end_offset}"
            )
        if offset >= up_to:
            return None
        try:
            return self._slice(offset, max_bytes, up_to, min_one_batch=min_one_batch)
        except OSError as e:
            raise self._storage_error(f"read at offset {offset}", e) from e

    def _slice(self, offset: int, max_bytes: int, up_to: int, *, min_one_batch: bool) -> FileSlice | None:
        segments, bases = self._segments, self._segments.bases
        for number in range(segments.number_of(offset), len(segments)):
            segment = segments[number]
            end = bases[number + 1] if number + 1 < len(bases) else self.log_end_offset
            found = segment.read(
                offset, max_bytes, up_to=up_to, last_offset=end - 1, min_one_batch=min_one_batch
            )
            if found is not None:
                start, stop = found
                return FileSlice(segment.file.fd, start, stop - start, segment.file) if stop > start else None
            # otherwise the cleaner removed the end of this segment
        return None

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTxn]:
        """Returns the aborted transactions with records in [first, end)."""
        found = []
        for segment in self._segments.since(first):
            for txn in segment.txn_index.ending_from(first):
                if txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:  # transactions that were aborted later began later
                    return found
        return found

    def aborted_in(self, offset: int, piece: FileSlice | None, up_to: int) -> list[AbortedTxn]:
        """Returns the aborted transactions for a fetch: those with records in `piece`, which `read` gave for `offset`.

        The answer may have a few more, from a little behind the piece.
        """
        if piece is None or not any(segment.txn_index.entries for segment in self._segments.since(offset)):
            return []
        segments, bases = self._segments, self._segments.bases
        for number in range(segments.number_of(offset), len(segments)):
            segment = segments[number]
            if segment.file is piece.file:
                end = bases[number + 1] if number + 1 < len(bases) else up_to
                behind = segment.index.offset_behind(piece.position + piece.size, end)
                return self.aborted_transactions(offset, min(up_to, behind))
        return self.aborted_transactions(offset, up_to)

    def offset_for_timestamp(self, timestamp: int) -> timestamps.Found | None:
        """Returns (timestamp, offset, leader epoch) of the first record with at least this timestamp. Raises StorageError."""
        return finish(self.finding_timestamp(timestamp))

    def finding_timestamp(self, timestamp: int | None) -> Steps[timestamps.Found | None]:
        """Does what `offset_for_timestamp` does, in steps. None asks for the first record with the largest timestamp. Raises StorageError,
        and CorruptMessage for a damaged batch.
        """
        try:
            if timestamp is None:
                return (yield from timestamps.largest(self._segments))
            return (
                yield from timestamps.first_at_or_after(
                    self._segments.since, timestamp, log_start_offset=self.log_start_offset
                )
            )
        except (CorruptRecord, InvalidRecord, UnsupportedCompression) as e:
            raise CorruptMessage(f"{self.name}: looking up a timestamp failed: {e}") from e
        except OSError as e:
            raise self._storage_error("looking up a timestamp", e) from e

    def max_timestamp_offset(self) -> timestamps.Found | None:
        """Returns (timestamp, offset, leader epoch) of the first record with the largest timestamp. Raises StorageError."""
        return finish(self.finding_timestamp(None))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch up to `epoch`; (-1, -1) if none is known."""
        return self.epochs.end_offset(epoch, self.log_end_offset, self.leader_epoch)

    # Durability

    def _flush_due(self, now_ms: int) -> bool:
        unflushed = self.log_end_offset - self.recovery_point
        self._flushed_ms = min(self._flushed_ms, now_ms)  # the clock went back: count from here
        return unflushed >= self.config.flush_messages or now_ms - self._flushed_ms >= self.config.flush_ms

    @property
    def flush_due_after_roll(self) -> bool:
        """True while a finished segment is not on disk: recovery after a crash would check it again."""
        return self.recovery_point < self._segments.active.base_offset

    def wants_flush(self, now_ms: int) -> bool:
        """Decides whether flush.messages, flush.ms or a finished segment asks for a flush."""
        if self._closed or self._failed is not None:
            return False
        return self.recovery_point < self.log_end_offset and (
            self.flush_due_after_roll or self._flush_due(now_ms)
        )

    def begin_flush(self, now_ms: int) -> FlushJob | None:
        """Returns a job that makes everything up to the log end durable; None when it is. `end_flush` must follow."""
        self._flushed_ms = now_ms
        self._check_not_failed()
        if self._closed or self.recovery_point >= self.log_end_offset:
            return None
        try:
            found = files_to_flush(
                self.directory, self._segments.since(self.recovery_point), self.epochs.path
            )
        except OSError as e:
            raise self._storage_error("flush", e) from e
        return self._flush_job(found)

    def begin_commit(self, now_ms: int) -> FlushJob | None:
        """Returns a flush job with as few files as possible: recovery rebuilds the others from the records.

        Only the active segment's records must be on the disk, and the directory that names a new segment.
        """
        active = self._segments.active
        if self._closed or self.recovery_point < active.base_offset or self._named_base != active.base_offset:
            return self.begin_flush(now_ms)
        self._flushed_ms = now_ms
        self._check_not_failed()
        if self.recovery_point >= self.log_end_offset:
            return None
        try:
            return self._flush_job([active.file])
        except OSError as e:
            raise self._storage_error("flush", e) from e

    def _flush_job(self, found: list[OpenFile]) -> FlushJob:
        return FlushJob(
            end_offset=self.log_end_offset,
            truncations=self._truncations,
            named_base=self._segments.active.base_offset if len(found) > 1 else self._named_base,
            files=found,
        )

    def end_flush(self, job: FlushJob) -> None:
        """Move the recovery point after the job has run, unless the log has been truncated meanwhile.

        Moves the high watermark as well, where it waits for that.
        """
        self._check_not_failed()
        if job.truncations == self._truncations:
            self._named_base = job.named_base
            self.recovery_point = max(self.recovery_point, min(job.end_offset, self.log_end_offset))
            self._commit()

    def flush_failed(self, error: OSError) -> None:
        """Take nothing until the next start, as the job has failed and no later one can be trusted."""
        self._failed = error
        log.critical(
            "%s: fsync failed (%s): records from offset %d on may not reach the disk. Appends are refused until the "
            "broker is started again; check the disk first",
            self.name, error, self.recovery_point,
        )  # fmt: skip
        self.report(self.directory.parent, error)

    def take_offline(self, error: OSError) -> None:
        """Release the files of a failed directory; operations under way find the log failed."""
        self._failed = error
        self.release()

    def _check_not_failed(self) -> None:
        if self._failed is not None:
            raise StorageError(f"{self.name}: an earlier flush failed: {self._failed}")

    @property
    def failed(self) -> bool:
        """True once an fsync has failed: nothing more is written or committed."""
        return self._failed is not None

    def flush(self, now_ms: int | None = None) -> None:
        """Force everything up to the log end to disk, and move the recovery point there.

        Raises StorageError. If the disk is full (`is_full`), the records are on the disk, but the recovery point stays, as the
        indexes could not be written.
        """
        try:
            job = self.begin_flush(self._flushed_ms if now_ms is None else now_ms)
        except StorageError as e:
            if is_full(e):
                self._sync_records()
            raise
        if job is None:
            return
        try:
            job.run()
        except OSError as e:
            self.flush_failed(e)
            raise self._storage_error("flush", e) from e
        self.end_flush(job)

    def _sync_records(self) -> None:
        try:
            for segment in self._segments.since(self.recovery_point):
                os.fsync(segment.file.fd)
            sync_directory(self.directory)
        except OSError as e:
            self.flush_failed(e)
            raise StorageError(f"{self.name}: flush failed: {e}") from None

    def close(self) -> None:
        """Flush and close. Opening it again with `clean=True` finds everything."""
        if self._closed:
            return
        active = self._segments.active
        active.note_max_timestamp()
        active.give_back_reserve()
        self.flush()
        active.write_indexes()
        self._write_snapshot(self.log_end_offset)
        self.release()

    def release(self) -> None:
        """Release all files without writing anything."""
        self._closed = True
        self._segments.release()

    # Another directory

    def write_indexes(self) -> None:
        """Write the index entries of the active segment that are only in memory."""
        self._segments.active.write_indexes()

    def relocate(self, directory: Path) -> None:
        """Go on in a directory that holds the same files, all of them forced to disk up to the log end.

        Readers of the old files can read on.
        """
        self.directory = directory
        self._segments.relocate(directory)
        self.epochs.relocate(directory)
        self._named_base = -1
        self.recovery_point = self.log_end_offset
        self._commit()
