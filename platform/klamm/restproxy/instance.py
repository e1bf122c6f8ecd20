"""A consumer instance: one consumer of a group, kept between requests. It blocks; `Instances` calls it in a thread, one call at a time.

Records that do not fit into an answer wait here for the next one. Those of an answer count as read at the client's next request: a commit,
by itself or asked for, covers none whose client went away, before the answer or after it. An error that a poll meets is told once the records
before it are answered. Every request for records polls, so that a rebalance never waits for a client that takes few at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from klamm.restproxy.errors import EXCLUSIVE, ProxyError, illegal_state, partition_not_found
from klamm.restproxy.producing import of_client
from klamm.restproxy.requests import Place
from klamm.restproxy.topic_patterns import posix

ASK_S: Final = 15.0
BATCH: Final = 1000
LINGER_S: Final = 0.02
"""An answer waits so long for one more record, once it has some."""
SLICE_S: Final = 0.5
"""A wait looks so often whether its client is still there."""
SETTLE_S: Final = 2.0
"""The longest time that a request waits for the end of what was subscribed before."""
_PASSING: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED})  # noqa: SLF001


class Fetched(NamedTuple):
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class Instance:
    """A consumer (see the module)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(settings))
        self._waiting: deque[Fetched] = deque()
        self._taken: list[tuple[Fetched, bytes]] = []
        """The records of the answer that is being made, with their JSON."""
        self._taken_bytes = 0
        self._error: ProxyError | None = None
        self._answered: dict[tuple[str, int], int] = {}
        """The positions after the last answer."""
        self._pattern: str | None = None
        self.subscribed: tuple[str, ...] = ()
        self.assigned: tuple[Place, ...] = ()
        self.ending = False
        """Set from outside: a request for records waits no longer."""

    # ---- what it reads

    @property
    def reads(self) -> Sequence[str | None]:
        """The topics that were asked for; of a pattern None, as it may select every topic."""
        return (None,) if self._pattern is not None else (*self.subscribed, *(p.topic for p in self.assigned))

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        """Subscribes to topics or a pattern. Raises ProxyError 40903 when partitions were assigned by hand, or the other."""
        mixed = pattern is not None if self.subscribed else self._pattern is not None and bool(topics)
        if self.assigned or mixed:
            raise illegal_state(EXCLUSIVE)
        self._store_answered()
        wanted = [posix(pattern)] if pattern is not None else list(topics)
        self._try(lambda: self._consumer.subscribe(wanted, on_revoke=self._dropped, on_lost=self._dropped))
        self.subscribed, self._pattern = tuple(topics), pattern
        if pattern is None:
            self._settle(set(topics))
        self._error = None

    def unsubscribe(self) -> None:
        """Ends the subscription or the assignment; other members have its partitions when this returns."""
        self._store_answered()
        self._try(self._consumer.unassign if self.assigned else self._consumer.unsubscribe)
        self.subscribed, self._pattern, self.assigned = (), None, ()
        self._settle(set())
        self._waiting.clear()
        self._error = None

    def _settle(self, topics: Collection[str]) -> None:
        """Waits until no partition of other topics is assigned: librdkafka lets one go in a poll."""
        deadline = time.monotonic() + SETTLE_S
        while any(tp.topic not in topics for tp in self._try(self._consumer.assignment)):
            if time.monotonic() > deadline:
                break
            self._poll(1, LINGER_S)

    def topics(self) -> list[str]:
        """Returns the topics of the subscription; of a pattern, those that are assigned."""
        if self._pattern is None:
            return list(self.subscribed)
        return sorted({tp.topic for tp in self._consumer.assignment()})

    def assign(self, places: Sequence[Place]) -> None:
        """Assigns partitions by hand. Raises ProxyError 40903 when there is a subscription."""
        if self.subscribed or self._pattern is not None:
            raise illegal_state(EXCLUSIVE)
        self._store_answered()
        going_on = self._going_on()
        wanted = [
            TopicPartition(p.topic, p.partition, going_on.get((p.topic, p.partition), OFFSET_INVALID))
            for p in places
        ]
        self._try(lambda: self._consumer.assign(wanted))
        self._waiting.clear()
        self._error = None
        self.assigned = tuple(places)

    def _going_on(self) -> dict[tuple[str, int], int]:
        """Returns the offsets that come next, of partitions that have been read."""
        places = self._try(lambda: self._consumer.position(self._consumer.assignment()))
        found = {(tp.topic, tp.partition): tp.offset for tp in places if tp.offset >= 0}
        return found | {(each.topic, each.partition): each.offset for each in reversed(self._waiting)}

    def assignment(self) -> list[Place]:
        return sorted(Place(tp.topic, tp.partition) for tp in self._try(self._consumer.assignment))

    def _dropped(self, _consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """Forgets records of partitions that now belong to another consumer."""
        self._forget({(tp.topic, tp.partition) for tp in partitions})

    def _forget(self, gone: Collection[tuple[str, int]]) -> None:
        self._waiting = deque(f for f in self._waiting if (f.topic, f.partition) not in gone)
        self._taken = [(f, data) for f, data in self._taken if (f.topic, f.partition) not in gone]
        self._taken_bytes = sum(f.bytes for f, _ in self._taken)
        for each in gone:
            self._answered.pop(each, None)

    # ---- positions

    def seek(self, places: Sequence[Place]) -> None:
        """Goes to offsets. Raises ProxyError 40903 for a partition that is not assigned."""
        assigned = {(tp.topic, tp.partition) for tp in self._try(self._consumer.assignment)}
        for each in places:
            if (each.topic, each.partition) not in assigned:
                raise illegal_state(f"No current assignment for partition {each.topic}-{each.partition}")
        self._forget({(p.topic, p.partition) for p in places})
        for each in places:
            self._seek(TopicPartition(each.topic, each.partition, each.offset))

    def _seek(self, place: TopicPartition) -> None:
        """Seeks; a partition that was assigned a moment ago can be sought only once librdkafka has begun to fetch it."""
        deadline = time.monotonic() + ASK_S
        while True:
            try:
                self._consumer.seek(place)
            except KafkaException as e:
                if e.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:  # noqa: SLF001
                    raise of_client(e.args[0]) from None
                self._poll(1, 0.05)
            else:
                self._forget({(place.topic, place.partition)})
                return

    def seek_to(self, places: Sequence[Place], *, end: bool) -> None:
        offset = OFFSET_END if end else OFFSET_BEGINNING
        self.seek([each._replace(offset=offset) for each in places])

    # ---- offsets

    def commit(self, places: Sequence[Place] | None, *, wait: bool) -> list[Place]:
        """Commits these offsets as read, or (None) all that answers held. Returns what is committed, when it waited."""
        offsets = None
        self._store_answered()
        if places is not None:
            offsets = [TopicPartition(p.topic, p.partition, p.offset + 1) for p in places]
            for given, each in zip(places, offsets, strict=True):
                if given.metadata is not None:
                    each.metadata = given.metadata
        try:
            commit: Any = self._consumer.commit  # its types know no union of these arguments
            kept = commit(asynchronous=not wait, **({} if offsets is None else {"offsets": offsets}))
        except KafkaException as e:
            if e.args[0].code() == KafkaError._NO_OFFSET:  # noqa: SLF001
                return []
            raise of_client(e.args[0]) from None
        for each in kept or ():
            if each.error is not None:
                raise of_client(each.error)
        return [Place(tp.topic, tp.partition, tp.offset) for tp in kept or () if tp.offset >= 0]

    def committed(self, places: Sequence[Place]) -> list[Place]:
        """Returns the committed offsets of partitions that have one."""
        asked = [TopicPartition(p.topic, p.partition) for p in places]
        found = self._try(lambda: self._consumer.committed(asked, timeout=ASK_S))
        for each in found:
            if each.error is not None:
                raise of_client(each.error)
        return [Place(tp.topic, tp.partition, tp.offset, tp.metadata or "") for tp in found if tp.offset >= 0]

    # ---- records

    def read(
        self,
        *,
        timeout_s: float,
        bytes_max: int,
        bytes_min: int,
        decode: Callable[[Fetched], bytes],
        gone: Callable[[], bool] = lambda: False,
    ) -> list[bytes]:
        """Returns decoded records: as many as there are within the timeout, but at most `bytes_max`, or one larger one. Waits for the
        first records, and for `bytes_min` of them, no longer than the timeout. When the client is `gone`, the next request has them.

        A record that cannot be decoded is an error when it is the first one, and ends the answer before it otherwise.
        """
        self._store_answered()
        deadline = time.monotonic() + timeout_s
        try:
            if 0 < len(self._waiting) < 2 * BATCH:
                self._poll(1, 0)
            self._take(deadline, bytes_max, bytes_min, decode, gone)
        except BaseException:
            self._put_back()
            raise
        if gone():
            self._put_back()
        taken, self._taken, self._taken_bytes = self._taken, [], 0
        self._answered = {(each.topic, each.partition): each.offset + 1 for each, _ in taken}
        return [data for _, data in taken]

    def _take(
        self,
        deadline: float,
        bytes_max: int,
        bytes_min: int,
        decode: Callable[[Fetched], bytes],
        gone: Callable[[], bool],
    ) -> None:
        while True:
            if not self._waiting:
                left = deadline - time.monotonic()
                if self._taken and left <= 0:
                    return
                enough = self._taken and self._taken_bytes >= bytes_min
                self._wait(min(left, LINGER_S) if enough else left, gone)
            if not self._waiting:
                if self._error is not None and not self._taken:
                    error, self._error = self._error, None
                    raise error
                return
            if not self._take_waiting(bytes_max, decode):
                return

    def _take_waiting(self, bytes_max: int, decode: Callable[[Fetched], bytes]) -> bool:
        """Takes the records that wait here. Returns False when the answer ends: it is full, or a record cannot be decoded."""
        waiting, taken, size = self._waiting, self._taken, self._taken_bytes
        try:
            while waiting:
                first = waiting[0]
                more = size + len(first.key or b"") + len(first.value or b"")
                if taken and more > bytes_max:
                    return False
                data = decode(first)
                taken.append((waiting.popleft(), data))
                size = more
        except ProxyError:
            if not taken:
                raise
            return False
        finally:
            self._taken_bytes = size
        return True

    def _wait(self, timeout_s: float, gone: Callable[[], bool]) -> None:
        """Waits for records, or an error, as long as their client does."""
        deadline = time.monotonic() + timeout_s
        while self._error is None:
            left = deadline - time.monotonic()
            self._poll(BATCH, max(0.0, min(left, SLICE_S)))
            if self._waiting or left <= SLICE_S or self.ending or gone():
                return

    def _put_back(self) -> None:
        self._waiting.extendleft(each for each, _ in reversed(self._taken))
        self._taken, self._taken_bytes = [], 0

    def _store_answered(self) -> None:
        """Notes the offsets of the last answer for commits. A partition that has been revoked since is its next owner's to read again."""
        answered, self._answered = self._answered, {}
        for (topic, partition), offset in answered.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException as e:
                if e.args[0].code() != KafkaError._STATE:  # noqa: SLF001
                    raise of_client(e.args[0]) from None

    def _poll(self, count: int, timeout_s: float) -> None:
        """Reads into `_waiting`, and carries out rebalances. `consume` returns early only with `count` records, so the first one
        is waited for alone.
        """
        first = self._try(lambda: self._consumer.consume(1, timeout_s))
        self._keep(first)
        if first and count > 1:
            self._keep(self._try(lambda: self._consumer.consume(count - 1, 0)))

    def _keep(self, messages: Iterable[Any]) -> None:
        """Keeps what was read. Records stand before and behind an error, which hides none of them."""
        for message in messages:
            error = message.error()
            if error is None:
                place = (message.topic(), message.partition(), message.offset())
                self._waiting.append(Fetched(*place, message.key(), message.value()))
            elif error.code() not in _PASSING and self._error is None:
                self._error = of_client(error)

    def close(self, *, asked: bool) -> None:
        """Leaves the group. Where the instance commits by itself, what answers held is committed: of the last one if its client `asked` for the end."""
        if asked:
            self._store_answered()
        self._try(self._consumer.close)

    @staticmethod
    def _try(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as e:
            if e.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
                raise partition_not_found() from None
            raise of_client(e.args[0]) from None
        except RuntimeError as e:  # the consumer is closed
            raise illegal_state(str(e)) from None
