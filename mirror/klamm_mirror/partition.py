"""One partition on its way from source to target: what is fetched, sent, acknowledged. Pure: time is passed in.

Batches are sent in order, at most `IN_FLIGHT_MAX` before the first is acknowledged (a broker remembers as many per
producer, so that what is sent again is not written again). After a failure nothing more is sent until all answers
are there; then what is not acknowledged goes again, in its order and with its sequence numbers. The first batch
after a start or a failure goes alone: a broker that knows nothing of our producer takes any sequence number from it,
so that a second batch could overtake a first that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_mirror.raw import SEQUENCES, Batch, stamp

IN_FLIGHT_MAX: Final = 5
BUFFER_BYTES: Final = 8 << 20
"""A partition with more than this on its way is not fetched further."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0


@dataclass(slots=True)
class Backoff:
    """Pauses that double with every failure in a row. `why` is the last one, None when all is well."""

    until: float = 0.0
    why: str | None = None
    _wait_s: float = BACKOFF_FIRST_S

    def failed(self, now: float, why: str) -> None:
        self.until, self.why = now + self._wait_s, why
        self._wait_s = min(self._wait_s * 2, BACKOFF_MAX_S)

    def succeeded(self) -> None:
        if self.why is not None:
            self.until, self.why, self._wait_s = 0.0, None, BACKOFF_FIRST_S


@dataclass(slots=True, eq=False)
class MirrorPartition:
    """`position` is the next source offset to fetch (-1: to be asked for), `done` the one behind all that is
    acknowledged (-1: none yet). `stopped` says why it is not fetched any more.
    """

    topic: str
    partition: int
    remote: str
    position: int = -1
    done: int = -1
    high_watermark: int = -1
    records: int = 0
    bytes: int = 0
    purged: int = 0
    """Offsets that the source had deleted before they were read."""
    latency_ms: int | None = None
    stopped: str | None = None
    producer: tuple[int, int] = (-1, -1)
    reading: Backoff = field(default_factory=Backoff)
    writing: Backoff = field(default_factory=Backoff)
    buffered: int = 0
    _unsent: deque[Batch] = field(default_factory=deque)
    _again: deque[Batch] = field(default_factory=deque)
    _unacked: deque[Batch] = field(default_factory=deque)
    _under_way: int = 0
    _failed: bool = False
    _alone: bool = True
    """Only one batch at a time, until one is acknowledged."""
    _sequence: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def lag(self) -> int | None:
        """Records of the source that are not acknowledged at the target; None: not known yet."""
        if self.high_watermark < 0 or self.done < 0:
            return None
        return max(self.high_watermark - self.done, 0)

    @property
    def idle(self) -> bool:
        """Nothing waits for an answer."""
        return not self._under_way

    @property
    def full(self) -> bool:
        return self.buffered >= BUFFER_BYTES

    def begin(self, offset: int) -> None:
        """Where to fetch from."""
        self.position = self.done = offset

    def add(self, batches: Sequence[Batch], next_offset: int) -> None:
        """Take what was fetched; `next_offset` may lie behind the last batch (control records have no batch)."""
        self._unsent.extend(batches)
        self.buffered += sum(len(b.data) for b in batches)
        self.position = next_offset
        last = self._unsent[-1] if self._unsent else self._unacked[-1] if self._unacked else None
        if last is None:
            self.done = next_offset
        else:
            last.next_offset = next_offset

    def take(self, now: float) -> Batch | None:
        """The next batch to send, stamped; None when there is none or when it is not its time."""
        if self._failed or now < self.writing.until or (self._alone and self._under_way):
            return None
        if self._again:
            batch = self._again.popleft()
        elif self._unsent and len(self._unacked) < IN_FLIGHT_MAX:
            batch = self._unsent.popleft()
            self._unacked.append(batch)
        else:
            return None
        if batch.sequence < 0:
            stamp(batch, *self.producer, self._sequence)
            self._sequence = (self._sequence + batch.count) % SEQUENCES
        self._under_way += 1
        return batch

    def is_only(self, batch: Batch) -> bool:
        """Whether all batches before this one are acknowledged, and no other waits for an answer."""
        return self._under_way == 1 and self._unacked[0] is batch

    def acked(self, batch: Batch, now_ms: int) -> None:
        """The target has it."""
        self._under_way -= 1
        batch.acked = True
        self.records += batch.count
        self.bytes += len(batch.data)
        self.buffered -= len(batch.data)
        self.latency_ms = max(now_ms - batch.max_timestamp, 0)
        if not self._failed:
            self._alone = False
            self.writing.succeeded()
        while self._unacked and self._unacked[0].acked:
            self.done = self._unacked.popleft().next_offset
        self._settle()

    def failed(self, now: float, why: str) -> None:
        """No acknowledgement: it goes again, with all that is not acknowledged."""
        self._under_way -= 1
        if not self._failed:
            self.writing.failed(now, why)
        self._failed = self._alone = True
        self._settle()

    def new_producer(self, producer: tuple[int, int]) -> None:
        """The target has forgotten the producer: sequences begin anew."""
        self.producer, self._sequence, self._alone = producer, 0, True
        for batch in (*self._unacked, *self._unsent):
            batch.sequence = -1

    def _settle(self) -> None:
        if self._failed and not self._under_way:
            self._failed = False
            self._again = deque(b for b in self._unacked if not b.acked)
