"""Puts a segment that the cleaner wrote in the place of those that it replaces, safe against a crash at every step.

The order is Kafka's: the new files are renamed from `.cleaned` to `.swap`, and count as soon as no `.cleaned` is left;
the old files get `.deleted`, oldest first; then `.swap` is dropped. At the next start `leftovers` undoes what has not
got past the first phase and completes the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from klamm_broker.log import files
from klamm_broker.log.cleaner.job import Cleaned
from klamm_broker.log.config import LogConfig
from klamm_broker.log.files import OpenFile
from klamm_broker.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Step:
    """Rename a file, or remove it where there is no target."""

    source: Path
    target: Path | None

    def do(self) -> None:
        """Raises OSError."""
        if self.target is None:
            self.source.unlink(missing_ok=True)
        else:
            self.source.rename(self.target)


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """`begin` can be undone, `replace` and `finish` can only be completed."""

    begin: list[Step]
    replace: list[Step]
    finish: list[Step]

    @property
    def deleted(self) -> list[Path]:
        """The old files under their new names."""
        return [step.target for step in self.replace if step.target is not None]


def plan(directory: Path, base_offset: int, replaced: Sequence[int], names: Iterable[str]) -> SwapPlan:
    """The steps that replace segments (by base offset, the first is `base_offset`) of a directory with these files."""
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
        # a `.cleaned` file of an earlier attempt would make the next start throw these `.swap` files away
        begin=[Step(directory / n, None) for n in strays]
        + [Step(directory / (n + files.CLEANED), directory / (n + files.SWAP)) for n in new],
        replace=[Step(directory / n, directory / (n + files.DELETED)) for n in old]
        + [Step(directory / n, None) for n in snapshots if n in there],
        finish=[Step(directory / (n + files.SWAP), directory / n) for n in new],
    )


def opened(directory: Path, cleaned: Cleaned, config: LogConfig) -> Segment:
    """The cleaned segment, to be read under the name that it is about to get.

    Raises OSError, also when the file is not the one that the cleaner has told of.
    """
    path = directory / (files.offset_name(cleaned.base_offset, files.LOG) + files.CLEANED)
    file = OpenFile(path, os.O_RDWR)
    found = os.fstat(file.fd)
    if (found.st_ino, found.st_size) != (cleaned.inode, cleaned.size):
        raise OSError(
            f"{path}: inode {found.st_ino} with {found.st_size} bytes where the cleaner wrote inode "
            f"{cleaned.inode} with {cleaned.size}"
        )
    segment = Segment(
        directory,
        cleaned.base_offset,
        index_interval=config.index_interval_bytes,
        max_index_bytes=config.segment_index_bytes,
        size=cleaned.size,
    )
    segment.hold(file)
    return segment


def begin(steps: SwapPlan) -> None:
    """The phase that can be undone, and is when it fails. Raises OSError."""
    try:
        for step in steps.begin:
            step.do()
    except OSError:
        for step in steps.begin:
            for path in (step.source, step.target):
                if path is not None:
                    path.unlink(missing_ok=True)
        raise


def complete(steps: SwapPlan) -> None:
    """The phases that cannot be undone. A step that fails keeps no other from being done. Raises OSError."""
    failed: OSError | None = None
    for step in (*steps.replace, *steps.finish):
        try:
            step.do()
        except OSError as e:
            failed = failed or e
    if failed is not None:
        raise failed


def follow(segment: Segment) -> None:
    """The swap was cut short: read the indexes where they are."""
    for index in (segment.index, segment.time_index, segment.txn_index):
        waiting = index.path.with_name(index.path.name + files.SWAP)
        if waiting.exists():
            index.path = waiting


def discard(directory: Path) -> None:
    """Remove what the cleaner left behind: nobody wants it. Raises OSError."""
    for path in directory.glob("*" + files.CLEANED):
        path.unlink(missing_ok=True)
