"""The start offset of each leader epoch in a partition's log: Kafka's `leader-epoch-checkpoint`.

Epochs and their start offsets both increase strictly. A follower or a consumer that comes back asks for the end of
an epoch, and so learns where its log or position diverged.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Final

from klamm_base.files import write_atomically
from klamm_broker.log.checkpoints import format_lines, parse_lines
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import read_small

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = -1


class LeaderEpochCache:
    """The epochs of one partition, in memory and in its checkpoint file.

    Changes reach the file at once, and the disk with the log's next flush. After a power loss, recovery rebuilds lost epochs
    from the batches after the recovery point.
    """

    __slots__ = ("_epochs", "_path", "_starts")

    def __init__(self, path: Path, entries: list[tuple[int, int]] | None = None) -> None:
        self._path = path
        self._epochs = [epoch for epoch, _ in entries or []]
        self._starts = [start for _, start in entries or []]

    @classmethod
    def load(cls, path: Path) -> LeaderEpochCache:
        """Returns the cache of a file, empty when there is none. Raises CorruptFile."""
        try:
            text = read_small(path).decode()
        except FileNotFoundError:
            return cls(path)
        except UnicodeDecodeError as e:
            raise CorruptFile(f"{path}: not text ({e})") from e
        entries = []
        for line in parse_lines(text, path):
            try:
                epoch, start = line.split()
                entries.append((int(epoch), int(start)))
            except ValueError:
                raise CorruptFile(f"{path}: {line!r} is not 'epoch offset'") from None
        if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(entries)):
            raise CorruptFile(f"{path}: epochs {entries} do not increase")
        return cls(path, entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The last epoch with a record, or -1."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    @property
    def path(self) -> Path:
        return self._path

    def relocate(self, directory: Path) -> None:
        """Use the same file in another directory."""
        self._path = directory / FILE_NAME

    def write(self) -> None:
        lines = [f"{epoch} {start}" for epoch, start in self.entries]
        write_atomically(self._path, format_lines(lines), sync=False)

    def assign(self, epoch: int, start: int, *, write: bool = True) -> bool:
        """Note that `epoch` starts at `start`, and drop entries that contradict it. Returns whether anything changed."""
        if epoch < 0 or start < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start}: neither may be negative")
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return False
        kept = len(self._epochs)
        while kept and (self._epochs[kept - 1] >= epoch or self._starts[kept - 1] >= start):
            kept -= 1
        before = self._epochs, self._starts
        self._epochs, self._starts = [*self._epochs[:kept], epoch], [*self._starts[:kept], start]
        if write:
            try:
                self.write()
            except OSError:
                self._epochs, self._starts = before
                raise
        return True

    def end_offset(self, epoch: int, log_end_offset: int, present: int = UNDEFINED) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch up to `epoch`; (-1, -1) when `epoch` is not known here.

        The `present` epoch of the leader, and any before it, are known before their first record, as in Kafka: a
        consumer that learned its place in such an epoch (by ListOffsets) may ask for it after a restart, and would otherwise
        begin again at its `auto.offset.reset`.
        """
        if epoch == UNDEFINED or epoch > max(self.latest, present):
            return UNDEFINED, UNDEFINED
        if epoch >= self.latest:
            known = epoch in {self.latest, present} or self.latest == UNDEFINED
            return epoch if known else self.latest, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        floor = self._epochs[higher - 1] if higher else epoch
        return floor, self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch that wrote `offset`, or -1."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after `end_offset`."""
        if self._drop_end(end_offset):
            self.write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs below the log start; the epoch in force there now starts there."""
        if self._drop_start(start_offset):
            self.write()

    def drop(self, end_offset: int, start_offset: int) -> None:
        """Do both truncations in memory only, as the file cannot be written at the moment."""
        self._drop_end(end_offset)
        self._drop_start(start_offset)

    def _drop_end(self, end_offset: int) -> bool:
        """Drop epochs that start at or after the end. Returns whether any was dropped."""
        before = len(self._starts)
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        return len(self._starts) < before

    def _drop_start(self, start_offset: int) -> bool:
        keep = bisect_right(self._starts, start_offset) - 1
        if keep < 0 or (keep == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:keep], self._starts[:keep]
        self._starts[0] = start_offset
        return True
