"""The state in the config topic: Kafka Connect's record formats and their meaning. No I/O.

`ConfigState` takes the topic's records in log order (`apply`) and answers questions about them.
`offset_state` and `status_state` do the same for the other two topics; their names can be imported from
here, too. Reading any prefix of a log gives a consistent state: task configs count only once their
commit record is read, and a half-written set counts as none. The `*_record` functions build the records
to write. Keys, key order and compact JSON are Kafka's, so that either worker can read what the other
wrote. Records that are not understood are logged and skipped, as in Kafka, because a newer worker may
have written them.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from klamm.connect.topics.offset_state import OffsetState, offset_record
from klamm.connect.topics.records import Record, decode, encode, task_of
from klamm.connect.topics.status_state import (
    STATUS_CONNECTOR,
    STATUS_TASK,
    STATUS_TOPIC,
    ActiveTopic,
    Status,
    StatusState,
    status_key,
    status_record,
    topic_key,
    topic_record,
)

__all__ = [
    "STATUS_CONNECTOR", "STATUS_TASK", "STATUS_TOPIC", "ActiveTopic", "Command", "ConfigState", "LoggerLevel",
    "OffsetState", "Record", "RestartRequest", "SessionKey", "Status", "StatusState", "TargetState",
    "connector_record", "delete_records", "fencing_record", "logger_record", "offset_record", "restart_record", "session_key_record",
    "status_key", "status_record", "target_state_record", "task_records", "topic_key", "topic_record",
]  # fmt: skip

log = logging.getLogger(__name__)

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET_STATE: Final = "target-state-"
SESSION_KEY: Final = "session-key"
RESTART: Final = "restart-connector-"
LOGGER_CLUSTER: Final = "logger-cluster-"
TASK_COUNT: Final = "tasks-fencing-"


class TargetState(StrEnum):
    """The state that the user wants of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


# Config topic


def connector_record(name: str, config: Mapping[str, str]) -> Record:
    return CONNECTOR + name, encode({"properties": dict(config)})


def target_state_record(name: str, state: TargetState) -> Record:
    """Returns the record of a target state. Its `state` is for workers older than Kafka 3.5, which do not know
    STOPPED.
    """
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return TARGET_STATE + name, encode({"state": old, "state.v2": state})


def task_records(name: str, configs: Sequence[Mapping[str, str]]) -> list[Record]:
    """Returns the task configs and, last, the commit record that makes them count."""
    tasks: list[Record] = [
        (f"{TASK}{name}-{i}", encode({"properties": dict(config)})) for i, config in enumerate(configs)
    ]
    return [*tasks, (COMMIT + name, encode({"tasks": len(configs)}))]


def delete_records(name: str) -> list[Record]:
    """Returns the records of a deletion: first a commit of no tasks, then Kafka's two tombstones.

    Without that commit a new connector of the same name would find the old connector's tasks once the
    tombstones are compacted away.
    """
    return [(COMMIT + name, encode({"tasks": 0})), (CONNECTOR + name, None), (TARGET_STATE + name, None)]


def fencing_record(name: str, count: int) -> Record:
    """Returns the record of how many tasks may have transactional producers. The leader fences these before
    the next generation starts (KIP-618).
    """
    return TASK_COUNT + name, encode({"task-count": count})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """The key with which workers sign their requests to each other (KIP-507). `created_ms`: epoch ms."""

    key: bytes = field(repr=False)
    algorithm: str
    created_ms: int


def session_key_record(key: SessionKey) -> Record:
    return SESSION_KEY, encode(
        {
            "key": base64.b64encode(key.key).decode(),
            "algorithm": key.algorithm,
            "creation-timestamp": key.created_ms,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """A restart that every worker carries out for what it runs (KIP-745)."""

    connector: str
    include_tasks: bool
    only_failed: bool


def restart_record(request: RestartRequest) -> Record:
    return RESTART + request.connector, encode(
        {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggerLevel:
    """A log level that every worker sets (KIP-976)."""

    logger: str
    level: str


def logger_record(level: LoggerLevel) -> Record:
    return LOGGER_CLUSTER + level.logger, encode({"level": level.level})


Command = RestartRequest | LoggerLevel
"""A command that workers carry out once, when they read it, but not when they find it at their start."""


@dataclass(slots=True)
class _Connector:
    """The state of one name so far. `config` is None when there is no such connector (yet, or any more)."""

    config: dict[str, str] | None = None
    target: TargetState = TargetState.STARTED
    uncommitted: dict[int, dict[str, str]] = field(default_factory=dict)
    tasks: list[dict[str, str]] = field(default_factory=list)
    applied: dict[str, str] | None = None
    inconsistent: bool = False


@dataclass(slots=True)
class _Fencing:
    """The fencing state of a name. It outlives its connector, because a later connector of that name fences
    the old tasks.

    `count` is the newest task count record, None without one; `pending`: task configs were committed since.
    `generation` counts commits.
    """

    count: int | None = None
    pending: bool = False
    generation: int = 0


class ConfigState:
    """Connectors, their target states and their committed tasks, as the config topic holds them."""

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}
        self._fencing: dict[str, _Fencing] = {}
        self._commands: list[Command] = []
        self.session_key: SessionKey | None = None

    def take_commands(self) -> list[Command]:
        """Returns the commands since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def connectors(self) -> list[str]:
        return [name for name, c in self._connectors.items() if c.config is not None]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.config(name) is not None

    def config(self, name: str) -> dict[str, str] | None:
        """Returns the connector's config as it was posted; None when there is no such connector."""
        found = self._connectors.get(name)
        return found.config if found else None

    def target(self, name: str) -> TargetState:
        return self._connectors[name].target

    def tasks(self, name: str) -> list[dict[str, str]]:
        """Returns the committed task configs, in the order of the task numbers."""
        return self._connectors[name].tasks

    def inconsistent(self, name: str) -> bool:
        """Returns whether the last commit lacked some of its task configs, so that they must be computed again."""
        return self._connectors[name].inconsistent

    def applied(self, name: str) -> dict[str, str] | None:
        """Returns the connector config that the committed tasks were made from; None when the log does not say."""
        return self._connectors[name].applied

    def fenced_count(self, name: str) -> int | None:
        """Returns the newest task count record: the number of possible transactional producers; None without such
        a record.
        """
        return self._fencing.get(name, _Fencing()).count

    def pending_fencing(self, name: str) -> bool:
        """Returns whether task configs were committed since the newest task count record."""
        return self._fencing.get(name, _Fencing()).pending

    def generation(self, name: str) -> int:
        """Returns how many sets of task configs the log shows as committed."""
        return self._fencing.get(name, _Fencing()).generation

    def apply(self, key: str, value: bytes | None) -> str | None:
        """Take in the next record. Returns the name of the connector whose state has changed, if any."""
        for prefix, handle in _CONFIG_HANDLERS.items():
            if key.startswith(prefix):
                return handle(self, key.removeprefix(prefix), key, value)
        if key == SESSION_KEY:
            self._session_key(key, value)
        else:
            log.error("ignoring record with unknown key %s in the config topic", key)
        return None

    def _session_key(self, key: str, value: bytes | None) -> None:
        data = decode(key, value) if value is not None else None
        match data:
            case {"key": str(text), "algorithm": str(algorithm), "creation-timestamp": int(created)}:
                try:
                    secret = base64.b64decode(text, validate=True)
                except binascii.Error as e:
                    log.error("ignoring record %s: its key is not base64 (%s)", key, e)  # noqa: TRY400
                else:
                    self.session_key = SessionKey(key=secret, algorithm=algorithm, created_ms=created)
            case _:
                log.error("ignoring record %s: not a key, its algorithm and when it was made", key)

    def _restart(self, name: str, key: str, value: bytes | None) -> str | None:
        data = (decode(key, value) or {}) if value is not None else {}
        include, only = data.get("include-tasks", False), data.get("only-failed", False)
        if value is None or not isinstance(include, bool) or not isinstance(only, bool):
            log.error("ignoring record %s: include-tasks and only-failed must be booleans", key)
            return None
        self._commands.append(RestartRequest(connector=name, include_tasks=include, only_failed=only))
        return None

    def _logger(self, name: str, key: str, value: bytes | None) -> str | None:
        level = (decode(key, value) or {}).get("level") if value is not None else None
        if not isinstance(level, str):
            log.error("ignoring record %s: it names no level", key)
            return None
        self._commands.append(LoggerLevel(logger=name, level=level))
        return None

    def _task_count(self, name: str, key: str, value: bytes | None) -> str | None:
        data = decode(key, value) if value is not None else None
        count = data.get("task-count") if data is not None else None
        if not isinstance(count, int) or count < 0:
            log.error("ignoring record %s: it does not say how many tasks there are", key)
            return None
        found = self._fencing_of(name)
        found.count, found.pending = count, False
        return None

    def _fencing_of(self, name: str) -> _Fencing:
        return self._fencing.setdefault(name, _Fencing())

    def _of(self, name: str) -> _Connector:
        return self._connectors.setdefault(name, _Connector())

    def _connector(self, name: str, key: str, value: bytes | None) -> str | None:
        if value is None:
            self._connectors.pop(name, None)
            return name
        data = decode(key, value)
        if data is None or not _is_config(key, data.get("properties")):
            return None
        self._of(name).config = data["properties"]
        return name

    def _target(self, name: str, key: str, value: bytes | None) -> str | None:
        if value is None:
            if name in self._connectors:
                self._connectors[name].target = TargetState.STARTED
            return name
        data = decode(key, value) or {}
        state = data.get("state.v2", data.get("state"))
        if not isinstance(state, str) or state not in TargetState.__members__:
            log.error("ignoring record %s: %r is not one of %s", key, state, ", ".join(TargetState))
            return None
        self._of(name).target = TargetState(state)
        return name

    def _task(self, text: str, key: str, value: bytes | None) -> str | None:
        task = task_of(text)
        if task is None or value is None:
            log.error("ignoring record %s: not a task config", key)
            return None
        data = decode(key, value)
        if data is not None and _is_config(key, data.get("properties")):
            self._of(task.connector).uncommitted[task.task] = data["properties"]
        return None

    def _commit(self, name: str, key: str, value: bytes | None) -> str | None:
        data = decode(key, value) if value is not None else None
        count = data.get("tasks") if data is not None else None
        if not isinstance(count, int) or count < 0:
            log.error("ignoring record %s: it does not say how many tasks there are", key)
            return None
        found = self._of(name)
        # Only what was written since the last commit counts. Compaction may leave task configs beyond `count`
        # from a larger set, so more than `count` is no error.
        found.inconsistent = any(i not in found.uncommitted for i in range(count))
        if found.inconsistent:
            log.error("connector %s: its %d task configs are incomplete in the config topic", name, count)
        found.tasks = [] if found.inconsistent else [found.uncommitted[i] for i in range(count)]
        found.applied = None if found.inconsistent else found.config
        found.uncommitted = {}
        fencing = self._fencing_of(name)
        fencing.pending = True
        fencing.generation += 1
        return name


_CONFIG_HANDLERS: Final = {
    TARGET_STATE: ConfigState._target,  # noqa: SLF001 - the class's own dispatch table
    CONNECTOR: ConfigState._connector,  # noqa: SLF001
    COMMIT: ConfigState._commit,  # noqa: SLF001
    TASK_COUNT: ConfigState._task_count,  # noqa: SLF001
    RESTART: ConfigState._restart,  # noqa: SLF001
    LOGGER_CLUSTER: ConfigState._logger,  # noqa: SLF001
    TASK: ConfigState._task,  # noqa: SLF001
}


def _is_config(key: str, properties: Any) -> bool:
    if isinstance(properties, dict) and all(isinstance(v, str) for v in properties.values()):
        return True
    log.error('ignoring record %s: it has no "properties" of strings', key)
    return False
