"""The content of a backup as data, and as JSON. Pure.

Offsets are those of the cluster that was backed up. JSON keys are the names of the fields; unknown keys are refused, because a
later format may mean something by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from klamm.backup.errors import DamagedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A file with the batches of one partition from offset `first` up to `end`, of which the last record is before.

    `size` and `sha256` are the file's, `raw_bytes` those of the batches in it.
    """

    file: str
    sha256: str
    size: int
    raw_bytes: int
    first: int
    end: int
    records: int
    max_timestamp: int
    codec: str = ""
    """The codec of the file as a whole; "" where the batches are as they were."""
    encrypted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition from `start`, the first offset that it had, up to `end`.

    A first chunk may begin before `start`: its records there are no part of the backup. `epoch` is the leader epoch before
    `end`, -1: not known.
    """

    number: int
    start: int
    end: int
    epoch: int = -1
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic. `id` is Kafka's text of it; "" where brokers give none. `configs` are those that were set for it."""

    name: str
    id: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed offset of a group."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with its committed offsets."""

    name: str
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """An ACL, in the words of Kafka's own tools."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of an entity: pairs of kind and name; a name of None is the default of its kind."""

    entity: tuple[tuple[str, str | None], ...]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A SCRAM user: iterations by mechanism. Brokers do not tell what a password could be made of."""

    name: str
    mechanisms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A connector as Connect's REST API tells it. `offsets` is None where the worker cannot say."""

    name: str
    config: Mapping[str, str]
    state: str
    offsets: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a backup holds. `taken_ms` is the moment when the ends of the logs were asked for.

    `acls`, `quotas` and `users` are None where the cluster does not tell them.
    """

    cluster_id: str
    taken_ms: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...] = ()
    acls: tuple[AclRule, ...] | None = None
    quotas: tuple[Quota, ...] | None = None
    users: tuple[User, ...] | None = None
    connectors: tuple[Connector, ...] = ()

    def topic(self, name: str) -> Topic | None:
        return next((t for t in self.topics if t.name == name), None)

    def chunks(self) -> dict[str, tuple[str, int, Chunk]]:
        """Return topic, partition and chunk by the chunk's file."""
        return {c.file: (t.name, p.number, c) for t in self.topics for p in t.partitions for c in p.chunks}

    @property
    def records(self) -> int:
        return sum(c.records for _, _, c in self.chunks().values())

    @property
    def size(self) -> int:
        return sum(c.size for _, _, c in self.chunks().values())


def as_json(state: State) -> dict[str, Any]:
    """Return a state as JSON's types."""
    return asdict(state)


def from_json(data: Any, kind: type[T], where: str = "the manifest") -> T:
    """Return a dataclass of what `as_json` made. Raises DamagedError naming the place that does not fit."""
    if not isinstance(data, dict):
        raise DamagedError(f"{where}: {type(data).__name__} where an object is due")
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - known):
        raise DamagedError(f"{where}: unknown key {unknown[0]}; was it written by a later release?")
    try:
        return kind(**{name: _value(value, hints[name], f"{where}.{name}") for name, value in data.items()})
    except TypeError as e:
        raise DamagedError(f"{where}: {e}") from None


def _value(data: Any, hint: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if data is None:
            return None
        return _value(data, next(a for a in args if a is not type(None)), where)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise DamagedError(f"{where}: {type(data).__name__} where a list is due")
        kinds = [args[0]] * len(data) if args[-1] is Ellipsis else args
        return tuple(
            _value(item, kind, f"{where}[{i}]")
            for i, (item, kind) in enumerate(zip(data, kinds, strict=True))
        )
    if is_dataclass(hint):
        return from_json(data, hint, where)  # type: ignore[arg-type]
    expected = dict if origin is not None else hint
    allowed = (int, float) if expected is float else expected
    if expected is not Any and not isinstance(data, allowed):
        raise DamagedError(f"{where}: {type(data).__name__} where {expected.__name__} is due")
    return data
