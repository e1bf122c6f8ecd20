"""Reads records for a search or a live tail, in a thread of its own, with a consumer that ends when it is told to.

    async for event in stream(cluster, topic, query): …

Whoever reads stops by leaving the loop: the thread sees it within `STEP_S`, and closes the consumer. Events are bounded: the
thread waits for a browser that does not take them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from klamm.console.errors import ConsoleError, NotThere
from klamm.console.records.plan import Newest, Places, Ranges, from_offset, going_on, total, windows
from klamm.console.records.query import Query
from klamm.console.records.shown import Look, Record, no_registry
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.console.cluster import Cluster

STEP_S: Final = 0.1
ANSWER_S: Final = 10.0
PROGRESS_S: Final = 0.25
SILENCE_S: Final = 30.0
BATCH: Final = 1_000
QUEUED: Final = 4
"""Events that wait for the browser. Each may hold a batch of large records."""
FIRST: Final = -2
END: Final = -1
"""Times that Kafka takes for a log's beginning and its end."""
TAIL_MAX: Final = 200
"""Records of a tail that are shown at a time; the others are counted, because nobody reads so fast."""
_CONSUMER: Final = {
    "group.id": "klamm-console",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # what retention has taken meanwhile is passed over
    "queued.max.messages.kbytes": 16_384,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A search on its way: offsets it has passed and offsets there are, records it has looked at."""

    passed: int
    total: int
    read: int
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a search. `places`: it has found as many as were asked for; where to go on for more."""

    read: int
    seconds: float
    places: Places = field(default_factory=dict)


Event = list[Record] | Progress | Done


async def stream(
    cluster: Cluster, topic: str, query: Query, *, tail: bool = False, login: str | None = None
) -> AsyncGenerator[Event, None]:
    """Yields what a search finds. `login`: an Authorization header for the registry. Raises KlammError and ConsoleError."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(QUEUED)
    stop = threading.Event()

    def give(event: Event | BaseException | None) -> None:
        while not room.acquire(timeout=STEP_S):
            if stop.is_set():
                return
        loop.call_soon_threadsafe(queue.put_nowait, event)

    def work() -> None:
        from confluent_kafka import KafkaException

        try:
            reading = Reading(cluster, topic, query, stop, login)
            for event in reading.tail() if tail else reading.search():
                give(event)
            give(None)
        except KafkaException as e:
            give(KlammError(f"{topic} cannot be read: {e.args[0].str()}"))
        except BaseException as e:
            give(e)

    thread = threading.Thread(target=work, name=f"records of {topic}", daemon=True)
    thread.start()
    try:
        while (event := await queue.get()) is not None:
            room.release()
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        stop.set()
        await asyncio.shield(asyncio.to_thread(thread.join))


class Reading:
    """One search, in its thread. `stop` ends it."""

    def __init__(
        self, cluster: Cluster, topic: str, query: Query, stop: threading.Event, login: str | None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._query = query
        self._stop = stop
        self._errors: list[str] = []
        self._read = 0
        self._at: Places = {}
        """The next offset of each partition of the range that is read."""
        self._look: Look = no_registry
        if cluster.settings.registry is not None:
            from klamm.console.records.registry import Schemas

            self._look = Schemas(cluster.settings.registry, login).look

    # ---- the two ways

    def search(self) -> Iterator[Event]:
        """Yields matches and progress, then Done."""
        began = time.monotonic()
        consumer = self._open()
        try:
            ranges = self._ranges(consumer)
            if self._query.start == "newest":
                places = yield from self._backwards(consumer, ranges)
            else:
                places = yield from self._forwards(consumer, ranges)
        finally:
            consumer.close()
        yield Done(read=self._read, seconds=time.monotonic() - began, places=places)

    def tail(self) -> Iterator[Event]:
        """Yields matches as they come, the newest first, until it is stopped."""
        consumer = self._open()
        try:
            bounds = self._bounds(consumer)
            self._assign(consumer, {p: (end, end) for p, (_, end) in bounds.items()})
            yield Progress(passed=0, total=0, read=0)
            said = time.monotonic()
            left_out = 0
            while not self._stop.is_set():
                came = [r for r in self._batch(consumer) if isinstance(r, Record)]
                self._read += len(came)
                found = [r for r in came if self._query.wants(r)]
                left_out += max(0, len(found) - TAIL_MAX)
                if found:
                    yield found[-TAIL_MAX:][::-1]
                if time.monotonic() - said > PROGRESS_S * 4:
                    said = time.monotonic()
                    yield Progress(passed=0, total=0, read=self._read, left_out=left_out)
        finally:
            consumer.close()

    def _backwards(self, consumer: Any, bounds: Ranges) -> Generator[Event, None, Places]:
        whole, passed, shown = total(bounds), 0, 0
        for window in windows(bounds, self._query.limit, picky=self._query.picky):
            found = Newest(self._query.limit - shown)
            for event in self._range(consumer, window, passed, whole):
                if isinstance(event, list):
                    found.add(event)
                else:
                    yield event
            if self._stop.is_set():
                return {}
            passed += total(window)
            found.cut()
            if found.kept:
                yield found.kept
            shown += len(found.kept)
            if shown >= self._query.limit or found.left:
                return found.places(window, bounds)
        return {}

    def _forwards(self, consumer: Any, ranges: Ranges) -> Generator[Event, None, Places]:
        whole, shown = total(ranges), 0
        for event in self._range(consumer, ranges, 0, whole):
            if not isinstance(event, list):
                yield event
                continue
            room = self._query.limit - shown
            shown += len(event[:room])
            yield event[:room]
            if shown >= self._query.limit:
                for record in reversed(event[room:]):
                    self._at[record.partition] = record.offset
                return {p: at for p, at in self._at.items() if at < ranges[p][1]}
        return {}

    # ---- reading

    def _open(self) -> Any:
        from confluent_kafka import Consumer, KafkaException

        level = "read_committed" if self._query.committed else "read_uncommitted"
        own = {"isolation.level": level, "error_cb": self._note}
        settings = self._cluster.client("consumer") | _CONSUMER | own
        try:
            return Consumer(settings)
        except KafkaException as e:
            raise KlammError(f"no consumer can be made: {e.args[0].str()}") from None

    def _note(self, error: Any) -> None:
        self._errors.append(error.str())

    def _bounds(self, consumer: Any) -> Ranges:
        """Returns the first offset and the end of each wanted partition. Raises NotThere, ConsoleError, KlammError."""
        from confluent_kafka import KafkaException

        try:
            found = consumer.list_topics(timeout=ANSWER_S).topics.get(
                self._topic
            )  # all: to ask for one might create it
            if found is None:
                raise NotThere(f"there is no topic {self._topic}")
            wanted = self._query.partitions
            if wanted is not None and (absent := wanted - set(found.partitions)):
                raise ConsoleError(
                    f"partitions: {min(absent)} does not exist; {self._topic} has 0 to {max(found.partitions)}"
                )
            asked = [p for p in sorted(found.partitions) if wanted is None or p in wanted]
            starts, ends = (self._offsets(consumer, dict.fromkeys(asked, at)) for at in (FIRST, END))
        except KafkaException as e:
            consumer.poll(0)  # calls `_note` with what the brokers said
            why = self._errors[-1] if self._errors else e.args[0].str()
            raise KlammError(f"{self._topic} cannot be read: {why}") from None
        return {p: (starts[p], ends[p]) for p in asked}

    def _offsets(self, consumer: Any, times: Mapping[int, int]) -> dict[int, int]:
        """Returns the first offset of each partition whose record is as late as a time in ms; -1 where there is none."""
        from confluent_kafka import KafkaException, TopicPartition

        asked = [TopicPartition(self._topic, p, at) for p, at in times.items()]
        answers = consumer.offsets_for_times(asked, ANSWER_S) if asked else []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {answer.partition: answer.offset for answer in answers}

    def _ranges(self, consumer: Any) -> Ranges:
        """Returns the offsets that the search may read."""
        query, bounds = self._query, self._bounds(consumer)
        if query.start == "offset":
            bounds = from_offset(bounds, query.at)
        elif query.start == "time":
            at = self._offsets(consumer, dict.fromkeys(bounds, query.at))
            bounds = {p: (at[p] if at[p] >= 0 else end, end) for p, (_, end) in bounds.items()}
        if query.until_ms is not None:  # by the index of times: what is in the log after it is not read
            at = self._offsets(consumer, dict.fromkeys(bounds, query.until_ms + 1))
            bounds = {
                p: (start, max(start, at[p]) if at[p] >= 0 else end) for p, (start, end) in bounds.items()
            }
        if query.places is not None:
            bounds = going_on(bounds, query.places, back=query.start == "newest")
        return bounds

    def _assign(self, consumer: Any, ranges: Ranges) -> None:
        from confluent_kafka import TopicPartition

        partitions = [TopicPartition(self._topic, p, start) for p, (start, _) in ranges.items()]
        consumer.assign(partitions)
        consumer.resume(partitions)  # those that ended in an earlier range are paused still

    def _range(
        self, consumer: Any, ranges: Ranges, passed: int, whole: int
    ) -> Iterator[list[Record] | Progress]:
        """Yields matches of these offsets, and progress."""
        from confluent_kafka import TopicPartition

        left = {p: end for p, (start, end) in ranges.items() if start < end}
        at = self._at = {p: ranges[p][0] for p in left}
        self._assign(consumer, {p: ranges[p] for p in left})
        heard = said = time.monotonic()
        while left and not self._stop.is_set():
            matches: list[Record] = []
            for found in self._batch(consumer):
                heard = time.monotonic()
                partition = found.partition if isinstance(found, Record) else found
                if partition not in left:
                    continue
                end = left[partition]
                if isinstance(found, Record) and found.offset < end:
                    self._read += 1
                    at[partition] = found.offset + 1
                    if self._query.wants(found):
                        matches.append(found)
                # At a log's end, what is left of the range are markers of transactions, or compacted away
                if not isinstance(found, Record) or found.offset >= end - 1:
                    at[partition] = end
                    del left[partition]
                    consumer.pause([TopicPartition(self._topic, partition)])
            if matches:
                yield matches
            if time.monotonic() - said > PROGRESS_S:
                said = time.monotonic()
                yield Progress(
                    passed=passed + sum(at[p] - ranges[p][0] for p in at), total=whole, read=self._read
                )
            if time.monotonic() - heard > SILENCE_S:
                raise KlammError(f"the brokers have sent nothing of {self._topic} for {SILENCE_S:.0f} s")

    def _batch(self, consumer: Any) -> Iterator[Record | int]:
        """Yields records that are there, and the partitions that end. Raises KlammError."""
        from confluent_kafka import KafkaError

        first = consumer.poll(STEP_S)
        if first is None:
            return
        for message in [first, *consumer.consume(BATCH - 1, 0)]:
            error = message.error()
            if error is None:
                yield self._record(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                yield message.partition()
            else:
                raise KlammError(f"{self._topic} cannot be read: {error.str()}")

    def _record(self, message: Any) -> Record:
        kind, timestamp = message.timestamp()
        return Record(
            topic=self._topic,
            partition=message.partition(),
            offset=message.offset(),
            timestamp=timestamp if kind else None,
            key=message.key(),
            value=message.value(),
            headers=message.headers() or (),
            key_form=self._query.key_form,
            value_form=self._query.value_form,
            look=self._look,
        )
