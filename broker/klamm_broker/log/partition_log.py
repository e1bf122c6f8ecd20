"""One partition's log: an ordered list of segments, of which the last is written to.

Offsets never go back and are assigned here, but for a mirror topic, whose batches bring them (`mirror_topic`). When `append` returns, its records are in the file (the page cache; `flush`
makes them durable) and their producers are noted; a failed append leaves nothing behind. Four offsets are kept
apart: log start, high watermark (consumers may read up to it), last stable (below every open transaction) and
log end. Not thread-safe, waits only for the disk, and has no clock: time is passed in.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from klamm_broker.log import mirror_topic
from klamm_broker.log.answers import AppendInfo, FileSlice
from klamm_broker.log.cleaner.job import Cleaned
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import LogError, OffsetOutOfRange, StorageError
from klamm_broker.log.log_loader import LogLoader, reload_producers
from klamm_broker.log.producer_check import check_producers
from klamm_broker.log.replay import apply_batch
from klamm_broker.log.retention import deletable
from klamm_broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from klamm_broker.log.steps import Steps, finish
from klamm_broker.log.straight import StraightLog
from klamm_broker.log.swap import Swap
from klamm_broker.log.validation import Batch, Buffer, Prepared, preparing
from klamm_kafka.wire.batch import HEADER_BYTES, BatchHeader, patch, patch_log_append_time

log = logging.getLogger(__name__)


class PartitionLog(StraightLog):
    """One partition's log, made by `open`. See the module's docstring."""

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
        """Open the directory (made if it does not exist). `clean`: the last shutdown was clean, so there is nothing to recover."""
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

    # Append

    def preparing(
        self, batches: bytearray | memoryview, *, now_ms: int, from_client: bool = True
    ) -> Steps[Prepared]:
        """Validates a record set in steps; `append` takes the result at once. Raises a LogError. Nothing has changed then.

        What must be unpacked or packed for it, and could be much, is done in jobs.
        """
        while True:
            config = self.config
            if config.mirrors:
                raise mirror_topic.refuse_ordinary(self.name)
            prepared = yield from preparing(
                batches, config, now_ms=now_ms, from_client=from_client, where=self.name
            )
            if self.config is config:
                return prepared
            batches = prepared.data  # it was checked by what held before

    def append(
        self,
        batches: bytearray | memoryview | Prepared,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int | None = 0,
    ) -> AppendInfo:
        """Validate a record set unless that is done, give it offsets, and write it with one call.

        `transaction_version` is that of markers, and of a client's records after their transaction was verified as open; None
        refuses records of transactions. The buffer is patched in place (base offset, leader epoch, append time) and not kept. If
        it raises a LogError, the log is unchanged.
        """
        from_client = origin == "client"
        if not isinstance(batches, Prepared):
            batches = finish(self.preparing(batches, now_ms=now_ms, from_client=from_client))
        data, accepted, config = batches.data, batches.batches, self.config
        if earlier := check_producers(
            self.producers,
            data,
            accepted,
            transaction_version=transaction_version,
            from_client=from_client,
            next_offset=self.log_end_offset,
            where=self.name,
        ):
            return AppendInfo(
                earlier[0].first_offset,
                earlier[-1].last_offset,
                earlier[-1].timestamp if config.log_append_time else -1,
                self.log_start_offset,
                True,
            )
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
        return AppendInfo(
            first, offset - 1, now_ms if config.log_append_time else -1, self.log_start_offset, False
        )

    def append_copied(self, batches: bytearray | memoryview, *, now_ms: int) -> AppendInfo:
        """Write batches of another cluster's log as they are, and note their producers, as a follower does.

        Batches that are there already are left out. If it raises a StorageError, some may be written; after any other LogError
        the log is unchanged.
        """
        config = self.config
        accepted = mirror_topic.check_copied(
            batches, state=config.klamm_mirror_state, segment_bytes=config.segment_bytes, where=self.name
        )
        first, last = accepted[0][1].base_offset, accepted[-1][1].last_offset
        new = [batch for batch in accepted if not self._has_copy_of(batch[1])]
        if not new:
            return AppendInfo(first, last, -1, self.log_start_offset, True)
        header, start = new[0][1], self.log_start_offset
        if header.leader_epoch < self.epochs.latest:
            raise mirror_topic.refuse_others(header, self.log_end_offset, self.name)
        if header.base_offset < self.log_end_offset:  # the log begins within the other log's batch
            self.truncate_fully(header.base_offset, now_ms=now_ms)
        for run in mirror_topic.runs(new, config.segment_bytes):
            begin, end = run[0][0], run[-1][0] + run[-1][1].size
            data = memoryview(batches)[begin:end]
            rows = [(h.size, h.last_offset, h.max_timestamp) for _, h in run]
            self._write(data, rows, rows[-1][1], now_ms, copied=[h for _, h in run])
            self._note(data, [(at - begin, h) for at, h in run], first, rows)
            self.log_start_offset = max(start, self.log_start_offset)
            self.leader_epoch = max(self.leader_epoch, run[-1][1].leader_epoch)
        return AppendInfo(first, last, -1, self.log_start_offset, False)

    def _has_copy_of(self, header: BatchHeader) -> bool:
        """Decides whether the log has this batch of another log. Raises InvalidRecordBatch if it has other records."""
        end = self.log_end_offset
        if header.base_offset >= end or (header.last_offset >= end == self.log_start_offset):
            return False
        if header.last_offset < self.log_start_offset:
            return True  # it was here, and is deleted
        if header.last_offset < end:
            at = max(header.base_offset, self.log_start_offset)
            if mirror_topic.written_before(self.read(at, HEADER_BYTES, up_to=end), header):
                return True
        raise mirror_topic.refuse_others(header, end, self.name)

    def begin_copy_at(self, offset: int, *, now_ms: int) -> None:
        """Let an empty log go on at an offset beyond its end: the other log begins there."""
        end = self.log_end_offset
        if not self.config.mirrors or self.log_start_offset < end or offset <= end:
            raise OffsetOutOfRange(
                f"{self.name}: a log that holds offsets {self.log_start_offset} to {end} cannot begin at {offset}: only an empty "
                "mirror topic can begin beyond its end"
            )
        self.truncate_fully(offset, now_ms=now_ms)

    def end_promotion(self, append: Callable[[bytearray], object], now_ms: int) -> None:
        """Abort the transactions that were open at the promotion, with markers for `append`; forget the other cluster's producers.

        A crash may have cut it off: each start does it again.
        """
        try:
            if markers := mirror_topic.abort_markers(self.producers, self._own_start, now_ms):
                append(markers)
        except StorageError as e:  # a full disk
            log.error("%s: transactions of its source stay open until the next start: %s", self.name, e)  # noqa: TRY400
        mirror_topic.forget_foreign(self.producers, self._own_start)

    @property
    def _own_start(self) -> int:
        return mirror_topic.own_start(self.epochs, self.log_end_offset, self.promotion_epoch)

    def _write(
        self,
        data: Buffer,
        rows: list[tuple[int, int, int]],
        last_offset: int,
        now_ms: int,
        *,
        copied: Sequence[BatchHeader] = (),
    ) -> None:
        if self._closed:
            raise StorageError(f"{self.name}: the log is closed")
        self._check_not_failed()
        largest = max(rows, key=lambda row: row[2])[2] if len(rows) > 1 else rows[0][2]
        try:
            if self._roll_due(len(data), last_offset, largest, now_ms):
                self.roll(now_ms, copied[0].base_offset if copied else None)
            if copied:
                for header in copied:
                    if header.leader_epoch > self.epochs.latest:
                        self.epochs.assign(header.leader_epoch, header.base_offset)
            elif self.leader_epoch != self.epochs.latest:
                self.before_epoch(now_ms)
                self.epochs.assign(self.leader_epoch, self.log_end_offset)
            self._segments.active.append(data, rows, last_offset=last_offset)
        except OSError as e:
            raise self._storage_error("append", e) from e
        except StorageError as e:
            if isinstance(e.__cause__, OSError):
                self.report(self.directory.parent, e.__cause__)
            raise

    def _note(self, data: Buffer, batches: list[Batch], first: int, rows: list[tuple[int, int, int]]) -> None:
        """Note the producers of batches that are in the file, and move the log end."""
        for (position, header), (_, last, timestamp) in zip(batches, rows, strict=True):
            if header.producer_id >= 0:
                written = header._replace(
                    base_offset=last - header.last_offset_delta, max_timestamp=timestamp
                )
                if header.is_control:
                    self._note_ending(header.producer_id, last)
                aborted = apply_batch(self.producers, data, position, written)
                if aborted is not None:
                    self._segments.active.txn_index.append(aborted)
        self.log_end_offset = rows[-1][1] + 1
        if self.sole_replica and self.log_end_offset - self.recovery_point < self.config.flush_messages:
            self.high_watermark = self.log_end_offset
            self._ending.clear()
        # otherwise a flush must come first; `end_flush` moves it

    def _note_ending(self, producer_id: int, marker_offset: int) -> None:
        """End the producer's open transaction, if there is one, with the marker at this offset."""
        entry = self.producers.entries.get(producer_id)
        if entry is not None and entry.current_txn_first_offset is not None:
            self._ending.append((marker_offset, entry.current_txn_first_offset))

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
        """Returns a fixed share of segment.jitter.ms for each segment, different from partition to partition."""
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if limit <= 0:
            return 0
        return zlib.crc32(f"{self.name}-{segment.base_offset}".encode()) % limit

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Finish the active segment and begin a new one at the log end. An empty segment there is left as it is.

        `base_offset` moves the log end to it, over a hole, which no segment need span then.
        """
        active = self._segments.active
        end = self.log_end_offset if base_offset is None else base_offset
        if active.size == 0 and active.base_offset == end:
            active.index.reset()
            active.time_index.reset()
            return
        self._write_snapshot(end)
        self._segments.create(end, self.config, now_ms)
        self.log_end_offset = end
        active.close_for_append()

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention. Returns the number of deleted segments; their files stay for file.delete.delay.ms."""
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

    def begin_swap(self, cleaned: Cleaned) -> Swap:
        """Begin to replace segments by the one that the cleaner has made of them.

        Raises StorageError if they no longer exist.
        """
        self._replaceable(cleaned)
        return Swap(self.directory, cleaned, self.config)

    def _replaceable(self, cleaned: Cleaned) -> tuple[int, int]:
        """Returns (first, end) of the segments to replace."""
        bases = self._segments.bases
        first = self._segments.number_of(cleaned.base_offset)
        end = first + len(cleaned.replaces)
        if self._closed or self.copying or end >= len(bases) or bases[first:end] != cleaned.replaces:
            raise StorageError(f"{self.name}: the segments {cleaned.replaces} are not there any more")
        return first, end

    def swap_refused(self, error: OSError) -> StorageError:
        """Returns the error of a swap that could not be prepared: nothing has changed."""
        return self._storage_error("putting a cleaned segment in place", error)

    def adopt(self, swap: Swap) -> None:
        """Use the prepared new segment from now on. `finish_swap` must follow, once the old ones are retired.

        If it raises StorageError, undo the swap.
        """
        first, end = self._replaceable(swap.cleaned)
        self.swapping = True
        swap.segment.hold(swap.file)
        self._segments.replace(first, end, swap.segment)

    def finish_swap(self, swap: Swap) -> None:
        """Give the segment its names. `end_swap` must follow once they are on the disk. Raises OSError."""
        if swap.segment in list(self._segments):  # the segment was not cut off meanwhile
            swap.finish()

    def end_swap(self, swap: Swap, now_ms: int) -> None:
        """Have the old files removed, as everything is done and on the disk."""
        self.swapping = False
        self._segments.remove_later(swap.deleted, now_ms + self.config.file_delete_delay_ms)

    def swap_failed(self, error: OSError) -> StorageError:
        """Returns the error of a swap that failed midway. The log rejects appends until a restart completes the swap."""
        self.swapping = False
        self._failed = error
        log.critical(
            "%s: a cleaned segment is in place only half-way (%s). Appends are refused until the broker is started "
            "again, which completes it; check the disk first",
            self.name, error,
        )  # fmt: skip
        return self._storage_error("putting a cleaned segment in place half-way", error)

    def take_deleted(self, now_ms: int) -> list[Path]:
        """Returns the files of segments that were deleted file.delete.delay.ms ago; the caller removes them."""
        return self._segments.take_deleted(now_ms)

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files of segments that were deleted file.delete.delay.ms ago. Returns the number of files."""
        return self._segments.remove_deleted(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for producer.id.expiration.ms. Returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

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
        """Drop everything; the log goes on, empty, at `offset`, in the leader epoch that is in force there."""
        self._truncations += 1
        self._drop_segments(0, len(self._segments), now_ms)
        self.log_end_offset = self.log_start_offset = self.high_watermark = self.recovery_point = offset
        self._segments.create(offset, self.config, now_ms)
        self.epochs.truncate_from_end(offset)
        self.epochs.truncate_from_start(offset)
        self._reload_producers()

    def _reload_producers(self) -> None:
        while self._ending and self._ending[-1][0] >= self.log_end_offset:
            self._ending.pop()  # undecided again
        self.producers, self._snapshot_offset = reload_producers(
            self.directory, self._segments.since, self.log_end_offset
        )


__all__ = ["AppendInfo", "FileSlice", "LogError", "PartitionLog"]
