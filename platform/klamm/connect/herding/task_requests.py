"""What exactly-once tasks ask of their worker while they start (KIP-618): fence what came before, and may I still start?

A task asks to fence before it makes its transactional producer, which ends what its predecessor had open, and
asks afterwards whether its configuration is still the newest one and still this worker's. So whoever starts last is
the one that the configuration names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from klamm.connect.errors import RequestError
from klamm.connect.herding.fencing import ZombieFencing
from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import TargetState

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime

Answer = Callable[[dict[str, Any]], Awaitable[Any]]


class TaskRequests:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._zombies = ZombieFencing(runtime)

    @property
    def answers(self) -> Mapping[str, Answer]:
        """By the name of the request, for the supervisor."""
        return {
            "fence_zombies": self._fence,
            "verify_task": self._verify,
            "write_offsets": self._write_offsets,
        }

    async def fence(self, name: str, *, locked: bool = False) -> None:
        """Return when no former task of a source connector can write any more. Raises RequestError, LogError.

        `locked`: the caller has the runtime's `config_lock`.
        """
        await self._zombies.fence(name, locked=locked)

    async def _fence(self, params: dict[str, Any]) -> None:
        await self._runtime.cluster.fence(params["connector"])

    async def _write_offsets(self, params: dict[str, Any]) -> None:
        """A standalone worker's tasks leave their offsets to it."""
        topic, producer = self._runtime.offset_log.topic, self._runtime.producer
        records: list[tuple[str, str | None]] = params["records"]
        await asyncio.gather(
            *(producer.send(topic, key, None if value is None else value.encode()) for key, value in records)
        )

    async def _verify(self, params: dict[str, Any]) -> None:
        task = TaskId(params["connector"], params["task"])
        await self._runtime.config_log.read_to_end()
        configs = self._runtime.configs
        if configs.generation(task.connector) != params["generation"]:
            raise RequestError(
                f"Cannot start source task {task} with exactly-once support as the connector has already generated a "
                "new set of task configs"
            )
        gone = task.connector not in configs or configs.target(task.connector) is TargetState.STOPPED
        if gone or task not in self._runtime.herder.assigned.tasks:
            raise RequestError(
                f"Cannot start source task {task} as it has already been revoked from this worker"
            )
