"""Topics are made and deleted for clients: in slices, so that the event loop goes on, and deletions in batches.

A change of the topic registry is an fsync. Deletions that come while one is going on, from any client, are done with
one change of the registry, as group commit does for records. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from klamm_broker.server.slices import drive, then
from klamm_broker.server.topics import INTERNAL

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.broker import Broker
    from klamm_broker.server.topics import Topic

log = logging.getLogger(__name__)

New = tuple[int, Mapping[str, str]]
Failed = dict[str, Exception]
_R = TypeVar("_R")


class TopicChanges:
    """One per broker. What is under way is waited for when the broker closes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Topic, asyncio.Future[OSError | None]]] = []
        self._deleting = False  # those that come meanwhile are done together after it
        self._under_way: set[asyncio.Future[Any]] = set()

    def create(self, wanted: Mapping[str, New]) -> Failed | asyncio.Future[Failed]:
        """Create topics; what went wrong, by name (see `Broker.create_topics`)."""
        if not INTERNAL.isdisjoint(wanted):  # the coordinators ask for them as well, and cannot wait
            return self._broker.create_topics(wanted)
        return self.run(self._broker.creating_topics(wanted))

    def run(self, steps: Steps[_R]) -> _R | asyncio.Future[_R]:
        """Run steps that change topics; their result, or a future of it when they take longer than a slice."""
        result = drive(self._broker.loop, steps)
        if isinstance(result, asyncio.Future):
            self._under_way.add(result)
            result.add_done_callback(self._under_way.discard)
        return result

    def delete(self, topic: Topic) -> asyncio.Future[OSError | None]:
        """Delete a topic, together with others; why it could not be."""
        answer: asyncio.Future[OSError | None] = self._broker.loop.create_future()
        self._waiting.append((topic, answer))
        if not self._deleting:
            self._deleting = True
            self._broker.loop.call_soon(self._delete_all)
        return answer

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._under_way or self._deleting:
            if self._under_way:
                await asyncio.wait(self._under_way)
            await asyncio.sleep(0)

    def _delete_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        topics = {topic.id: topic for topic, _ in waiting if topic.id in self._broker.topics.by_id}
        result = self.run(self._deletion(list(topics.values())))

        def told(error: OSError | None) -> None:
            _tell(waiting, error)
            self._deleting = bool(self._waiting)
            if self._deleting:
                self._broker.loop.call_soon(self._delete_all)

        then(self._broker.loop, result, told)

    def _deletion(self, topics: list[Topic]) -> Steps[OSError | None]:
        busy = [topic.name for topic in topics if topic.name in self._broker.logs.busy]
        if busy:
            return OSError(errno.EBUSY, f"partitions are being added to topic {busy[0]}; try again")
        if topics:
            try:
                yield from self._broker.deleting_topics(topics)
            except OSError as e:
                return e
            except Exception as e:  # a defect of ours: who waits must hear of it, and later deletions go on
                log.exception("topics could not be deleted")
                return OSError(errno.EIO, repr(e))
        return None


def _tell(waiting: list[tuple[Topic, asyncio.Future[OSError | None]]], error: OSError | None) -> None:
    for _, answer in waiting:
        if not answer.done():
            answer.set_result(error)
