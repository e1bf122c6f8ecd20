"""Threads that keep several bulk requests under way and process their answers.

One lock guards buffer, window and tracker. A thread takes a request under the lock, sends it without the
lock, and settles the answer under the lock. Bad records and failures wait for the task's own thread, which
alone may handle them.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from klamm_connectors.elasticsearch.answers import Verdicts, is_servers, judge, never_fits, where
from klamm_connectors.elasticsearch.buffer import Buffer, Document, Part, Request
from klamm_connectors.elasticsearch.client import NO_ANSWER, Reply
from klamm_connectors.elasticsearch.config import Settings
from klamm_connectors.elasticsearch.conflicts import Conflicts
from klamm_connectors.elasticsearch.tracker import Chunk, Tracker
from klamm_connectors.elasticsearch.window import Window
from klamm_plugins.records import TopicPartition

log = logging.getLogger(__name__)

_JOIN_S: Final = 1.0
_BUFFER_BYTES: Final = 64 << 20
_AWAY: Final = frozenset({NO_ANSWER, 502, 503, 504})


class BulkClient(Protocol):
    """The part of `client.Client` that the sender uses."""

    def bulk(self, body: bytes, read_timeout_s: float) -> Reply: ...
    def exists(self, name: str) -> Reply: ...
    def create_index(self, name: str, mapping: dict[str, Any] | None) -> Reply: ...
    def close(self) -> None: ...


class Sender:
    """The sending threads. The constructor starts them and `close` ends them; all methods are for the task's thread."""

    def __init__(self, settings: Settings, client: BulkClient) -> None:
        self._settings = settings
        self._client = client
        self._changed = threading.Condition()
        self._buffer = Buffer()
        self._tracker = Tracker()
        self._window = Window(settings.in_flight, settings.batch_size, settings.backoff_s)
        self._under_way: set[Request] = set()
        self._conflicts = Conflicts(offsets_are_versions=not settings.version_header)
        self._bytes = max(_BUFFER_BYTES, 4 * settings.in_flight * settings.bulk_bytes)
        self._closed = False
        self._bad: list[tuple[Document, str]] = []
        self._failure: str | None = None
        self._mappings: dict[str, dict[str, Any] | None] = {}
        self._ready_indices: set[str] = set()
        self._trouble: tuple[str, float] | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"bulk-{i}", daemon=True)
            for i in range(settings.in_flight)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> str | None:
        """The reason why the task cannot continue; None while it can."""
        return self._failure

    @property
    def open(self) -> int:
        """The number of documents that were added and are not dealt with."""
        return self._buffer.open

    @property
    def trouble(self) -> str | None:
        """The reason why the server accepts nothing at the moment, or None."""
        return self._trouble[0] if self._trouble else None

    def knows(self, index: str) -> bool:
        return index in self._mappings

    def announce(self, index: str, mapping: dict[str, Any] | None) -> None:
        """Has the index made with this mapping before its first document is sent, unless it exists."""
        with self._changed:
            self._mappings[index] = mapping

    def begin(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Chunk]:
        """Returns chunks for records that end before these offsets. They stay open until `add` gets them."""
        with self._changed:
            return {place: self._tracker.begin(place, end) for place, end in ends.items()}

    def add(self, parts: Sequence[Part], filled: Iterable[Chunk]) -> None:
        """Queues these documents. `filled` are the chunks whose documents are now all added."""
        with self._changed:
            for part in parts:
                part.chunk.open += len(part)
            for chunk in filled:
                chunk.open -= 1
            self._buffer.add(parts, time.monotonic())
            self._changed.notify_all()

    def settle(self, chunk: Chunk) -> None:
        """Marks one document of this chunk as dealt with, by the task's thread."""
        with self._changed:
            chunk.open -= 1

    def take_bad(self) -> list[tuple[Document, str]]:
        """Returns documents that the server refused, with the reason. The task's thread decides about them and settles
        them.
        """
        with self._changed:
            bad, self._bad = self._bad, []
            return [pair for pair in bad if not pair[0].chunk.dropped]

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Calls `Tracker.committable` under the lock."""
        with self._changed:
            return self._tracker.committable(offsets)

    def take_conflicts(self, ends: Mapping[TopicPartition, int]) -> list[tuple[bool, str]]:
        """Calls `Conflicts.take` under the lock."""
        with self._changed:
            return self._conflicts.take(ends)

    def drop(self, places: Collection[TopicPartition], wait_s: float) -> bool:
        """Stops sending documents of these partitions and waits for those under way. Returns False when some still are."""

        def ended() -> bool:
            return not any(part.chunk.dropped for r in self._under_way for part in r.parts)

        with self._changed:
            self._tracker.drop(places)
            self._changed.notify_all()
            return self._changed.wait_for(ended, wait_s)

    def wait(self, limit: int, timeout_s: float, *, patient: bool = False) -> bool:
        """Waits until at most `limit` documents, and as large a share of the bytes, are open.

        Gives up early while the server is in trouble, unless `patient`.
        """
        size = self._bytes * limit // self._settings.buffered

        def roomy() -> bool:
            return self._buffer.open <= limit and self._buffer.size <= size

        def enough() -> bool:
            return roomy() or self._failure is not None or (self._window.troubled and not patient)

        with self._changed:
            self._changed.wait_for(enough, timeout_s)
            return roomy()

    def close(self) -> None:
        """Ends the threads. Does not wait for threads that wait for an answer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._client.close()

    def _run(self) -> None:
        try:
            while (request := self._next()) is not None:
                reply = self._send(request)
                verdicts = None
                if reply.status == 200:
                    verdicts = judge(request.parts, reply.body, self._settings.max_retries)
                with self._changed:
                    self._under_way.discard(request)
                    if verdicts is None:
                        self._refused(request, reply)
                    else:
                        self._answered(request, verdicts)
                    self._changed.notify_all()
        except Exception as e:
            log.exception("a thread that sends documents ended")
            with self._changed:
                self._failure = self._failure or f"sending documents failed: {e!r}"
                self._changed.notify_all()

    def _next(self) -> Request | None:
        """Waits for the next request; returns None at the end."""
        with self._changed:
            while not self._closed and self._failure is None:
                now = time.monotonic()
                if pause := self._pause(now):
                    self._changed.wait(None if pause < 0 else pause)
                    continue
                request = self._buffer.take(self._window.documents, self._settings.bulk_bytes, now)
                if request is not None:
                    request.sent_at = now
                    self._under_way.add(request)
                    return request
            return None

    def _pause(self, now: float) -> float:
        """Returns the seconds until a request can be sent: 0 for now, negative for "when something changes"."""
        if len(self._under_way) >= self._window.allowed or not (
            self._buffer.has_requests or self._buffer.waiting
        ):
            return -1.0
        if now < self._window.hold_until:
            return self._window.hold_until - now
        if self._buffer.has_requests or self._buffer.waiting >= self._window.documents:
            return 0.0
        return max(0.0, self._settings.linger_s - self._buffer.age(now))

    def _send(self, request: Request) -> Reply:
        for index in request.indices - self._ready_indices:
            reply = self._make_ready(index)
            if reply is not None:
                return reply
            self._ready_indices.add(index)
        timeout_s = self._settings.read_timeout_s * 2 ** min(request.timeouts, 20)
        return self._client.bulk(request.body(), min(timeout_s, self._settings.read_timeout_max_s))

    def _make_ready(self, index: str) -> Reply | None:
        """Makes sure that the target exists. Returns None when it does, or when its first document creates it."""
        reply = self._client.exists(index)
        if reply.status == 200:
            return None
        if reply.status != 404:
            return _about(f"{index} cannot be looked up", reply)
        if self._settings.resources:
            missing = f"{index}, which topic.to.external.resource.mapping names, does not exist"
            return Reply(404, reason=missing, fatal=True)
        if self._settings.to_streams:
            return None
        reply = self._client.create_index(index, self._mappings.get(index))
        if reply.status == 200:
            return None
        return _about(f"index {index} cannot be made", reply)

    def _answered(self, request: Request, found: Verdicts) -> None:
        now = time.monotonic()
        for part in found.done:
            part.chunk.open -= len(part)
        self._buffer.done([*found.done, *[d for d, _ in found.malformed]], now, again=found.again)
        self._bad += found.malformed
        for document, action, reason in found.conflicts:
            self._conflicts.add(document, action, reason)
        if found.failed is not None:
            self._fail(found.failed)
            return
        if found.blocked is not None:
            self._window.unreachable(request.sent_at, now, random.random())
        elif found.busy is not None or found.passing is not None:
            self._window.refused(request.sent_at, now, random.random())
        else:
            self._window.got_through()
        self._note(found.blocked or found.busy or found.passing, now)
        if found.again:
            self._buffer.again(request, found.again, self._window.documents)

    def _refused(self, request: Request, reply: Reply) -> None:
        """Handles a request that the server refused as a whole."""
        now = time.monotonic()
        if reply.fatal:
            self._fail(reply.reason)
        elif reply.status == 429 and never_fits(reply.reason):
            self._divide(request, reply, now)
        elif reply.status == 429:
            self._window.refused(request.sent_at, now, random.random())
            self._note(reply.reason, now)
            self._buffer.again(request, request.documents, self._window.documents)
        elif reply.status in _AWAY:
            request.timeouts += reply.timed_out
            self._window.unreachable(request.sent_at, now, random.random())
            self._note(reply.reason, now)
            self._buffer.again(request, request.documents, self._window.documents)
        elif reply.status == 413 or (reply.status == 400 and is_servers(reply.body)):
            self._divide(request, reply, now)
        elif reply.status >= 500:
            self._passing(request, reply, now)
        else:
            self._fail(f"a bulk request was refused: {reply.reason}")

    def _divide(self, request: Request, reply: Reply, now: float) -> None:
        """Splits a request that is too large or holds an unacceptable document, to find the culprit."""
        documents = request.documents
        if len(documents) == 1 and documents[0].rewrite():
            self._buffer.again(request, documents, 1)
        elif len(documents) == 1:
            self._buffer.done(documents, now)
            self._bad.append((documents[0], reply.reason))
        else:
            self._buffer.split(request)

    def _passing(self, request: Request, reply: Reply, now: float) -> None:
        for document in request.documents:
            document.attempts += 1
        worst = max(request.documents, key=lambda d: d.attempts)
        if worst.attempts > self._settings.max_retries:
            self._fail(f"{where(worst)}: {reply.reason}, after {worst.attempts} attempts (max.retries)")
            return
        self._window.refused(request.sent_at, now, random.random())
        self._note(reply.reason, now)
        self._buffer.again(request, request.documents, self._window.documents)

    def _note(self, reason: str | None, now: float) -> None:
        """Logs once why nothing moves, and once that it moves again."""
        if reason is not None and self._trouble is None:
            self._trouble = reason, now
            log.warning("Elasticsearch does not take documents, waiting: %s", reason)
        elif reason is None and self._trouble is not None and not self._window.troubled:
            log.info("Elasticsearch takes documents again after %.1f s", now - self._trouble[1])
            self._trouble = None

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason


def _about(what: str, reply: Reply) -> Reply:
    """Rewords an answer about a target. An error that does not pass by itself becomes fatal: no document is to blame."""
    final = reply.fatal or (reply.status not in _AWAY and reply.status != 429 and reply.status < 500)
    return replace(reply, reason=f"{what}: {reply.reason}", fatal=final)


MakeClient = Callable[[Settings], BulkClient]
