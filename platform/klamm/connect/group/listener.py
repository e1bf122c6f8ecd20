"""What the group asks of the worker and tells it: the seam between membership and herder."""

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
    """Called from the membership's own asyncio task, one call at a time, except `on_lost` (see there)."""

    def snapshot(self) -> ConfigView:
        """What this worker knows now. Cheap: asked at every heartbeat."""
        ...

    def loads(self) -> Mapping[str, float]:
        """What the tasks here cost, measured: load per task (`str(TaskId)`), for example CPU seconds per second. May be empty."""
        ...

    async def on_revoked(self, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        """Stop these, commit their offsets, show them as UNASSIGNED: all done when it returns.

        Heartbeats go on meanwhile. The group waits up to `rebalance.timeout.ms` for it.
        """
        ...

    async def on_assigned(self, assignment: ExtendedAssignment, generation: int, member_id: str) -> None:
        """Run exactly `assignment.connectors` and `.tasks` from now on: start what is new, stop what is not in them.

        The config topic has been read at least to `assignment.offset`. Called after every rebalance, also when
        nothing changed. It should return soon (starting may go on in the background).
        """
        ...

    async def on_lost(self) -> None:
        """The session is over: stop everything NOW, without committing; others may run it already.

        What runs is to be dead when it returns. It may be called while another call is being waited for (which is
        cancelled first).
        """
        ...

    async def catch_up(self, offset: int) -> bool:
        """Read the config topic to its end; whether `offset` was reached within `worker.sync.timeout.ms`."""
        ...
