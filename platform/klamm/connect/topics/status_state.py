"""The state in the status topic: states of connectors and tasks, and the topics that they use. No I/O."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from klamm.connect.model import State, TaskId
from klamm.connect.topics.records import Record, decode, encode, task_of

log = logging.getLogger(__name__)

STATUS_CONNECTOR: Final = "status-connector-"
STATUS_TASK: Final = "status-task-"
STATUS_TOPIC: Final = "status-topic-"


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
    """A topic that a connector uses: the task that saw it first, and when (epoch ms)."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def status_record(key: str | TaskId, status: Status) -> Record:
    """Returns the record of the status of a connector (by name) or a task."""
    return status_key(key), encode(
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
    return topic_key(topic.connector, topic.topic), encode(
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
    """States of connectors and tasks and the topics they use, as the status topic holds them.

    `put` and `drop` take effect here before the topic has them. Until a worker reads its own last word on a
    key back, anything else that it reads of that key is older and does not count; from then on the topic's
    order does. A tenure begins with each generation of the group. When a worker with a later generation
    speaks about a key, this worker is a zombie without knowing it, and stays silent about the key until it
    has a newer generation itself. Generations count within a tenure only: they begin anew when a group was
    forgotten.
    """

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self._generation = 0
        self._status: dict[str | TaskId, Status] = {}
        self._tasks: dict[str, set[TaskId]] = {}  # of which there is a status, by connector
        self._topics: dict[str, dict[str, ActiveTopic]] = {}
        self._said: dict[str, bytes | None] = {}  # our last word on a key, not read back yet
        self._later_owner: set[str | TaskId] = set()

    @property
    def unread(self) -> int:
        """The number of this worker's words that the topic has not shown yet."""
        return len(self._said)

    def begin_tenure(self, generation: int) -> None:
        """Speak for everything assigned to this worker from now on, because the group has met."""
        self._generation = generation
        self._later_owner.clear()

    def end_tenure(self) -> None:
        """Believe the topic again: contact with the group is lost, and this worker's last words may never be
        written.
        """
        self._said.clear()

    def apply(self, key: str, value: bytes | None) -> Status | None:
        """Take in the next record. Returns the status that another worker has set by it, if any."""
        if key in self._said:
            if self._said[key] == value:
                del self._said[key]
            return None
        if key.startswith(STATUS_TOPIC):
            self._apply_topic(key, value)
            return None
        target = status_target(key)
        if target is None:
            log.warning("ignoring record with unknown key %s in the status topic", key)
            return None
        status = None if value is None else _parse_status(key, value)
        if status is None or status.state is State.DESTROYED:
            self._forget(target)
            return None
        self._know(target, status)
        if status.worker_id == self.worker_id:
            return None
        if status.generation > self._generation:
            self._later_owner.add(target)
        return status

    def _apply_topic(self, key: str, value: bytes | None) -> None:
        topic, colon, connector = key.removeprefix(STATUS_TOPIC).partition(":connector-")
        data = (decode(key, value) or {}).get("topic") if value is not None else None
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
        """Returns the status of a connector (by name) or a task."""
        return self._status.get(key)

    def tasks(self, connector: str) -> list[TaskId]:
        """Returns the tasks of a connector that have a status, in order."""
        return sorted(self._tasks.get(connector, ()))

    def connectors(self) -> set[str]:
        """Returns every connector that has a status itself, by a task, or by a topic."""
        keys = {k.connector if isinstance(k, TaskId) else k for k in self._status}
        return keys | {name for name, topics in self._topics.items() if topics}

    def topics(self, connector: str) -> list[ActiveTopic]:
        return list(self._topics.get(connector, {}).values())

    def put(self, key: str | TaskId, status: Status) -> Record | None:
        """Set a status; returns the record to write, None when a later owner has spoken."""
        if key in self._later_owner:
            return None
        self._know(key, status)
        return self._say(status_record(key, status))

    def _know(self, key: str | TaskId, status: Status) -> None:
        self._status[key] = status
        if isinstance(key, TaskId):
            self._tasks.setdefault(key.connector, set()).add(key)

    def _forget(self, key: str | TaskId) -> None:
        self._status.pop(key, None)
        if isinstance(key, TaskId) and key.connector in self._tasks:
            self._tasks[key.connector].discard(key)
            if not self._tasks[key.connector]:
                del self._tasks[key.connector]

    def _say(self, record: Record) -> Record:
        self._said[record[0]] = record[1]
        return record

    def drop(self, key: str | TaskId) -> Record:
        """Forget a status; returns the tombstone to write."""
        self._forget(key)
        return self._say((status_key(key), None))

    def see_topic(self, topic: ActiveTopic) -> Record | None:
        """Note that a connector uses a topic; returns the record to write if that is news."""
        of_connector = self._topics.setdefault(topic.connector, {})
        if topic.topic in of_connector:
            return None
        of_connector[topic.topic] = topic
        return self._say(topic_record(topic))

    def drop_topics(self, connector: str) -> list[Record]:
        """Forget a connector's topics; returns the tombstones to write."""
        keys = [topic_key(connector, t) for t in self._topics.pop(connector, {})]
        return [self._say((key, None)) for key in keys]


def status_target(key: str) -> str | TaskId | None:
    """Returns the target of a record with this key: a connector (by name) or a task."""
    if key.startswith(STATUS_TASK):
        return task_of(key.removeprefix(STATUS_TASK))
    return key.removeprefix(STATUS_CONNECTOR) if key.startswith(STATUS_CONNECTOR) else None


def _parse_status(key: str, value: bytes) -> Status | None:
    data = decode(key, value)
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
