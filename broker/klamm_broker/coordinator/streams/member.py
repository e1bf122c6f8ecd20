"""A member of a Streams group: a thread of an application, and its progress towards its target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from klamm_broker.coordinator.streams.tasks import NOTHING_OWNED, OwnedTasks


class MemberState(IntEnum):
    """Kafka's MemberState of Streams groups; the values are in the records."""

    STABLE = 1
    """It has all tasks that its epoch gives it."""
    UNREVOKED_TASKS = 2
    """It was told to give up tasks and has not confirmed that yet."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others have not given up yet."""
    UNKNOWN = 127
    """A newer Kafka wrote a state that is unknown here: the member has to start over."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


class Endpoint(NamedTuple):
    """The address at which an application answers queries of its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member, as two records hold it: its own description, and the tasks that it owns."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Members of one process share its local state: no task is there twice."""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    epoch: int = 0
    previous_epoch: int = 0
    """The epoch before the last answer, which may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: OwnedTasks = NOTHING_OWNED
    revoking: OwnedTasks = NOTHING_OWNED
    """The tasks that it was told to give up."""

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch
