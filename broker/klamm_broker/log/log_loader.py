"""Opens the files of a partition: finds its segments, their valid parts, and their producers.

After a clean shutdown it reads little: names, sizes, the last snapshot, the end of the last index. Otherwise it checks
every batch from the segment of the recovery point on, cuts the log at the first batch that cannot be trusted, and
rebuilds indexes, epochs and producer state. It handles leftovers of interrupted deletions and cleanings as Kafka does.
"""

from __future__ import annotations

import logging
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm_base.files import make_private_folder
from klamm_broker.log import files, leader_epoch, producer_snapshot, recovery
from klamm_broker.log.config import LogConfig
from klamm_broker.log.disk_failure import is_full
from klamm_broker.log.errors import CorruptFile, StorageError
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.leftovers import remove_leftovers
from klamm_broker.log.producer_state import ProducerState
from klamm_broker.log.replay import apply_batch
from klamm_broker.log.segment import Segment
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.batch import BatchHeader, read_header

log = logging.getLogger(__name__)

_READ_MAX: Final = 16 << 10
"""Segments up to this size are read, not mapped: after a crash there are thousands of them."""


@dataclass(slots=True, kw_only=True)
class Loaded:
    """An opened partition: at least one segment, the last of which is the active one."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    snapshot_offset: int  # the offset of the producer snapshot that was used; 0 without one


@contextmanager
def mapped(segment: Segment) -> Iterator[memoryview]:
    """Yields the segment's valid bytes as private pages, so that checksums need no copy. Small segments are read: cheaper."""
    if segment.size <= _READ_MAX:
        data = os.pread(segment.file.fd, segment.size, 0) if segment.size else b""
        if len(data) != segment.size:
            raise OSError(f"{segment.path(files.LOG)} has {len(data)} of {segment.size} bytes")
        yield memoryview(data)
        return
    with (
        mmap.mmap(segment.file.fd, segment.size, access=mmap.ACCESS_COPY) as pages,
        memoryview(pages) as view,
    ):
        yield view


class LogLoader:
    """Opens one partition directory with `load`. Used once."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        max_epoch: int,
        now_ms: int,
    ) -> None:
        self._directory = directory
        self._config = config
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start = log_start_offset
        self._max_epoch = max_epoch
        self._now_ms = now_ms
        self._segments: list[Segment] = []
        self._sizes: dict[str, int] = {}  # of the files, before anything is changed
        self._producers = ProducerState()
        self._epochs_path = directory / leader_epoch.FILE_NAME
        self._epochs = LeaderEpochCache(self._epochs_path)
        self._epochs_changed = False
        self._snapshot_offset = 0
        self._snapshots: list[int] = []
        self._end = 0  # of the last segment, where no segment is to be recovered

    def load(self) -> Loaded:
        names = self._sizes = self._list()
        self._open_segments(names)
        recover_from = self._first_to_recover()
        for segment in self._segments[:recover_from]:
            self._check_indexes(segment, names, active=segment is self._segments[-1])
            self._check_txn_index(segment, names)
        self._load_epochs(recover_from, names)
        self._snapshots = producer_snapshot.offsets(names)
        self._load_producers(recover_from)
        end = self._recover(recover_from)
        if end < self._log_start and self._segments:
            log.warning(
                "%s: log end offset %d is below the log start offset %d: the log starts anew there",
                self._directory, end, self._log_start,
            )  # fmt: skip
            self._delete_segments(0)
        if not self._segments:
            end = self._log_start
            self._segments.append(self.new_segment(end))
            self._producers = ProducerState()
        self._log_start = max(self._log_start, self._segments[0].base_offset)
        self._settle_epochs(end)
        if self._clean:  # most are not used for a while: the first use opens the file and takes memory
            for segment in self._segments:
                segment.release()
        return Loaded(
            segments=self._segments,
            epochs=self._epochs,
            producers=self._producers,
            log_start_offset=self._log_start,
            log_end_offset=end,
            snapshot_offset=self._snapshot_offset,
        )

    def new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._directory,
            base_offset,
            index_interval=self._config.index_interval_bytes,
            max_index_bytes=self._config.segment_index_bytes,
            now_ms=self._now_ms,
            reserve_bytes=self._config.segment_bytes if self._config.preallocate else 0,
        )

    # Files

    def _list(self) -> dict[str, int]:
        """Handle leftovers. Returns the sizes, by name, of the files that belong to the log."""
        try:
            entries = os.scandir(self._directory)
        except FileNotFoundError:
            make_private_folder(self._directory)
            return {}
        with entries:  # sizes count for what a segment has; its names begin with its offset
            sizes = {e.name: e.stat().st_size if e.name[0].isdigit() else 0 for e in entries if e.is_file()}
        return remove_leftovers(self._directory, sizes)

    def _open_segments(self, sizes: dict[str, int]) -> None:
        bases = sorted(
            parsed[0]
            for name in sizes
            if name.endswith(files.LOG) and (parsed := files.parse_offset_name(name))
        )
        for base in bases:
            segment = Segment(
                self._directory,
                base,
                index_interval=self._config.index_interval_bytes,
                max_index_bytes=self._config.segment_index_bytes,
                size=sizes[files.offset_name(base, files.LOG)],
            )
            self._segments.append(segment)

    def _check_indexes(self, segment: Segment, sizes: dict[str, int], *, active: bool) -> None:
        """Rebuild missing or damaged indexes. Those of finished segments are judged by their size, and by their end after a crash."""
        try:
            for index in (segment.index, segment.time_index):
                size = sizes.get(index.path.name)
                if size is None:
                    raise CorruptFile(f"{index.path}: missing")
                if size % index.layout.size:
                    raise CorruptFile(f"{index.path}: {size} bytes is not a multiple of {index.layout.size}")
            if active and (sizes[segment.index.path.name] or sizes[segment.time_index.path.name]):
                segment.index.check_against(segment.size)
                segment.time_index.check_sane()
            if not self._clean and self._lacks_its_end(segment):
                raise CorruptFile(f"{segment.time_index.path}: the largest timestamp is missing")
        except CorruptFile as e:
            log.warning("%s: rebuilding the indexes of segment %d", e, segment.base_offset)
            segment.index.release()
            rebuild_indexes(segment)

    @staticmethod
    def _lacks_its_end(segment: Segment) -> bool:
        """Decides whether a power cut took the end of a time index, which is not forced to the disk when its segment is finished."""
        try:
            return segment.scan_max_timestamp()
        except StorageError:  # of the records, for those who read them
            return False

    def _check_txn_index(self, segment: Segment, sizes: dict[str, int]) -> None:
        """Rebuild a damaged index of aborted transactions: without it readers would get aborted records.

        Usually no transaction was aborted, and then there is no file: a missing file cannot be told from that.
        """
        path = segment.txn_index.path
        if path.name not in sizes:
            return
        try:
            segment.txn_index.check(segment.base_offset)
        except CorruptFile as e:
            log.warning("%s: rebuilding the transaction index of segment %d", e, segment.base_offset)
            segment.txn_index.reset()
            for aborted in self._aborted_in(segment):
                segment.txn_index.append(aborted)
            segment.txn_index.flush()

    def _aborted_in(self, segment: Segment) -> Iterator[AbortedTxn]:
        """Yields the transactions whose abort marker is in a segment: they may have begun in an earlier one."""
        producers, start = producers_before(self._directory, segment.base_offset)
        for earlier in self._segments:
            if earlier.base_offset > segment.base_offset:
                return
            with mapped(earlier) as data:
                for position, header in _headers(data, 0):
                    if header.base_offset >= start:
                        aborted = apply_batch(producers, data, position, header)
                        if aborted is not None and earlier is segment:
                            yield aborted

    def _load_epochs(self, recover_from: int, sizes: dict[str, int]) -> None:
        path = self._epochs_path
        try:
            if leader_epoch.FILE_NAME not in sizes and any(
                segment.size for segment in self._segments[:recover_from]
            ):
                raise CorruptFile(f"{path}: missing")
            self._epochs = LeaderEpochCache.load(path)
        except CorruptFile as e:
            log.warning("%s: rebuilding the leader epochs from the log", e)
            self._epochs = LeaderEpochCache(path)
            self._epochs_changed = True
            for segment in self._segments[:recover_from]:
                with mapped(segment) as data:
                    for _, header in _headers(data, 0):
                        self._note_epoch(header)

    def _settle_epochs(self, end: int) -> None:
        """Make the epochs, in memory and in the file, agree with the log.

        If the disk is full, the file is removed: a missing file is rebuilt, an old one would be believed.
        """
        if self._config.mirrors:
            end += 1  # an epoch whose records are deleted stays: nothing else says how high the other cluster's are
        try:
            self._epochs.truncate_from_end(end)
            self._epochs.truncate_from_start(self._log_start)
            if self._epochs_changed:
                self._epochs.write()
        except OSError as e:
            if not is_full(e):
                raise
            self._epochs_path.unlink(missing_ok=True)
            self._epochs.drop(end, self._log_start)
            log.warning("%s: not written, it is rebuilt when it is needed: %s", self._epochs_path, e)

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset, write=False)
            self._epochs_changed = True

    # Recovery

    def _first_to_recover(self) -> int:
        """Returns the index of the first segment whose batches must be checked."""
        if self._clean or not self._segments:
            return len(self._segments)
        bases = [segment.base_offset for segment in self._segments]
        return max(bisect_right(bases, self._recovery_point) - 1, 0)

    def _load_producers(self, recover_from: int) -> None:
        """Load the producer state before the segments to recover: a snapshot and the batches behind it."""
        unchecked = self._segments[:recover_from]
        if recover_from < len(self._segments):
            limit = self._segments[recover_from].base_offset
            for offset in [o for o in self._snapshots if o > limit]:
                self._drop_snapshot(offset)
        elif unchecked:
            limit = self._end = self._end_of(unchecked[-1])
        else:
            limit = self._log_start
        start = 0
        for offset in reversed([o for o in self._snapshots if o <= limit]):
            try:
                entries = producer_snapshot.read(self._directory, offset)
            except CorruptFile as e:
                log.warning("%s: the snapshot is removed and its part of the log replayed", e)
                self._drop_snapshot(offset)
                continue
            self._producers = ProducerState(entries)
            start = self._snapshot_offset = offset
            break
        bases = [segment.base_offset for segment in unchecked]
        for segment in unchecked[max(bisect_right(bases, start) - 1, 0) :]:
            if start < limit:
                self._replay(segment, start)
        self._producers.expire(self._now_ms, self._config.producer_id_expiration_ms)

    def _drop_snapshot(self, offset: int) -> None:
        producer_snapshot.snapshot_path(self._directory, offset).unlink(missing_ok=True)

    def _replay(self, segment: Segment, start: int) -> None:
        with mapped(segment) as data:
            for position, header in _headers(data, segment.index.lookup(start)):
                if header.base_offset >= start:
                    apply_batch(self._producers, data, position, header)

    def _end_of(self, segment: Segment) -> int:
        """Returns the offset after the last batch of an intact segment."""
        last = segment.index.last
        end = segment.base_offset
        for _, _, _, batch_last, _ in segment.heads(last[1] if last else 0):
            end = batch_last + 1
        return end

    def _recover(self, recover_from: int) -> int:
        """Check the segments from `recover_from` on. Returns the log end offset."""
        end = self._end
        for number in range(recover_from, len(self._segments)):
            segment = self._segments[number]
            following = self._segments[number + 1] if number + 1 < len(self._segments) else None
            valid = self._recover_segment(segment, following)
            if valid.reason is not None:
                log.warning(
                    "%s: cut at %d of %d bytes, offset %d: %s",
                    segment.path(files.LOG), valid.size, segment.size, valid.next_offset, valid.reason,
                )  # fmt: skip
                segment.truncate(valid.size, valid.next_offset)
                self._delete_segments(number + 1)
                return valid.next_offset
            end = valid.next_offset
            if following is not None:
                self._write_snapshot(following.base_offset)
        return end

    def _write_snapshot(self, offset: int) -> None:
        """Write the producers' state before `offset`: the next recovery begins there, or further back if the disk is full."""
        try:
            producer_snapshot.write(self._directory, offset, self._producers.entries.values())
        except OSError as e:
            if not is_full(e):
                raise
            log.warning("%s: no snapshot of the producers at %d: %s", self._directory, offset, e)
            return
        self._snapshot_offset = offset

    def _recover_segment(self, segment: Segment, following: Segment | None) -> recovery.Valid:
        for index in (segment.index, segment.time_index):
            index.reset(self._sizes.get(index.path.name))
        segment.txn_index.reset(there=segment.txn_index.path.name in self._sizes)
        segment.max_timestamp = -1

        def on_batch(position: int, header: BatchHeader) -> None:
            segment.note_batch(position, header.size, header.last_offset, header.max_timestamp)
            self._note_epoch(header)
            aborted = apply_batch(self._producers, data, position, header)
            if aborted is not None:
                segment.txn_index.append(aborted)

        with mapped(segment) as data:
            valid = recovery.scan(
                data,
                base_offset=segment.base_offset,
                contiguous=following is None
                and not (self._config.compact or self._config.has_foreign_batches),
                end_offset=None if following is None else following.base_offset,
                on_batch=on_batch,
                last_epoch=self._epochs.epoch_at(segment.base_offset - 1),
                # A mirror topic's epochs are the other cluster's, of which this one knows no highest.
                max_epoch=None if self._config.mirrors else max(self._max_epoch, self._epochs.latest),
            )
        segment.note_max_timestamp()
        if following is not None:
            self._close_segment(segment)
        return valid

    @staticmethod
    def _close_segment(segment: Segment) -> None:
        """Write the indexes of a finished segment. If the disk is full they stay in memory until the log's next flush."""
        try:
            segment.close_for_append()
        except OSError as e:
            if not is_full(e):
                raise
            log.warning("%s: its indexes are not written yet: %s", segment.path(files.LOG), e)

    def _delete_segments(self, first: int) -> None:
        """Remove segments behind damage: they cannot be reached without a hole in the offsets."""
        for segment in self._segments[first:]:
            log.warning("%s: deleted, it lies behind the cut", segment.path(files.LOG))
            segment.release()
            for path in segment.rename_deleted():
                path.unlink()
            self._drop_snapshot(segment.base_offset)
        del self._segments[first:]


def rebuild_indexes(segment: Segment) -> None:
    """Write the offset and time index of an intact segment anew."""
    segment.index.reset()
    segment.time_index.reset()
    segment.max_timestamp = -1
    with mapped(segment) as data:
        for position, header in _headers(data, 0):
            segment.note_batch(position, header.size, header.last_offset, header.max_timestamp)
    segment.note_max_timestamp()
    segment.index.flush()
    segment.time_index.flush()


def producers_before(directory: Path, offset: int) -> tuple[ProducerState, int]:
    """Returns the producer state of the last intact snapshot up to `offset`, and that snapshot's offset: replay from there."""
    names = [path.name for path in directory.iterdir()]
    for found in reversed([o for o in producer_snapshot.offsets(names) if o <= offset]):
        try:
            return ProducerState(producer_snapshot.read(directory, found)), found
        except CorruptFile as e:
            log.warning("%s: an earlier snapshot is used", e)
    return ProducerState(), 0


def reload_producers(
    directory: Path, since: Callable[[int], list[Segment]], end_offset: int
) -> tuple[ProducerState, int]:
    """Returns the producer state before `end_offset`, and the offset of the snapshot from which it was replayed.

    Removes snapshots beyond `end_offset`, as the log has been truncated. `since` finds segments by offset.
    """
    producers, start = ProducerState(), 0
    for offset in reversed(producer_snapshot.offsets(path.name for path in directory.iterdir())):
        if offset <= end_offset:
            producers, start = ProducerState(producer_snapshot.read(directory, offset)), offset
            break
        producer_snapshot.snapshot_path(directory, offset).unlink()
    for segment in since(start):
        with mapped(segment) as data:
            for position, header in _headers(data, 0):
                if header.base_offset >= start:
                    apply_batch(producers, data, position, header)
    return producers, start


def _headers(data: memoryview, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of the batches in bytes that are known to be intact."""
    while position < len(data):
        header = read_header(data, position)
        yield position, header
        position += header.size
