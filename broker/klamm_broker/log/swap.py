"""Replaces segments by one that the cleaner wrote, safe against a crash at every step.

The order is Kafka's. The new files are renamed from `.cleaned` to `.swap`, and count as soon as no `.cleaned` is left;
the old files get `.deleted`, oldest first; then `.swap` is dropped. At the next start `leftovers` undoes a swap in its
first phase and completes a later one. The directory is forced to disk after the first phase and after the
last, so that a power cut cannot take the new files and leave the old ones deleted.

`prepare`, `undo`, `retire` and `sync` may run in a thread while the log is read and written to: until `finish` the log
has the new segment under its `.swap` names. They work on the opened directory, even if it is moved and another one is
created under its name meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from klamm_broker.log import files
from klamm_broker.log.cleaner.job import Cleaned
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import StorageError
from klamm_broker.log.files import OpenFile
from klamm_broker.log.segment import Segment


class Step(NamedTuple):
    """One step: rename a file of a directory, or remove it if there is no target."""

    source: str
    target: str | None

    def do(self, directory: int) -> None:
        """Do the step. `directory` is a file descriptor. Raises OSError."""
        if self.target is None:
            _remove(self.source, directory)
        else:
            os.rename(self.source, self.target, src_dir_fd=directory, dst_dir_fd=directory)


def _remove(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


class SwapPlan(NamedTuple):
    """The steps of a swap. `begin` can be undone; `replace` and `finish` can only be completed."""

    begin: list[Step]
    replace: list[Step]
    finish: list[Step]

    @property
    def deleted(self) -> list[str]:
        """The old files under their new names."""
        return [step.target for step in self.replace if step.target is not None]


def plan(base_offset: int, replaced: Sequence[int], names: Iterable[str]) -> SwapPlan:
    """Returns the steps that replace segments (by base offset, the first is `base_offset`) of a directory with these files."""
    there = set(names)
    new = [
        name
        for suffix in files.SEGMENT_SUFFIXES
        if (name := files.offset_name(base_offset, suffix)) + files.CLEANED in there
    ]
    old = [
        name
        for base in replaced
        for suffix in files.SEGMENT_SUFFIXES
        if (name := files.offset_name(base, suffix)) in there
    ]
    strays = [
        n for n in sorted(there) if n.endswith(files.CLEANED) and n.removesuffix(files.CLEANED) not in new
    ]
    snapshots = [files.offset_name(base, files.SNAPSHOT) for base in replaced if base != base_offset]
    return SwapPlan(
        # a `.cleaned` file of an earlier attempt would make the next start discard these `.swap` files
        begin=[Step(n, None) for n in strays] + [Step(n + files.CLEANED, n + files.SWAP) for n in new],
        replace=[Step(n, n + files.DELETED) for n in old] + [Step(n, None) for n in snapshots if n in there],
        finish=[Step(n + files.SWAP, n) for n in new],
    )


class Swap:
    """One segment on its way into a log: `prepare`, `PartitionLog.adopt`, `retire`, `PartitionLog.finish_swap`, `sync`."""

    def __init__(self, directory: Path, cleaned: Cleaned, config: LogConfig) -> None:
        self.cleaned = cleaned
        self.segment = Segment(
            directory,
            cleaned.base_offset,
            index_interval=config.index_interval_bytes,
            max_index_bytes=config.segment_index_bytes,
            size=cleaned.size,
            file_suffix=files.SWAP,
        )
        self._path = directory
        self.file: OpenFile
        self.deleted: list[Path] = []
        """The old files under their new names."""
        self._directory: OpenFile
        self._steps: SwapPlan

    def prepare(self) -> None:
        """Do the phase that can be undone; undo it if it fails.

        Raises OSError, and StorageError when the file is not the one that the cleaner reported.
        """
        self._directory = OpenFile(self._path, os.O_RDONLY | os.O_DIRECTORY)
        with os.scandir(self._directory.fd) as entries:
            names = [entry.name for entry in entries]
        self._steps = plan(self.cleaned.base_offset, self.cleaned.replaces, names)
        self.deleted = [self._path / name for name in self._steps.deleted]
        path = self._path / (files.offset_name(self.cleaned.base_offset, files.LOG) + files.CLEANED)
        file = OpenFile(path, os.O_RDWR)
        found = os.fstat(file.fd)
        if (found.st_ino, found.st_size) != (self.cleaned.inode, self.cleaned.size):
            raise StorageError(
                f"{path}: inode {found.st_ino} with {found.st_size} bytes where the cleaner wrote inode "
                f"{self.cleaned.inode} with {self.cleaned.size}"
            )
        try:
            for step in self._steps.begin:
                step.do(self._directory.fd)
            self.sync()
        except OSError:
            self.undo()
            raise
        self.file = file

    def undo(self) -> None:
        """Undo the preparation, as the log no longer wants the segment. Raises OSError."""
        for step in self._steps.begin:
            for name in (step.source, step.target):
                if name is not None:
                    _remove(name, self._directory.fd)

    def retire(self) -> None:
        """Rename the old files out of the way. Raises OSError."""
        for step in self._steps.replace:
            step.do(self._directory.fd)

    def finish(self) -> None:
        """Give the segment its names: a few files, on the loop. If it raises OSError, the renamed files are found."""
        try:
            for step in self._steps.finish:
                step.do(self._directory.fd)
        finally:
            self.segment.note_names()

    def sync(self) -> None:
        """Force the directory to disk. Raises OSError."""
        os.fsync(self._directory.fd)


def discard(directory: Path) -> None:
    """Remove the cleaner's abandoned files. Raises OSError."""
    for path in directory.glob("*" + files.CLEANED):
        path.unlink(missing_ok=True)
