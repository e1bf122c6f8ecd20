"""Consumer groups in simulated time: members of both protocols that join, hang, lose answers, change what they subscribe
to and leave, topics that come, grow and go, appends that fail or take time, restarts.

Held after every step: no partition is owned by two members at one time (by what they were told to own and have not said
that they gave up), epochs never go back, and a restart finds what was live. In the end the group converges.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.consumer_group_sim import ClassicMember, ConsumerSim, SimMember
from support.group_sim import GROUP

from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.model import HeartbeatResult, MigrationPolicy
from klamm_kafka.wire.errors import ErrorCode as E

TOPICS = ("t", "u", "v")
STEPS = (
    "beat", "beat", "beat", "beat", "beat", "beat", "lost", "advance", "long", "join", "classic", "leave", "static",
    "subscribe", "hang", "hang", "advance", "topic", "grow", "delete", "restart", "fail", "late",
)  # fmt: skip
CONSUMER = {"migration": MigrationPolicy.UPGRADE}


class World:
    """The coordinator, its members, and what must hold."""

    def __init__(self) -> None:
        self.sim = ConsumerSim(consumer=CONSUMER)
        self.sim.create_topic("t", 4)
        self.members: list[SimMember] = []
        self.classic: list[ClassicMember] = []
        self.made = 0
        self.epoch = 0

    # Steps

    def step(self, what: str, n: int) -> None:
        getattr(self, what)(n)
        self.check()

    def beat(self, n: int) -> None:
        everybody = [*self.members, *(self.classic if self.mixed else ())]
        if everybody:
            everybody[n % len(everybody)].beat()

    def lost(self, n: int) -> None:
        """Loses the answer."""
        if self.members:
            member = self.members[n % len(self.members)]
            self.sim.send(**member.fields())

    def fail(self, n: int) -> None:
        """Lets the append fail, and so whatever was asked for."""
        if self.members:
            member = self.members[n % len(self.members)]
            self.sim.auto = False
            token = self.sim.send(**member.fields())
            self.sim.finish_appends(E.KAFKA_STORAGE_ERROR)
            self.sim.auto = True
            result = self.sim.replies[token]
            assert isinstance(result, HeartbeatResult)
            member.take(result)

    def late(self, n: int) -> None:
        """Several heartbeats come while the first one's change is being written."""
        if self.members:
            self.sim.auto = False
            some = {
                m.name: m
                for m in (self.members[n % len(self.members)], self.members[n // 3 % len(self.members)])
            }
            tokens = {name: self.sim.send(**m.fields()) for name, m in some.items()}
            self.sim.finish_appends()
            self.sim.auto = True
            for name, token in tokens.items():
                some[name].take(self.sim.replies[token])

    def advance(self, n: int) -> None:
        self.sim.advance(n * 10)

    def long(self, n: int) -> None:
        self.sim.advance(20_000 + n * 50)

    def join(self, n: int) -> None:
        if len(self.members) < 5:
            self.made += 1
            topics = [t for i, t in enumerate(TOPICS) if n >> i & 1]
            regex = "[tu]" if n % 7 == 0 else None
            instance = f"i{n % 2}" if n % 3 == 0 else None
            if instance is not None and any(m.instance == instance for m in self.members):
                return
            member = SimMember(self.sim, f"m{self.made}", *topics, regex=regex, instance=instance)
            self.members.append(member)

    def classic_(self, n: int) -> None:
        if len(self.classic) < 2 and self.mixed:
            member = ClassicMember(self.sim, *[t for i, t in enumerate(TOPICS) if n >> i & 1])
            if member.join().error is E.NONE:
                self.classic.append(member)
                member.sync()

    def leave(self, n: int) -> None:
        if self.classic and n % 3 == 0:
            self.sim.leave(self.classic.pop().member_id)
        elif self.members:
            self.members.pop(n % len(self.members)).leave()

    def static(self, n: int) -> None:
        """Restarts a static member: it comes back under another id."""
        found = [m for m in self.members if m.instance is not None and m.epoch > 0]
        if found:
            member = found[n % len(found)]
            member.leave(-2)
            self.made += 1
            member.name = f"m{self.made}"

    def subscribe(self, n: int) -> None:
        if self.members:
            member = self.members[n % len(self.members)]
            member.topics = [t for i, t in enumerate(TOPICS) if n >> i & 1]

    def hang(self, n: int) -> None:
        """Lets a member send heartbeats, but give nothing up any more; or do so again."""
        if self.members:
            member = self.members[n % len(self.members)]
            member.slow = not member.slow

    def topic(self, n: int) -> None:
        name = TOPICS[n % len(TOPICS)]
        if self.sim.topics.by_name(name) is None:
            self.sim.create_topic(name, 1 + n % 5)

    def grow(self, n: int) -> None:
        topic = self.sim.topics.by_name(TOPICS[n % len(TOPICS)])
        if topic is not None and topic.partitions < 12:
            self.sim.create_topic(topic.name, topic.partitions + 1 + n % 3)

    def delete(self, n: int) -> None:
        if self.sim.topics.by_name(TOPICS[n % len(TOPICS)]) is not None:
            self.sim.delete_topic(TOPICS[n % len(TOPICS)])

    def restart(self, _: int) -> None:
        self.sim = self.sim.restarted()
        for member in (*self.members, *self.classic):
            member.sim = self.sim

    # What must hold

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.sim.coordinator.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @property
    def mixed(self) -> bool:
        """Classic members can be in it (without members of the new protocol it would become a classic group)."""
        return self.group is not None and any(m.classic is None for m in self.group.members.values())

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.epoch >= self.epoch
        self.epoch = group.epoch
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.members:
            if member.epoch > 0 and member.name in group.members:
                for at in member.partitions:
                    assert owners.setdefault(at, member.name) == member.name, f"{at} is owned twice"
        for classic in self.classic:
            if classic.generation > 0 and classic.member_id in group.members:
                for at in classic.partitions:
                    assert owners.setdefault(at, classic.member_id) == classic.member_id
        restored = self.sim.restarted().coordinator.groups[GROUP]
        assert isinstance(restored, ConsumerGroup)
        for name in ("epoch", "metadata_hash", "target_epoch", "target_at_ms", "target", "members",
                     "static_members", "regexes", "holders", "topic_counts", "regex_counts"):  # fmt: skip
            assert getattr(restored, name) == getattr(group, name), name

    def converge(self) -> None:
        """Lets everybody send heartbeats and give up what it has to: the group becomes stable and complete."""
        for member in self.members:
            member.slow = False
        for _ in range(40):
            for member in self.members:
                member.beat()
            for classic in self.classic if self.mixed else ():
                classic.beat()
            self.sim.advance(3_000)
            self.check()
        group = self.group
        if group is None or not self.members:
            return
        assert group.state == "Stable"
        names = {t for m in group.members.values() for t in m.topics}
        names |= {t for r in group.regexes.values() for t in r.topics}
        existing = [t for t in map(self.sim.topics.by_name, sorted(names)) if t is not None]
        held = {(t, p) for t, parts in group.holders.items() for p in parts}
        assert held == {(t.id, p) for t in existing for p in range(t.partitions)}
        for member in self.members:
            assert member.epoch == group.epoch
            assert member.owned == {t: set(p) for t, p in group.target.get(member.name, {}).items() if p}


@settings(max_examples=60, deadline=None)
@example([("advance", 100), ("leave", 0), ("classic", 1), ("delete", 0)])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1_000)), max_size=60))
def test_whatever_happens_no_partition_has_two_owners_and_the_group_converges(steps):
    world = World()
    for member, topics in enumerate((1, 5)):
        world.step("join", topics)
        world.step("beat", member)
    for what, n in steps:
        world.step("classic_" if what == "classic" else what, n)
    world.converge()
