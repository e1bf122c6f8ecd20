"""A share partition: which records are in flight, and how its start moves on as they are acknowledged.

Records before `start` are done for good, those after `end` were never delivered. In between each record is in a batch of
`batches`, or in a gap: after a restart for records that nobody has reported on since (`gap` is the part that is left to be
looked through), else because the log has no record at that offset.

Time is passed in. A change by a reader (`acknowledge`, `release`) is a `Transition`: its batches are written, then it is
completed with the outcome. Expired locks are given back at once, whatever becomes of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from klamm_broker.coordinator.share.delivery import ACCEPT, GAP, REJECT, RELEASE, RENEW, Ack, AckRefused
from klamm_broker.coordinator.share.in_flight import Batch, Batches, Pending, Run, Transition
from klamm_broker.coordinator.share.model import DeliverySettings, State, StateBatch
from klamm_kafka.wire.errors import ErrorCode

_RESULT: Final = {
    GAP: State.ARCHIVED,
    ACCEPT: State.ACKNOWLEDGED,
    RELEASE: State.AVAILABLE,
    REJECT: State.ARCHIVED,
}
_STATE: Final = ErrorCode.INVALID_RECORD_STATE
_BUSY: Final = "The record state is invalid. The acknowledgement of delivery could not be completed."


@dataclass(slots=True)
class Gap:
    """The offsets that are left to be looked through after a restart: from `start`, while `end` is the last one delivered."""

    start: int
    end: int


class SharePartition:
    """A share partition. See the module's docstring. `settings` are asked for each time, as they may change."""

    def __init__(self, settings: Callable[[], DeliverySettings]) -> None:
        self.settings = settings
        self.start = 0
        self.end = 0
        self.batches = Batches()
        self.complete_count = 0
        """Records from `start` on that are done."""
        self.maybe_available = False
        """There may be a record before `end` that can be delivered."""
        self._gap: Gap | None = None
        self._locks: list[tuple[int, int, int]] = []

    # Loading

    def restore(self, start: int, stored: Sequence[StateBatch], *, log_end: int) -> None:
        """Take in what was stored. Records behind the log's end are forgotten: a crash has lost them, others will follow."""
        self.start = self.end = min(start, log_end)
        before = self.start - 1
        has_gap = False
        for batch in stored:
            first, last = max(batch.first, self.start), min(batch.last, log_end - 1)
            if first > last:
                continue
            has_gap |= first > before + 1
            before = last
            run = Run(first, last, State.stored(batch.state), batch.deliveries)
            self.batches.add(Batch(run))
            self.complete_count += run.overlap(first, last) if run.is_terminal else 0
        if len(self.batches):
            self.maybe_available = True
            self.end = self.batches.last
            self._gap = Gap(self.start, self.end) if has_gap else None
            self.advance()

    # Places

    @property
    def gap(self) -> Gap | None:
        """The gap that is left to be looked through, as long as nothing behind it was delivered."""
        return self._gap if self._gap is not None and self._gap.end == self.end else None

    def gap_seen(self, up_to: int) -> None:
        """Note that the gap was looked through before `up_to`."""
        if self._gap is not None:
            if self._gap.end == self.end and up_to <= self._gap.end:
                self._gap.start = up_to
            else:
                self._gap = None

    @property
    def in_flight(self) -> int:
        return self.end - self.start + 1 if len(self.batches) else 0

    @property
    def behind_end(self) -> int:
        """The first offset that was never delivered."""
        empty = not len(self.batches) or self.start > self.batches.last
        return self.end if empty else self.end + 1

    def next_fetch_offset(self) -> int:
        """Returns where to read next: the first record that can be delivered again, else the first new one."""
        if not self.maybe_available:
            return self.behind_end
        if self.behind_end > self.end:
            offset = self._first_available()
            if offset is not None:
                return offset
        self.maybe_available = False
        return self.behind_end

    def _first_available(self) -> int | None:
        gap = self.gap
        seen = -1 if gap is None else gap.start
        for batch in self.batches:
            if gap is not None:
                if batch.first > seen:
                    return seen
                seen = max(batch.last + 1, seen)
            for run in batch.runs:
                if run.is_free:
                    return run.first
        return None

    def can_acquire(self) -> bool:
        return self.next_fetch_offset() != self.end + 1 or self.in_flight < self.settings().max_locks

    # Acknowledgements

    def acknowledge(self, member_id: str, acks: Sequence[Ack], now_ms: int) -> Transition:
        """Begin what these acknowledgements say. Raises AckRefused, and then nothing has changed."""
        transition = Transition()
        try:
            for ack in acks:
                if any(not GAP <= type_ <= RENEW for type_ in ack.types):
                    text = f"Invalid acknowledge type: {list(ack.types)}"
                    raise AckRefused(ErrorCode.INVALID_REQUEST, text)
                if ack.last >= self.start:
                    for batch in self._acknowledged(ack):
                        if batch.last >= self.start:
                            self._acknowledge(batch, member_id, ack, transition, now_ms)
        except AckRefused:
            self.complete(transition, ok=False, now_ms=now_ms)
            raise
        return transition

    def _acknowledged(self, ack: Ack) -> list[Batch]:
        floor = self.batches.floor(ack.first)
        if floor is None and ack.first < self.start <= ack.last:
            floor = self.batches.floor(self.start)
        if floor is None:
            why = "Batch record not found. The request batch offsets are not found in the cache."
            raise AckRefused(_STATE, why)
        found = self.batches.beginning_in(floor.first, ack.last)
        for offset, which in ((ack.first, "first"), (ack.last, "last")):
            if found[-1].last < offset:
                why = f"Batch record not found. The {which} offset in request is past acquired records."
                raise AckRefused(ErrorCode.INVALID_REQUEST, why)
        return found

    def _acknowledge(
        self, batch: Batch, member_id: str, ack: Ack, transition: Transition, now_ms: int
    ) -> None:
        if not batch.tracked:
            self._check_owner(batch.runs[0], member_id)
            if batch.within(ack.first, ack.last) and len(ack.types) == 1 and not batch.holds(self.start):
                if batch.runs[0].state is not State.ACQUIRED:
                    why = "The batch cannot be acknowledged. The batch is not in the acquired state."
                    raise AckRefused(_STATE, why)
                self._report(batch.runs[0], ack.types[0], transition, now_ms)
                return
            if batch.runs[0].state is not State.ACQUIRED:
                why = "The batch cannot be acknowledged. The subset batch is not in the acquired state."
                raise AckRefused(_STATE, why)
        first, last = max(ack.first, self.start, batch.first), min(ack.last, batch.last)
        for begin, end, type_ in ack.pieces(first, last):
            for run in batch.cut(begin, end):
                if run.state is not State.ACQUIRED:
                    why = "The offset cannot be acknowledged. The offset is not acquired."
                    raise AckRefused(_STATE, why)
                if run.pending is not None:
                    raise AckRefused(_STATE, _BUSY)
                if run.member_id != member_id:
                    raise AckRefused(_STATE, "Member is not the owner of offset")
                self._report(run, type_, transition, now_ms)

    def _check_owner(self, run: Run, member_id: str) -> None:
        if not run.member_id:
            why = "The batch cannot be acknowledged. The batch is not in the acquired state."
            raise AckRefused(_STATE, why)
        if run.member_id != member_id:
            raise AckRefused(_STATE, "Member is not the owner of batch record")
        if run.pending is not None:
            raise AckRefused(_STATE, _BUSY)

    def _report(self, run: Run, type_: int, transition: Transition, now_ms: int) -> None:
        if type_ != RENEW:
            self._begin(run, _RESULT[type_], transition)
            return
        if not self.settings().renew_enabled:
            raise AckRefused(_STATE, "Renewing acquisition locks is not enabled for the group.")
        run.deadline_ms = self.lock(run.first, run.last, now_ms)

    def _begin(self, run: Run, state: State, transition: Transition) -> None:
        """Begin to bring an acquired run into a state; it stays the member's if the write fails."""
        run.pending = Pending(transition, run.state, run.member_id)
        run.state = run.released(self.settings().delivery_limit) if state is State.AVAILABLE else state
        run.member_id = ""
        transition.changes.append(StateBatch(run.first, run.last, run.state, run.count))
        if run.is_terminal:
            self.complete_count += run.overlap(self.start, run.last)

    def release(self, member_id: str) -> Transition:
        """Begin to give back all records of a member that leaves."""
        transition = Transition()
        for batch in self.batches:
            held = [r for r in batch.runs if r.state is State.ACQUIRED and r.member_id == member_id]
            for run in self._parted_at_start(batch, held):
                self._begin(run, State.ARCHIVED if run.last < self.start else State.AVAILABLE, transition)
        return transition

    def _parted_at_start(self, batch: Batch, runs: list[Run]) -> Iterable[Run]:
        """Yields these runs, cut where the partition begins now: what is before it is over."""
        for run in runs:
            if run.first < self.start <= run.last:
                yield from batch.cut(run.first, self.start - 1)
                yield from batch.cut(self.start, run.last)
            else:
                yield run

    def complete(self, transition: Transition, *, ok: bool, now_ms: int) -> bool:
        """End a transition with the outcome of its write. Returns whether the start has moved."""
        limit = self.settings().delivery_limit
        for change in transition.changes:
            for batch in self.batches.from_floor(change.first, change.last):
                for run in batch.runs_in(change.first, change.last):
                    pending = run.pending
                    if pending is None or pending.transition is not transition:
                        continue
                    run.pending = None
                    if ok:
                        run.deadline_ms = 0
                    else:
                        self._roll_back(run, pending, limit, now_ms)
                    self.maybe_available |= run.state is State.AVAILABLE
                batch.join()
        return self.advance() if ok and transition.changes else False

    def _roll_back(self, run: Run, pending: Pending, limit: int, now_ms: int) -> None:
        was_terminal = run.is_terminal
        if run.deadline_ms <= now_ms:  # the lock has ended meanwhile
            run.state, run.deadline_ms = run.released(limit), 0
        else:
            run.state, run.member_id = pending.state, pending.member_id
            heappush(self._locks, (run.deadline_ms, run.first, run.last))
        if was_terminal and not run.is_terminal:
            self.complete_count -= run.overlap(self.start, run.last)

    # Locks

    def lock(self, first: int, last: int, now_ms: int) -> int:
        """Let the lock of these records begin. Returns when it ends."""
        deadline_ms = now_ms + self.settings().lock_ms
        heappush(self._locks, (deadline_ms, first, last))
        return deadline_ms

    def next_deadline_ms(self) -> int | None:
        """Returns when the next lock ends; None when nothing is locked."""
        while self._locks:
            deadline_ms, first, last = self._locks[0]
            if any(True for _ in self._locked(first, last, deadline_ms)):
                return deadline_ms
            heappop(self._locks)
        return None

    def _locked(self, first: int, last: int, up_to_ms: int) -> Iterable[tuple[Batch, Run]]:
        """Yields the acquired runs among these records whose locks end no later than that."""
        for batch in self.batches.from_floor(first, last):
            for run in batch.runs_in(first, last):
                if run.state is State.ACQUIRED and run.deadline_ms <= up_to_ms:
                    yield batch, run

    def expire(self, now_ms: int) -> list[StateBatch]:
        """Give back the records whose locks have ended. Returns what must be written; then `advance` may be due."""
        limit = self.settings().delivery_limit
        changes = []
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heappop(self._locks)
            for batch, held in list(self._locked(first, last, now_ms)):
                for run in self._parted_at_start(batch, [held]):
                    run.state = State.ARCHIVED if run.last < self.start else run.released(limit)
                    run.member_id, run.deadline_ms = "", 0
                    changes.append(StateBatch(run.first, run.last, run.state, run.count))
                    if run.is_terminal:
                        self.complete_count += run.overlap(self.start, run.last)
                    else:
                        self.maybe_available = True
                batch.join()
        return changes

    # The start

    def advance(self) -> bool:
        """Move the start past the records that are done. Returns whether it has moved."""
        if not len(self.batches):
            return False
        if self.gap is not None and self.batches.floor(self.start) is None:
            return False  # the gap at the beginning may hold records
        last, done = self._last_done()
        if last is None:
            return False
        if last == self.batches.last:
            self.start = self.end = max(self.start, last + 1)
            self.batches.clear()
            self.complete_count = 0
            return True
        batch = self.batches.floor(last)
        assert batch is not None
        if last == batch.last:
            following = self.batches.after(last).first
            self.start = max(self.start, following)
            if self.gap is not None:
                self.start = min(self.gap.start, self.start)
            self.batches.drop_before(following)
        else:
            self.start = max(self.start, last + 1)
            self.batches.drop_before(batch.first)
        self.complete_count -= done
        return True

    def _last_done(self) -> tuple[int | None, int]:
        """Returns the last offset up to which everything is done, and how many of these are from the start on."""
        last, done = None, 0
        gap = self.gap
        for batch in self.batches:
            if gap is not None and batch.last >= gap.start:
                break
            for run in batch.runs:
                if run.pending is not None or not run.is_terminal:
                    return last, done
                last = run.last
                done += run.overlap(self.start, run.last)
        return last, done

    def move_start(self, log_start: int) -> bool:
        """Follow the log, which begins at `log_start` now. Returns whether that is news."""
        if log_start <= self.start:
            return False
        if not len(self.batches):
            self.start = self.end = log_start
            self.complete_count = 0
            return True
        gone = sum(
            run.overlap(self.start, log_start - 1)
            for batch in self.batches
            for run in batch.runs
            if run.is_terminal
        )
        self.archive(self.start, log_start - 1, State.AVAILABLE)
        self.start = log_start
        self.complete_count -= gone
        self.end = max(self.end, self.start)
        self.advance()
        return True

    def archive(self, first: int, last: int, state: State) -> int:
        """Archive the records from `first` to `last` that are in this state. Returns how many of them count as done now."""
        count = 0
        for batch in self.batches.from_floor(first, last):
            runs = batch.runs
            if not batch.within(first, last):
                if not any(run.state is state for run in batch.runs_in(first, last)):
                    continue
                runs = batch.cut(first, last)
            for run in runs:
                if run.state is state:
                    run.archive()
                    count += run.overlap(self.start, run.last)
                    self.maybe_available = True
            batch.join()
        return count
