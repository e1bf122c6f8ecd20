"""One partition's log: an ordered list of segments, of which the last is written to.

Offsets never go back and are assigned here. What `append` returned for is in the file (the page cache; `flush`
makes it durable) and its producer state is noted; what failed left nothing behind. Four offsets are kept
apart: log start, high watermark (what consumers may read), last stable (below every open transaction) and
log end. Not thread-safe, never waits but for the disk, and has no clock: time is passed in.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import Literal

from klamm_broker.log import producer_snapshot, swap, timestamps
from klamm_broker.log.answers import AppendInfo, FileSlice
from klamm_broker.log.cleaner.job import Cleaned
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import (
    InvalidRecordBatch,
    LogError,
    OffsetOutOfRange,
    StorageError,
    TransactionalIdMissing,
)
from klamm_broker.log.files import OpenFile
from klamm_broker.log.flush_job import FlushJob, files_to_flush
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.log_loader import Loaded, LogLoader, reload_producers
from klamm_broker.log.producer_state import EPOCH_BUMP_FROM, BatchMetadata, ProducerState
from klamm_broker.log.replay import apply_batch, marker_of
from klamm_broker.log.retention import deletable
from klamm_broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from klamm_broker.log.segment_list import SegmentList
from klamm_broker.log.txn_index import AbortedTxn
from klamm_broker.log.validation import Batch, Buffer, check_record_set, needs_recompression, recompress
from klamm_broker.wire.batch import patch, patch_log_append_time

log = logging.getLogger(__name__)


class PartitionLog:
    """See the module. `open` makes one; `config` may be replaced at any time."""

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
        self.sole_replica = True  # False: the high watermark follows what is on the disk, or somebody else
        self.producers: ProducerState = loaded.producers
        self.epochs: LeaderEpochCache = loaded.epochs
        self._segments = SegmentList(directory, loaded.segments)
        self._snapshot_offset = loaded.snapshot_offset
        self._flushed_ms = now_ms
        self._truncations = 0
        self.cleaning = False  # the cleaner has these segments: retention waits for it
        self.copying = False  # somebody copies the files: the cleaner waits
        self._closed = False
        self._named_base = -1  # base offset of the active segment when the directory was last forced to disk
        self._failed: OSError | None = None  # of an fsync: what is on the disk is not known any more

    @classmethod
    def open(
        cls,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        now_ms: int,
    ) -> PartitionLog:
        """Open the directory (made if it is not there). `clean`: the last shutdown was, nothing to recover."""
        loaded = LogLoader(
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            max_epoch=leader_epoch,
            now_ms=now_ms,
        ).load()
        return cls(
            directory,
            topic,
            partition,
            config,
            loaded,
            recovery_point=loaded.log_end_offset if clean else recovery_point,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )

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
        """The segments in order, the active one last: for those who copy their files."""
        return list(self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Below this every transaction is decided: what a consumer of committed records may read up to."""
        undecided = self.producers.first_undecided_offset
        if undecided is None:
            return self.high_watermark
        return min(max(undecided, self.log_start_offset), self.high_watermark)

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

    # Append

    def append(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int | None = 0,
    ) -> AppendInfo:
        """Validate a record set, give it offsets, and write it with one call.

        `transaction_version` is that of markers, and of a client's records once somebody has verified that their
        transaction is open; None refuses records of transactions. The buffer is patched in place (base offset, leader epoch, append time) and not kept. Raises a
        LogError, and then the log is as it was.
        """
        config = self.config
        from_client = origin == "client"
        data: Buffer = batches
        accepted = check_record_set(data, config, now_ms=now_ms, from_client=from_client, where=self.name)
        if earlier := self._check_producers(data, accepted, transaction_version, from_client=from_client):
            return AppendInfo(
                earlier[0].first_offset,
                earlier[-1].last_offset,
                earlier[-1].timestamp if config.log_append_time else -1,
                self.log_start_offset,
                True,
            )
        if needs_recompression(accepted, config):
            data, accepted = recompress(data, accepted, config, self.name)
        first = offset = self.log_end_offset
        rows = []
        for position, header in accepted:
            patch(data, position, base_offset=offset, leader_epoch=self.leader_epoch)
            timestamp = header.max_timestamp
            if config.log_append_time:
                timestamp = now_ms
                patch_log_append_time(data, position, header, now_ms)
            offset += header.last_offset_delta + 1
            rows.append((header.length + 12, offset - 1, timestamp))
        self._write(data, rows, offset - 1, now_ms)
        self._note(data, accepted, first, rows)
        if self.log_end_offset - self.recovery_point >= config.flush_messages:
            self.flush(now_ms)
        return AppendInfo(
            first, offset - 1, now_ms if config.log_append_time else -1, self.log_start_offset, False
        )

    def _check_producers(
        self, data: Buffer, batches: list[Batch], transaction_version: int | None, *, from_client: bool
    ) -> list[BatchMetadata]:
        """Refuse what breaks a producer's sequence; the earlier batches if this is a repetition."""
        state = self.producers
        if len(batches) > 1 and any(header.producer_id >= 0 for _, header in batches):
            state = state.copy()  # each batch is judged after the ones before it
        offset = self.log_end_offset
        repeated: list[BatchMetadata] = []
        for position, header in batches:
            if header.producer_id < 0:
                continue
            if header.is_control:
                if (marker := marker_of(data, position)) is not None:
                    state.check_marker(
                        header.producer_id,
                        header.producer_epoch,
                        marker.coordinator_epoch,
                        transaction_version=transaction_version or 0,
                        where=self.name,
                    )
            elif from_client:
                transactional = header.is_transactional
                if transactional and transaction_version is None:
                    raise TransactionalIdMissing(
                        f"{self.name}: a transactional batch without a transactional id"
                    )
                earlier = state.check(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    transactional=transactional,
                    from_zero=transactional and transaction_version == EPOCH_BUMP_FROM,
                    where=self.name,
                )
                if earlier is not None:
                    repeated.append(earlier)
                    continue
            else:
                state.check_epoch(header.producer_id, header.producer_epoch, where=self.name)
            if state is not self.producers:
                apply_batch(state, data, position, header._replace(base_offset=offset))
                offset += header.last_offset_delta + 1
        if repeated and len(repeated) < len(batches):  # no answer fits: written and not written
            raise InvalidRecordBatch(
                f"{self.name}: {len(repeated)} of {len(batches)} batches in one record set were written before; "
                "send the others by themselves"
            )
        return repeated

    def _write(self, data: Buffer, rows: list[tuple[int, int, int]], last_offset: int, now_ms: int) -> None:
        if self._closed:
            raise StorageError(f"{self.name}: the log is closed")
        self._check_not_failed()
        largest = max(rows, key=lambda row: row[2])[2] if len(rows) > 1 else rows[0][2]
        try:
            if self._roll_due(len(data), last_offset, largest, now_ms):
                self.roll(now_ms)
            if self.leader_epoch != self.epochs.latest:
                self.epochs.assign(self.leader_epoch, self.log_end_offset)
            self._segments.active.append(data, rows, last_offset=last_offset)
        except OSError as e:
            raise StorageError(f"{self.name}: append failed: {e}") from e

    def _note(self, data: Buffer, batches: list[Batch], first: int, rows: list[tuple[int, int, int]]) -> None:
        """The batches are in the file: take note of their producers, and move the log end."""
        for (position, header), (_, last, timestamp) in zip(batches, rows, strict=True):
            if header.producer_id >= 0:
                written = header._replace(
                    base_offset=last - header.last_offset_delta, max_timestamp=timestamp
                )
                aborted = apply_batch(self.producers, data, position, written)
                if aborted is not None:
                    self._segments.active.txn_index.append(aborted)
        self.log_end_offset = rows[-1][1] + 1
        if self.sole_replica:
            self.high_watermark = self.log_end_offset

    # Rolling and deleting

    def _roll_due(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        segment, config = self._segments.active, self.config
        if segment.size + size > config.segment_bytes:
            return segment.size > 0
        if segment.index.full or segment.time_index.full:
            return True
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        age_limit = config.roll_ms - self._jitter_ms(segment)
        return segment.size > 0 and segment.roll_age_ms(now_ms, timestamp) > age_limit

    def _jitter_ms(self, segment: Segment) -> int:
        """A fixed part of segment.jitter.ms for each segment, different from partition to partition."""
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if limit <= 0:
            return 0
        return zlib.crc32(f"{self.name}-{segment.base_offset}".encode()) % limit

    def roll(self, now_ms: int) -> None:
        """Finish the active segment and begin one at the log end. An empty one is left as it is."""
        active = self._segments.active
        if active.size == 0 and active.base_offset == self.log_end_offset:
            active.index.reset()
            active.time_index.reset()
            return
        self._write_snapshot()
        self._segments.create(self.log_end_offset, self.config, now_ms)
        active.close_for_append()

    def _write_snapshot(self) -> None:
        """Write the producer state as of the log end, unless that has been done."""
        end = self.log_end_offset
        if end > self._snapshot_offset:
            producer_snapshot.write(self.directory, end, self.producers.entries.values())
            self._snapshot_offset = end

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; how many segments were deleted. Their files stay for file.delete.delay.ms."""
        if self.cleaning:
            return 0
        count = deletable(
            self._segments.facts(self.log_end_offset),
            now_ms=now_ms,
            retention_ms=self.config.retention_ms,
            retention_bytes=self.config.retention_bytes,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            delete_policy=self.config.delete,
        )
        if count == 0:
            return 0
        if count == len(self._segments):
            self.roll(now_ms)
        start = self._segments.bases[count]
        self.log_start_offset = max(self.log_start_offset, start)
        self._drop_segments(0, count, now_ms)
        self.epochs.truncate_from_start(self.log_start_offset)
        log.info("%s: %d segments deleted, the log starts at %d", self.name, count, self.log_start_offset)
        return count

    def _drop_segments(self, first: int, end: int, now_ms: int) -> None:
        self._segments.drop(first, end, remove_at_ms=now_ms + self.config.file_delete_delay_ms)

    def replace_segments(self, cleaned: Cleaned, now_ms: int) -> None:
        """Put a segment that the cleaner has written in place of those that it was made of (see `swap`).

        Raises StorageError: either nothing has changed, or the log is failed and the next start completes it.
        """
        bases = self._segments.bases
        first = self._segments.number_of(cleaned.base_offset)
        end = first + len(cleaned.replaces)
        if self._closed or self.copying or end >= len(bases) or bases[first:end] != cleaned.replaces:
            raise StorageError(f"{self.name}: the segments {cleaned.replaces} are not there any more")
        try:
            segment = swap.opened(self.directory, cleaned, self.config)
            names = [path.name for path in self.directory.iterdir()]
            steps = swap.plan(self.directory, cleaned.base_offset, cleaned.replaces, names)
            swap.begin(steps)
        except OSError as e:
            raise StorageError(f"{self.name}: putting a cleaned segment in place failed: {e}") from e
        self._segments.replace(first, end, segment)
        self._segments.remove_later(steps.deleted, now_ms + self.config.file_delete_delay_ms)
        try:
            swap.complete(steps)
        except OSError as e:
            swap.follow(segment)
            self._failed = e
            log.critical(
                "%s: a cleaned segment is in place only half-way (%s). Appends are refused until the broker is started "
                "again, which completes it; check the disk first",
                self.name, e,
            )  # fmt: skip
            raise StorageError(f"{self.name}: putting a cleaned segment in place failed half-way: {e}") from e

    def take_deleted(self, now_ms: int) -> list[Path]:
        """The files of segments that were deleted file.delete.delay.ms ago: whoever gets them removes them."""
        return self._segments.take_deleted(now_ms)

    @property
    def truncations(self) -> int:
        """How often the log has been cut: whoever works on its segments must begin anew."""
        return self._truncations

    @property
    def closed(self) -> bool:
        return self._closed

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files of segments that were deleted file.delete.delay.ms ago; how many files."""
        return self._segments.remove_deleted(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for producer.id.expiration.ms; how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # Read

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True
    ) -> FileSlice | None:
        """The batches from the one that holds `offset` on, whole and below `up_to`, within one segment.

        The first may start before `offset`. None when there is nothing to read, or when the first batch is
        larger than `max_bytes` and `min_one_batch` does not ask for it all the same. Raises OffsetOutOfRange,
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
            raise StorageError(f"{self.name}: read at offset {offset} failed: {e}") from e

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
            # else the cleaner removed the end of this segment
        return None

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [first, end)."""
        found = []
        for segment in self._segments.since(first):
            for txn in segment.txn_index.ending_from(first):
                if txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:  # whatever was aborted later began later
                    return found
        return found

    def aborted_in(self, offset: int, piece: FileSlice | None, up_to: int) -> list[AbortedTxn]:
        """Those with records in what `read` gave for `offset`, or a little behind it: what such a fetch carries."""
        if piece is None:
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
        """(timestamp, offset, leader epoch) of the first record with at least this timestamp."""
        return timestamps.first_at_or_after(self._segments, timestamp, log_start_offset=self.log_start_offset)

    def max_timestamp_offset(self) -> timestamps.Found | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp."""
        return timestamps.largest(self._segments)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to `epoch`; (-1, -1) if none is known."""
        return self.epochs.end_offset(epoch, self.log_end_offset, self.leader_epoch)

    # Durability

    def _flush_due(self, now_ms: int) -> bool:
        unflushed = self.log_end_offset - self.recovery_point
        self._flushed_ms = min(self._flushed_ms, now_ms)  # the clock went back: count from here
        return unflushed >= self.config.flush_messages or now_ms - self._flushed_ms >= self.config.flush_ms

    @property
    def flush_due_after_roll(self) -> bool:
        """Whether a finished segment is not on disk yet: recovery after a crash would check it again."""
        return self.recovery_point < self._segments.active.base_offset

    def wants_flush(self, now_ms: int) -> bool:
        """Whether flush.messages, flush.ms or a finished segment asks for a flush."""
        if self._closed or self._failed is not None:
            return False
        return self.recovery_point < self.log_end_offset and (
            self.flush_due_after_roll or self._flush_due(now_ms)
        )

    def begin_flush(self, now_ms: int) -> FlushJob | None:
        """A job that makes everything up to the log end durable; None when it is. `end_flush` must follow."""
        self._flushed_ms = now_ms
        self._check_not_failed()
        if self._closed or self.recovery_point >= self.log_end_offset:
            return None
        try:
            found = files_to_flush(
                self.directory, self._segments.since(self.recovery_point), self.epochs.path
            )
        except OSError as e:
            raise StorageError(f"{self.name}: flush failed: {e}") from e
        return self._flush_job(found)

    def begin_commit(self, now_ms: int) -> FlushJob | None:
        """`begin_flush` with as few files as will do: what recovery rebuilds from the records need not be on the disk.

        That is everything but the active segment's records, and the directory that names a new one.
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
            raise StorageError(f"{self.name}: flush failed: {e}") from e

    def _flush_job(self, found: list[OpenFile]) -> FlushJob:
        return FlushJob(
            end_offset=self.log_end_offset,
            truncations=self._truncations,
            named_base=self._segments.active.base_offset if len(found) > 1 else self._named_base,
            files=found,
        )

    def end_flush(self, job: FlushJob) -> None:
        """The job has run: move the recovery point (unless the log has been truncated meanwhile).

        Where the high watermark waits for that it follows.
        """
        self._check_not_failed()
        if job.truncations == self._truncations:
            self._named_base = job.named_base
            self.recovery_point = max(self.recovery_point, min(job.end_offset, self.log_end_offset))
            if not self.sole_replica:
                self.advance_high_watermark(self.recovery_point)

    def flush_failed(self, error: OSError) -> None:
        """The job has failed: no later one can be believed, so the log takes nothing until the next start."""
        self._failed = error
        log.critical(
            "%s: fsync failed (%s): records from offset %d on may not reach the disk. Appends are refused until the "
            "broker is started again; check the disk first",
            self.name, error, self.recovery_point,
        )  # fmt: skip

    def _check_not_failed(self) -> None:
        if self._failed is not None:
            raise StorageError(f"{self.name}: an earlier flush failed: {self._failed}")

    @property
    def failed(self) -> bool:
        """Whether an fsync has failed: nothing more is written, and nothing more is committed."""
        return self._failed is not None

    def flush(self, now_ms: int | None = None) -> None:
        """Force everything up to the log end to disk, and move the recovery point there."""
        job = self.begin_flush(self._flushed_ms if now_ms is None else now_ms)
        if job is None:
            return
        try:
            job.run()
        except OSError as e:
            self.flush_failed(e)
            raise StorageError(f"{self.name}: flush failed: {e}") from e
        self.end_flush(job)

    def close(self) -> None:
        """Flush and close. Opening it again with `clean=True` finds everything."""
        if self._closed:
            return
        active = self._segments.active
        active.note_max_timestamp()
        active.give_back_reserve()
        self.flush()
        active.write_indexes()
        self._write_snapshot()
        self.release()

    def release(self) -> None:
        """Let go of all files without writing anything."""
        self._closed = True
        self._segments.release()

    # Another directory

    def write_indexes(self) -> None:
        """Write the index entries of the active segment that are only in memory."""
        self._segments.active.write_indexes()

    def relocate(self, directory: Path) -> None:
        """Go on in a directory that holds the same files, all of them forced to disk up to the log end.

        Who reads from the old files at the moment reads on.
        """
        self.directory = directory
        self._segments.relocate(directory)
        self.epochs.relocate(directory)
        self._named_base = -1
        self.recovery_point = self.log_end_offset
        if not self.sole_replica:
            self.advance_high_watermark(self.recovery_point)

    # Truncation

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drop everything from the batch that holds `offset` on; the log end is then that batch's start."""
        if offset >= self.log_end_offset:
            return
        self._truncations += 1
        if offset < self._segments.bases[0]:
            self.truncate_fully(offset, now_ms=now_ms)
            return
        number = self._segments.number_of(offset)
        segment = self._segments[number]
        head = segment.find(offset)
        self._drop_segments(number + 1, len(self._segments), now_ms)
        if head is not None:
            offset = min(offset, head[2])
            segment.truncate(head[0], offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self._reload_producers()

    def truncate_fully(self, offset: int, *, now_ms: int) -> None:
        """Drop everything; the log goes on, empty, at `offset`."""
        self._truncations += 1
        self._drop_segments(0, len(self._segments), now_ms)
        self.log_end_offset = self.log_start_offset = self.high_watermark = self.recovery_point = offset
        self._segments.create(offset, self.config, now_ms)
        self.epochs.clear()
        self._reload_producers()

    def _reload_producers(self) -> None:
        self.producers, self._snapshot_offset = reload_producers(
            self.directory, self._segments.since, self.log_end_offset
        )


__all__ = ["AppendInfo", "FileSlice", "LogError", "PartitionLog"]
