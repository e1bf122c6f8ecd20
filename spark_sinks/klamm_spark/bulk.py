"""Elasticsearch's bulk API: several requests under way, slower after a 429, refused documents apart.

Elasticsearch answers per document. A 429 (of the request, or of a document) means that it is alive and
overloaded: such documents are sent again, fewer at a time, for as long as it takes (`throttle`). 502 to 504
and broken connections are tried again on the next host, until nothing was accepted for `retry_s`. Other
errors are the document's own fault; such documents are handed back. `BulkSender` is used from one thread;
its requests run in threads of its own, one connection each.
"""

from __future__ import annotations

import http.client
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import orjson
import pyarrow as pa

from klamm_base.errors import KlammError
from klamm_base.sparing import Sparing
from klamm_spark import bulk_lines
from klamm_spark.elasticsearch_http import Connection, Endpoint, reason, short
from klamm_spark.throttle import FIRST_PAUSE_S, LONGEST_PAUSE_S, Throttle

log = logging.getLogger(__name__)

WARN_EVERY_S: Final = 30.0
OVERLOAD_SAID_S: Final = 5.0
"""The sink reports that it waits for a server which answered 429 and then accepted nothing for this long."""
_OVERLOADED: Final = 429
_TOO_LARGE: Final = 413
_INVALID: Final = (
    400  # one document's id is too long, for example: the request is refused with all of the others
)
_PASSING: Final = frozenset({502, 503, 504})
_CONFLICT: Final = 409  # `create` of a document that is there: written by the run before
_PATH: Final = "/_bulk?filter_path=errors,error,items.*.status,items.*.error"
_throttles: dict[tuple[str, ...], Throttle] = {}
"""The limits that this worker process has learnt for a target. Tasks of later batches continue with them."""


class TargetError(KlammError):
    """Elasticsearch cannot be reached, or refuses whole requests. The job may try again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that Elasticsearch will never accept."""

    id: str
    index: str
    reason: str
    document: bytes


@dataclass(slots=True)
class Figures:
    """A writer's figures. `throttled` counts 429 answers; `throttled_s` is the total of seconds that requests
    waited for that reason.

    `request` and `in_flight` are the limits at the end: documents per request, and requests at once.
    """

    documents: int = 0
    refused: int = 0
    requests: int = 0
    throttled: int = 0
    throttled_s: float = 0.0
    request: int = 0
    in_flight: int = 0

    def add(self, other: Figures) -> None:
        """Adds the sums, and takes the smallest of the limits."""
        for name in ("documents", "refused", "requests", "throttled", "throttled_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.request = min(filter(None, (self.request, other.request)), default=0)
        self.in_flight = min(filter(None, (self.in_flight, other.in_flight)), default=0)


@dataclass(frozen=True, slots=True)
class Limits:
    documents: int = 2000
    bytes: int = 5 << 20
    in_flight: int = 2


@dataclass(slots=True)
class Verdict:
    """The outcome of one answer, by the documents' places in the request."""

    taken: int = 0
    overloaded: list[int] = field(default_factory=list)
    passing: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    too_large: bool = False
    """True when the request must be halved: to be accepted, or to find the documents that cannot be."""


def sort_out(answer: Mapping[str, Any], count: int) -> Verdict:
    """Sorts `count` documents by their outcome."""
    verdict = Verdict()
    if not answer.get("errors"):
        verdict.taken = count
        return verdict
    items = answer["items"]
    if len(items) != count:
        raise TargetError(f"Elasticsearch answered for {len(items)} of {count} documents")
    for place, item in enumerate(items):
        operation, result = next(iter(item.items()))
        status = int(result.get("status", 500))
        if status < 300 or (operation == "create" and status == _CONFLICT):
            verdict.taken += 1
        elif status == _OVERLOADED:
            verdict.overloaded.append(place)
        elif status in _PASSING:
            verdict.passing.append(place)
        else:
            verdict.refused.append((place, reason(result.get("error"))))
    return verdict


class BulkSender:
    """Sends blocks of documents, as a context. `finish` returns when everything is written, and raises
    TargetError.

    `on_refused` gets refused documents, in one thread at a time; an error of it ends the sender. `on_wait` gets
    the reason why nothing is accepted while the server is away or overloaded, and None when it accepts
    documents again.
    """

    def __init__(
        self,
        where: Endpoint,
        limits: Limits,
        on_refused: Callable[[list[Refused]], None],
        on_wait: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._where = where
        self._limits = limits
        self._on_refused = on_refused
        self._on_wait, self._waits = on_wait, False
        self._throttle = _throttles.setdefault(where.hosts, Throttle(limits.documents, limits.in_flight))
        self._throttle.limit(limits.documents, limits.in_flight)
        self._lock = threading.Condition()
        self._refusing = threading.Lock()
        self._running = 0
        self._pool = ThreadPoolExecutor(limits.in_flight, "bulk")
        self._connections: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._futures: set[Future[None]] = set()
        self._failure: BaseException | None = None
        self._alive_at = time.monotonic()
        self._warnings = Sparing(WARN_EVERY_S)
        self._quiet_until = self._alive_at + WARN_EVERY_S  # a short trouble is no news
        self._overloaded_at: float | None = None
        self.figures = Figures()

    def send(self, lines: pa.LargeBinaryArray) -> None:
        """Takes a block. Returns once the number of unanswered requests is within the limit."""
        rest = lines
        while len(rest):
            part = next(bulk_lines.cut(rest, self._throttle.documents, self._limits.bytes))
            rest = rest.slice(len(part))
            with self._lock:
                while len(self._futures) >= self._throttle.in_flight and self._failure is None:
                    self._lock.wait()
                self._check()
                future = self._pool.submit(self._deliver, part)
                self._futures.add(future)
            future.add_done_callback(self._done)

    def finish(self) -> Figures:
        """Waits for all answers."""
        with self._lock:
            while self._futures and self._failure is None:
                self._lock.wait()
            self._check()
        self.figures.request, self.figures.in_flight = self._throttle.documents, self._throttle.in_flight
        return self.figures

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._lock.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._connections.empty():
            self._connections.get().close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._futures.discard(future)
            if not future.cancelled() and (error := future.exception()) is not None:
                self._failure = self._failure or error
            self._lock.notify_all()

    def _deliver(self, lines: pa.LargeBinaryArray) -> None:
        """Sends, in a thread of its own, until each document is accepted or refused."""
        pause, most = FIRST_PAUSE_S, self._limits.documents
        while len(lines):
            part = next(bulk_lines.cut(lines, min(most, self._throttle.documents), self._limits.bytes))
            rest = lines.slice(len(part))
            sent_at = time.monotonic()
            verdict, why = self._ask(part)
            self._count(verdict, sent_at)
            if verdict.too_large:
                most = max(1, len(part) // 2)
                continue
            if verdict.refused:
                with self._refusing:
                    self._on_refused([_refused(part, n, text) for n, text in verdict.refused])
            again = sorted(verdict.overloaded + verdict.passing)
            if again and len(again) < len(part):
                part = bulk_lines.chosen(part, again)
            if not again:
                lines, pause = rest, FIRST_PAUSE_S
                continue
            lines = pa.concat_arrays([part, rest]) if len(rest) else part
            if verdict.overloaded:
                self._wait_calm()
            else:
                self._wait_alive(pause, why)
                pause = min(pause * 2, LONGEST_PAUSE_S)

    def _ask(self, part: pa.LargeBinaryArray) -> tuple[Verdict, str]:
        """Sends one request. Raises TargetError when it is refused as a whole."""
        everything = list(range(len(part)))
        with self._lock:
            self._lock.wait_for(lambda: self._running < self._throttle.in_flight or self._failure is not None)
            self._check()
            self._running += 1
        connection = self._connection()
        try:
            status, answer = connection.post(_PATH, bulk_lines.body(part), "application/x-ndjson")
        except (OSError, http.client.HTTPException) as e:
            connection.next_host()
            return Verdict(passing=everything), str(e) or type(e).__name__
        finally:
            self._connections.put(connection)
            with self._lock:
                self._running -= 1
                self._lock.notify_all()
        if status in {_TOO_LARGE, _INVALID} and len(part) > 1:
            return Verdict(too_large=True), ""
        if status == _TOO_LARGE:
            return Verdict(refused=[(0, f"{connection.name} takes no request of this size (413)")]), ""
        if status == _INVALID:
            return Verdict(refused=[(0, short(answer))]), ""
        if status == _OVERLOADED:
            return Verdict(overloaded=everything), ""
        if status in _PASSING:
            connection.next_host()
            return Verdict(passing=everything), f"it answers {status}"
        if status != 200:
            raise TargetError(f"{connection.name} refuses the bulk request with {status}: {short(answer)}")
        return sort_out(orjson.loads(answer), len(part)), "it answers 503 for documents"

    def _connection(self) -> Connection:
        try:
            return self._connections.get_nowait()
        except queue.Empty:
            return Connection(self._where)

    def _count(self, verdict: Verdict, sent_at: float) -> None:
        with self._lock:
            now = time.monotonic()
            self.figures.requests += 1
            self.figures.documents += verdict.taken
            self.figures.refused += len(verdict.refused)
            if verdict.overloaded:
                self.figures.throttled += 1
                self._throttle.refused(sent_at, now)
            elif not verdict.passing and not verdict.too_large:
                self._throttle.accepted()
            if verdict.taken or verdict.refused or verdict.overloaded:
                self._alive_at = now
            if verdict.overloaded and self._overloaded_at is None:
                self._overloaded_at = now
            if verdict.taken or verdict.refused:
                self._overloaded_at = None
                if self._waits:
                    self._waits = False
                    self._on_wait(None)
                    log.warning("%s: it takes documents again", self._where.hosts[0])
            self._lock.notify_all()

    def _wait_calm(self) -> None:
        """Waits after a 429, for as long as it takes, and reports it."""
        throttle = self._throttle
        self._warn(
            f"Elasticsearch is overloaded (429); {throttle.documents} documents a request, {throttle.in_flight} "
            f"requests at once, {throttle.pause_s:.1f} s between them",
        )
        since = self._overloaded_at
        if since is not None and time.monotonic() - since > OVERLOAD_SAID_S:
            self._waiting("it is overloaded (429)")
        self._sleep(max(throttle.pause_s, FIRST_PAUSE_S))

    def _wait_alive(self, pause: float, why: str) -> None:
        away = time.monotonic() - self._alive_at
        if away > self._where.retry_s:
            raise TargetError(
                f"{self._where.hosts[0]}: {why} for {self._where.retry_s:.0f} s; documents wait"
            )
        left_s = self._where.retry_s - away
        self._warn(f"{self._where.hosts[0]}: {why}; trying again for {left_s:.0f} s")
        self._waiting(why)
        self._sleep(pause, throttled=False)

    def _warn(self, text: str) -> None:
        if time.monotonic() >= self._quiet_until:
            self._warnings.warning(log, "", text)

    def _waiting(self, why: str) -> None:
        with self._lock:
            self._waits = True
            self._on_wait(f"{self._where.hosts[0]}: {why}")

    def _sleep(self, seconds: float, *, throttled: bool = True) -> None:
        """Sleeps with jitter, which keeps the tasks apart."""
        began = time.monotonic()
        with self._lock:
            self._lock.wait_for(lambda: self._failure is not None, seconds * random.uniform(0.5, 1.0))
            if throttled:
                self.figures.throttled_s += time.monotonic() - began
            self._check()


def _refused(lines: pa.LargeBinaryArray, number: int, why: str) -> Refused:
    index, identity = bulk_lines.identity(lines, number)
    return Refused(identity, index, why, bulk_lines.document(lines, number))
