"""Streams groups in simulated time: threads of several processes that join, hang, lose answers and leave, topics that come,
grow and go, settings that change, appends that fail or take time, restarts.

Held after every step: no active task is worked on by two members, no task twice in a process, epochs never go back, and a
restart finds what was live. In the end the group converges.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_sim import GROUP
from support.streams_group_sim import SimThread, StreamsSim, topology

from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.tasks import each
from klamm_kafka.wire.errors import ErrorCode as E

TOPICS = ("t", "u")
STEPS = (
    "beat", "beat", "beat", "beat", "beat", "beat", "lost", "advance", "long", "join", "join", "leave", "hang", "topic", "grow",
    "delete", "standbys", "restart", "fail", "late",
)  # fmt: skip


class World:
    """The coordinator, the threads, and what must hold."""

    def __init__(self) -> None:
        self.sim = StreamsSim()
        self.sim.create_topic("t", 4)
        self.sim.create_topic("u", 3)
        self.threads: list[SimThread] = []
        self.made = 0
        self.epoch = 0

    def step(self, what: str, n: int) -> None:
        getattr(self, what)(n)
        self.check()

    def beat(self, n: int) -> None:
        if self.threads:
            self.threads[n % len(self.threads)].beat()

    def lost(self, n: int) -> None:
        """Loses the answer."""
        if self.threads:
            self.sim.send(**self.threads[n % len(self.threads)].fields())

    def fail(self, n: int) -> None:
        """Lets the append fail, and so whatever was asked for."""
        if self.threads:
            thread = self.threads[n % len(self.threads)]
            self.sim.auto = False
            token = self.sim.send(**thread.fields())
            self.sim.finish_appends(E.KAFKA_STORAGE_ERROR)
            self.sim.auto = True
            thread.take(self.sim.replies[token])  # type: ignore[arg-type]

    def late(self, n: int) -> None:
        """Several heartbeats come while the first one's change is being written."""
        if self.threads:
            self.sim.auto = False
            some = {
                t.name: t
                for t in (self.threads[n % len(self.threads)], self.threads[n // 3 % len(self.threads)])
            }
            tokens = {name: self.sim.send(**t.fields()) for name, t in some.items()}
            self.sim.finish_appends()
            self.sim.auto = True
            for name, token in tokens.items():
                some[name].take(self.sim.replies[token])  # type: ignore[arg-type]

    def advance(self, n: int) -> None:
        self.sim.advance(n * 10)

    def long(self, n: int) -> None:
        self.sim.advance(20_000 + n * 50)

    def join(self, n: int) -> None:
        if len(self.threads) < 5:
            self.made += 1
            self.threads.append(SimThread(self.sim, f"m{self.made}", f"p{n % 3}", topology(*TOPICS)))

    def leave(self, n: int) -> None:
        if self.threads:
            self.threads.pop(n % len(self.threads)).leave()

    def hang(self, n: int) -> None:
        """Lets a thread send heartbeats, but give nothing up any more; or do so again."""
        if self.threads:
            thread = self.threads[n % len(self.threads)]
            thread.slow = not thread.slow

    def topic(self, n: int) -> None:
        name = (*TOPICS, "log")[n % 3]
        if self.sim.topics.by_name(name) is None:
            self.sim.create_topic(name, 1 + n % 5)

    def grow(self, n: int) -> None:
        topic = self.sim.topics.by_name(TOPICS[n % 2])
        if topic is not None and topic.partitions < 9:
            self.sim.create_topic(topic.name, topic.partitions + 1)

    def delete(self, n: int) -> None:
        name = (*TOPICS, "log")[n % 3]
        if self.sim.topics.by_name(name) is not None:
            self.sim.delete_topic(name)

    def standbys(self, n: int) -> None:
        self.sim.settings = self.sim.settings._replace(num_standby_replicas=n % 3)

    def restart(self, _: int) -> None:
        self.sim = self.sim.restarted()
        for thread in self.threads:
            thread.sim = self.sim

    # What must hold

    @property
    def group(self) -> StreamsGroup | None:
        group = self.sim.coordinator.groups.get(GROUP)
        assert group is None or isinstance(group, StreamsGroup)
        return group

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.epoch >= self.epoch
        self.epoch = group.epoch
        owners: dict[object, str] = {}
        at_home: dict[object, str] = {}
        for thread in self.threads:
            if thread.epoch > 0 and thread.name in group.members:
                for task in each(thread.active):
                    assert owners.setdefault(task, thread.name) == thread.name, f"{task} is worked on twice"
                for task in thread.tasks:
                    place = thread.process, task
                    assert at_home.setdefault(place, thread.name) == thread.name, f"{place} is there twice"
        restored = self.sim.restarted().coordinator.groups[GROUP]
        assert isinstance(restored, StreamsGroup)
        for name in ("epoch", "metadata_hash", "validated_topology_epoch", "assignment_configs", "topology", "target_epoch",
                     "target_at_ms", "target", "members", "_active", "_standby", "_topics", "_sources"):  # fmt: skip
            assert getattr(restored, name) == getattr(group, name), name

    def converge(self) -> None:
        """Lets everybody send heartbeats and give up what it has to: the group becomes stable, complete if its topics fit."""
        for thread in self.threads:
            thread.slow = False
        for _ in range(30):
            for thread in self.threads:
                thread.beat()
            self.sim.advance(3_000)
            self.check()
        group = self.group
        if group is None or not self.threads:
            return
        counts = {name: self.sim.topics.by_name(name) for name in (*TOPICS, "log")}
        source = counts["t"]
        fits = None not in (counts["t"], counts["u"]) and (
            counts["log"] is None or counts["log"].partitions == source.partitions  # type: ignore[union-attr]
        )
        assert group.state == ("Stable" if fits else "NotReady")
        held = {task for m in group.members.values() for task in each(m.assigned.active)}
        wanted = {(str(i), p) for i, n in enumerate(TOPICS) if fits for p in range(counts[n].partitions)}  # type: ignore[union-attr]
        assert held == wanted
        for thread in self.threads:
            member = group.members[thread.name]
            assert thread.epoch == group.epoch
            assert set(each(thread.active)) == set(each(group.target_of(thread.name).active))
            assert set(each(thread.standby)) == set(each(group.target_of(thread.name).standby))
            assert not member.revoking


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1_000)), max_size=60))
def test_whatever_happens_no_task_is_worked_on_twice_and_the_group_converges(steps):
    world = World()
    for member in (1, 5):
        world.step("join", member)
        world.step("beat", member)
    for what, n in steps:
        world.step(what, n)
    world.converge()
