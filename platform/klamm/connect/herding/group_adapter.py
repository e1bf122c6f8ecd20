"""The seam between a worker and its group: passes the group's decisions on, and says what the worker needs
of a membership.

`Group` is that need. A worker that is alone (standalone, a mirror's flow) has a `SoleMember` instead of
a membership: it is the leader, has everything assigned, and follows the same rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from klamm.connect.group.listener import ConfigView
from klamm.connect.group.protocol import ExtendedAssignment
from klamm.connect.herding.assignment import Assignment, everything, view
from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import ConfigState
from klamm.connect.topics.kafka_log import LogError
from klamm.connect.topics.storage import RecordLog

log = logging.getLogger(__name__)

FLUSH_S: Final = 5.0  # how long a rebalance waits for statuses that the broker does not take


class Group(Protocol):
    """A membership. `alive`: the broker has heard of this worker within its session timeout."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_url(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def protocol_version(self) -> int: ...
    def owner_url(self, item: str | TaskId) -> str | None: ...
    def has_tasks_of(self, connector: str) -> bool: ...
    async def members(self) -> Mapping[str, str]: ...
    def request_rejoin(self, reason: str) -> None: ...


class Assignee(Protocol):
    """The part of a worker that carries out the group's decisions; `runtime.Runtime` documents each method."""

    generation: int

    async def meet(self) -> None: ...
    def look(self) -> None: ...
    def assign(self, assignment: Assignment, generation: int) -> None: ...
    async def revoke(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None: ...
    async def lose(self) -> None: ...


class GroupAdapter:
    """The group's listener (`group.listener.GroupListener`): passes the group's decisions to the `assignee`."""

    def __init__(
        self,
        assignee: Assignee,
        *,
        configs: ConfigState,
        config_log: RecordLog,
        loads: Callable[[], Mapping[str, float]],
        sync_timeout_s: float,
    ) -> None:
        self.assignee = assignee
        self.configs = configs
        self.loads = loads
        self._config_log = config_log
        self._sync_timeout_s = sync_timeout_s
        self.assigned = asyncio.Event()
        """Set with the first assignment."""

    def snapshot(self) -> ConfigView:
        return ConfigView(offset=self._config_log.consumed, tasks=view(self.configs))

    async def on_revoked(self, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        await self.assignee.revoke(connectors, tasks)

    async def on_assigned(self, assignment: ExtendedAssignment, generation: int, member_id: str) -> None:
        wanted = Assignment(connectors=frozenset(assignment.connectors), tasks=frozenset(assignment.tasks))
        self.assignee.assign(wanted, generation)
        self.assigned.set()

    async def on_lost(self) -> None:
        await self.assignee.lose()

    async def catch_up(self, offset: int) -> bool:
        """Read the config topic to its end; returns whether `offset` was reached.

        Before the worker joins (`offset` is -1) it also stops what must not run any more, because the others
        rely on that once the group has met. Whatever the worker reads later is no part of that meeting: tasks
        whose configs changed wait for the next one.
        """
        try:
            await self._config_log.read_to_end(self._sync_timeout_s)
        except LogError as e:
            log.warning("the config topic cannot be read to its end: %s", e)
        if offset < 0:
            await self.assignee.meet()
        else:
            self.assignee.look()
        return self._config_log.consumed >= offset


class SoleMember:
    """The membership of a worker that is alone. A task of its own makes the assignments, one after the other."""

    def __init__(self, adapter: GroupAdapter) -> None:
        self._adapter = adapter
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.generation = adapter.assignee.generation
        self.is_leader = True
        self.alive = True
        self.leader_url = ""
        self.protocol_version = 2

    def owner_url(self, item: str | TaskId) -> str | None:
        return None

    def has_tasks_of(self, connector: str) -> bool:
        return False  # of its own it knows: see `Runtime.settled`

    async def members(self) -> Mapping[str, str]:
        return {}

    def request_rejoin(self, reason: str) -> None:
        log.debug("assigned anew: %s", reason)
        self._asked.set()

    async def start(self) -> None:
        """Assign everything now, and again whenever the configs change."""
        await self._assign()
        self._task = asyncio.create_task(self._run(), name="sole member")

    async def ended(self) -> None:
        """Wait until the task that makes the assignments ends, which it should never do; raises what ended it."""
        assert self._task is not None, "started"
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._assign()

    async def _assign(self) -> None:
        assignee = self._adapter.assignee
        await assignee.meet()
        # A sole worker's topics may be guarded by a membership with generations of its own.
        self.generation = max(self.generation, assignee.generation)
        assignee.assign(everything(self._adapter.configs), self.generation)
        self._adapter.assigned.set()
