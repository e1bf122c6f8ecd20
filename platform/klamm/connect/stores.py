"""What the config, offset and status topics say: Kafka Connect's record formats and their meaning. No I/O.

Each class is fed with the records of its topic in log order (`apply`) and answers questions about them.
Reading any prefix of a log gives a consistent state: task configs count only once their commit record is
read, and a half-written set counts as none. The `*_record` functions build what is written; keys, key order
and compact JSON are Kafka's, so that either worker can read what the other wrote. Records that are not
understood are logged and skipped, as Kafka does, because a newer worker may have written them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from klamm.connect.model import State, TaskId

log = logging.getLogger(__name__)

Record = tuple[str, bytes | None]
"""Key and value of a record of one of the topics; None is a tombstone."""

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET_STATE: Final = "target-state-"
# Kept by Kafka's workers for purposes that one worker without internal REST does not have.
_NOT_OURS: Final = ("session-key", "restart-connector-", "task-count-record-", "logger-cluster-")
STATUS_CONNECTOR: Final = "status-connector-"
STATUS_TASK: Final = "status-task-"
STATUS_TOPIC: Final = "status-topic-"


class TargetState(StrEnum):
    """What the user wants of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


def _encode(value: Any) -> bytes:
    return orjson.dumps(value)


def _decode(key: str, value: bytes) -> dict[str, Any] | None:
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError as e:
        log.error("ignoring record %s: its value is not JSON (%s)", key, e)  # noqa: TRY400 - no bug of ours
        return None
    if not isinstance(data, dict):
        log.error("ignoring record %s: its value is %s, not an object", key, type(data).__name__)
        return None
    return data


def _task_of(text: str) -> TaskId | None:
    """`name-0` as a TaskId; a connector's name may hold dashes itself."""
    name, dash, number = text.rpartition("-")
    return TaskId(name, int(number)) if dash and number.isascii() and number.isdigit() else None


# Config topic


def connector_record(name: str, config: Mapping[str, str]) -> Record:
    return CONNECTOR + name, _encode({"properties": dict(config)})


def target_state_record(name: str, state: TargetState) -> Record:
    """`state` is for workers older than Kafka 3.5, which do not know STOPPED."""
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return TARGET_STATE + name, _encode({"state": old, "state.v2": state})


def task_records(name: str, configs: Sequence[Mapping[str, str]]) -> list[Record]:
    """The task configs and, last, the commit record that makes them count."""
    tasks: list[Record] = [
        (f"{TASK}{name}-{i}", _encode({"properties": dict(config)})) for i, config in enumerate(configs)
    ]
    return [*tasks, (COMMIT + name, _encode({"tasks": len(configs)}))]


def delete_records(name: str) -> list[Record]:
    """First no tasks, then Kafka's two tombstones.

    Without the commit of zero tasks a new connector of the same name would find the old one's tasks once the
    tombstones are compacted away.
    """
    return [(COMMIT + name, _encode({"tasks": 0})), (CONNECTOR + name, None), (TARGET_STATE + name, None)]


@dataclass(slots=True)
class _Connector:
    """What the log says of one name so far. `config` None: no such connector (yet, or any more)."""

    config: dict[str, str] | None = None
    target: TargetState = TargetState.STARTED
    uncommitted: dict[int, dict[str, str]] = field(default_factory=dict)
    tasks: list[dict[str, str]] = field(default_factory=list)
    applied: dict[str, str] | None = None
    inconsistent: bool = False


class ConfigState:
    """Connectors, their target states and their committed tasks, as the config topic tells."""

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}

    @property
    def connectors(self) -> list[str]:
        return [name for name, c in self._connectors.items() if c.config is not None]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.config(name) is not None

    def config(self, name: str) -> dict[str, str] | None:
        """The connector's config as it was posted; None when there is no such connector."""
        found = self._connectors.get(name)
        return found.config if found else None

    def target(self, name: str) -> TargetState:
        return self._connectors[name].target

    def tasks(self, name: str) -> list[dict[str, str]]:
        """The committed task configs, in the order of the task numbers."""
        return self._connectors[name].tasks

    def inconsistent(self, name: str) -> bool:
        """Whether the last commit did not find all its task configs: they must be computed again."""
        return self._connectors[name].inconsistent

    def applied(self, name: str) -> dict[str, str] | None:
        """The connector config that the committed tasks were made from; None when the log does not tell."""
        return self._connectors[name].applied

    def apply(self, key: str, value: bytes | None) -> str | None:
        """Take in the next record. Returns the name of the connector whose state has changed, if any."""
        for prefix, handle in _CONFIG_HANDLERS.items():
            if key.startswith(prefix):
                return handle(self, key.removeprefix(prefix), key, value)
        if not key.startswith(_NOT_OURS):
            log.error("ignoring record with unknown key %s in the config topic", key)
        return None

    def _of(self, name: str) -> _Connector:
        return self._connectors.setdefault(name, _Connector())

    def _connector(self, name: str, key: str, value: bytes | None) -> str | None:
        if value is None:
            self._connectors.pop(name, None)
            return name
        data = _decode(key, value)
        if data is None or not _is_config(key, data.get("properties")):
            return None
        self._of(name).config = data["properties"]
        return name

    def _target(self, name: str, key: str, value: bytes | None) -> str | None:
        if value is None:
            if name in self._connectors:
                self._connectors[name].target = TargetState.STARTED
            return name
        data = _decode(key, value) or {}
        state = data.get("state.v2", data.get("state"))
        if not isinstance(state, str) or state not in TargetState.__members__:
            log.error("ignoring record %s: %r is not one of %s", key, state, ", ".join(TargetState))
            return None
        self._of(name).target = TargetState(state)
        return name

    def _task(self, text: str, key: str, value: bytes | None) -> str | None:
        task = _task_of(text)
        if task is None or value is None:
            log.error("ignoring record %s: not a task config", key)
            return None
        data = _decode(key, value)
        if data is not None and _is_config(key, data.get("properties")):
            self._of(task.connector).uncommitted[task.task] = data["properties"]
        return None

    def _commit(self, name: str, key: str, value: bytes | None) -> str | None:
        data = _decode(key, value) if value is not None else None
        count = data.get("tasks") if data is not None else None
        if not isinstance(count, int) or count < 0:
            log.error("ignoring record %s: it does not say how many tasks there are", key)
            return None
        found = self._of(name)
        # Only what was written since the last commit counts; after compaction, task configs beyond `count` may
        # be left over from a larger set, so more than `count` is no error.
        found.inconsistent = any(i not in found.uncommitted for i in range(count))
        if found.inconsistent:
            log.error("connector %s: its %d task configs are incomplete in the config topic", name, count)
        found.tasks = [] if found.inconsistent else [found.uncommitted[i] for i in range(count)]
        found.applied = None if found.inconsistent else found.config
        found.uncommitted = {}
        return name


_CONFIG_HANDLERS: Final = {
    TARGET_STATE: ConfigState._target,  # noqa: SLF001 - the class's own dispatch table
    CONNECTOR: ConfigState._connector,  # noqa: SLF001
    COMMIT: ConfigState._commit,  # noqa: SLF001
    "task-count-record-": lambda *_: None,
    TASK: ConfigState._task,  # noqa: SLF001
}


def _is_config(key: str, properties: Any) -> bool:
    if isinstance(properties, dict) and all(isinstance(v, str) for v in properties.values()):
        return True
    log.error('ignoring record %s: it has no "properties" of strings', key)
    return False


# Offset topic


def offset_record(
    connector: str, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None
) -> Record:
    """A source partition's offset; None resets it."""
    key = _encode([connector, partition]).decode()
    return key, None if offset is None else _encode(offset)


@dataclass(slots=True)
class _SourcePartition:
    """One source partition, in each spelling (record key) that is in the topic and no tombstone."""

    partition: Any = None
    offset: Any = None
    key: str = ""  # the spelling that `offset` was read under
    timestamp_ms: int = -1
    keys: dict[str, None] = field(default_factory=dict)


class OffsetState:
    """The source offsets of all connectors, as the offset topic tells.

    The same partition may be spelled in several ways: Java writes a map's keys in hash order, a plugin in its
    own, a user in any. Each spelling is a key of its own and may lie in another partition of the topic, so that
    the order of reading says nothing: the newest by the record's timestamp counts.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, dict[bytes, _SourcePartition]] = {}

    def apply(self, key: str, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Take in the next record."""
        try:
            name, partition = orjson.loads(key)
            offset = None if value is None else orjson.loads(value)
        except (ValueError, TypeError) as e:
            log.warning("ignoring record %s in the offset topic: %s", key, e)
            return
        of_connector = self._offsets.setdefault(str(name), {})
        found = of_connector.setdefault(_canonical(partition), _SourcePartition())
        if offset is None:
            found.keys.pop(key, None)
        else:
            found.keys[key] = None
        # Under one key the log's order counts, whatever clocks say.
        if key == found.key or timestamp_ms >= found.timestamp_ms:
            found.partition, found.offset, found.key = partition, offset, key
            found.timestamp_ms = timestamp_ms

    def get(self, connector: str, partition: Any) -> Any:
        """The offset of one source partition, None when there is none."""
        found = self._offsets.get(connector, {}).get(_canonical(partition))
        return found.offset if found else None

    def of_connector(self, connector: str) -> list[tuple[Any, Any]]:
        """All (partition, offset) pairs of a connector."""
        stored = self._offsets.get(connector, {}).values()
        return [(s.partition, s.offset) for s in stored if s.offset is not None]

    def change(self, connector: str, partition: Any, offset: Any) -> list[Record]:
        """The records that set a source partition's offset (None: reset it), whatever its spellings are.

        Older spellings get tombstones, or they would be back when the newest one is compacted away.
        """
        new_key, value = offset_record(connector, partition, offset)
        found = self._offsets.get(connector, {}).get(_canonical(partition), _SourcePartition())
        key = found.key or new_key  # a task goes on with the spelling that it used
        return [*((k, None) for k in found.keys if k != key), (key, value)]


def _canonical(partition: Any) -> bytes:
    return orjson.dumps(partition, option=orjson.OPT_SORT_KEYS)


# Status topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One connector's or task's state as the status topic holds it."""

    state: State
    trace: str | None = None
    worker_id: str
    generation: int = 0
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTopic:
    """A connector uses a topic: who saw it first, and when (epoch ms)."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def status_record(key: str | TaskId, status: Status) -> Record:
    """The status of a connector (by name) or a task."""
    return status_key(key), _encode(
        {
            "state": status.state,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def status_key(key: str | TaskId) -> str:
    return f"{STATUS_TASK}{key}" if isinstance(key, TaskId) else STATUS_CONNECTOR + key


def topic_record(topic: ActiveTopic) -> Record:
    return topic_key(topic.connector, topic.topic), _encode(
        {
            "topic": {
                "name": topic.topic,
                "connector": topic.connector,
                "task": topic.task,
                "discoverTimestamp": topic.discovered_ms,
            }
        }
    )


def topic_key(connector: str, topic: str) -> str:
    return f"{STATUS_TOPIC}{topic}:connector-{connector}"


class StatusState:
    """States of connectors and tasks and the topics they use, as the status topic tells.

    `put` and `drop` take effect here before the topic has them: one worker writes them all, and what it knows
    is newer than what it reads back. Records of another worker (an earlier run) are taken as they come, until
    this worker says something about the same key.
    """

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._status: dict[str | TaskId, Status] = {}
        self._topics: dict[str, dict[str, ActiveTopic]] = {}
        self._ours: set[str] = set()

    def apply(self, key: str, value: bytes | None) -> None:
        """Take in the next record."""
        if key in self._ours:
            return
        if key.startswith(STATUS_TOPIC):
            self._apply_topic(key, value)
            return
        target = _status_target(key)
        if target is None:
            log.warning("ignoring record with unknown key %s in the status topic", key)
            return
        status = None if value is None else _parse_status(key, value)
        if status is None or status.state is State.DESTROYED:
            self._status.pop(target, None)
        else:
            self._status[target] = status

    def _apply_topic(self, key: str, value: bytes | None) -> None:
        topic, colon, connector = key.removeprefix(STATUS_TOPIC).partition(":connector-")
        data = (_decode(key, value) or {}).get("topic") if value is not None else None
        if not colon or (value is not None and not isinstance(data, dict)):
            log.warning("ignoring record %s in the status topic", key)
        elif isinstance(data, dict):
            seen = ActiveTopic(
                topic=topic,
                connector=connector,
                task=int(data.get("task", 0)),
                discovered_ms=int(data.get("discoverTimestamp", 0)),
            )
            self._topics.setdefault(connector, {})[topic] = seen
        else:
            self._topics.get(connector, {}).pop(topic, None)

    def get(self, key: str | TaskId) -> Status | None:
        """The status of a connector (by name) or a task."""
        return self._status.get(key)

    def tasks(self, connector: str) -> list[TaskId]:
        """The tasks of a connector that have a status, in order."""
        return sorted(k for k in self._status if isinstance(k, TaskId) and k.connector == connector)

    def connectors(self) -> set[str]:
        """Every connector that has a status itself, by a task, or by a topic."""
        keys = {k.connector if isinstance(k, TaskId) else k for k in self._status}
        return keys | {name for name, topics in self._topics.items() if topics}

    def topics(self, connector: str) -> list[ActiveTopic]:
        return list(self._topics.get(connector, {}).values())

    def may_write(self, key: str | TaskId, generation: int) -> bool:
        """Whether a last word (UNASSIGNED) may be written: not over a later owner's status.

        Kafka's rule for "safe" writes: nothing there, or written by this worker, or by an earlier generation.
        """
        found = self._status.get(key)
        return found is None or found.worker_id == self._worker_id or found.generation <= generation

    def put(self, key: str | TaskId, status: Status) -> Record:
        """Set a status; returns the record to write."""
        self._status[key] = status
        self._ours.add(status_key(key))
        return status_record(key, status)

    def drop(self, key: str | TaskId) -> Record:
        """Forget a status; returns the tombstone to write."""
        self._status.pop(key, None)
        self._ours.add(status_key(key))
        return status_key(key), None

    def see_topic(self, topic: ActiveTopic) -> Record | None:
        """Note that a connector uses a topic; the record to write if that is news."""
        of_connector = self._topics.setdefault(topic.connector, {})
        if topic.topic in of_connector:
            return None
        of_connector[topic.topic] = topic
        self._ours.add(topic_key(topic.connector, topic.topic))
        return topic_record(topic)

    def drop_topics(self, connector: str) -> list[Record]:
        """Forget a connector's topics; returns the tombstones to write."""
        keys = [topic_key(connector, t) for t in self._topics.pop(connector, {})]
        self._ours.update(keys)
        return [(key, None) for key in keys]


def _status_target(key: str) -> str | TaskId | None:
    if key.startswith(STATUS_TASK):
        return _task_of(key.removeprefix(STATUS_TASK))
    return key.removeprefix(STATUS_CONNECTOR) if key.startswith(STATUS_CONNECTOR) else None


def _parse_status(key: str, value: bytes) -> Status | None:
    data = _decode(key, value)
    if data is None:
        return None
    state = data.get("state")
    if not isinstance(state, str) or state not in State.__members__ or "worker_id" not in data:
        log.error("ignoring record %s: no known state and worker_id", key)
        return None
    return Status(
        state=State(state),
        trace=data.get("trace"),
        worker_id=str(data["worker_id"]),
        generation=int(data.get("generation") or 0),
        version=data.get("version"),
    )
