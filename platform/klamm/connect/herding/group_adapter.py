"""A worker's place among the workers of its group: what the group asks of it, and what it may do.

`Group` is what the worker needs of a membership. A worker that is alone (standalone, a mirror's flow) has a
`SoleMember`: the leader, with everything assigned, and the same rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from klamm.connect.group.listener import ConfigView
from klamm.connect.group.protocol import ExtendedAssignment
from klamm.connect.herding.assignment import Assignment, everything, view
from klamm.connect.model import TaskId
from klamm.connect.topics.kafka_log import LogError

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime

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


class Place:
    """The group's listener (`group.listener.GroupListener`): what the group decides, the runtime does."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.assigned = asyncio.Event()
        """Set with the first assignment."""

    def snapshot(self) -> ConfigView:
        return ConfigView(offset=self._runtime.config_log.consumed, tasks=view(self._runtime.configs))

    def loads(self) -> Mapping[str, float]:
        return self._runtime.loads.measure()

    async def on_revoked(self, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        await self._runtime.revoke(connectors, tasks)

    async def on_assigned(self, assignment: ExtendedAssignment, generation: int, member_id: str) -> None:
        wanted = Assignment(connectors=frozenset(assignment.connectors), tasks=frozenset(assignment.tasks))
        self._runtime.assign(wanted, generation)
        self.assigned.set()

    async def on_lost(self) -> None:
        await self._runtime.lose()

    async def catch_up(self, offset: int) -> bool:
        """Read on. Before it joins (-1) the worker has stopped what must not run any more: others rely on that once the
        group has met. What it reads later is no part of that meeting: whose task configs have changed waits for the next.
        """
        runtime = self._runtime
        try:
            await runtime.config_log.read_to_end(runtime.config["worker.sync.timeout.ms"] / 1000)
        except LogError as e:
            log.warning("the config topic cannot be read to its end: %s", e)
        if offset < 0:
            await runtime.meet()
        else:
            runtime.herder.look(runtime.configs)
        return runtime.config_log.consumed >= offset


class SoleMember:
    """The only worker there is. `run` brings the assignments, one after the other."""

    def __init__(self, place: Place, runtime: Runtime) -> None:
        self._place = place
        self._runtime = runtime
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.generation = runtime.generation
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
        """Assign everything, now and whenever there is something else."""
        await self._assign()
        self._task = asyncio.create_task(self._run(), name="sole member")

    async def ended(self) -> None:
        """Wait for what should not be: assignments that come no more. Raises what ended them."""
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
        await self._runtime.meet()
        # The membership that guards a sole worker's topics may have generations of its own.
        self.generation = max(self.generation, self._runtime.generation)
        self._runtime.assign(everything(self._runtime.configs), self.generation)
        self._place.assigned.set()
