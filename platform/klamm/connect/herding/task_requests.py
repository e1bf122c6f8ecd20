"""Answers exactly-once tasks that start (KIP-618): fences their predecessors, and says whether they may
still start.

A task asks to fence before it makes its transactional producer, which aborts what its predecessor had
open. Afterwards the task asks whether its configuration is still the newest and still assigned to this
worker. So the task that starts last is the one that the configuration names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from klamm.connect.children.interface import Answer
from klamm.connect.errors import RequestError
from klamm.connect.herding.assignment import Assignment
from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import ConfigState, TargetState
from klamm.connect.topics.kafka_log import NotInTime
from klamm.connect.topics.storage import RecordLog, RecordWriter


class TaskRequests:
    """See the module. `fence` has the group's leader fence; `assigned` returns what this worker runs."""

    def __init__(
        self,
        *,
        configs: ConfigState,
        config_log: RecordLog,
        offset_log: RecordLog,
        producer: RecordWriter,
        fence: Callable[[str], Awaitable[None]],
        assigned: Callable[[], Assignment],
    ) -> None:
        self._configs = configs
        self._config_log = config_log
        self._offset_log = offset_log
        self._producer = producer
        self._fence_by_leader = fence
        self._assigned = assigned

    @property
    def answers(self) -> Mapping[str, Answer]:
        """The answers by name of the request, for the supervisor."""
        return {
            "fence_zombies": self._fence,
            "verify_task": self._verify,
            "write_offsets": self._write_offsets,
        }

    async def _fence(self, params: dict[str, Any]) -> None:
        await self._fence_by_leader(params["connector"])

    async def _write_offsets(self, params: dict[str, Any]) -> bool:
        """Write the offsets of a task that leaves them to its worker. Returns False when the broker did not take them in
        time.

        Only the task repeats that: one that has ended meanwhile must not move its successor back.
        """
        topic, producer = self._offset_log.topic, self._producer
        records: list[tuple[str, str | None]] = params["records"]
        try:
            await asyncio.gather(
                *(
                    producer.send(topic, key, None if value is None else value.encode())
                    for key, value in records
                )
            )
        except NotInTime:
            return False
        return True

    async def _verify(self, params: dict[str, Any]) -> None:
        task = TaskId(params["connector"], params["task"])
        await self._config_log.read_to_end()
        configs = self._configs
        if configs.generation(task.connector) != params["generation"]:
            raise RequestError(
                f"Cannot start source task {task} with exactly-once support as the connector has already generated a "
                "new set of task configs"
            )
        gone = task.connector not in configs or configs.target(task.connector) is TargetState.STOPPED
        if gone or task not in self._assigned().tasks:
            raise RequestError(
                f"Cannot start source task {task} as it has already been revoked from this worker"
            )
