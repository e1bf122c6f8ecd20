"""Who runs what: the decisions of a worker group's leader. Pure, deterministic; time is passed in.

`share_eagerly` deals everything out anew (protocol `default`). `Sharing.share` is incremental cooperative (KIP-415):
what runs stays where it is, what nobody runs is given to whom has least to do, and what has to move for balance is
revoked first and given out in the next round, once its worker has stopped it. Nothing is ever given to a worker
while another one says that it runs it.

What a leader remembers of its last round (`Sharing`): where everything is or is to be, by url, and what each task was
measured to take. So what was revoked for a worker's sake comes to that worker, and a worker that starts again gets back what it
had, after `scheduled.rebalance.max.delay.ms` at the latest: so long what a worker that is gone ran waits for it. A new leader
knows none of this and gives out at once what nobody runs.
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

# With measured loads tasks move only if that takes a tenth off the busiest worker, or gives the idlest a tenth of the mean.
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
        """All that is configured: connectors and how many tasks each has."""
        return cls(
            connectors=frozenset(configured),
            tasks=frozenset(TaskId(name, i) for name, count in configured.items() for i in range(count)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member said when it joined: where it is, what it runs, what its tasks take."""

    url: str
    work: Work = Work()
    loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a member is to do: start what is `new`, stop what is `revoked`. `all` is what it has afterwards."""

    new: Work = Work()
    revoked: Work = Work()
    all: Work = Work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A round's outcome. `delay_ms` > 0: something waits, and the group is to meet again after that."""

    shares: Mapping[str, Share]
    delay_ms: int = 0


def share_eagerly(configured: Mapping[str, int], members: Iterable[str]) -> Plan:
    """Everything in turn, as Kafka's EagerAssignor: all connectors first, then all tasks."""
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

    `owners`: url by item, of what runs, what was promised and what waits. `loads`: as last told. `due_ms`: when the waiting ends;
    None when nothing waits.
    """

    max_delay_ms: int = 0
    owners: Mapping[Item, str] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    due_ms: int | None = None

    def share(
        self, configured: Mapping[str, int], claims: Mapping[str, Claim], now_ms: int
    ) -> tuple[Plan, Sharing]:
        """The plan for these members, and the memory to keep once the group has taken it."""
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
        """What tasks take; of those that nobody runs just now what was told last."""
        told = dict(self.loads)
        for claim in claims.values():
            told.update(claim.loads)
        names = {str(task) for task in wanted.tasks}
        return {name: load for name, load in told.items() if name in names}

    def _wait_for(self, unowned: Work, claims: Mapping[str, Claim], now_ms: int) -> tuple[Work, int | None]:
        """What is kept for workers that are away, and until when."""
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
        """To each what it had, or was promised, and nobody runs now."""
        members = {claims[m].url: m for m in sorted(claims, reverse=True)}
        items: list[Item] = [*sorted(unowned.connectors)]
        items += sorted(unowned.tasks)
        for item in items:
            member = members.get(self.owners.get(item, ""))
            if member is not None:
                loads.give(member, item)


class _Loads:
    """The members' work while a round is made up: starts as they claim it, without what is to be revoked anyway."""

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
        """What two run stays with the one that has less to do."""
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
        """Everything to whom has least, the heaviest tasks first; a connector's tasks apart where that costs nothing."""
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
        """Move connectors until their numbers differ by one at most, and tasks while that makes the busiest less busy."""
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
        """One that has not started yet if there is one."""
        chosen = max(self._connectors[high], key=lambda c: (c not in self._claims[high].work.connectors, c))
        self._connectors[high].discard(chosen)
        self._connectors[low].add(chosen)

    def _move_a_task(self) -> bool:
        """Move one task to the idlest worker from the busiest that has a fitting one: the one that levels them best.

        False when none makes it better (or, with measured loads, when they are level enough).
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
        """The task that leaves the least of the gap; one that has not started yet rather than one that runs."""
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
        """What each is to have once all that moves has moved."""
        return {
            m: Work(connectors=frozenset(self._connectors[m]), tasks=frozenset(self._tasks[m]))
            for m in self._members
        }

    def shares(self) -> dict[str, Share]:
        """What is to move and still runs is only revoked: it is given out once nobody runs it."""
        running = Work()
        for claim in self._claims.values():
            running |= claim.work
        out = {}
        for m, target in self.targets().items():
            had = self._claims[m].work
            new = target - had - running
            out[m] = Share(new=new, revoked=had - target, all=(had & target) | new)
        return out
