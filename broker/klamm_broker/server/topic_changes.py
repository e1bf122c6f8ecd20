"""Creates, grows and deletes topics: in slices, so that the event loop goes on, and deletions in batches.

A change of the topic registry is an fsync, and writes all topics: a request makes one. Deletions that come while one
is going on, from any client, are done with one change of the registry, as group commit does for records. Growths,
deletions and changes of the configuration of the same topic take turns in the order of their requests, so that each
begins with what the last one has left. A `TopicListener` hears of each change, once logs and `Storage.topics` agree.
Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.log.errors import LogError
from klamm_broker.log.steps import Steps, finish
from klamm_broker.server.slices import drive, when_done
from klamm_broker.server.topics import metric_name

if TYPE_CHECKING:
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Topic

log = logging.getLogger(__name__)

New = tuple[int, Mapping[str, str]]
"""Number of partitions and own properties of a topic to create."""
Failed = dict[str, Exception]
_R = TypeVar("_R")

_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ")


class TopicListener(Protocol):
    """Hears of changes; called after them."""

    def on_topics_created(self, names: Collection[str]) -> None: ...
    def on_partitions_added(self, topic: Topic) -> None: ...
    def on_topic_deleted(self, topic: Topic) -> None: ...


class TopicChanges:
    """One per broker. `Broker.close` waits for the changes that are under way."""

    def __init__(self, storage: Storage, listener: TopicListener) -> None:
        self._storage = storage
        self._loop = storage.loop
        self._listener = listener
        self._waiting: list[tuple[Topic, asyncio.Future[Exception | None]]] = []
        self._deleting = False  # later deletions wait, and are done together
        self._under_way: set[asyncio.Future[Any]] = set()
        self._not_begun: set[asyncio.Future[Any]] = set()
        """Changes that wait for others: a broker that stops gives them up."""
        self._changing: dict[str, asyncio.Future[Any]] = {}
        """Topics that are being changed: the last change in the line of each."""
        self._going: dict[str, asyncio.Future[None]] = {}
        """Topics that nobody sees any more, and whose names are not free yet."""
        self._coming: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Topics that are being created, by their names in metrics."""

    def run(self, steps: Steps[_R], *, creates: Collection[str] = ()) -> _R | asyncio.Future[_R]:
        """Run steps that change topics; their result, or a future of it when they take longer than a slice.

        Steps that create topics begin when these names are free: who has seen the end of a topic may take its name.
        """
        return self._run_after({self._going[name] for name in creates if name in self._going}, steps)

    def change(self, steps: Steps[_R], *, topics: Collection[str]) -> _R | asyncio.Future[_R]:
        """Run steps that change topics which are there, once earlier changes of any of them have ended."""
        result = self._run_after({self._changing[name] for name in topics if name in self._changing}, steps)
        if isinstance(result, asyncio.Future):
            self._line_up(result, topics)
        return result

    def _line_up(self, change: asyncio.Future[Any], topics: Collection[str]) -> None:
        """Let later changes of these topics wait for this one."""
        self._changing |= dict.fromkeys(topics, change)
        change.add_done_callback(partial(self._changed, topics))

    def _changed(self, topics: Collection[str], done: asyncio.Future[Any]) -> None:
        for name in topics:
            if self._changing.get(name) is done:
                del self._changing[name]

    def _run_after(self, others: set[asyncio.Future[Any]], steps: Steps[_R]) -> _R | asyncio.Future[_R]:
        if others:
            task = self._loop.create_task(self._after(others, steps))
            self._keep_waiting(task)
            return task
        result = drive(self._loop, steps)
        if isinstance(result, asyncio.Future):
            self._keep(result)
        return result

    def _keep(self, change: asyncio.Future[Any]) -> None:
        """Let `finish` wait for a change."""
        self._under_way.add(change)
        change.add_done_callback(self._under_way.discard)

    def _keep_waiting(self, change: asyncio.Future[Any]) -> None:
        """Let `finish` give up a change unless it has begun by then."""
        self._keep(change)
        self._not_begun.add(change)
        change.add_done_callback(self._not_begun.discard)

    async def _after(self, others: set[asyncio.Future[Any]], steps: Steps[_R]) -> _R:
        await asyncio.wait(others)
        self._not_begun.discard(asyncio.current_task())  # this is one
        result = drive(self._loop, steps)
        return await result if isinstance(result, asyncio.Future) else result

    async def finish(self) -> None:
        """Wait for what is under way. What has not begun is given up: its future is cancelled."""
        while self._under_way:
            for change in list(self._not_begun):
                change.cancel()
            await asyncio.wait(self._under_way)
            await asyncio.sleep(0)

    # ---- creation

    def create(self, wanted: Mapping[str, New]) -> Failed | asyncio.Future[Failed]:
        """Create topics; returns the errors by name, as `create_topic` raises them. The other topics are served."""
        if not INTERNAL_TOPICS.isdisjoint(wanted):  # coordinators create internal topics too, and cannot wait
            return finish(self.creating(wanted))
        return self.run(self.creating(wanted))

    def creating(self, wanted: Mapping[str, New]) -> Steps[Failed]:
        """Create topics in steps of a partition each. They are served after the last step, all together."""
        storage = self._storage
        for name in wanted:
            self._coming[metric_name(name)][name] += 1
        try:
            failed = yield from storage.logs.creating_topics(wanted, now_ms=storage.now_ms())
        finally:
            for name in wanted:
                names = self._coming[metric_name(name)]
                names -= Counter({name: 1})
                if not names:
                    del self._coming[metric_name(name)]
        created = [name for name in wanted if name not in failed]
        for name in created:
            log.info("created topic %s with %d partitions", name, wanted[name][0])
            storage.serve_topic(name)
        self._listener.on_topics_created(created)
        return failed

    def colliding(self, name: str) -> str | None:
        """Returns a topic with the same name in metrics, as `TopicTable.colliding`; also one that is being created."""
        coming: Collection[str] = self._coming.get(metric_name(name), ())
        return self._storage.topics.colliding(name) or min((n for n in coming if n != name), default=None)

    def create_topic(
        self, name: str, *, partitions: int, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic; it is on the disk when this returns. The caller has checked name and count.

        Raises KeyError when it exists, ConfigError for bad overrides, DirectoryError and OSError for the disk.
        """
        failed = finish(self.creating({name: (partitions, overrides or {})}))
        if name in failed:
            raise failed[name]
        return self._storage.topics.by_name[name]

    def ensure_internal(self, name: str, *, partitions: int, overrides: Mapping[str, str]) -> bool:
        """Create a topic that the broker itself writes to, unless it exists. Returns whether it exists now.

        A failure is logged; the client that needs the topic asks again.
        """
        if name in self._storage.topics.by_name:
            return True
        if name in self._going:
            log.warning("%s could not be created yet: it is still being deleted", name)
            return False
        try:
            self.create_topic(name, partitions=partitions, overrides=overrides)
        except (LogError, OSError) as e:
            why = _ERRNO.sub("", str(e))  # the error number adds nothing to the sentence
            log.error("%s could not be created, it is tried again when a client needs it: %s", name, why)  # noqa: TRY400
            return False
        return True

    # ---- growth

    def growing(self, wanted: Mapping[str, int]) -> Steps[Failed]:
        """Grow topics to these numbers of partitions in steps; the new ones are served after the last step, all together."""
        storage = self._storage
        failed = yield from storage.logs.growing_topics(wanted, now_ms=storage.now_ms())
        for name in wanted:
            if name not in failed:
                topic = storage.topics.by_name[name]
                storage.serve_partitions(topic)
                self._listener.on_partitions_added(topic)
        return failed

    # ---- deletion

    def delete(self, topic: Topic) -> asyncio.Future[Exception | None]:
        """Delete a topic, once earlier changes of it have ended, together with others.

        The future gives the OSError if it is still there, and KeyError if one of the earlier changes has deleted it.
        """
        answer: asyncio.Future[Exception | None] = self._loop.create_future()
        earlier = self._changing.get(topic.name)
        self._keep_waiting(answer)
        self._line_up(answer, [topic.name])
        if earlier is None:
            self._delete_soon(topic, answer)
        else:
            earlier.add_done_callback(lambda _: self._delete_soon(topic, answer))
        return answer

    def _delete_soon(self, topic: Topic, answer: asyncio.Future[Exception | None]) -> None:
        if answer.done():  # given up
            return
        self._waiting.append((topic, answer))
        if not self._deleting:
            self._deleting = True
            self._loop.call_soon(self._delete_all)

    def _delete_all(self) -> None:
        waiting = [(topic, answer) for topic, answer in self._waiting if not answer.done()]
        self._waiting = []
        self._not_begun.difference_update(answer for _, answer in waiting)
        there = self._storage.topics.by_id
        gone = {topic.id: KeyError(topic.name) for topic, _ in waiting if topic.id not in there}
        result = self.run(self._deletion([topic for topic, _ in waiting if topic.id in there]))

        def told(errors: Mapping[bytes, Exception]) -> None:
            _tell(waiting, gone | dict(errors))
            self._deleting = bool(self._waiting)
            if self._deleting:
                self._loop.call_soon(self._delete_all)

        when_done(self._loop, result, told)

    def _deletion(self, topics: list[Topic]) -> Steps[dict[bytes, Exception]]:
        """Delete topics. Returns the errors by id."""
        error: Exception | None = None
        if topics:
            try:
                yield from self.deleting(topics)
            except OSError as e:
                some = topics[0].name if len(topics) == 1 else f"{topics[0].name} and {len(topics) - 1} more"
                log.error("topic %s could not be deleted: %s", some, e)  # noqa: TRY400
                error = e
            except Exception as e:  # a defect of ours: tell those who wait, and go on with later deletions
                log.exception("topics could not be deleted")
                error = OSError(errno.EIO, repr(e))
        return {} if error is None else {topic.id: error for topic in topics}

    def deleting(self, topics: Sequence[Topic]) -> Steps[None]:
        """Delete topics in steps: once the registry is written they are gone for everybody, or OSError is raised."""
        storage = self._storage
        steps = storage.logs.deleting_topics([topic.name for topic in topics], now_ms=storage.now_ms())
        try:
            yield next(steps)
        except OSError as e:
            steps.throw(e)  # the registry may have been written nevertheless
        else:
            next(steps)
        gone = self._loop.create_future()
        for topic in topics:
            storage.topics.remove(topic)
            self._going[topic.name] = gone
            for partition in topic.partitions:
                partition.deleted = True
        try:
            yield from steps
        except OSError as e:
            log.error("deleted topics have left files, which go at the next start: %s", e)  # noqa: TRY400
        finally:
            for topic in topics:
                del self._going[topic.name]
            gone.set_result(None)
        # An answer may let its connection go on with requests that wait in its buffer, which may create the topic
        # anew: nothing is answered before logs and topics agree.
        for topic in topics:
            for partition in topic.partitions:
                storage.waiting.gone(partition)
                storage.commits.gone(partition)
            self._listener.on_topic_deleted(topic)
            log.info("deleted topic %s", topic.name)


def _tell(
    waiting: list[tuple[Topic, asyncio.Future[Exception | None]]], errors: Mapping[bytes, Exception]
) -> None:
    for topic, answer in waiting:
        if not answer.done():
            answer.set_result(errors.get(topic.id))
