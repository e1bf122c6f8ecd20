"""The seam between membership and herder: the group's questions and orders to the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from klamm.connect.group.protocol import ExtendedAssignment
from klamm.connect.model import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """The config topic as far as this worker has read it.

    `offset`: of the next record to read, as Kafka's workers count it; -1 before anything was read.
    `tasks`: every connector and how many tasks of it are to run; a stopped connector has 0.
    """

    offset: int = -1
    tasks: Mapping[str, int] = field(default_factory=dict)


class GroupListener(Protocol):
    """The worker's side of the group. The membership's asyncio task makes one call at a time, except
    `on_lost` (see there).
    """

    def snapshot(self) -> ConfigView:
        """Returns the worker's current view. Called at every heartbeat, so it must be cheap."""
        ...

    def loads(self) -> Mapping[str, float]:
        """Returns the measured load per task (`str(TaskId)`), for example CPU seconds per second. May be empty."""
        ...

    async def on_revoked(self, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        """Stops these, commits their offsets, shows them as UNASSIGNED, and returns when all is done.

        Heartbeats go on meanwhile. The group waits up to `rebalance.timeout.ms` for it.
        """
        ...

    async def on_assigned(self, assignment: ExtendedAssignment, generation: int, member_id: str) -> None:
        """Runs exactly `assignment.connectors` and `.tasks` from now on: starts new ones, stops all others.

        The config topic has been read at least to `assignment.offset`. Called after every rebalance, also
        when nothing changed. It should return soon (starting may go on in the background).
        """
        ...

    async def on_lost(self) -> None:
        """Stops everything at once, without committing: the session is over, and others may run the work
        already.

        All of it is dead when this returns. It may be called while another call is under way (which is
        cancelled first).
        """
        ...

    async def catch_up(self, offset: int) -> bool:
        """Reads the config topic to its end; tells whether it reached `offset` within `worker.sync.timeout.ms`."""
        ...
