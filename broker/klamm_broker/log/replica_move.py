"""Moves a partition to another log directory while clients write and read it (AlterReplicaLogDirs).

Jobs copy the files, finished segments first, into `topic-partition.<unique>-future` of the other directory; they run in
a thread and force their copies to the disk. Once little is missing, the rest is copied at one moment on the loop, the
registry gets the new place, the copy takes over the partition's name, and the log goes on there. A crash before the
change of the registry leaves the old directory as it was; a crash after it leaves a complete copy that the registry names
as the right one. The next start removes the other copy, and begins an interrupted move again.

Segments that change meanwhile (retention, the cleaner) are recognized by their identity and copied anew, or dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klamm_base.files import make_private_folder, sync_directory, write_all
from klamm_broker.log import files
from klamm_broker.log.data_directory import DataDirectory, unique
from klamm_broker.log.files import OpenFile, future_dir_name, parse_offset_name
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.partition_metadata import FILE_NAME as METADATA_FILE
from klamm_broker.log.segment import Segment

JOB_BYTES: Final = 64 << 20
"""The bytes of one job: progress is known, and a cancelled job ends, after each."""
TAIL_BYTES: Final = 1 << 20
"""The bytes that may be copied on the loop: a millisecond or two, and the fsync that follows."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Bytes of a segment's `.log` to copy."""

    segment: Segment
    file: OpenFile
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class CopyJob:
    """A planned piece of copying; `run` may be called in a thread."""

    path: Path
    ranges: list[_Range]
    small: list[Path]  # indexes and snapshots of finished segments, copied whole
    loose: list[Path] = field(
        default_factory=list
    )  # the same, but recovery can do without: not forced to disk
    end_offset: int  # the copy's log end once the job is done
    cancelled: bool = field(default=False)

    @property
    def size(self) -> int:
        """The bytes of records that it copies."""
        return sum(part.end - part.start for part in self.ranges)

    def run(self) -> None:
        """Copy and force to disk. Raises OSError."""
        for part in self.ranges:
            self._copy_range(part)
        for source in (*self.small, *self.loose):
            if self.cancelled:
                return
            try:
                content = source.read_bytes()
            except FileNotFoundError:
                continue  # deleted meanwhile, or never there: not every segment has each index
            _write(self.path / source.name, content, sync=source not in self.loose)

    def _copy_range(self, part: _Range) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (0 if part.start else os.O_TRUNC)
        path = self.path / part.segment.path(files.LOG).name
        target = OpenFile(path, flags)
        position = part.start
        while position < part.end and not self.cancelled:
            data = os.pread(part.file.fd, min(_CHUNK, part.end - position), position)
            if not data:
                raise OSError(
                    f"{part.segment.path(files.LOG)} ends at {position}, {part.end} bytes are expected"
                )
            with _naming(path):
                os.lseek(target.fd, position, os.SEEK_SET)
                write_all(target.fd, data)
            position += len(data)
        with _naming(path):
            os.fsync(target.fd)


def _write(path: Path, content: bytes, *, sync: bool) -> None:
    file = OpenFile(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with _naming(path):
        write_all(file.fd, content)
        if sync:
            os.fsync(file.fd)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the open file of the copy in its errors: its directory is not the one that is read from."""
    try:
        yield
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e


class ReplicaMove:
    """One partition on its way. `LogManager.begin_move` makes it; call `plan` and `finish` on the loop only."""

    def __init__(self, log: PartitionLog, target: DataDirectory) -> None:
        self.log = log
        self.target = target
        self.path = target.path / future_dir_name(log.topic, log.partition, unique())
        self.size = 0  # bytes in the copy
        self.end_offset = log.segment_base_offsets[0]  # of the copy
        self.cancelled = False
        self.coming = False  # about to take over: the checkpoints of the target know it already
        self.job: CopyJob | None = None  # in a thread
        self._copied: dict[int, tuple[Segment, int, bool]] = {}  # segment, bytes, whether with its indexes
        make_private_folder(self.path)
        log.copying = True

    @property
    def lag(self) -> int:
        """The number of records that the copy lacks."""
        return max(self.log.log_end_offset - self.end_offset, 0)

    def plan(self, limit: int = JOB_BYTES) -> CopyJob:
        """Returns the next piece to copy, of at most about `limit` bytes. `done` must follow once it has run."""
        ranges: list[_Range] = []
        small: list[Path] = []
        segments = self.log.segments
        end_offset = self.log.log_end_offset
        for segment in segments:
            _, have, whole = self._state(segment)
            finished = segment is not segments[-1]
            if limit <= 0:
                end_offset = segment.base_offset
                break
            end = min(segment.size, have + limit)
            if end > have or not have:
                ranges.append(_Range(segment=segment, file=segment.file, start=have, end=end))
                limit -= end - have
            if finished and end == segment.size and not whole:
                segment.write_indexes()  # a start on a full disk may have postponed that
                small += _small_files(segment)
        self.job = CopyJob(path=self.path, ranges=ranges, small=small, end_offset=end_offset)
        return self.job

    def _state(self, segment: Segment) -> tuple[Segment, int, bool]:
        found = self._copied.get(segment.base_offset)
        return found if found is not None and found[0] is segment else (segment, 0, False)

    def done(self, job: CopyJob) -> None:
        """Note that the job has run."""
        self.job = None
        names = {path.name for path in job.small}
        for part in job.ranges:
            self._copied[part.segment.base_offset] = (part.segment, part.end, False)
        for base, (segment, size, _) in list(self._copied.items()):
            if segment.path(files.OFFSET_INDEX).name in names:
                self._copied[base] = (segment, size, True)
        self.end_offset = job.end_offset
        self.size = sum(size for _, size, _ in self._copied.values())

    @property
    def missing(self) -> int:
        """The bytes of records that the copy lacks."""
        return sum(max(segment.size - self._state(segment)[1], 0) for segment in self.log.segments)

    def prepare(self) -> Callable[[], None]:
        """Returns a job that copies the files beside the segments and forces them to disk. `prepared` must follow."""
        job = CopyJob(path=self.path, ranges=[], small=self._beside(), end_offset=self.end_offset)
        self.job = job

        def run() -> None:
            job.run()
            self._sync_names()

        return run

    def prepared(self) -> None:
        """Note that the job of `prepare`, and all that goes with it, has ended."""
        self.job = None

    def _beside(self) -> list[Path]:
        there = self.log.directory
        snapshots = [path for path in there.iterdir() if path.suffix == files.SNAPSHOT]
        return [there / METADATA_FILE, self.log.epochs.path, *snapshots]

    def complete(self) -> None:
        """Copy the rest, here and now, so that the copy equals the log. Raises OSError.

        Forces the records to disk, and of the other files only those that recovery does not rebuild.
        """
        self.log.write_indexes()
        job = self.plan(1 << 62)
        job.loose += [*_small_files(self.log.segments[-1]), *self._beside()[1:]]
        job.run()
        new_names = bool(job.small) or any(part.start == 0 for part in job.ranges)
        self.done(job)
        self._drop_gone()
        if new_names:
            self._sync_names()

    def _sync_names(self) -> None:
        with _naming(self.path):
            sync_directory(self.path)

    def _drop_gone(self) -> None:
        """Remove segments that were deleted at the source since they were copied."""
        bases = set(self.log.segment_base_offsets)
        snapshots = {path.name for path in self.log.directory.iterdir() if path.suffix == files.SNAPSHOT}
        for path in list(self.path.iterdir()):
            parsed = parse_offset_name(path.name)
            if parsed is None:
                continue
            gone = path.name not in snapshots if parsed[1] == files.SNAPSHOT else parsed[0] not in bases
            if gone:
                path.unlink()

    def directory_of(self, error: OSError) -> Path:
        """Returns the log directory in which an error of this move occurred."""
        in_copy = error.filename is not None and Path(error.filename).is_relative_to(self.target.path)
        return self.target.path if in_copy else self.log.directory.parent

    def cancel(self) -> None:
        """Stop as soon as possible. `LogManager` removes the copy."""
        self.cancelled = True
        self.log.copying = False
        if self.job is not None:
            self.job.cancelled = True


def _small_files(segment: Segment) -> list[Path]:
    suffixes = (*files.SEGMENT_SUFFIXES[1:], files.SNAPSHOT)
    return [segment.path(suffix) for suffix in suffixes]
