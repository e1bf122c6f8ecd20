"""The bytes that Connect's workers exchange inside JoinGroup and SyncGroup. No I/O.

`encode_metadata` and `decode_metadata` are for a member's message as it joins, `encode_assignment` and
`decode_assignment` for the leader's answer. A worker offers three subprotocols together, so that a group
settles on one that all its members know: `default` (version 0, eager), `compatible` (1, incremental
cooperative, KIP-415) and `sessioned` (2, the same with signed internal requests, KIP-507). Integers are
big-endian, strings have an int16 length, arrays an int32 count (-1: null).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

import orjson

from klamm.connect.model import TaskId
from klamm_base.errors import KlammError

PROTOCOL_TYPE: Final = "connect"
# Stands for the connector itself in a list of task numbers.
CONNECTOR_TASK: Final = -1
# This marker and then JSON follow Kafka's fields of a worker's metadata; Kafka's workers do not read so far.
_EXTRA: Final = b"klamm\x01"
_LOADS_MAX: Final = 10_000  # the most that a leader reads from one worker

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class ProtocolName(StrEnum):
    """The values of `connect.protocol`; the broker knows each by its `group_name`."""

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
        """Returns the protocol that the broker chose. Raises MalformedGroupData."""
        for each in cls:
            if each.group_name == group_name:
                return each
        raise MalformedGroupData(
            f"the group's protocol is {group_name!r}; Connect's are sessioned, compatible, default"
        )

    def offered(self) -> list[ProtocolName]:
        """Returns the protocol itself and those below it, the best first."""
        return [p for p in (self.SESSIONED, self.COMPATIBLE, self.EAGER) if p.version <= self.version]


_VERSIONS: Final = {ProtocolName.EAGER: 0, ProtocolName.COMPATIBLE: 1, ProtocolName.SESSIONED: 2}


class AssignmentError(IntEnum):
    """The leader's error code beside the assignment."""

    NONE = 0
    CONFIG_MISMATCH = 1  # the leader has not read the config topic as far as some member


class MalformedGroupData(KlammError):
    """A member's metadata or an assignment cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedAssignment:
    """One worker's assignment.

    In an eager protocol `connectors` and `tasks` are everything. In an answer to a cooperative SyncGroup they
    are only what is new; work that ran before and is not revoked stays. Membership hands everything on (and
    reports everything when it joins again). `delay_ms`: workers ask for another rebalance after that time.
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
    """A worker's message to the leader when it joins. `offset`: how far it has read the config topic.

    `assignment` is its current work. `loads` (per task as `connector-0`, see `assignor`) are Klamm's own.
    """

    url: str
    offset: int
    assignment: ExtendedAssignment | None = None
    loads: Mapping[str, float] = field(default_factory=dict)


def encode_metadata(state: WorkerState, protocol: ProtocolName) -> bytes:
    """Encodes a member's metadata in JoinGroup under this protocol."""
    out = bytearray()
    _put(out, _INT16, protocol.version)
    _put_string(out, state.url)
    _put(out, _INT64, state.offset)
    if protocol is ProtocolName.EAGER:
        return bytes(out)
    if state.assignment is None:
        _put(out, _INT32, -1)
    else:
        running = encode_assignment(state.assignment, protocol)
        _put(out, _INT32, len(running))
        out += running
    if state.loads:
        out += _EXTRA + orjson.dumps({"loads": dict(state.loads)})
    return bytes(out)


def decode_metadata(data: bytes) -> WorkerState:
    """Decodes a member's metadata. Raises MalformedGroupData."""
    buf = _Reader(data, "a worker's metadata")
    version = buf.version()
    url, offset = buf.string(), buf.int64()
    assignment = None
    if version > 0 and not buf.done:
        size = buf.int32()
        if size >= 0:
            assignment = decode_assignment(buf.take(size))
    return WorkerState(url=url, offset=offset, assignment=assignment, loads=_loads(buf.rest()))


def encode_assignment(assignment: ExtendedAssignment, protocol: ProtocolName) -> bytes:
    """Encodes the leader's answer to one member, or a member's report of its work."""
    out = bytearray()
    _put(out, _INT16, protocol.version)
    _put(out, _INT16, assignment.error)
    _put_string(out, assignment.leader)
    _put_string(out, assignment.leader_url)
    _put(out, _INT64, assignment.offset)
    _put_work(out, assignment.connectors, assignment.tasks)
    if protocol is not ProtocolName.EAGER:
        _put_work(out, assignment.revoked_connectors, assignment.revoked_tasks)
        _put(out, _INT32, assignment.delay_ms)
    return bytes(out)


def decode_assignment(data: bytes) -> ExtendedAssignment:
    """Decodes an assignment. Raises MalformedGroupData."""
    buf = _Reader(data, "an assignment")
    version, error = buf.version(), buf.int16()
    leader, leader_url, offset = buf.string(), buf.string(), buf.int64()
    connectors, tasks = buf.work()
    revoked_connectors, revoked_tasks = buf.work() if version > 0 and not buf.done else ((), ())
    delay_ms = buf.int32() if version > 0 and not buf.done else 0
    return ExtendedAssignment(
        version=version,
        error=error,
        leader=leader,
        leader_url=leader_url,
        offset=offset,
        connectors=connectors,
        tasks=tasks,
        revoked_connectors=revoked_connectors,
        revoked_tasks=revoked_tasks,
        delay_ms=delay_ms,
    )


def _put(out: bytearray, form: struct.Struct, value: int) -> None:
    out += form.pack(value)


def _put_string(out: bytearray, text: str) -> None:
    data = text.encode()
    _put(out, _INT16, len(data))
    out += data


def _put_work(out: bytearray, connectors: Iterable[str], tasks: Iterable[TaskId]) -> None:
    """Writes the work by connector, in the order of first mention; the connector itself comes first."""
    found: dict[str, list[int]] = {name: [CONNECTOR_TASK] for name in connectors}
    for task in tasks:
        found.setdefault(task.connector, []).append(task.task)
    _put(out, _INT32, len(found))
    for name, numbers in found.items():
        _put_string(out, name)
        _put(out, _INT32, len(numbers))
        out += struct.pack(f">{len(numbers)}i", *numbers)


def _loads(extra: bytes) -> dict[str, float]:
    """Reads the loads behind Kafka's fields. Unknown data comes from a newer worker and counts as no loads."""
    if not extra.startswith(_EXTRA):
        return {}
    try:
        told = orjson.loads(extra[len(_EXTRA) :])
    except orjson.JSONDecodeError:
        return {}
    loads = told.get("loads") if isinstance(told, dict) else None
    if not isinstance(loads, dict):
        return {}
    given = list(loads.items())[:_LOADS_MAX]
    return {k: float(v) for k, v in given if isinstance(v, int | float) and math.isfinite(v) and v >= 0}


class _Reader:
    """Reads the fields of `what` one after the other; raises MalformedGroupData where data is cut short."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._what, self._pos = data, what, 0

    @property
    def done(self) -> bool:
        return self._pos == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._pos + size
        if size < 0 or end > len(self._data):
            raise MalformedGroupData(
                f"{self._what} needs {size} bytes at {self._pos}, and has {len(self._data)} in all"
            )
        found, self._pos = self._data[self._pos : end], end
        return found

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._pos)

    def _int(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def int16(self) -> int:
        return self._int(_INT16)

    def int32(self) -> int:
        return self._int(_INT32)

    def int64(self) -> int:
        return self._int(_INT64)

    def version(self) -> int:
        """Reads the version. A newer version is read as ours, as Kafka's workers do."""
        version = self.int16()
        if version < 0:
            raise MalformedGroupData(f"{self._what} is of version {version}; versions begin with 0")
        return version

    def string(self) -> str:
        try:
            return self.take(self.int16()).decode()
        except UnicodeDecodeError as e:
            raise MalformedGroupData(
                f"{self._what} has a string that is not UTF-8 at {self._pos}: {e}"
            ) from None

    def work(self) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
        """Reads connectors and tasks; a null array counts as empty."""
        connectors, tasks = [], []
        for _ in range(self.int32()):
            name = self.string()
            for _ in range(self.int32()):
                number = self.int32()
                if number == CONNECTOR_TASK:
                    connectors.append(name)
                else:
                    tasks.append(TaskId(name, number))
        return tuple(connectors), tuple(tasks)
