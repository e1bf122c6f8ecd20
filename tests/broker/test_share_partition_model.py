"""A share partition against a record-by-record model: random readers, acknowledgements, lost writes, locks, restarts, cuts.

Invariants: a record that is done is never delivered again; none is lost (at the end everything is delivered until it is
done); delivery counts are exact, and never beyond the limit; a lock ends, and nobody else has the record before; what is
stored is enough for a restart.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm_broker.coordinator.share.acquiring import acquire
from klamm_broker.coordinator.share.combining import combined
from klamm_broker.coordinator.share.delivery import Ack, AckRefused, Ask, Span
from klamm_broker.coordinator.share.model import TERMINAL, DeliverySettings, State
from klamm_broker.coordinator.share.share_partition import SharePartition

LOCK_MS = 1_000
MEMBERS = ("a", "b")
DONE = {0: State.ARCHIVED, 1: State.ACKNOWLEDGED, 3: State.ARCHIVED}


class Model(RuleBasedStateMachine):
    """The partition beside what is known of each offset."""

    @initialize(limit=st.integers(2, 5), locks=st.integers(5, 40), start=st.integers(0, 20))
    def begin(self, limit, locks, start):
        self.limit, self.now = limit, 0
        self.delivery = DeliverySettings(lock_ms=LOCK_MS, delivery_limit=limit, max_locks=locks)
        self.spans: list[Span] = []
        self.log_start = self.log_end = start
        self.stored_start, self.stored = start, []
        self.partition = self.loaded()
        self.owner: dict[int, tuple[str, int]] = {}  # offset: member and end of the lock
        self.count: dict[int, int] = {}
        self.kept_count: dict[int, int] = {}  # as it is stored
        self.done: set[int] = set()
        self.kept_done: set[int] = set()
        self.writing = None

    def loaded(self):
        partition = SharePartition(lambda: self.delivery)
        partition.restore(self.stored_start, self.stored, log_end=self.log_end)
        return partition

    def write(self, changes):
        self.stored_start = self.partition.start
        self.stored = combined(self.stored, changes, self.stored_start)
        for change in changes:
            for offset in range(change.first, change.last + 1):
                self.kept_count[offset] = change.deliveries
                if change.state in TERMINAL:
                    self.kept_done.add(offset)

    # The log

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), hole=st.integers(0, 3))
    def append(self, sizes, hole):
        self.log_end += hole if self.spans else 0  # offsets that compaction has taken away
        for size in sizes:
            self.spans.append(Span(self.log_end, self.log_end + size - 1, size, -1, False, False))
            self.log_end += size

    @precondition(lambda self: self.spans)
    @rule(data=st.data())
    def delete_records(self, data):
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.spans = [s for s in self.spans if s.last >= self.log_start]

    def existing(self):
        return {o for s in self.spans for o in range(max(s.first, self.log_start), s.last + 1)}

    # Readers

    @rule(
        member=st.sampled_from(MEMBERS), most=st.integers(1, 20), size=st.integers(1, 8), strict=st.booleans(),
        batches=st.integers(1, 4),
    )  # fmt: skip
    def fetch(self, member, most, size, strict, batches):
        partition = self.partition
        if partition.next_fetch_offset() < self.log_start:
            partition.move_start(self.log_start)
        if not partition.can_acquire():
            assert partition.in_flight >= self.delivery.max_locks
            return
        offset = partition.next_fetch_offset()
        spans = [s for s in self.spans if s.last >= offset][:batches]
        before_end = partition.end
        got = acquire(partition, Ask(member, most, size, strict), offset, spans, self.now)
        offsets = [o for item in got for o in range(item.first, item.last + 1)]
        assert offsets == sorted(set(offsets))
        if strict:
            assert len(offsets) <= most
        for item in got:
            for o in range(item.first, item.last + 1):
                assert o >= self.log_start
                assert o not in self.done, "a record that is done is delivered again"
                assert o not in self.owner, "somebody has this record"
                self.count[o] = self.count.get(o, 0) + 1
                assert item.deliveries == self.count[o] <= self.limit
                self.owner[o] = (member, self.now + LOCK_MS)
        assert partition.end >= before_end

    @precondition(lambda self: self.owner and self.writing is None)
    @rule(data=st.data(), fails=st.booleans(), waits=st.booleans())
    def acknowledge(self, data, fails, waits):
        member = data.draw(st.sampled_from(sorted({m for m, _ in self.owner.values()})))
        held = sorted(o for o, (m, _) in self.owner.items() if m == member)
        first = data.draw(st.sampled_from(held))
        last = first
        while last + 1 in held and data.draw(st.booleans()):
            last += 1
        one = data.draw(st.booleans())
        types = data.draw(
            st.lists(
                st.integers(0, 4),
                min_size=1 if one else last - first + 1,
                max_size=1 if one else last - first + 1,
            )
        )
        transition = self.partition.acknowledge(member, [Ack(first, last, types)], self.now)
        moved = {}
        for index, offset in enumerate(range(first, last + 1)):
            if offset < self.partition.start:
                continue
            type_ = types[0] if len(types) == 1 else types[index]
            if type_ == 4:
                self.owner[offset] = (member, self.now + LOCK_MS)
            else:
                moved[offset] = type_
        self.writing = (transition, moved, fails)
        if not waits:
            self.outcome()

    @precondition(lambda self: self.writing is not None)
    @rule()
    def outcome(self):
        transition, moved, fails = self.writing
        self.writing = None
        if not fails:
            self.write(transition.changes)
        self.partition.complete(transition, ok=not fails, now_ms=self.now)
        for offset, type_ in moved.items():
            if fails:
                if offset in self.owner and self.owner[offset][1] <= self.now:
                    self.give_back(offset)
                continue
            self.owner.pop(offset, None)
            if type_ in DONE or self.count[offset] >= self.limit:
                self.done.add(offset)

    @precondition(lambda self: self.writing is None)
    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member):
        transition = self.partition.release(member)
        self.write(transition.changes)
        self.partition.complete(transition, ok=True, now_ms=self.now)
        for offset in [o for o, (m, _) in self.owner.items() if m == member]:
            self.give_back(offset)

    def give_back(self, offset):
        del self.owner[offset]
        if self.count[offset] >= self.limit or offset < self.partition.start:
            self.done.add(offset)

    @rule(member=st.sampled_from(MEMBERS), first=st.integers(0, 60), size=st.integers(0, 5))
    def acknowledge_what_it_has_not(self, member, first, size):
        wanted = [o for o in range(first, first + size + 1) if o >= self.partition.start]
        if all(self.owner.get(o, ("",))[0] == member for o in wanted):
            return
        before = {o: self.owner.get(o) for o in wanted}
        try:
            self.partition.acknowledge(member, [Ack(first, first + size, [1])], self.now)
        except AckRefused:
            assert {o: self.owner.get(o) for o in wanted} == before
        else:
            raise AssertionError("it was taken")

    # Time

    @rule(ms=st.integers(0, 700))
    def wait(self, ms):
        self.now += ms
        deadline = self.partition.next_deadline_ms()
        waiting = set() if self.writing is None else set(self.writing[1])
        ends = [d for o, (_, d) in self.owner.items() if o not in waiting]
        assert deadline is None or not ends or deadline <= min(ends)
        assert deadline is not None or not ends
        self.write(self.partition.expire(self.now))
        for offset in [o for o, (_, d) in self.owner.items() if d <= self.now and o not in waiting]:
            self.give_back(offset)
        self.partition.advance()

    @rule()
    def restart(self):
        self.writing = None
        self.partition = self.loaded()
        self.owner.clear()
        self.count = dict(self.kept_count)
        self.done = set(self.kept_done)

    @invariant()
    def counts_are_right(self):
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        terminal = sum(
            run.overlap(partition.start, run.last)
            for batch in partition.batches
            for run in batch.runs
            if run.is_terminal
        )
        assert partition.complete_count == terminal
        last = -1
        for batch in partition.batches:
            assert batch.first > last
            assert [batch.runs[0].first, batch.runs[-1].last] == [batch.first, batch.last]
            for left, right in pairwise(batch.runs):
                assert left.last + 1 == right.first
            assert batch.tracked or len(batch.runs) == 1
            last = batch.last
        assert all(o in self.done for o in self.existing() if o < partition.start), "a record is lost"

    def teardown(self):
        """Let one reader accept everything that is left: each record comes."""
        if not hasattr(self, "partition"):
            return
        if self.writing is not None:
            self.outcome()
        self.now += LOCK_MS
        self.wait(0)
        for _ in range(400):
            if self.partition.next_fetch_offset() >= self.log_end:
                break
            self.fetch("z", 5, 3, strict=False, batches=2)
            held = sorted(self.owner)
            if not held:
                continue
            transition = self.partition.acknowledge("z", [Ack(o, o, [1]) for o in held], self.now)
            self.write(transition.changes)
            self.partition.complete(transition, ok=True, now_ms=self.now)
            self.done |= set(held)
            self.owner.clear()
        left = self.existing() - self.done
        shown = [(r.first, r.last, r.state.name, r.count) for b in self.partition.batches for r in b.runs]
        where = f"{self.partition.start} to {self.partition.end}, {self.partition.gap}, {shown}"
        assert not left, f"never delivered: {sorted(left)} of {self.spans}; {where}"


TestSharePartition = Model.TestCase
TestSharePartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
