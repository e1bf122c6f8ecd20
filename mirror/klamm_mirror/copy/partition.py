"""One partition on its way from source to target: what is fetched, sent and acknowledged. Pure: time is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client.outbox import Outbox
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.copy.splitting import smaller
from klamm_mirror.metrics.sensors import PartitionSensors
from klamm_mirror.metrics.trend import Trend
from klamm_mirror.offsets.segments import Segment, SegmentLog
from klamm_mirror.origins import Origin, Producer, Producers
from klamm_mirror.raw import Batch
from klamm_mirror.stops import ANEW, UNSENT, Stop

SILENT_MS: Final = 5_000
"""A source that has not answered for so long may have records that the target lacks. A fetch waits half a second."""


@dataclass(slots=True, eq=False, kw_only=True)
class MirrorPartition(Outbox[Batch]):
    """A partition's progress.

    `position` is the next source offset to fetch (-1: ask for it). `done` is the offset after the last
    acknowledged record without a gap before it (-1: none yet). Both count the records of the topic with the id
    `topic_id` (None: not known). `stopped` says why the partition is no longer fetched.
    """

    topic: str
    key: tuple[str, int] = field(init=False)
    """Topic and partition at the source."""
    named: str = ""
    """The topic's name at the target by the replication policy; `remote` is where the records go."""
    start: int = EARLIEST
    """The place to begin at while `position` is -1: EARLIEST, LATEST, or a time in ms."""
    position: int = -1
    begun: int = -1
    """The offset at which it began last, by what is committed, or to go on behind a stop."""
    done: int = -1
    high_watermark: int = -1
    last_stable: int = -1
    """The source's last stable offset, where only committed records are read; -1: not known."""
    stable_ms: int = -1
    """The time at which it was first seen there."""
    topic_id: bytes | None = None
    former_ids: set[bytes] = field(default_factory=set)
    """Ids of topics that had the name before: a broker that still tells one of them is behind."""
    epoch: int = -1
    """The leader epoch of the last record that was read; -1: not known."""
    done_epoch: int = -1
    """The same of the last record that is acknowledged."""
    checked: int = -1
    """The leader epoch for which the source confirmed that its log still holds what was read."""
    gone: bool = False
    """True once the topic was deleted at the source and nothing more is to be done."""
    promoted: bool = False
    """True once a copy that keeps offsets is promoted at the target: nothing more is copied."""
    source_start: int = -1
    """The source's log start, as its last answer told; -1: not told."""
    copy_start: int = -1
    copy_end: int = -1
    """The log start and log end of a copy that keeps offsets (`whole`); of another copy, the end of what is acknowledged. -1: not
    known.
    """
    copy_id: bytes | None = None
    """The topic id of the copy that is written to; None: not known."""
    records: int = 0
    bytes: int = 0
    purged: int = 0
    """The number of offsets that the source had deleted before they were read."""
    latency_ms: int | None = None
    stopped: Stop | None = None
    refused_bytes: int = 0
    """The size of the smallest batch that was too large for the target; 0: none was."""
    splits: int = 0
    """The number of batches that were split for the target."""
    scarce: bool = False
    """True after the target refused a batch for want of replicas in sync; an acknowledgement ends it."""
    joins_at: float = 0.0
    """The time from which on it may join a transaction: it held up one before."""
    held_by: str | None = None
    """The key of the limit that holds the partition back at the moment."""
    reading: Backoff = field(default_factory=Backoff)
    buffered: int = 0
    sensors: PartitionSensors = field(default_factory=PartitionSensors)
    producers: Producers | None = None
    """The task's producers by origin; None: one producer writes all."""
    origin: Origin | None = None
    """The origin that `producer` writes."""
    _others: dict[Origin | None, tuple[Producer, int]] = field(default_factory=dict)
    """The producers of other origins that have written here, with their next sequence numbers."""
    trend: Trend = field(default_factory=Trend)
    heard_ms: int = -1
    """The time of the source's last answer, -1: none yet."""
    even_ms: int = -1
    """The last time at which the source had no more than the target has by now, -1: not known."""
    last_ms: int = -1
    """The latest timestamp of the batch that the target acknowledged last, -1: not known."""
    watchers: list[dict[MirrorPartition, None]] = field(default_factory=list)
    """Collections that a change of the position enters the partition into (`copy.changes`)."""
    segments: SegmentLog = field(default_factory=SegmentLog)
    """The offsets at the target of what is acknowledged."""

    def __post_init__(self) -> None:
        self.key = self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def lag(self) -> int | None:
        """Records of the source that the target has not acknowledged; None: not known yet, or not any more."""
        return None if self.stopped is not None and self.stopped.kind in ANEW else self._behind

    @property
    def _behind(self) -> int | None:
        """The same by the offsets that were last known, also where they count another log by now."""
        if self.gone or self.promoted:
            return 0
        if self.high_watermark < 0 or self.done < 0:
            return None
        return max(self.high_watermark - self.done, 0)

    @property
    def unsent(self) -> bool:
        """True when it is stopped in a way that lets nothing more go to the target."""
        return self.stopped is not None and self.stopped.kind in UNSENT

    @property
    def settled(self) -> bool:
        """True when nothing more happens to a stopped partition: what can be sent is sent, and no answer is due."""
        return self.idle and (self.unsent or self.empty)

    @property
    def committed(self) -> Position | None:
        """The position to commit; None while nothing is known."""
        if self.done < 0 and self.topic_id is None:
            return None
        return Position(
            offset=self.done - 1 if self.done >= 0 else None,
            topic_id=self.topic_id,
            epoch=self.done_epoch,
            remote=self.remote if self.named and self.remote != self.named else None,
            copy_id=None if self.whole else self.copy_id,
            copy_end=-1 if self.whole else self.copy_end,
        )

    def changed(self) -> None:
        """Tells the watchers of a change of `committed` or `segments`."""
        for watcher in self.watchers:
            watcher[self] = None

    def resume(self, position: Position) -> None:
        """Continues behind a committed position."""
        self.topic_id = position.topic_id
        self.epoch = self.done_epoch = position.epoch
        self.copy_id, self.copy_end = position.copy_id, position.copy_end
        if position.remote is not None:
            self.remote = position.remote
        if position.offset is not None:
            self.begin(position.offset + 1)

    def take(self, now: float) -> Batch | None:
        """Returns the next batch to send; None when there is none, also behind a batch that the target refused.

        A batch of another origin waits for all before it, and for its producer.
        """
        if self.promoted or self.unsent:
            return None
        if self.refused_bytes and not self._again:
            self._split_next()
        if self.producers is not None and not self._again and self._unsent:
            origin = self._unsent[0].origin
            if origin != self.origin and not self._change_origin(origin, self.producers):
                return None
        return Outbox.take(self, now)  # `super()` does not know a dataclass with slots

    def _split_next(self) -> None:
        """Splits the next batch if the target has refused smaller ones."""
        while self._unsent and len(self._unsent[0].data) >= self.refused_bytes and self._unsent[0].count > 1:
            batch = self._unsent.popleft()
            parts = smaller(batch, self.refused_bytes)
            self._unsent.extendleft(reversed(parts))
            self._note_split(batch, parts)

    def too_large(self, batch: Batch) -> list[Batch]:
        """Notes that the batch is too large for the target. Returns parts that may not be; none for a single record."""
        self.refused_bytes = min(self.refused_bytes or len(batch.data), len(batch.data))
        return smaller(batch, self.refused_bytes)

    def split(self, batch: Batch, parts: Sequence[Batch]) -> bool:
        """Sends these parts in place of a batch that was refused. Returns False when there are none."""
        if parts:
            self._note_split(batch, parts)
            self.replaced(batch, parts)
        return bool(parts)

    def _note_split(self, batch: Batch, parts: Sequence[Batch]) -> None:
        self.splits += 1
        self.buffered += sum(len(part.data) for part in parts) - len(batch.data)

    def _change_origin(self, origin: Origin | None, producers: Producers) -> bool:
        if self._unacked:
            return False
        known = self._others.pop(origin, None)
        if known is None:
            producer = producers.of(origin)
            if producer is None:
                return False
            known = producer, 0
        self._others[self.origin] = self.change_producer(*known)
        self.origin = origin
        return True

    def missing_since(self, now_ms: int) -> int | None:
        """Returns the time of the oldest record that the target may lack, ms; None: it lacks none, or nothing is known.

        A record that is on its way has a timestamp. One that was not read yet came after the target last had
        everything, and after the record before it. While the source is silent, everything since its last answer
        may be missing.
        """
        if self._behind is None or self.gone or self.promoted:
            return None
        if not self._behind:
            silent = self.stopped is not None or now_ms - self.heard_ms > SILENT_MS
            return self.heard_ms if silent and self.heard_ms >= 0 else None
        oldest = self._unacked or self._unsent
        first_ms = oldest[0].first_timestamp if oldest else -1
        since = max(self.even_ms, self.last_ms if first_ms < 0 else first_ms)
        return min(since, now_ms) if since >= 0 else None

    def stable(self, offset: int, now_ms: int) -> None:
        """Notes the source's last stable offset: nothing behind it is read before a transaction ends."""
        if offset != self.last_stable:
            self.last_stable, self.stable_ms = offset, now_ms

    def why_waiting(self, now_ms: int) -> str | None:
        """Returns why nothing is copied although there are records; None: they are, or a limit holds them."""
        why = self.writing.why or self.reading.why
        at_transaction = 0 <= self.last_stable <= self.done < self.high_watermark
        if why or not at_transaction or now_ms - self.stable_ms < SILENT_MS:
            return why
        seconds = (now_ms - self.stable_ms) // 1000
        return f"a transaction at the source is open at offset {self.last_stable} for {seconds} s: what is behind it comes when it ends"

    def heard(self, now_ms: int) -> None:
        """Notes an answer of the source, whose high watermark is known now."""
        self.heard_ms = now_ms
        self._compare()

    def _compare(self) -> None:
        if 0 <= self.high_watermark <= self.done:
            self.even_ms = self.heard_ms

    def begin(self, offset: int) -> None:
        """Sets the offset to fetch from."""
        self.position = self.done = self.begun = offset
        self.segments.begin(offset)
        self.changed()

    def add(self, batches: Sequence[Batch], next_offset: int, epoch: int = -1) -> None:
        """Takes fetched batches. `next_offset` may lie after the last batch, because control records have no batch here.
        `epoch` is the leader epoch of the last record that was fetched.
        """
        if self.promoted:
            return
        self.put(batches)
        self.buffered += sum(len(b.data) for b in batches)
        self.position, self.epoch = next_offset, epoch
        last = self._unsent[-1] if self._unsent else self._unacked[-1] if self._unacked else None
        if last is None:
            self.done, self.done_epoch = next_offset, epoch
            self.changed()
        else:
            last.next_offset, last.epoch = next_offset, epoch

    def acked(self, batch: Batch, base: int, now_ms: int) -> None:
        """Notes that the target has the batch, from its offset `base` on (-1: not told)."""
        batch.base = base
        self.records += batch.count
        self.bytes += len(batch.data)
        if not self.promoted:  # nothing counts as buffered any more
            self.buffered -= len(batch.data)
        self.latency_ms = max(now_ms - batch.max_timestamp, 0)
        self.sensors.acked(batch, now_ms)
        for done in self.delivered(batch):
            self.done, self.done_epoch = done.next_offset, done.epoch
            self.last_ms = done.max_timestamp
            if not self.whole:
                self.copy_end = max(self.copy_end, done.base + done.count)
            self._map(done)
        self.changed()
        self._compare()

    def forget_copy(self) -> None:
        """Takes whatever has the copy's name for the copy."""
        self.copy_start, self.copy_end, self.copy_id = -1, -1, None

    def promote(self) -> None:
        """Ends the copying: the copy is an ordinary topic of the target now."""
        self.promoted, self.stopped = True, None
        self._unsent.clear()
        self.buffered = 0

    def _map(self, batch: Batch) -> None:
        if batch.base < 0:
            self.segments.begin(batch.next_offset)
            return
        downstream = batch.base
        for first, count in batch.runs:
            self.segments.add(Segment(first, downstream, count))
            downstream += count
        self.segments.skip(batch.next_offset)

    def refused(self, batch: Batch, now: float, stop: Stop) -> None:
        """Stops at a batch that the target refused. Nothing is sent from then on."""
        if self.stopped is None or self.stopped.kind not in UNSENT or batch.first < self.stopped.start:
            self.stopped = stop
        self.failed(now, stop.why)

    def move(
        self, offset: int, producer: tuple[int, int], *, remote: str | None = None, copy_end: int | None = None
    ) -> None:  # fmt: skip
        """Goes on at another offset, without what was fetched and not acknowledged. No answer may be due. An offset of -1
        means the end of a copy that keeps offsets, which is asked for. `copy_end` is the end of the copy where it begins anew:
        with the records of another topic, or as another topic.

        `producer` must be a new one for `origin`: the target accepts no later sequence numbers of the one before. A
        transactional producer stays; its next batch gets the number that the target expects.
        """
        sequence = self.next_sequence if self.transactional else 0
        self.give_back()
        self.buffered = 0
        if remote is not None and remote != self.remote:
            self.remote, sequence = remote, 0
            self.forget_copy()
            self._others = {origin: (other, 0) for origin, (other, _) in self._others.items()}
        if offset < 0:
            self.forget_copy()
        self.change_producer(producer, sequence)
        self.begin(offset)
        if copy_end is not None:
            self.segments.begin_anew(offset, copy_end)
        self.epoch = self.done_epoch = self.checked = self.high_watermark = self.last_stable = -1
        self.stopped, self.gone, self.refused_bytes = None, False, 0
        self.reading.succeeded()
        self.writing.succeeded()
