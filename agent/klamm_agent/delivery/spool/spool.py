"""The spool's folder: a queue per topic, one bound for all topics, a lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from klamm_agent.delivery.batches import Share
from klamm_agent.delivery.spool.segment import Damaged, StoredBatch
from klamm_agent.delivery.spool.topic import TopicQueue
from klamm_base.errors import KlammError
from klamm_base.files import PRIVATE_FILE, make_private_folder

_SEGMENTS: Final = 16  # one segment, which is given up at a time, is this part of the bound
_SEGMENT_MAX: Final = 64 * 1024 * 1024
_SEGMENT_MIN: Final = 64 * 1024


class SpoolError(KlammError):
    """The folder cannot be used or written to."""


class Spool:
    """The spool on disk. It owns its folder from construction on. Raises SpoolError."""

    def __init__(self, path: Path, max_bytes: int, *, fsync: bool) -> None:
        self.path, self._max, self._fsync = path, max_bytes, fsync
        self._segment = min(_SEGMENT_MAX, max(_SEGMENT_MIN, max_bytes // _SEGMENTS))
        self._topics: dict[str, TopicQueue] = {}
        self._dirty: set[str] = set()
        try:
            make_private_folder(path)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as e:
            raise SpoolError(f"spool {path} cannot be used: {e.strerror}") from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in sorted(path.iterdir()):
                if folder.is_dir() and folder.name.endswith("-0"):
                    self._topics[folder.name[:-2]] = TopicQueue(folder, self._segment)
        except BlockingIOError:
            os.close(self._lock)
            raise SpoolError(f"spool {path} is used by another agent") from None
        except (OSError, ValueError) as e:
            os.close(self._lock)
            raise SpoolError(f"spool {path} cannot be used: {e}") from e

    @property
    def size(self) -> int:
        """The bytes of all logs."""
        return sum(t.size for t in self._topics.values())

    @property
    def unread(self) -> list[str]:
        """Topics with batches that are not in memory."""
        return [name for name, t in self._topics.items() if t.unread]

    @property
    def records(self) -> int:
        """Records that are neither acknowledged nor given up."""
        return sum(t.records for t in self._topics.values())

    def has_room(self, more: int = 0) -> bool:
        """Tells whether `more` bytes fit. Copies of batches in memory do not count."""
        return sum(t.unread_size for t in self._topics.values()) + more < self._max

    def append(
        self,
        topic: str,
        data: bytearray,
        count: int,
        shares: Sequence[Share],
        key: bytes | None,
        *,
        number: int = 0,
    ) -> int:
        """Appends a batch; returns the offset behind it. It is on disk after the next `sync`. Raises SpoolError, having written nothing."""
        try:
            queue = self._topics.get(topic)
            if queue is None:
                queue = self._topics[topic] = TopicQueue(self.path / f"{topic}-0", self._segment)
            end = queue.append(data, count, shares, key, number=number)
        except OSError as e:
            raise SpoolError(f"spool {self.path} cannot be written: {e.strerror}") from e
        self._dirty.add(topic)
        return end

    def in_memory(self, topic: str) -> None:
        """Marks the batch that was appended last as read: memory has it."""
        self._topics[topic].skip()

    def is_unread(self, topic: str) -> bool:
        queue = self._topics.get(topic)
        return queue is not None and queue.unread

    def read(self, topic: str) -> StoredBatch | Damaged | None:
        return self._topics[topic].read()

    def acknowledged(self, topic: str, offset: int) -> None:
        self._topics[topic].acknowledged(offset)

    def numbers(self) -> dict[str, set[int]]:
        """Returns, by topic, the numbers in the write-ahead log of the batches that are not acknowledged."""
        return {name: queue.numbers() for name, queue in self._topics.items()}

    def acked(self, topic: str) -> int:
        """Returns the offset behind the batches that are delivered or given up."""
        return self._topics[topic].acked

    def sync(self) -> bool:
        """Makes appended batches safe on disk; returns whether there were any. Raises SpoolError."""
        if not self._dirty:
            return False
        if self._fsync:
            try:
                for topic in self._dirty:
                    self._topics[topic].sync()
            except OSError as e:
                raise SpoolError(f"spool {self.path} cannot be written: {e.strerror}") from e
        self._dirty.clear()
        return True

    def save(self) -> None:
        """Saves the acknowledged positions. Raises SpoolError."""
        try:
            for queue in self._topics.values():
                queue.save()
        except OSError as e:
            raise SpoolError(f"spool {self.path} cannot be written: {e.strerror}") from e

    def drop_oldest(self, note: Callable[[str, list[Share]], bool]) -> bool:
        """Gives up the oldest unread segment of the largest topic, once `note` has it in its ledger; returns whether it did."""
        unread = [(t.size, name) for name, t in self._topics.items() if t.unread]
        if not unread:
            return False
        name = max(unread)[1]
        queue = self._topics[name]
        if not note(name, queue.oldest_unread()):
            return False
        queue.drop_oldest()
        return True

    def close(self) -> None:
        for queue in self._topics.values():
            queue.close()
        os.close(self._lock)

    def abandon(self) -> None:
        """Closes, in a forked child, what it inherited. It writes nothing: the folder stays the parent's."""
        for queue in self._topics.values():
            queue.abandon()
        os.close(self._lock)
