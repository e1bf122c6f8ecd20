"""One round of cleaning: reads the dirty part for its keys, then copies the rest, group by group, into new segments.

It reads `.log` and `.txnindex` files of finished segments and writes `.cleaned` files beside them, forced to disk before
they are handed over; it changes no file of the log. Memory: the map of keys, a read and a write buffer (they
grow to the largest batch), and the decompressed records of one batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from klamm_base.files import sync_directory
from klamm_broker.log import files
from klamm_broker.log.cleaner.filter import BatchFilter, LastRecord
from klamm_broker.log.cleaner.job import Cleaned, Done, Job
from klamm_broker.log.cleaner.offset_map import OffsetMap
from klamm_broker.log.cleaner.plan import SourceSegment, group
from klamm_broker.log.cleaner.record_slices import slice_records
from klamm_broker.log.cleaner.throttle import Throttle
from klamm_broker.log.cleaner.transactions import CleanedTransactions
from klamm_broker.log.files import OpenFile
from klamm_broker.log.segment import Segment
from klamm_broker.log.txn_index import AbortedTxn, TxnIndex
from klamm_kafka.wire.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from klamm_kafka.wire.errors import CorruptRecord


class Round:
    """Carries out a job. `in_place` is called with every finished segment and returns when the log has it."""

    def __init__(
        self,
        job: Job,
        producers: Mapping[int, LastRecord],
        aborted: Iterable[AbortedTxn],
        *,
        in_place: Callable[[Cleaned], None],
        still_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self.job = job
        self._directory = Path(job.directory)
        self._producers = producers
        self._in_place = in_place
        self._still_wanted = still_wanted
        self._chunk = max(job.buffer_bytes // 2, HEADER_BYTES)
        self._throttle = Throttle(job.bytes_per_s)
        self._offsets = OffsetMap(job.memory, job.load_factor)
        self._aborted = sorted({*aborted, *self._indexed()}, key=lambda txn: txn.first_offset)
        self._bytes_read = self._bytes_written = self._map_bytes_read = 0

    def _indexed(self) -> Iterator[AbortedTxn]:
        for base, _ in self.job.segments:
            yield from TxnIndex(self._path(base, files.TXN_INDEX)).entries

    def _path(self, base_offset: int, suffix: str) -> Path:
        return self._directory / files.offset_name(base_offset, suffix)

    def run(self) -> Done:
        """Clean. Raises CorruptRecord, InvalidRecord, CorruptFile for data that cannot be read, OSError for the disk."""
        job = self.job
        self._build_map()
        clean_offset = self._offsets.latest_offset + 1
        transactions = CleanedTransactions()
        transactions.add_aborted(self._aborted)
        batches = BatchFilter(
            self._offsets,
            transactions,
            self._producers,
            end_offset=job.end,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        sources = [self._source(base, size) for base, size in job.segments if base < clean_offset]
        for members in group(
            sources, max_bytes=job.segment_bytes, max_index_bytes=job.segment_index_bytes, end=job.end
        ):
            self._in_place(self._clean(members, batches, transactions))
        return Done(
            clean_offset=clean_offset,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            map_bytes_read=self._map_bytes_read,
            records_read=batches.records_read,
            records_written=batches.records_written,
            records_without_key=batches.records_without_key,
            buffer_utilization=self._offsets.utilization,
            cpu_s=time.process_time(),
        )

    def _source(self, base: int, size: int) -> SourceSegment:
        sizes = []
        for suffix in (files.OFFSET_INDEX, files.TIME_INDEX):
            path = self._path(base, suffix)
            sizes.append(path.stat().st_size if path.exists() else 0)
        return SourceSegment(base, size, *sizes)

    # Keys

    def _build_map(self) -> None:
        """Note the last offset of every key from the first dirty offset on, until the map is full."""
        job = self.job
        transactions = CleanedTransactions()
        transactions.add_aborted(txn for txn in self._aborted if txn.last_offset >= job.first_dirty)
        following = [base for base, _ in job.segments[1:]] + [job.end]
        for (base, size), end in zip(job.segments, following, strict=True):
            if end <= job.first_dirty:
                continue
            for chunk, pos, header in self._batches(base, size):
                if header.last_offset >= job.first_dirty and self._note(chunk, pos, header, transactions):
                    return
            self._offsets.latest_offset = end - 1  # offsets may be missing at the end of a segment
        self._offsets.latest_offset = max(self._offsets.latest_offset, job.first_dirty - 1)

    def _note(self, chunk: bytes, pos: int, header: BatchHeader, transactions: CleanedTransactions) -> bool:
        """Take the keys of a batch into the map. Returns whether the map is full."""
        self._map_bytes_read += header.size
        check_crc(chunk, pos, header)
        if header.is_control:
            _, records = slice_records(chunk, pos, header)
            transactions.on_control(header, (records[0].key or b"") if records else None)
        elif not transactions.on_data(header):
            offsets, first = self._offsets, self.job.first_dirty
            for record in slice_records(chunk, pos, header)[1]:
                if record.key is not None and record.offset >= first:
                    if offsets.full:
                        return True
                    offsets.put(record.key, record.offset)
        self._offsets.latest_offset = header.last_offset
        return False

    # Copying

    def _clean(
        self, members: list[SourceSegment], batches: BatchFilter, transactions: CleanedTransactions
    ) -> Cleaned:
        """Write the kept records of these segments into one segment, force it to disk, and let it go: the log opens it."""
        job = self.job
        base = members[0].base_offset
        for suffix in files.SEGMENT_SUFFIXES:  # new files, so that nobody else can have them open
            self._path(base, suffix + files.CLEANED).unlink(missing_ok=True)
        output = Segment.create(
            self._directory,
            base,
            index_interval=job.index_interval_bytes,
            max_index_bytes=job.segment_index_bytes,
            now_ms=job.now_ms,
            file_suffix=files.CLEANED,
        )
        try:
            for member in members:
                self._copy(member, batches, output)
                for transaction in transactions.retained:
                    output.txn_index.append(transaction)
                transactions.retained.clear()
            inode = self._finish(output, members[-1])
        finally:
            output.release()  # a file that is held stays on the disk when the log deletes it
        replaces = [member.base_offset for member in members]
        return Cleaned(base_offset=base, replaces=replaces, size=output.size, inode=inode)

    def _finish(self, output: Segment, last: SourceSegment) -> int:
        """Force a segment to disk, with the times of the last one that it replaces. Returns its inode."""
        output.close_for_append()
        modified = self._path(last.base_offset, files.LOG).stat()
        os.utime(
            output.path(files.LOG), ns=(modified.st_atime_ns, modified.st_mtime_ns)
        )  # retention asks for it
        for file in output.files_to_sync():
            os.fsync(file.fd)
        sync_directory(self._directory)
        return os.fstat(output.file.fd).st_ino

    def _copy(self, source: SourceSegment, batches: BatchFilter, output: Segment) -> None:
        pending = bytearray()
        rows: list[tuple[int, int, int]] = []
        for chunk, pos, header in self._batches(source.base_offset, source.size):
            self._bytes_read += header.size
            kept = batches.keep(chunk, pos, header)
            if kept is None:
                continue
            pending += kept.data
            rows.append((len(kept.data), kept.last_offset, kept.max_timestamp))
            if len(pending) >= self._chunk:
                self._write(output, pending, rows)
                pending, rows = bytearray(), []
        if rows:
            self._write(output, pending, rows)

    def _write(self, output: Segment, data: bytearray, rows: list[tuple[int, int, int]]) -> None:
        output.append(data, rows, last_offset=rows[-1][1])
        self._bytes_written += len(data)
        self._throttle.used(len(data))

    # Reading

    def _batches(self, base: int, size: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Yields (bytes, position in them, header) of every batch of a segment. Raises CorruptRecord where it is cut."""
        file = OpenFile(self._path(base, files.LOG), os.O_RDONLY)
        position, wanted = 0, self._chunk
        while position < size:
            self._still_wanted()
            chunk = os.pread(file.fd, min(wanted, size - position), position)
            self._throttle.used(len(chunk))
            pos = 0
            while pos + HEADER_BYTES <= len(chunk):
                header = read_header(chunk, pos)
                if pos + header.size > len(chunk):
                    break
                yield chunk, pos, header
                pos += header.size
            if pos == 0:
                wanted = self._larger(chunk, size - position, f"{self._path(base, files.LOG)} at {position}")
                continue
            position, wanted = position + pos, self._chunk

    @staticmethod
    def _larger(chunk: bytes, left: int, where: str) -> int:
        """Returns the bytes to read so that the batch at the start of `chunk` is complete."""
        needed = read_header(chunk).size if len(chunk) >= HEADER_BYTES else HEADER_BYTES
        if needed > left or len(chunk) >= needed:
            raise CorruptRecord(f"{where}: a batch of {needed} bytes where {left} are left")
        return needed
