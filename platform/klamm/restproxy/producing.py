"""The proxy's producer: records in, deliveries out, in bounded memory.

Records are handed over by the event loop. A thread waits for librdkafka's answers and hands a request's deliveries back once, when the
last one is there. `Room` counts what waits for the brokers: a request is taken whole or refused, so that a refusal sent nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from klamm.restproxy.errors import ProxyError, busy, kafka_error, topic_not_found

log = logging.getLogger(__name__)

POLL_S: Final = 0.5
OVERHEAD: Final = 200
"""Bytes that a waiting record costs beside its content."""
KNOWN_S: Final = 30.0
"""The time for which a topic's partitions are believed."""
KNOWN_MAX: Final = 10_000
CREATED_S: Final = (0.1, 0.3, 0.6)
"""Pauses before an unknown topic is asked for again: the first question may have made it, where brokers create topics by themselves."""
ASK_S: Final = 15.0
ASKING: Final = 8
"""Questions for partitions at a time; others wait, and keep nothing else waiting."""
FLUSH_S: Final = 10.0
_QUEUE_MAX: Final = 10_000_000  # `Room` is the limit


class Record(NamedTuple):
    """A record to be sent. Without a partition, its key chooses it."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def bytes(self) -> int:
        """The bytes that the record costs while it waits, headers included."""
        size = OVERHEAD + len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(OVERHEAD + len(name) + len(value or b"") for name, value in self.headers)
        return size


class Delivered(NamedTuple):
    """The answer for a record: its place, or an error."""

    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    error: ProxyError | None = None


class Room:
    """Counts bytes that wait. A request larger than all there is passes when nothing else waits."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.bytes_max


class _Waiting:
    """The deliveries of a request, collected in the thread."""

    __slots__ = ("_done", "found", "left")

    def __init__(self, count: int, done: Callable[[_Waiting], None]) -> None:
        self.found = [Delivered()] * count
        self.left = count
        self._done = done

    def note(self, index: int, delivered: Delivered) -> None:
        self.found[index] = delivered
        self.left -= 1
        if self.left == 0:
            self._done(self)


class Producing:
    """The producer of a proxy (see the module)."""

    def __init__(self, settings: Mapping[str, Any], bytes_max: int) -> None:
        self._settings = {"queue.buffering.max.messages": _QUEUE_MAX, **settings}
        self.room = Room(bytes_max)
        self.records = self.errors = self.refused = 0
        self._topics: dict[str, tuple[float, int]] = {}
        self._asking = ThreadPoolExecutor(ASKING, thread_name_prefix="metadata")
        self._freed = asyncio.Event()
        self._producer: Producer | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._handing = threading.Lock()
        self._done: list[tuple[asyncio.Future[list[Delivered]], int, _Waiting]] = []
        """Requests whose deliveries are there; the event loop is woken once for those that come together."""

    def start(self) -> None:
        """Begins; needs a running loop. Raises KafkaException for settings that librdkafka refuses."""
        self._loop = asyncio.get_running_loop()
        self._renew()

    async def stop(self) -> None:
        """Waits a moment for what is under way."""
        if self._producer is not None:
            await asyncio.to_thread(self._producer.flush, FLUSH_S)
        self._closed = True
        self._asking.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def partitions(self, topic: str, *, above: int = -1) -> int:
        """Returns the number of partitions of a topic, anew unless it has one `above`. Raises ProxyError 40401 where there is none."""
        known = self._topics.get(topic)
        now = time.monotonic()
        if known is not None and known[0] > now and known[1] > above:
            return known[1]
        for pause in (*CREATED_S, None):
            count = await self._asked_partitions(topic)
            if count:
                break
            if pause is None:
                raise topic_not_found()
            await asyncio.sleep(pause)
        if len(self._topics) >= KNOWN_MAX:
            self._topics.clear()
        self._topics[topic] = (now + KNOWN_S, count)
        return count

    async def _asked_partitions(self, topic: str) -> int:
        """Returns the number of partitions that the cluster tells; 0 where it knows no topic, or none yet."""
        assert self._producer is not None
        try:
            ask = partial(self._producer.list_topics, topic, ASK_S)
            metadata = await self._loop.run_in_executor(self._asking, ask)
        except KafkaException as e:
            raise of_client(e.args[0]) from None
        found = metadata.topics.get(topic)
        if found is None or (found.error is not None and found.error.code() in _NO_TOPIC):
            return 0
        if found.error is not None:
            raise of_client(found.error)
        return len(found.partitions)

    def send(self, topic: str, records: Sequence[Record]) -> asyncio.Future[list[Delivered]]:
        """Hands records over, all or none; the future has a delivery for each. Raises ProxyError 429 without room."""
        size = sum(each.bytes for each in records)
        if not self.room.fits(size):
            self.refused += 1
            raise busy("Too many records wait for the brokers")
        future: asyncio.Future[list[Delivered]] = self._loop.create_future()
        if not records:
            future.set_result([])
            return future
        self.room.used += size
        waiting = _Waiting(len(records), partial(self._hand_back, future, size))
        for index, each in enumerate(records):
            self._produce(topic, each, partial(_note, waiting, index))
        return future

    def send_one(self, topic: str, record: Record, size: int) -> asyncio.Future[list[Delivered]]:
        """Hands over a record of so many bytes, for which there is room, as `send` does."""
        future: asyncio.Future[list[Delivered]] = self._loop.create_future()
        self.room.used += size
        self._produce(topic, record, partial(_note, _Waiting(1, partial(self._hand_back, future, size)), 0))
        return future

    async def has_room(self, size: int) -> None:
        """Waits until so many bytes of records may be sent."""
        while not self.room.fits(size):
            self._freed.clear()
            await self._freed.wait()

    def _produce(self, topic: str, record: Record, note: Any) -> None:
        assert self._producer is not None
        more: dict[str, Any] = {}
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        try:
            self._producer.produce(topic, record.value, record.key, on_delivery=note, **more)
        except BufferError:
            note(KafkaError(KafkaError._QUEUE_FULL), None)  # noqa: SLF001
        except KafkaException as e:
            if e.args[0].fatal():
                self._renew()
            note(e.args[0], None)

    def _hand_back(self, future: asyncio.Future[list[Delivered]], size: int, waiting: _Waiting) -> None:
        with self._handing:
            self._done.append((future, size, waiting))
            is_first = len(self._done) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._handed_back)

    def _handed_back(self) -> None:
        with self._handing:
            done, self._done = self._done, []
        for future, size, waiting in done:
            self.room.used -= size
            self.records += len(waiting.found)
            for each in waiting.found:
                if each.error is not None:
                    self.errors += 1
            if not future.done():
                future.set_result(waiting.found)
        self._freed.set()

    def _renew(self) -> None:
        """Makes a producer; an idempotent one is of no use after a fatal error."""
        if self._producer is not None:
            log.error("the producer had a fatal error, and is replaced")
        self._producer = producer = Producer(self._settings)
        thread = threading.Thread(target=self._poll, args=[producer], name="deliveries", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _poll(self, producer: Producer) -> None:
        while not self._closed and (producer is self._producer or len(producer)):
            producer.poll(POLL_S)
            if producer is not self._producer:
                producer.purge()


_NO_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.TOPIC_EXCEPTION,
    }
)
_NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_LATER: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._QUEUE_FULL,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
    }
)


def of_client(error: KafkaError) -> ProxyError:
    """Returns the answer for an error of librdkafka."""
    code = error.code()
    if code in {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}:  # noqa: SLF001
        return ProxyError(40101, error.str())
    if code in _NOT_ALLOWED:
        return ProxyError(40301, error.str())
    if code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001
        return topic_not_found()
    return kafka_error(error.str(), retriable=error.retriable() or code in _LATER)


def _note(waiting: _Waiting, index: int, error: KafkaError | None, message: Any) -> None:
    if error is not None:
        waiting.note(index, Delivered(error=of_client(error)))
    else:
        kind, timestamp = message.timestamp()
        waiting.note(index, Delivered(message.partition(), message.offset(), timestamp if kind else -1))
