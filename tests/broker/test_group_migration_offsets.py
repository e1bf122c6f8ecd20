"""Offsets, ordinary and within transactions, while a group changes its protocol in either direction and appends take time."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.consumer_group_sim import ClassicMember, ConsumerSim, SimMember
from support.group_sim import GROUP

from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.effects import Append, KeyValue
from klamm_broker.coordinator.model import OffsetToCommit, TopicPartition
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_kafka.wire.errors import ErrorCode as E

PARTITIONS = 3


class LoggedSim(ConsumerSim):
    """Keeps the batches of the log with their producers, and markers, so that a restart sees transactions."""

    def __init__(self, **how) -> None:
        self.batches: list[tuple[int, list[KeyValue] | bool]] = []
        super().__init__(offsets_topic_partitions=1, **how)
        self.create_topic("t", PARTITIONS)

    def _finish(self, append: Append, error: E) -> None:
        if error is E.NONE:
            producer_id = NO_PRODUCER_ID if append.producer is None else append.producer[0]
            self.batches.append((producer_id, list(append.records)))
        super()._finish(append, error)

    def mark(self, producer_id: int, *, committed: bool) -> None:
        self.finish_appends()  # a marker comes behind what it decides on
        self.batches.append((producer_id, committed))
        self.run(self.coordinator.on_marker(0, producer_id, committed=committed, now=self.now))

    def loaded(self) -> ConsumerSim:
        sim = ConsumerSim(topics=self.topics, offsets_topic_partitions=1)
        sim.mono_ms = self.mono_ms
        sim.coordinator.start_loading(0)
        for producer_id, what in self.batches:
            if isinstance(what, bool):
                sim.coordinator.replay_marker(0, producer_id, committed=what)
            else:
                sim.coordinator.replay(0, what, producer_id=producer_id)
        sim.run(sim.coordinator.finish_loading(0, sim.now))
        return sim


class World:
    """A classic member that stays, one of the consumer protocol that comes and goes, and commits of both."""

    def __init__(self) -> None:
        self.sim = LoggedSim()
        self.offset = 0
        self.new: SimMember | None = None
        self.classic = ClassicMember(self.sim, "t")
        self.classic.join()
        self.commits: dict[str, tuple[int, int]] = {}
        self.acknowledged: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}

    def up(self, _: int) -> None:
        """Lets a member of the consumer protocol join."""
        if self.new is None:
            self.new = SimMember(self.sim, f"n{len(self.sim.batches)}", "t")
            self.sim.send(**self.new.fields())

    def down(self, _: int) -> None:
        """Lets the new member leave: a classic member is left, or nobody."""
        if self.new is not None:
            self.sim.send(member_id=self.new.name, member_epoch=-1)
            self.new = None

    def commit(self, n: int) -> None:
        """Commits as any member, or as nobody."""
        self.offset += 1
        group = self.sim.coordinator.groups.get(GROUP)
        members = [] if group is None else list(group.members.values())
        if members:
            member = members[n % len(members)]
            epoch = member.epoch if isinstance(group, ConsumerGroup) else group.generation_id
            how = {"member_id": member.member_id, "generation": epoch}
        else:
            how = {}
        at = n % PARTITIONS
        token = self.sim.commit({("t", at): self.offset}, **how)
        self.commits[token] = at, self.offset

    def transaction(self, n: int) -> None:
        """Commits by one of two producers."""
        self.offset += 1
        at = TopicPartition("t", n % PARTITIONS)
        request = TxnCommitRequest(
            group_id=GROUP, producer_id=n % 2, producer_epoch=0, offsets={at: OffsetToCommit(self.offset)}
        )
        token = self.sim.token("txn")
        self.sim.run(self.sim.coordinator.commit(request, token, self.sim.now))

    def marker(self, n: int) -> None:
        self.sim.mark(n % 2, committed=n % 3 != 0)

    def slow(self, n: int) -> None:
        """Lets appends take their time from now on, or no longer."""
        self.sim.auto = n % 2 == 0
        if self.sim.auto:
            self.sim.finish_appends()

    def finish(self, n: int) -> None:
        """Ends the oldest append."""
        if self.sim.in_flight:
            self.sim.finish_append(0, E.NONE if n % 5 else E.KAFKA_STORAGE_ERROR)

    def wait(self, n: int) -> None:
        self.sim.advance(n * 20)
        self.classic.join()

    def check(self) -> None:
        sim = self.sim
        sim.finish_appends()
        for token in self.commits:
            assert not sim.parked(token), "every commit is answered"
        loaded = sim.loaded()
        pending = sim.coordinator._offsets.in_transactions[0]
        assert loaded.offsets() == sim.offsets(), "what is live is what a restart finds"
        group, restored = sim.coordinator.groups.get(GROUP), loaded.coordinator.groups.get(GROUP)
        if restored is not None and group is not None:
            assert group.pending_offsets == restored.pending_offsets
            assert set(pending.of_group(GROUP)) == set(group.pending_offsets)


STEPS = (
    "up",
    "down",
    "commit",
    "commit",
    "transaction",
    "transaction",
    "marker",
    "slow",
    "finish",
    "finish",
    "wait",
)


@settings(max_examples=80, deadline=None)
@example([("up", 0), ("slow", 1), ("commit", 0), ("transaction", 0), ("down", 0)])
@example([("wait", 1), ("slow", 1), ("commit", 0), ("transaction", 0), ("up", 0), ("commit", 1)])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1_000)), max_size=40))
def test_offsets_stay_whatever_the_group_is(steps):
    world = World()
    for what, n in steps:
        getattr(world, what)(n)
    world.check()
    for producer in range(2):
        world.sim.mark(producer, committed=True)
    world.check()
    assert not world.sim.coordinator.groups or not world.sim.coordinator.groups[GROUP].pending_offsets
