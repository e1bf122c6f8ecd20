"""One topic's part of the spool: a queue of batches over segments. Batches are written at the end, read at a cursor, and deleted
once acknowledged.

The folder is named like one of Kafka's partitions (`logs-0`); `position` holds the offset behind the acknowledged batches.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm_agent.delivery.batches import Share
from klamm_agent.delivery.spool.segment import Damaged, Segment, StoredBatch
from klamm_base.files import make_private_folder, write_atomically

log = logging.getLogger(__name__)

POSITION: Final = "position"


class TopicQueue:
    """The queue of one topic. `acked` <= `cursor` <= `end`: acknowledged, read, written. Raises OSError from construction on."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        make_private_folder(folder)
        self.folder, self._segment_bytes = folder, segment_bytes
        for origins in folder.glob("*.origins"):
            if not origins.with_suffix(".log").exists():  # a kill came while the segment was deleted
                origins.unlink()
        self._segments = [Segment(folder, base) for base in sorted(int(p.stem) for p in folder.glob("*.log"))]
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            segment.trust(following.base)
        if self._segments:
            self._recover(self._segments[-1])
        self.acked = self._saved = max(self._position(), self._segments[0].base if self._segments else 0)
        if (
            self._segments and self._segments[-1].next < self.acked
        ):  # the disk lost batches, but they are delivered
            self._delete_all()
        self.end = self._segments[-1].next if self._segments else self.acked
        self.cursor = self.acked
        self._at = -1  # position of the cursor in its segment; -1: to be looked for
        self._given_up: deque[tuple[int, int]] = deque()  # ranges of offsets behind `acked`
        self._made = False  # whether the folder needs an fsync for a new segment
        self._drop_acked()

    def _recover(self, last: Segment) -> None:
        cut = last.recover()
        if cut:
            log.warning("%s: cut off %d bytes of an incomplete record at the end", self.folder, cut)

    def _delete_all(self) -> None:
        while self._segments:
            self._segments.pop().delete()

    def _position(self) -> int:
        try:
            return int((self.folder / POSITION).read_text())
        except (FileNotFoundError, ValueError):
            return 0  # then all batches come again

    @property
    def size(self) -> int:
        return sum(s.size for s in self._segments)

    @property
    def unread_size(self) -> int:
        """The bytes of the segments that are not read to their end."""
        return sum(s.size for s in self._segments if s.next > self.cursor)

    @property
    def records(self) -> int:
        """The records that are neither acknowledged nor given up."""
        return self.end - self.acked - sum(end - start for start, end in self._given_up)

    @property
    def unread(self) -> bool:
        return self.cursor < self.end

    def append(
        self, data: bytearray, count: int, shares: Sequence[Share], key: bytes | None, *, number: int = 0
    ) -> int:
        """Appends a batch; returns the offset behind it. Raises OSError."""
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            self._roll()
        was_read = self.cursor == self.end
        self.end = self._segments[-1].append(data, count, shares, key, number=number)
        if was_read and self._at < 0:
            self._at = self._segments[-1].size - len(data)
        return self.end

    def skip(self) -> None:
        """Marks the batch that was appended last as read: memory has it."""
        self.cursor, self._at = self.end, self._segments[-1].size

    def _roll(self) -> None:
        if self._segments:
            self._segments[-1].forget()
        self._segments.append(Segment(self.folder, self.end))
        self._made = True
        if self.cursor == self.end:
            self._at = 0

    def sync(self) -> None:
        """Makes appended batches safe on disk. Raises OSError."""
        for segment in self._segments:
            segment.sync()
        if self._made:
            for folder in (self.folder, self.folder.parent):
                fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            self._made = False

    def read(self) -> StoredBatch | Damaged | None:
        """Reads the next batch; None at the end."""
        if not self.unread:
            return None
        segment = next(s for s in self._segments if s.next > self.cursor)
        if self._at < 0 or self.cursor <= segment.base:
            self._at = segment.position_of(self.cursor) if self.cursor > segment.base else 0
        found, self._at = segment.read(self._at, max(segment.base, self.cursor))
        if isinstance(found, Damaged):
            self._given_up.append((self.cursor, found.end))
        self.cursor = found.end
        self._pass_given_up()
        if self.cursor >= segment.next:
            segment.forget()
        return found

    def numbers(self) -> set[int]:
        """Returns the numbers in the write-ahead log of the batches that are not acknowledged."""
        found = {
            number for s in self._segments if s.next > self.acked for number in s.numbers_from(self.acked)
        }
        for segment in self._segments[:-1]:
            segment.forget()
        return found - {0}

    def acknowledged(self, offset: int) -> None:
        """Takes note that everything before `offset` is delivered."""
        self.acked = max(self.acked, offset)
        self._pass_given_up()

    def _pass_given_up(self) -> None:
        while self._given_up and self._given_up[0][0] <= self.acked:
            self.acked = max(self.acked, self._given_up.popleft()[1])
        self._drop_acked()

    def _drop_acked(self) -> None:
        while (
            self._segments and self._segments[0].next <= self.acked and self.cursor >= self._segments[0].next
        ):
            self._segments.pop(0).delete()

    def save(self) -> None:
        """Saves the position; after a kill, batches behind the saved position come again. Raises OSError."""
        if self.acked != self._saved:
            write_atomically(self.folder / POSITION, str(self.acked).encode(), sync=False)
            self._saved = self.acked

    def oldest_unread(self) -> list[Share]:
        """Returns what `drop_oldest` would give up: the unread batches of the oldest segment that has any."""
        segment = next(s for s in self._segments if s.next > self.cursor)
        return segment.shares_from(self.cursor)

    def drop_oldest(self) -> None:
        segment = next(s for s in self._segments if s.next > self.cursor)
        if segment is self._segments[-1]:
            self._roll()
        if segment.base >= self.cursor:
            self._segments.remove(segment)
            segment.delete()
        # Otherwise memory alone may have batches that were read of it: it stays until they are acknowledged
        start, self.cursor, self._at = self.cursor, segment.next, -1
        self._given_up.append((start, segment.next))
        self._pass_given_up()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.save()
        for segment in self._segments:
            segment.close()

    def abandon(self) -> None:
        """Closes without saving anything."""
        for segment in self._segments:
            segment.close()
