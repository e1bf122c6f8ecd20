"""The bytes that Connect's workers exchange inside JoinGroup and SyncGroup. No I/O.

Three subprotocols, which a worker offers together so that a group settles on what all its members know:
`default` (version 0, eager), `compatible` (1, incremental cooperative, KIP-415) and `sessioned` (2, the same with signed
internal requests, KIP-507). Integers are big-endian, strings have an int16 length, arrays an int32 count (-1: null).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from klamm.connect.model import TaskId
from klamm_base.errors import KlammError

PROTOCOL_TYPE: Final = "connect"
# Stands for the connector itself where task numbers are listed.
CONNECTOR_TASK: Final = -1
# Behind Kafka's fields of a worker's metadata, where Kafka's workers do not look.
_EXTRA: Final = b"klamm\x01"


class ProtocolName(StrEnum):
    """`connect.protocol`; how the broker knows the subprotocol is in `group_name`."""

    EAGER = "eager"
    COMPATIBLE = "compatible"
    SESSIONED = "sessioned"

    @property
    def version(self) -> int:
        return _VERSIONS[self]

    @property
    def group_name(self) -> str:
        return "default" if self is ProtocolName.EAGER else self.value

    @classmethod
    def of_group(cls, group_name: str) -> ProtocolName:
        """The protocol that the broker chose. Raises MalformedGroupData."""
        for each in cls:
            if each.group_name == group_name:
                return each
        raise MalformedGroupData(
            f"the group's protocol is {group_name!r}; Connect's are sessioned, compatible, default"
        )

    def offered(self) -> list[ProtocolName]:
        """The protocol itself and those below it, the best first."""
        return [p for p in (self.SESSIONED, self.COMPATIBLE, self.EAGER) if p.version <= self.version]


_VERSIONS: Final = {ProtocolName.EAGER: 0, ProtocolName.COMPATIBLE: 1, ProtocolName.SESSIONED: 2}


class AssignmentError(IntEnum):
    """What the leader says besides the assignment."""

    NONE = 0
    CONFIG_MISMATCH = 1  # the leader has not read the config topic as far as some member


class MalformedGroupData(KlammError):
    """A member's metadata or an assignment that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedAssignment:
    """What one worker is to run. Of an eager protocol only `connectors` and `tasks` count, and they are everything.

    Of a cooperative one they are everything too in an answer to SyncGroup, without what is revoked: what the worker
    does not run yet is new. `delay_ms`: another rebalance is due after that; workers ask for it then.
    """

    version: int
    error: int = AssignmentError.NONE
    leader: str
    leader_url: str
    offset: int
    connectors: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[TaskId, ...] = ()
    delay_ms: int = 0

    @property
    def failed(self) -> bool:
        return self.error != AssignmentError.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What a worker tells the leader when it joins. `offset`: how far it has read the config topic.

    `assignment` is what it runs now. `loads` (per task as `connector-0`, see `assignor`) are Klamm's own.
    """

    url: str
    offset: int
    assignment: ExtendedAssignment | None = None
    loads: Mapping[str, float] = field(default_factory=dict)
