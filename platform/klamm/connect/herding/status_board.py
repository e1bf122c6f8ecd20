"""Publishes the statuses of what this worker runs to the status topic, and corrects what others wrongly
say of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from klamm.connect.herding.actions import PutStatus, SeeTopic, Target
from klamm.connect.herding.announcer import Announcer
from klamm.connect.model import State
from klamm.connect.topics.status_state import ActiveTopic, Status, StatusState, status_target
from klamm.connect.topics.status_writer import StatusWriter

log = logging.getLogger(__name__)


class StatusBoard:
    """See the module. A change shows at once and is written soon. `shown` returns the status of something that
    runs here; `alive` says whether the group still has this worker; `generation` is that of the group's
    last meeting.
    """

    def __init__(
        self,
        statuses: StatusState,
        writer: StatusWriter,
        announcer: Announcer,
        *,
        shown: Callable[[Target], PutStatus | None],
        alive: Callable[[], bool],
        generation: Callable[[], int],
        tracks_topics: bool,
    ) -> None:
        self._statuses = statuses
        self.writer = writer
        self._announcer = announcer
        self._shown = shown
        self._alive = alive
        self._generation = generation
        self._tracks_topics = tracks_topics

    def read(self, key: str, value: bytes | None, _timestamp_ms: int) -> None:
        """Take in the next record of the topic."""
        foreign = self._statuses.apply(key, value)
        target = status_target(key)
        if target is None:
            return
        if foreign is not None:
            self._heal(target, foreign)
        elif self._statuses.get(target) is None:
            self._restore(target)
        self._announcer.status(target)

    def _heal(self, target: Target, foreign: Status) -> None:
        """A stale owner overwrote the status of something that runs here; publish ours again."""
        mine = self._shown(target)
        if mine is None or foreign.generation > self._generation() or not self._alive():
            return
        log.info(
            "status of %s corrected: it runs here, but %s of generation %d wrote %s",
            target, foreign.worker_id, foreign.generation, foreign.state,
        )  # fmt: skip
        self.put(mine)

    def _restore(self, target: Target) -> None:
        """Another worker removed the status of something that runs here, as it meant the status before; publish
        ours again.
        """
        mine = self._shown(target)
        if mine is not None and self._alive():
            log.info("status of %s written again: it runs here, but its status was removed", target)
            self.put(mine)

    def unassign(self, targets: Iterable[Target]) -> None:
        """As the leader, show these as UNASSIGNED, because nobody runs them, whatever their last worker said."""
        for target in targets:
            found = self._statuses.get(target)
            if found is not None and found.state in {State.RUNNING, State.PAUSED, State.RESTARTING}:
                self.put(PutStatus(target, State.UNASSIGNED, None, found.version))

    def put(self, said: PutStatus) -> None:
        """Show a state, unless a later owner has spoken, or may have spoken while this worker slept."""
        if not self._alive():
            log.info("status of %s not set to %s: contact with the group is lost", said.target, said.state)
            return
        status = Status(
            state=said.state,
            trace=said.trace,
            worker_id=self._statuses.worker_id,
            generation=self._generation(),
            version=said.version,
        )
        record = self._statuses.put(said.target, status)
        if record is None:
            log.info("status of %s not set to %s: a later owner has set it", said.target, said.state)
            return
        self.writer.write(record)
        self._announcer.status(said.target)

    def drop(self, target: Target) -> None:
        self.writer.write(self._statuses.drop(target))

    def see_topic(self, seen: SeeTopic) -> None:
        if not self._tracks_topics:
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
