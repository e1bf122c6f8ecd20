"""The group coordinator in simulated time: members that join, sync, commit, crash, restart and leave, replies that
are lost, appends that wait and fail, restarts of the broker; random, from a seed.

Invariants, checked after every step and at the end:

1. every request is answered exactly once (`Sim.run` asserts "at most"; the end asserts "at least");
2. all members that hold an assignment of the latest generation agree on protocol and leader, and no two
   generations are handed out at once;
3. nobody waits longer than the rebalance timeout and the session that can hold it up;
4. committed offsets are exactly what the log says, in order: they change only by a commit or a deletion;
5. a coordinator that loads the log is in the state of the live one, as far as that is durable.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from support.group_sim import GROUP, Sim

from klamm_broker.coordinator import records
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.model import JoinResult, LeavingMember, Protocol, SyncResult
from klamm_kafka.wire.errors import ErrorCode as E

SESSIONS_MS, REBALANCE_MS, DELAY_MS = (10_000, 30_000), 20_000, 3_000
"""Some sessions outlast a rebalance: then a rebalance ends without a member that is still one."""
PATIENCE_MS = 2 * REBALANCE_MS + 300_000
"""A parked JoinGroup waits for the join phase; a new member's is sent away after five minutes at the latest."""
APPEND_ERRORS = (E.KAFKA_STORAGE_ERROR, E.NOT_ENOUGH_REPLICAS, E.MESSAGE_TOO_LARGE)
PROTOCOLS = (Protocol("x", b"1"), Protocol("y", b"2"), Protocol("z", b"3"))


class Client:
    """A consumer as clients are: one request at a time, what it does next follows from the last answer."""

    def __init__(self, world: World, name: str, *, static: bool, needs_id: bool) -> None:
        self.world, self.name = world, name
        self.instance = name if static else None
        self.needs_id = needs_id
        self.session_ms = world.rng.choice(SESSIONS_MS)
        self.forget()

    def forget(self) -> None:
        self.member_id, self.generation, self.leader, self.protocol = "", -1, "", None
        self.members: list[str] = []
        self.waiting: str | None = None
        self.assigned: bytes | None = None
        self.joined: JoinResult | None = None
        self.gone = False

    def step(self) -> None:
        sim, rng = self.world.sim, self.world.rng
        if self.waiting is not None:
            if sim.parked(self.waiting):
                return self.impatient() if rng.random() < 0.03 else None
            token, self.waiting = self.waiting, None
            if rng.random() < 0.05:
                return self.rejoin()  # the answer was lost with its connection
            answer = sim.result(token)
            return self.on_join(answer) if isinstance(answer, JoinResult) else self.on_sync(answer)
        if self.joined is not None:
            return self.sync()
        if self.assigned is None or rng.random() < 0.03:
            return self.rejoin()
        return self.work()

    def impatient(self) -> None:
        """Gives up on a connection and asks again; the answer to the first request goes nowhere."""
        if self.waiting.startswith("join"):
            self.rejoin()
        else:
            self.joined = self.last_joined
            self.sync()

    def rejoin(self) -> None:
        rng = self.world.rng
        self.assigned, self.joined = None, None
        protocols = tuple(rng.sample(PROTOCOLS, 3)) if rng.random() < 0.1 else PROTOCOLS
        self.waiting = self.world.ask(
            "join",
            self.world.sim.join(
                self.member_id,
                instance=self.instance,
                protocols=protocols,
                session_ms=self.session_ms,
                rebalance_ms=REBALANCE_MS,
                needs_id=self.needs_id,
            ),
        )

    def on_join(self, answer: JoinResult) -> None:
        match answer.error:
            case E.NONE:
                assert answer.member_id
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.leader, self.protocol = answer.leader, answer.protocol_name
                self.members = [m.member_id for m in answer.members]
                assert (answer.leader == answer.member_id) == bool(answer.members)
                self.joined = self.last_joined = answer
            case E.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case E.UNKNOWN_MEMBER_ID | E.FENCED_INSTANCE_ID:
                self.forget()
            case _:
                self.world.tolerated(answer.error)

    def sync(self) -> None:
        joined, self.joined = self.joined, None
        leads = joined.leader == self.member_id and not joined.skip_assignment
        # A leader that asks again may assign otherwise.
        salt = self.world.rng.randrange(9)
        assignments = {m: f"{self.generation}:{m}:{salt}".encode() for m in self.members} if leads else {}
        token = self.world.sim.sync(self.member_id, self.generation, assignments, instance=self.instance)
        self.waiting = self.world.ask("sync", token)

    def on_sync(self, answer: SyncResult) -> None:
        match answer.error:
            case E.NONE:
                self.assigned = answer.assignment
                self.world.handed_out(self, answer)
            case E.UNKNOWN_MEMBER_ID | E.FENCED_INSTANCE_ID:
                self.forget()
            case E.REBALANCE_IN_PROGRESS | E.ILLEGAL_GENERATION:
                self.assigned = None
            case _:
                self.world.tolerated(answer.error)

    def work(self) -> None:
        sim, rng = self.world.sim, self.world.rng
        if rng.random() < 0.3:
            self.world.commit(member_id=self.member_id, generation=self.generation, instance=self.instance)
        match sim.heartbeat(self.member_id, self.generation, instance=self.instance):
            case E.NONE | E.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            case E.REBALANCE_IN_PROGRESS | E.ILLEGAL_GENERATION:
                self.assigned = None
            case E.UNKNOWN_MEMBER_ID | E.FENCED_INSTANCE_ID:
                self.forget()
            case other:
                raise AssertionError(other)

    def leave(self) -> None:
        if self.member_id:
            self.world.sim.leave(LeavingMember(self.member_id, self.instance))
        self.forget()


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sim = Sim(auto=False, initial_rebalance_delay_ms=DELAY_MS)
        self.asked: dict[str, int] = {}
        self.commits = Counter()
        self.failures = True
        self.clients = [
            Client(self, f"c{i}", static=i % 3 == 0, needs_id=i % 2 == 0)
            for i in range(self.rng.randint(1, 6))
        ]

    def ask(self, what: str, token: str) -> str:
        self.asked[token] = self.sim.mono_ms
        return token

    def commit(self, **how) -> None:
        offset = self.rng.randrange(1000)
        at = ("t", self.rng.randrange(3))
        self.ask("commit", self.sim.commit({at: offset}, **how))

    def tolerated(self, error: E) -> None:
        assert error in {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.UNKNOWN_SERVER_ERROR,
                         E.COORDINATOR_LOAD_IN_PROGRESS, E.REBALANCE_IN_PROGRESS}, error  # fmt: skip

    def handed_out(self, client: Client, answer: SyncResult) -> None:
        """Checks that a member's assignment is of the one live generation, and its own."""
        group = self.sim.coordinator.groups.get(GROUP)
        if group is None:
            return  # deleted since this answer was given
        if group.generation_id == client.generation and client.member_id in group.members:
            assert group.protocol_name == client.protocol == answer.protocol_name
            durable = group.members[client.member_id].assignment
            assert answer.assignment == durable or group.state is not GroupState.STABLE

    def step(self) -> None:
        rng = self.rng
        roll = rng.random()
        client = rng.choice(self.clients)
        if roll < 0.62:
            client.step()
        elif roll < 0.80:
            self.sim.advance(rng.choice((1, 50, 500, 3_000)))
        elif roll < 0.94:
            if self.sim.in_flight:
                error = rng.choice(APPEND_ERRORS) if self.failures and rng.random() < 0.1 else E.NONE
                self.sim.finish_append(rng.choice(list(self.sim.in_flight)), error)
        elif roll < 0.95:
            client.forget()  # a crash: it never says good-bye, and comes back as somebody new
        elif roll < 0.96:
            client.leave()
        elif roll < 0.97:
            self.sim.advance(rng.choice((*SESSIONS_MS, REBALANCE_MS)))
        elif roll < 0.98:
            self.commit()
        elif roll < 0.985:
            self.ask("delete", self.sim.delete())
        elif roll < 0.99:
            self.ask("delete-offsets", self.sim.delete_offsets(("t", 0), ("t", 1)))
        elif roll < 0.993:
            self.restart()
        elif not self.sim.in_flight:
            self.check_loaded()
        self.check()

    def restart(self) -> None:
        """kill -9: what was not durable is gone, what was parked is answered by a closed connection."""
        self.check_loaded()
        answered = dict(self.sim.replies)
        restarted = self.sim.restarted(initial_rebalance_delay_ms=DELAY_MS)
        restarted._tokens = self.sim._tokens
        self.sim = restarted
        self.sim.auto = False
        self.sim.replies = answered
        self.sim.coordinator._membership._new_uuid = lambda: f"r{self.rng.getrandbits(60):x}"
        for token in list(self.asked):
            if token not in answered:
                del self.asked[token]
        for client in self.clients:
            if client.waiting is not None and client.waiting not in answered:
                client.waiting, client.joined, client.assigned = None, None, None

    # Invariants

    def check(self) -> None:
        group = self.sim.coordinator.groups.get(GROUP)
        for token, since in list(self.asked.items()):
            if token in self.sim.replies:
                del self.asked[token]
            elif not token.startswith(("commit", "delete")) and not self.sim.in_flight:
                assert self.sim.mono_ms - since <= PATIENCE_MS, f"{token} waits since {since}"
        if group is None:
            return
        tokens = [t for m in group.members.values() for t in (m.join_token, m.sync_token) if t is not None]
        assert len(tokens) == len(set(tokens))
        assert not [t for t in tokens if t in self.sim.replies], "parked and answered"
        assert group.num_awaiting_join == sum(m.join_token is not None for m in group.members.values())
        assert group.static_members == {m.group_instance_id: id_ for id_, m in group.members.items()
                                        if m.group_instance_id is not None}  # fmt: skip
        assert (group.leader_id in group.members) if group.members else (group.state is not GroupState.STABLE)
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state is GroupState.STABLE:
            assert not any(m.sync_token for m in group.members.values())
            current = [c for c in self.clients if c.assigned is not None and c.generation == group.generation_id
                       and c.member_id in group.members]  # fmt: skip
            assert len({c.protocol for c in current}) <= 1
            for c in current:
                assert c.protocol == group.protocol_name
        timers = self.sim.coordinator._timers
        for id_, member in group.members.items():
            held = member.join_token is not None or member.sync_token is not None
            assert held or ("session", GROUP, id_) in timers, f"nothing watches {id_}"
        if group.state is GroupState.PREPARING_REBALANCE:
            assert ("join", GROUP) in timers

    def logged_offsets(self) -> dict:
        offsets = {}
        for log in self.sim.log.values():
            for key, value in log:
                record = records.decode(key, value)
                if isinstance(record, records.OffsetRecord):
                    offsets[tuple(record.topic_partition)] = record.value
        return {at: o.offset for at, o in offsets.items() if o is not None}

    def check_loaded(self) -> None:
        """Checks that a restart would find what is live and durable."""
        loaded = self.sim.restarted()
        live_group = self.sim.coordinator.groups.get(GROUP)
        live = {} if live_group is None else {tuple(at): o.offset for at, o in live_group.offsets.items()}
        assert live == self.logged_offsets() == loaded.offsets()
        if live_group is None or live_group.state is not GroupState.STABLE or self.sim.in_flight:
            return
        other = loaded.coordinator.groups[GROUP]
        for field in (
            "state",
            "generation_id",
            "protocol_name",
            "protocol_type",
            "leader_id",
            "static_members",
        ):
            assert getattr(other, field) == getattr(live_group, field), field
        assert {m.member_id: m.assignment for m in other.members.values()} == {
            m.member_id: m.assignment for m in live_group.members.values()
        }

    def calm_down(self) -> None:
        """Lets nothing fail any more: all clients get their assignment, within the time-outs."""
        self.failures = False
        for client in self.clients:
            client.world = self
        for _ in range(400):
            self.sim.finish_appends()
            for client in self.clients:
                client.step()
                self.check()
            self.sim.finish_appends()
            self.sim.advance(1_000)
            group = self.sim.coordinator.groups.get(GROUP)
            if (
                group is not None
                and group.state is GroupState.STABLE
                and len(group.members) == len(self.clients)
                and all(
                    c.assigned == group.members[c.member_id].assignment
                    for c in self.clients
                    if c.member_id in group.members
                )
                and all(
                    (c.assigned or b"").startswith(f"{c.generation}:{c.member_id}:".encode())
                    for c in self.clients
                )
                and len({c.generation for c in self.clients}) == 1
            ):
                break
        else:
            raise AssertionError(f"the group does not settle: {self.sim.state()}")
        self.sim.finish_appends()
        for token in self.asked:
            assert token in self.sim.replies, f"{token} was never answered"
        self.check_loaded()


@pytest.mark.parametrize("seed", range(120))
def test_simulation(seed):
    world = World(seed)
    for _ in range(600):
        world.step()
    world.calm_down()
