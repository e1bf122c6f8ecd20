"""What this worker says of what it runs, in the status topic, and what it reads of others."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from klamm.connect.actions import PutStatus, SeeTopic, Target
from klamm.connect.status_state import ActiveTopic, Status, status_target
from klamm.connect.status_writer import StatusWriter

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime

log = logging.getLogger(__name__)


class StatusBoard:
    """See the module. Changes are seen at once and written soon."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._statuses = runtime.statuses
        self.writer = StatusWriter(runtime.producer, lambda: runtime.status_log.topic)

    def read(self, key: str, value: bytes | None, _timestamp_ms: int) -> None:
        """The next record of the topic."""
        self._statuses.apply(key, value)
        target = status_target(key)
        if target is not None:
            self._runtime.announcer.status(target)

    def put(self, said: PutStatus) -> None:
        """Show a state, unless a later owner has spoken."""
        status = Status(
            state=said.state,
            trace=said.trace,
            worker_id=self._runtime.worker_id,
            generation=self._runtime.generation,
            version=said.version,
        )
        record = self._statuses.put(said.target, status)
        if record is None:
            log.info("%s is not shown as %s: a later owner has spoken", said.target, said.state)
            return
        self.writer.write(record)
        self._runtime.announcer.status(said.target)

    def drop(self, target: Target) -> None:
        self.writer.write(self._statuses.drop(target))

    def see_topic(self, seen: SeeTopic) -> None:
        if not self._runtime.config["topic.tracking.enable"]:
            return
        topic = ActiveTopic(
            topic=seen.topic,
            connector=seen.task.connector,
            task=seen.task.task,
            discovered_ms=time.time_ns() // 1_000_000,
        )
        record = self._statuses.see_topic(topic)
        if record is not None:
            self.writer.write(record)

    def drop_topics(self, name: str) -> None:
        for record in self._statuses.drop_topics(name):
            self.writer.write(record)
