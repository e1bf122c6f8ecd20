"""Gives records of a share partition to a reader: those that came back first, then new ones.

In the batch-optimized mode records leave in whole batches of the log, as far as the limits allow; with a record limit a
batch is divided. A record that failed often leaves in ever smaller company, and alone at its last attempt, so that one
bad record does not use up the attempts of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm_broker.coordinator.share.delivery import (
    Acquired,
    Ask,
    Span,
    aborted_spans,
    merged,
    without,
)
from klamm_broker.coordinator.share.in_flight import Batch, Run
from klamm_broker.coordinator.share.model import State
from klamm_broker.coordinator.share.share_partition import SharePartition

_LEAST_THROTTLED: Final = 2
"""No record is throttled before so many deliveries, and with so few as a limit none is delivered alone."""


def acquire(
    partition: SharePartition,
    ask: Ask,
    fetch_offset: int,
    spans: Sequence[Span],
    now_ms: int,
    *,
    aborted: Sequence[tuple[int, int]] = (),
) -> list[Acquired]:
    """Acquire records of the batches that were read at `fetch_offset`. `aborted` are transactions whose records are left out.

    Returns the acquired records in order.
    """
    if not spans or ask.max_records <= 0 or spans[-1].last < partition.start:
        return []
    limit, last = _limits(partition, ask, fetch_offset, spans[-1].last)
    if limit <= 0:
        return []
    acquired = _Acquisition(partition, ask, spans, limit=limit, last=last, now_ms=now_ms).run(fetch_offset)
    dead = aborted_spans(spans, aborted) if acquired and aborted else ()
    if not dead:
        return acquired
    for span in dead:
        partition.complete_count += partition.archive(span.first, span.last, State.ACQUIRED)
    partition.advance()
    return without(acquired, dead)


def _limits(partition: SharePartition, ask: Ask, fetch_offset: int, last: int) -> tuple[int, int]:
    """Returns the most records, and the last offset. Among records in flight a reader may get some at any time."""
    room = min(ask.max_records, partition.settings().max_locks - partition.in_flight)
    if room <= 0 and fetch_offset <= partition.end:
        return min(ask.max_records, partition.end - fetch_offset + 1), min(last, partition.end)
    return room, last


class _Acquisition:
    """One acquisition of at most `limit` records up to `last`."""

    def __init__(
        self,
        partition: SharePartition,
        ask: Ask,
        spans: Sequence[Span],
        *,
        limit: int,
        last: int,
        now_ms: int,
    ) -> None:
        self._partition = partition
        self._ask = ask
        self._spans = spans
        self._limit = limit
        self._last = last
        self._now_ms = now_ms
        most = partition.settings().delivery_limit
        self._most_deliveries = most
        self._throttled_from = max(_LEAST_THROTTLED, -(-most // 2))
        self._count = 0
        self._acquired: list[Acquired] = []

    @property
    def _left(self) -> int:
        return self._limit - self._count

    def run(self, fetch_offset: int) -> list[Acquired]:
        partition, read_from = self._partition, self._spans[0].first
        if fetch_offset < read_from and len(partition.batches):
            # The log has no such records any more.
            partition.complete_count += partition.archive(fetch_offset, read_from - 1, State.AVAILABLE)
        base = read_from
        floor = partition.batches.floor(base)
        if floor is not None and floor.last >= base:
            base = floor.first
        found = partition.batches.beginning_in(min(read_from, base), self._last)
        if not found:
            self._take_new(base, self._last)
            return self._acquired
        if self._take_again(found, base) and self._left > 0 and found[-1].last < self._last:
            self._take_new(found[-1].last + 1, self._last)
        seen = self._acquired[-1].last if self._acquired else self._last
        partition.gap_seen(seen + 1)
        return self._acquired

    # Records in flight

    def _take_again(self, found: Sequence[Batch], base: int) -> bool:
        """Take records of batches in flight, and new ones of gaps between them. Returns whether more may be taken."""
        read_from, gap_from = self._spans[0].first, base
        for batch in found:
            if self._left <= 0:
                break
            if self._partition.gap is not None:
                if gap_from < batch.first:
                    self._take_new(gap_from, batch.first - 1)
                gap_from = batch.last + 1
                if self._left <= 0:
                    break
            throttled = self._is_throttled(batch, read_from)
            if throttled and self._count > 0:
                return False
            too_large = self._ask.record_limit and batch.last - batch.first + 1 > self._left
            if batch.within(read_from, self._last) and not batch.tracked and not too_large and not throttled:
                if batch.runs[0].is_free:
                    self._take(batch.runs[0])
                continue
            if not batch.tracked and not batch.runs[0].is_free:
                continue
            batch.tracked = True
            before = self._count
            self._take_some(batch, read_from)
            if throttled and self._count > before:
                return False
        return True

    def _is_throttled(self, batch: Batch, first: int) -> bool:
        runs = batch.runs_in(first, self._last) if batch.tracked else batch.runs
        return any(run.is_free and run.count >= self._throttled_from for run in runs)

    def _take_some(self, batch: Batch, first: int) -> None:
        """Take free records of a batch one by one, until a limit is reached."""
        most, taken, acquired = self._most_deliveries, 0, []
        limit, throttle = self._left if self._ask.record_limit else None, None
        for run in batch.cut(first, self._last):
            if not run.is_free:
                continue
            alone = most > _LEAST_THROTTLED and run.count == most - 1
            if alone and taken:
                break
            if run.count >= self._throttled_from and throttle is None:
                size = batch.last - batch.first + 1
                throttle = max(1, size >> (run.count - self._throttled_from + 1))
            room = [n - taken for n in (limit, throttle) if n is not None and n > taken]
            take = min([1] if alone else room, default=run.last - run.first + 1)
            for part in batch.cut(run.first, min(run.last, run.first + take - 1)):
                self._lock(part)
                taken += part.last - part.first + 1
                acquired.append(Acquired(part.first, part.last, part.count))
            if alone or taken in (limit, throttle):
                break
        batch.join()
        self._acquired += merged(acquired)
        self._count += taken

    def _take(self, run: Run) -> None:
        self._lock(run)
        self._acquired.append(Acquired(run.first, run.last, run.count))
        self._count += run.last - run.first + 1

    def _lock(self, run: Run) -> None:
        run.acquire(self._ask.member_id, self._partition.lock(run.first, run.last, self._now_ms))

    # New records

    def _take_new(self, first: int, last: int) -> None:
        """Take records from `first` to `last` that are not in flight, as many as may be taken."""
        partition, limit = self._partition, self._left
        first = max(first, partition.start if len(partition.batches) else partition.end)
        taken_to = last
        if limit < last - first + 1:
            taken_to = self._end_of_batch(first + limit - 1)
            if partition.gap is not None:
                taken_to = min(taken_to, last)
        made = self._divided(first, taken_to)
        for item in made:
            partition.batches.add(self._made(item, limit))
        if next(iter(partition.batches)).first == first:
            partition.start = first
        partition.end = max(partition.end, taken_to)
        if self._ask.record_limit and taken_to - first + 1 > limit:
            taken_to = first + limit - 1
            made = [Acquired(first, taken_to, 1)]
        partition.gap_seen(taken_to + 1)
        self._acquired += made
        self._count += taken_to - first + 1

    def _made(self, item: Acquired, limit: int) -> Batch:
        """Returns a batch of new records; with a record limit its rest waits for the next reader."""
        batch = Batch(Run(item.first, item.last, State.AVAILABLE, 0))
        if self._ask.record_limit and item.records > limit:
            self._lock(batch.cut(item.first, item.first + limit - 1)[0])
            self._partition.maybe_available = True
        else:
            self._lock(batch.runs[0])
        return batch

    def _divided(self, first: int, last: int) -> list[Acquired]:
        """Divides new records at the borders of the log's batches, into parts of about the size that the reader likes."""
        made, begin = [], first
        if not self._ask.record_limit and last - first + 1 > self._ask.batch_size:
            for span in self._spans:
                if span.first > last:
                    break
                if span.first - begin >= self._ask.batch_size and span.first > begin:
                    made.append(Acquired(begin, span.first - 1, 1))
                    begin = span.first
        made.append(Acquired(begin, last, 1))
        return made

    def _end_of_batch(self, offset: int) -> int:
        """Returns the end of the log's batch that has this offset; the offset itself if none has it."""
        for span in self._spans:
            if span.first <= offset <= span.last:
                return span.last
        return offset
