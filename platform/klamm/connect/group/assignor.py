"""Shares out the work of a worker group: the decisions of its leader. Pure, deterministic; time is passed in.

`share_eagerly` assigns everything anew (protocol `default`). `Sharing.share` is incremental cooperative
(KIP-415): running work stays where it is; work that nobody runs goes to the workers that have least to do;
work that must move for balance is revoked first and assigned in the next round, once its worker has stopped
it. The leader never assigns work that another worker says it still runs.

A leader remembers its last round (`Sharing`): the worker of each connector and task, by url, and the measured
load of each task. So revoked work reaches the worker that it was revoked for, and a worker that restarts gets
its work back. Work of an absent worker waits for it for at most `scheduled.rebalance.max.delay.ms`. A new
leader knows none of this and assigns at once what nobody runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from klamm.connect.group.weights import IDLE, Weights
from klamm.connect.model import TaskId

Item: TypeAlias = str | TaskId
"""A connector's name, or a task."""

# With measured loads tasks move only if the busiest worker loses a tenth of its load, or the idlest gains a
# tenth of the mean.
HYSTERESIS: Final = 0.1
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __or__(self, other: Work) -> Work:
        return Work(connectors=self.connectors | other.connectors, tasks=self.tasks | other.tasks)

    def __and__(self, other: Work) -> Work:
        return Work(connectors=self.connectors & other.connectors, tasks=self.tasks & other.tasks)

    def __sub__(self, other: Work) -> Work:
        return Work(connectors=self.connectors - other.connectors, tasks=self.tasks - other.tasks)

    @classmethod
    def of(cls, configured: Mapping[str, int]) -> Work:
        """Returns all that is configured: each connector and its number of tasks."""
        return cls(
            connectors=frozenset(configured),
            tasks=frozenset(TaskId(name, i) for name, count in configured.items() for i in range(count)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A member's claim as it joins: its url, the work it runs, and its tasks' loads."""

    url: str
    work: Work = Work()
    loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A member's share: it starts `new` and stops `revoked`; `all` is what it has afterwards."""

    new: Work = Work()
    revoked: Work = Work()
    all: Work = Work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A round's outcome. `delay_ms` > 0: some work waits, and the group must rebalance again after that time."""

    shares: Mapping[str, Share]
    delay_ms: int = 0


def share_eagerly(configured: Mapping[str, int], members: Iterable[str]) -> Plan:
    """Assigns everything in turn, as Kafka's EagerAssignor: all connectors first, then all tasks."""
    names = sorted(members)
    connectors: dict[str, set[str]] = {m: set() for m in names}
    tasks: dict[str, set[TaskId]] = {m: set() for m in names}
    work = Work.of(configured)
    ordered = sorted(work.connectors)
    for i, connector in enumerate(ordered):
        connectors[names[i % len(names)]].add(connector)
    for i, task in enumerate(sorted(work.tasks), start=len(ordered)):
        tasks[names[i % len(names)]].add(task)
    shares = {}
    for m in names:
        mine = Work(connectors=frozenset(connectors[m]), tasks=frozenset(tasks[m]))
        shares[m] = Share(new=mine, all=mine)
    return Plan(shares=shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The cooperative assignor with a leader's memory.

    `owners` gives the url for each item that runs, was promised or waits; `loads` are the last reported ones.
    `due_ms` is when the waiting ends; None when nothing waits.
    """

    max_delay_ms: int = 0
    owners: Mapping[Item, str] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    due_ms: int | None = None

    def share(
        self, configured: Mapping[str, int], claims: Mapping[str, Claim], now_ms: int
    ) -> tuple[Plan, Sharing]:
        """Returns the plan for these members, and the memory to keep once the group has taken it."""
        wanted = Work.of(configured)
        told = self._loads(wanted, claims)
        loads = _Loads(claims, wanted, told)
        unowned = wanted - loads.everything()
        waiting, due_ms = self._wait_for(unowned, claims, now_ms)
        self._give_back(loads, unowned, claims)
        loads.place(wanted - loads.everything() - waiting)
        if due_ms is None:
            loads.balance()
        plan = Plan(shares=loads.shares(), delay_ms=0 if due_ms is None else max(1, due_ms - now_ms))
        owners: dict[Item, str] = {c: self.owners[c] for c in waiting.connectors}
        owners |= {t: self.owners[t] for t in waiting.tasks}
        for member, work in loads.targets().items():
            owners |= dict.fromkeys(work.connectors, claims[member].url)
            owners |= dict.fromkeys(work.tasks, claims[member].url)
        memory = Sharing(max_delay_ms=self.max_delay_ms, owners=owners, loads=told, due_ms=due_ms)
        return plan, memory

    def _loads(self, wanted: Work, claims: Mapping[str, Claim]) -> dict[str, float]:
        """Returns the tasks' loads: as the members report them, and the last known ones of tasks that nobody
        runs now.
        """
        told = dict(self.loads)
        for claim in claims.values():
            told.update(claim.loads)
        names = {str(task) for task in wanted.tasks}
        return {name: load for name, load in told.items() if name in names}

    def _wait_for(self, unowned: Work, claims: Mapping[str, Claim], now_ms: int) -> tuple[Work, int | None]:
        """Returns the work that is kept for absent workers, and until when."""
        if self.max_delay_ms == 0:
            return Work(), None
        here = {"", *(claim.url for claim in claims.values())}
        away = Work(
            connectors=frozenset(c for c in unowned.connectors if self.owners.get(c, "") not in here),
            tasks=frozenset(t for t in unowned.tasks if self.owners.get(t, "") not in here),
        )
        if not away:
            return Work(), None
        due_ms = now_ms + self.max_delay_ms if self.due_ms is None else self.due_ms
        return (away, due_ms) if due_ms > now_ms else (Work(), None)

    def _give_back(self, loads: _Loads, unowned: Work, claims: Mapping[str, Claim]) -> None:
        """Gives each member back what it had, or was promised, and nobody runs now."""
        members = {claims[m].url: m for m in sorted(claims, reverse=True)}
        items: list[Item] = [*sorted(unowned.connectors)]
        items += sorted(unowned.tasks)
        for item in items:
            member = members.get(self.owners.get(item, ""))
            if member is not None:
                loads.give(member, item)


class _Loads:
    """The members' work while a round is computed: first their claims, without work that is no longer configured."""

    def __init__(self, claims: Mapping[str, Claim], wanted: Work, told: Mapping[str, float]) -> None:
        self._claims = claims
        self._members = sorted(claims)
        self._weights = Weights(wanted.tasks, told)
        self._connectors: dict[str, set[str]] = {m: set() for m in claims}
        self._tasks: dict[str, set[TaskId]] = {m: set() for m in claims}
        self._load = dict.fromkeys(claims, 0.0)
        for m in self._members:
            for connector in claims[m].work.connectors & wanted.connectors:
                self._connectors[m].add(connector)
            for task in claims[m].work.tasks & wanted.tasks:
                self._add(m, task)
        self._keep_one_of_each()

    def _add(self, member: str, task: TaskId) -> None:
        self._tasks[member].add(task)
        self._load[member] += self._weights[task]

    def _drop(self, member: str, task: TaskId) -> None:
        self._tasks[member].discard(task)
        self._load[member] -= self._weights[task]

    def _keep_one_of_each(self) -> None:
        """Leaves work that two members run with the one that has less to do."""
        times = Counter(t for tasks in self._tasks.values() for t in tasks)
        for task in sorted(t for t, n in times.items() if n > 1):
            having = [m for m in self._members if task in self._tasks[m]]
            for m in sorted(having, key=self._task_rank)[1:]:
                self._drop(m, task)
        counts = Counter(c for connectors in self._connectors.values() for c in connectors)
        for connector in sorted(c for c, n in counts.items() if n > 1):
            owners = [m for m in self._members if connector in self._connectors[m]]
            for m in sorted(owners, key=self._connector_rank)[1:]:
                self._connectors[m].discard(connector)

    def everything(self) -> Work:
        return Work(
            connectors=frozenset().union(*self._connectors.values()),
            tasks=frozenset().union(*self._tasks.values()),
        )

    def give(self, member: str, item: Item) -> None:
        if isinstance(item, TaskId):
            self._add(member, item)
        else:
            self._connectors[member].add(item)

    def place(self, work: Work) -> None:
        """Gives all of it to the members with the least work, the heaviest tasks first.

        A connector's tasks go to different members where that costs nothing.
        """
        for connector in sorted(work.connectors):
            self.give(min(self._members, key=self._connector_rank), connector)
        siblings = {m: Counter(t.connector for t in tasks) for m, tasks in self._tasks.items()}
        for task in sorted(work.tasks, key=lambda t: (-self._weights[t], t)):
            ranks = [(*self._task_rank(m)[:2], siblings[m][task.connector], m) for m in self._members]
            member = min(ranks)[3]
            siblings[member][task.connector] += 1
            self._add(member, task)

    def _connector_rank(self, member: str) -> tuple[int, float, str]:
        return len(self._connectors[member]), round(self._load[member], 9), member

    def _task_rank(self, member: str) -> tuple[float, int, str]:
        return round(self._load[member], 9), len(self._tasks[member]), member

    def balance(self) -> None:
        """Levels the members.

        Connectors move until their numbers differ by at most one, tasks while that relieves the busiest
        member.
        """
        while True:
            low = min(self._members, key=self._connector_rank)
            high = max(self._members, key=self._connector_rank)
            if len(self._connectors[high]) - len(self._connectors[low]) < 2:
                break
            self._move_connector(high, low)
        before = {m: set(tasks) for m, tasks in self._tasks.items()}
        loads = dict(self._load)
        while self._move_a_task():
            pass
        if self._weights.measured and not self._worth_it(loads):
            self._tasks, self._load = before, loads

    def _move_connector(self, high: str, low: str) -> None:
        """Moves a connector, if possible one that has not started yet."""
        chosen = max(self._connectors[high], key=lambda c: (c not in self._claims[high].work.connectors, c))
        self._connectors[high].discard(chosen)
        self._connectors[low].add(chosen)

    def _move_a_task(self) -> bool:
        """Moves one task to the idlest member from the busiest that has a fitting task: the task that levels
        them best.

        Returns False when no move helps (or, with measured loads, when they are level enough).
        """
        ranked = sorted(self._members, key=self._task_rank)
        low = ranked[0]
        enough = HYSTERESIS * sum(self._load.values()) / len(ranked) if self._weights.measured else 0.0
        for high in reversed(ranked):
            gap = self._load[high] - self._load[low]
            if gap <= enough + _SAME:
                return False
            task = self._fitting(high, gap)
            if task is not None:
                self._drop(high, task)
                self._add(low, task)
                return True
        return False

    def _fitting(self, member: str, gap: float) -> TaskId | None:
        """Returns the task whose move best closes the gap; of equals, one that has not started yet."""
        running, weights = self._claims[member].work.tasks, self._weights
        ranks = [
            (round(abs(gap / 2 - weights[t]), 9), t in running, t)
            for t in self._tasks[member]
            if weights[t] < gap - _SAME
        ]
        return min(ranks)[2] if ranks else None

    def _worth_it(self, before: Mapping[str, float]) -> bool:
        mean = sum(before.values()) / len(before)
        relieved = max(before.values()) - max(self._load.values())
        used = min(self._load.values()) - min(before.values())
        return relieved > HYSTERESIS * max(before.values()) or used > max(HYSTERESIS * mean, IDLE / 2)

    def targets(self) -> dict[str, Work]:
        """Returns the members' work after all moves."""
        return {
            m: Work(connectors=frozenset(self._connectors[m]), tasks=frozenset(self._tasks[m]))
            for m in self._members
        }

    def shares(self) -> dict[str, Share]:
        """Returns the members' shares. Work that must move and still runs is only revoked; a later round
        assigns it.
        """
        running = Work()
        for claim in self._claims.values():
            running |= claim.work
        out = {}
        for m, target in self.targets().items():
            had = self._claims[m].work
            new = target - had - running
            out[m] = Share(new=new, revoked=had - target, all=(had & target) | new)
        return out
