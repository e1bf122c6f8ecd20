"""Workers of a group without herders: memberships on a real broker, with listeners that note what runs where."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from klamm.connect.config import WorkerConfig
from klamm.connect.group.listener import ConfigView
from klamm.connect.group.membership import GroupMembership, MakeCluster
from klamm.connect.group.protocol import ExtendedAssignment
from klamm.connect.model import TaskId

Item = str | TaskId


@dataclass
class ConfigTopic:
    """The content of the group's config topic; all workers read it at once unless one is told to lag."""

    tasks: dict[str, int] = field(default_factory=dict)
    offset: int = 0

    def put(self, **tasks: int) -> None:
        self.tasks |= tasks
        self.offset += 1

    def remove(self, name: str) -> None:
        del self.tasks[name]
        self.offset += 1

    @property
    def items(self) -> set[Item]:
        return {*self.tasks, *(TaskId(c, i) for c, n in self.tasks.items() for i in range(n))}


@dataclass
class Arena:
    """The work that runs now, over all workers: running one thing twice is noted in `clashes`."""

    running: Counter[Item] = field(default_factory=Counter)
    clashes: list[str] = field(default_factory=list)
    moves: int = 0

    def start(self, who: str, items: set[Item]) -> None:
        for item in items:
            self.moves += 1
            self.running[item] += 1
            if self.running[item] > 1:
                self.clashes.append(f"{item} at {who}")

    def stop(self, items: set[Item]) -> None:
        for item in items:
            self.running[item] -= 1


class Listener:
    """A worker that only notes. `known` None: it reads the config topic at once; else only by `catch_up`."""

    def __init__(self, name: str, topic: ConfigTopic, arena: Arena) -> None:
        self.name, self.topic, self.arena = name, topic, arena
        self.items: set[Item] = set()
        self.events: list[str] = []
        self.costs: dict[str, float] = {}
        self.known: ConfigView | None = None
        self.readable = True
        self.stopping_takes_s = 0.0
        self.assignment: ExtendedAssignment | None = None

    def snapshot(self) -> ConfigView:
        return self.known or self._all()

    def _all(self) -> ConfigView:
        return ConfigView(offset=self.topic.offset, tasks=dict(self.topic.tasks))

    def loads(self) -> Mapping[str, float]:
        return {str(i): self.costs[str(i)] for i in self.items if str(i) in self.costs}

    async def on_revoked(self, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        self.events.append("revoked")
        gone = {*connectors, *tasks} & self.items
        await asyncio.sleep(self.stopping_takes_s)
        self.items -= gone
        self.arena.stop(gone)

    async def on_assigned(self, assignment: ExtendedAssignment, generation: int, member_id: str) -> None:
        assert len(set(assignment.connectors)) == len(assignment.connectors)
        assert len(set(assignment.tasks)) == len(assignment.tasks)
        assert not assignment.revoked_connectors
        assert not assignment.revoked_tasks
        assert generation > 0
        assert member_id
        self.events.append("assigned")
        self.assignment = assignment
        wanted: set[Item] = {*assignment.connectors, *assignment.tasks}
        self.arena.stop(self.items - wanted)
        self.arena.start(self.name, wanted - self.items)
        self.items = wanted

    async def on_lost(self) -> None:
        self.events.append("lost")
        self.arena.stop(self.items)
        self.items = set()

    async def catch_up(self, offset: int) -> bool:
        if not self.readable:
            return False
        if self.known is not None and offset >= 0:
            self.known = self._all()
        return self.snapshot().offset >= offset


@dataclass
class Member:
    listener: Listener
    membership: GroupMembership

    @property
    def items(self) -> set[Item]:
        return self.listener.items

    @property
    def tasks(self) -> set[TaskId]:
        return {i for i in self.items if isinstance(i, TaskId)}


class Group:
    """Workers of one group on the broker at `bootstrap`."""

    def __init__(self, bootstrap: str, name: str, **properties: str) -> None:
        self.bootstrap, self.name, self.properties = bootstrap, name, properties
        self.topic = ConfigTopic()
        self.arena = Arena()
        self.members: dict[str, Member] = {}

    def make(
        self,
        name: str,
        *,
        instance_id: str | None = None,
        make_cluster: MakeCluster | None = None,
        **properties: str,
    ) -> Member:
        """Properties with `_` for `.`."""
        given = {name.replace("_", "."): v for name, v in (self.properties | properties).items()}
        config = WorkerConfig.from_properties(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "key.converter": "StringConverter",
                "value.converter": "StringConverter",
                "config.storage.topic": "c",
                "offset.storage.topic": "o",
                "status.storage.topic": "s",
                "session.timeout.ms": "30000",  # a busy machine lets nobody lose it by chance
                "heartbeat.interval.ms": "100",
                "rebalance.timeout.ms": "10000",
                **given,
            }
        )
        listener = Listener(name, self.topic, self.arena)
        membership = GroupMembership(
            config,
            url=f"http://{name}:8083",
            listener=listener,
            instance_id=instance_id,
            make_cluster=make_cluster,
        )
        self.members[name] = Member(listener, membership)
        return self.members[name]

    async def start(self, *names: str, **properties: str) -> list[Member]:
        made = [self.make(name, **properties) for name in names]
        await asyncio.gather(*(m.membership.start() for m in made))
        return made

    async def leave(self, name: str) -> None:
        await self.members.pop(name).membership.leave("the test is over")

    async def crash(self, name: str) -> Member:
        """Ends as by kill -9: no word to anybody, its tasks die with it."""
        member = self.members.pop(name)
        membership = member.membership
        for task in (membership._runner, membership._keeper):
            assert task is not None
            task.cancel()
        await asyncio.gather(membership._runner, membership._keeper, return_exceptions=True)
        await membership._requests.close()
        await membership._pulse.close()
        await member.listener.on_lost()
        return member

    async def change(self, **tasks: int) -> None:
        """Connectors and their number of tasks; a negative number removes one. Every worker sees it."""
        for name, count in tasks.items():
            if count < 0:
                self.topic.remove(name)
            else:
                self.topic.put(**{name: count})
        for member in self.members.values():
            member.membership.request_rejoin("the configuration has changed")

    def settled(self) -> bool:
        """Returns whether everything configured runs once, nothing else does, and nobody is about to join again."""
        once = {item for item, n in self.arena.running.items() if n == 1}
        return once == self.topic.items == {i for i, n in self.arena.running.items() if n} and all(
            not m.membership.rebalancing and m.membership._rejoin is None for m in self.members.values()
        )

    async def until(self, condition: Callable[[], bool] | None = None, timeout_s: float = 60) -> None:
        """Waits until the condition holds, by default `settled`."""
        wanted = condition or self.settled
        try:
            async with asyncio.timeout(timeout_s):
                while not wanted():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            told = {n: (sorted(map(str, m.items)), m.listener.events[-5:]) for n, m in self.members.items()}
            raise AssertionError(f"not in {timeout_s} s; {told}, wanted {self.topic.items}") from None


@asynccontextmanager
async def worker_group(bootstrap: str, name: str, **properties: str) -> AsyncIterator[Group]:
    group = Group(bootstrap, name, **properties)
    try:
        yield group
    finally:
        await asyncio.gather(*(m.membership.leave("the test is over") for m in group.members.values()))
