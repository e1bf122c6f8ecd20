"""Tells whether the data of a broker can be read by this version of Klamm. Reads only, and takes no lock, so it may run beside a
broker: what that appends meanwhile is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klamm.logdump.batches import LogFile
from klamm.logdump.errors import DumpError
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.files import parse_partition_dir
from klamm_broker.log.log_dir import read_meta


@dataclass(slots=True)
class Checked:
    """The result of a check. `torn` are ends of newest segments that were not written whole: the broker cuts them off when
    it starts after a crash. `problems` are sentences about all else.
    """

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    torn: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check(
    folders: Sequence[Path], *, whole: bool, step: Callable[[Checked], None] = lambda _: None
) -> Checked:
    """Reads log directories: with `whole` every segment, else the newest of each partition. `step` is called after each segment."""
    done = Checked()
    for folder in folders:
        if not folder.is_dir():
            done.problems.append(f"{folder}: no such folder")
            continue
        try:
            if read_meta(folder) is None:
                done.problems.append(f"{folder}: no meta.properties: this is not a broker's log directory")
                continue
        except (DirectoryError, OSError) as e:
            done.problems.append(str(e))
            continue
        for partition in _partitions(folder):
            _check_partition(partition, whole=whole, done=done, step=step)
    return done


def _partitions(folder: Path) -> Iterator[Path]:
    yield from sorted(p for p in folder.iterdir() if p.is_dir() and parse_partition_dir(p.name) is not None)


def _check_partition(partition: Path, *, whole: bool, done: Checked, step: Callable[[Checked], None]) -> None:
    segments = sorted(partition.glob("*.log"))
    done.partitions += 1
    for segment in segments if whole else segments[-1:]:
        try:
            _check_segment(segment, newest=segment == segments[-1], done=done)
        except DumpError as e:
            if segment.exists():  # else retention took it meanwhile
                done.problems.append(str(e))
        step(done)


def _check_segment(path: Path, *, newest: bool, done: Checked) -> None:
    """Reads one segment. Raises DumpError."""
    with LogFile(path) as log:
        done.segments += 1
        good, expected = 0, int(path.stem)
        for batch in log.batches():
            header = batch.header
            if header.base_offset < expected:
                done.problems.append(
                    f"{path}: the batch at position {batch.position} begins at offset {header.base_offset}, before {expected}"
                )
                return
            if not batch.checksum_holds():
                done.problems.append(
                    f"{path}: the batch at position {batch.position} does not have its checksum"
                )
                return
            good, expected = batch.position + header.size, header.next_offset
            done.batches += 1
            done.bytes += header.size
        if good < log.size:
            said = f"{path}: {log.size - good} bytes behind the last whole batch"
            (done.torn if newest else done.problems).append(said)
