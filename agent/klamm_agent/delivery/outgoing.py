"""Batches on their way to the brokers: topics, partitions, refusals. One event loop, driven by the sender.

A batch without a key goes to the partition that has a leader and the fewest waiting batches (as in KIP-794, one batch at a time).
A batch with a key goes where Java's producers put the key. Batches of one partition keep their order.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from klamm_agent.config.producer import ProducerSettings
from klamm_agent.delivery.batches import Batch
from klamm_agent.delivery.resuming import Resuming, Verdict
from klamm_agent.delivery.wal.entries import Note, Sent
from klamm_kafka.client import (
    AnotherCluster,
    AuthenticationFailed,
    BrokerError,
    ClientError,
    Cluster,
    Connection,
    OneCluster,
    broker_error,
)
from klamm_kafka.client.idempotent import NO_PRODUCER, TOO_LARGE, IdempotentSender
from klamm_kafka.client.outbox import IN_FLIGHT_MAX, Outbox
from klamm_kafka.client.partitioner import partition_of
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_kafka.wire.messages.produce import PartitionProduceResponse

Box = Outbox[Batch]
_WAITING: Final = 2 * IN_FLIGHT_MAX
"""Batches of a partition that stay in memory: as many as may be in flight, and as many again. The files keep the rest."""
_NAMED: Final = 10  # partitions that a line of the log names


@dataclass(slots=True, eq=False)
class Topic:
    """One topic's outboxes, by partition; `boxes` are empty until the cluster has told of the topic."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    unplaced: deque[Batch] = field(default_factory=deque)
    trouble: str = ""

    @property
    def has_room(self) -> bool:
        waiting = len(self.unplaced) + sum(b.waiting for b in self.boxes)
        return waiting < _WAITING * max(1, len(self.boxes))

    @property
    def why(self) -> str:
        """The reason why the topic takes nothing; empty when all is well."""
        if self.trouble or not self.boxes:
            return self.trouble
        whys = [b.writing.why for b in self.boxes]
        return next((w for w in whys if w), "") if all(whys) else ""


class Owner(Protocol):
    """The sender, as `Outgoing` sees it."""

    def delivered(self, batch: Batch) -> None: ...

    def given_up(self, batch: Batch) -> None:
        """Takes note of a batch of one record that is too large for the topic."""

    def split(self, batch: Batch, halves: list[Batch]) -> None:
        """Takes note that `halves` go on in place of `batch`."""

    def going(self, notes: list[Note]) -> None:
        """Takes note that batches go out under new numbers."""

    def doubted(self, topic: str, batches: Sequence[Batch], why: str) -> None:
        """Takes note that batches go again, of which nobody knows whether the topic has them."""

    def say(self, what: str, about: str | None = None) -> None:
        """Logs `what`, sparingly: not again while the same was said, or something else about the same."""

    def woken(self) -> None:
        """Wakes the sender: something has changed."""


class Limit:
    """A token bucket of bytes: so many per second, a second's worth at once. None: no limit."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._tokens, self._at = float(bytes_per_second or 0), time.monotonic()

    def allows(self, now: float) -> bool:
        if self._rate is None:
            return True
        self._tokens = min(float(self._rate), self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens > 0

    def took(self, size: int) -> None:
        self._tokens -= size


class Outgoing(IdempotentSender[Box, Batch]):
    """The producer's sending half. Call `put` from the sender's thread while the loop does not run, or from the loop's callbacks."""

    CREATE = True

    def __init__(
        self, cluster: Cluster, one: OneCluster, settings: ProducerSettings, limit: Limit, owner: Owner
    ) -> None:
        super().__init__(cluster, (), in_flight=settings.in_flight, timeout_ms=settings.request_timeout_ms)
        self.brokers_away = False
        self.away_why = ""
        """The reason that brokers are away, where it is that another cluster answers in their place."""
        self.known: dict[str, Topic] = {}
        self._settings, self._owner, self._limit, self._one = settings, owner, limit, one
        self._refresh_at = 0.0
        self._made_by = self._makes = ""
        """The clusters that made `producer`, and the last producer of all; empty when they do not name themselves."""
        self._makers: dict[Box, str] = {}
        """The clusters that made the outboxes' producers."""
        self._resuming = Resuming(cluster, one, self.wake.set)
        self._with: dict[int, list[Batch]] = {}
        """By a batch's number: earlier batches that count as delivered when it is."""

    def resume(self, batches: Iterable[Batch]) -> None:
        """Takes the batches, in their order, that an agent had when it was killed. Call it once, before anything is put."""
        for batch in batches:
            self.topic(batch.topic)
            if batch.noted is not None:
                self._resuming.add(batch)
            else:
                self.topic(batch.topic).unplaced.append(batch)

    def topic(self, name: str) -> Topic:
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = Topic(name)
            self.stale = True
        return found

    def put(self, batch: Batch) -> None:
        topic = self.topic(batch.topic)
        topic.unplaced.append(batch)
        self._place(topic)
        self.wake.set()

    def place_of(self, topic: str, key: bytes) -> int | None:
        """Returns the partition of a key; None while the topic is unknown."""
        boxes = self.topic(topic).boxes
        return partition_of(key, len(boxes)) if boxes else None

    def batches(self, name: str) -> list[Batch]:
        """Returns a topic's batches in memory that are not acknowledged, in the order of encoding."""
        topic = self.topic(name)
        found = [p for box in topic.boxes for p in box.pending] + list(topic.unplaced)
        return sorted(found, key=lambda p: p.number)

    def holds(self, topic: str, key: bytes) -> bool:
        """Tells whether lines of a key wait: the leader of their partition has not said which it has of those sent before."""
        held = self._resuming.held(topic)
        return bool(held) and self.place_of(topic, key) in held

    def unanswered(self) -> list[str]:
        """Returns the partitions whose leaders have not said for long which lines of before the start they have."""
        return [f"{topic}-{partition}" for topic, partition, _ in self._resuming.slow(time.monotonic())]

    def _place(self, topic: Topic) -> None:
        if not topic.boxes:
            return
        held = self._resuming.held(topic.name)  # nothing may overtake there what was sent before
        free = [box for box in topic.boxes if box.partition not in held] if held else topic.boxes
        waiting: deque[Batch] = deque()
        while topic.unplaced:
            batch = topic.unplaced.popleft()
            allowed = free
            if batch.key is not None:
                partition = partition_of(batch.key, len(topic.boxes))
                allowed = [] if partition in held else [topic.boxes[partition]]
            if not allowed:
                waiting.append(batch)
                continue
            box = self._least(allowed)
            box.put([batch])
            self.outboxes[box] = None
        topic.unplaced = waiting

    def _least(self, boxes: list[Box]) -> Box:
        if len(boxes) == 1:
            return boxes[0]
        usable = [
            b for b in boxes if b.writing.why is None and self.leader(b.remote, b.partition) >= 0
        ] or boxes
        least = min(b.waiting for b in usable)
        return random.choice([b for b in usable if b.waiting == least])

    # ---- called by IdempotentSender

    def topics(self) -> list[str]:
        return sorted(self.known)

    def learned(self, answer: MetadataResponse) -> str | None:
        self.brokers_away = False
        self._refresh_at = time.monotonic() + self._settings.metadata_max_age
        self._resuming.learned(answer)
        lacking = None
        for found in answer.topics:
            topic = self.known.get(found.name or "")
            if topic is None:
                continue
            topic.trouble = ""
            if found.error_code:
                topic.trouble = lacking = str(broker_error(found.error_code, f"topic {topic.name}"))
                self._owner.say(
                    f"topic {topic.name} takes no records: {lacking}; they are kept and sent again"
                )
                continue
            self._resize(topic, len(found.partitions))
            self._place(topic)
        return lacking

    def _resize(self, topic: Topic, count: int) -> None:
        while len(topic.boxes) < count:
            box = Outbox[Batch](remote=topic.name, partition=len(topic.boxes), producer=self.producer)
            topic.boxes.append(box)
            self._makers[box] = self._made_by
        if count and len(topic.boxes) > count and all(b.idle for b in topic.boxes[count:]):
            # Somebody deleted the topic and made it again with fewer partitions
            gone, topic.boxes = topic.boxes[count:], topic.boxes[:count]
            for box in gone:
                topic.unplaced.extend(box.give_back())
                self.outboxes.pop(box, None)
                del self._makers[box]

    async def prepare(self) -> None:
        for name in self._resuming.topics:
            topic = self.known[name]
            if not topic.boxes:
                continue
            verdicts = self._resuming.verdicts(name, len(topic.boxes))
            for partition, verdict in verdicts.items():
                self._resume(topic, partition, verdict)
            if verdicts:
                self._place(topic)
        now = time.monotonic()
        if self._resuming.topics and self._resuming.wants_leaders(now):
            self.stale = True
            self._say_slow(now)

    def _say_slow(self, now: float) -> None:
        """Logs which leaders have not answered for long."""
        slow: dict[str, list[int]] = {}
        for topic, partition, _ in self._resuming.slow(now):
            slow.setdefault(topic, []).append(partition)
        for topic, partitions in slow.items():
            self._owner.say(
                f"topic {topic}: leaders do not say which lines of before the start they have, of partitions "
                f"{', '.join(map(str, partitions[:_NAMED]))}{' and more' if len(partitions) > _NAMED else ''}: these lines "
                "wait, and new ones whose key leads there; all others go on",
                about=f"{topic} is held",
            )

    def _resume(self, topic: Topic, partition: int, verdict: Verdict) -> None:
        if verdict.again:
            box, first = topic.boxes[partition], verdict.again[0]
            assert first.noted is not None, "it was sent"
            self._with[first.number] = verdict.proved
            box.take_over((first.noted.producer_id, first.noted.epoch), verdict.again)
            self._makers[box] = first.noted.cluster
            self.outboxes[box] = None
        else:
            for batch in verdict.proved:
                self._owner.delivered(batch)
        for batch in verdict.doubtful:
            batch.sequence = -1
        if verdict.doubtful:
            self._owner.doubted(topic.name, verdict.doubtful, verdict.why)
            topic.unplaced.extendleft(reversed(verdict.doubtful))  # the topic may have other partitions now

    async def before_sending(
        self, connection: Connection, outboxes: Sequence[Box]
    ) -> Mapping[Box, BrokerError]:
        """Bars outboxes whose producer another cluster made. Only `cluster_id = "any"` lets the cluster change."""
        found, barred = self._one.found or "", {}
        for box in outboxes:
            if not self._makers[box]:
                self._makers[box] = found  # it has named itself since
            elif self._makers[box] != found:
                code, why = ErrorCode.UNKNOWN_PRODUCER_ID, f"another cluster answers, {found}"
                barred[box] = BrokerError(code, code.name, why, retriable=False)
        return barred

    async def new_producer(self, outbox: Box | None = None) -> tuple[int, int]:
        producer = await super().new_producer(outbox)
        self._makes = self._one.found or ""
        if self.producer == NO_PRODUCER:
            self._made_by = self._makes
        return producer

    async def drain(self, timeout_s: float) -> None:
        await self._resuming.close()
        await super().drain(timeout_s)

    async def forgotten(self, outbox: Box, error: BrokerError) -> None:
        sent = [b for b in outbox.pending if b.sequence >= 0]
        await super().forgotten(outbox, error)
        if self._makes != self._made_by:
            self.producer, self._made_by = outbox.producer, self._makes
        self._makers[outbox] = self._makes
        self._owner.doubted(outbox.remote, sent, str(error))

    def may_send(self, now: float) -> bool:
        if now >= self._refresh_at and not self.stale:
            self.stale = True
            self._refresh_at = now + self._settings.metadata_max_age
        return self._limit.allows(now)

    def taken(self, items: Sequence[tuple[Box, Batch]]) -> None:
        self._limit.took(sum(len(batch.data) for _, batch in items))
        notes = []
        for box, batch in items:
            sent = Sent(box.partition, *box.producer, batch.sequence, self._makers[box])
            if sent != batch.noted and batch.part < 2:
                batch.noted = sent
                notes.append(Note(batch.number, sent))
        if notes:
            self._owner.going(notes)

    def answered(self) -> None:
        self._owner.woken()

    def delivered(self, outbox: Box, batch: Batch, offset: int) -> None:
        self.brokers_away = False
        outbox.delivered(batch)
        if outbox.empty:
            self.outboxes.pop(outbox, None)
        self._settle_earlier(batch)
        self._owner.delivered(batch)

    def _settle_earlier(self, batch: Batch) -> None:
        for earlier in self._with.pop(batch.number, ()):
            self._owner.delivered(earlier)

    async def refused(
        self, outbox: Box, batch: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        if error.code not in TOO_LARGE:
            said = answer.error_message
            self.failed(
                outbox, error if not said else BrokerError(error.code, said, str(error), retriable=False)
            )
            outbox.failed(time.monotonic(), f"{error}: {said}" if said else str(error))
            return
        halves = batch.halves(self._settings.level)
        if halves:
            outbox.replaced(batch, halves)
            self._owner.split(batch, halves)
            self._owner.say(
                f"topic {batch.topic} refuses a batch of {len(batch.data)} bytes as too large: it is sent again in two "
                "halves, which is slow; set batch.size in [producer] below the topic's max.message.bytes"
            )
            return
        producer = await self.new_producer()
        outbox.replaced(batch, [])
        outbox.new_producer(producer)
        self._makers[outbox] = self._makes
        if outbox.empty:
            self.outboxes.pop(outbox, None)
        self._settle_earlier(batch)
        self._owner.given_up(batch)

    def unusable(self, error: ClientError) -> None:
        self._owner.say(f"the broker rejects this agent: {error}")
        self._metadata.failed(time.monotonic(), str(error))

    def away(self, error: ClientError) -> None:
        self.brokers_away = True
        self.away_why = ""
        if isinstance(error, AnotherCluster):
            self.away_why = f"cluster {self._one.cluster_id}: {error}"
            self._owner.say(f"no broker answers: {error}{_hint(error)}")
        elif not isinstance(error, AuthenticationFailed):  # `unusable` has told of it
            self._owner.say(f"no broker answers: {error}")
        self._owner.woken()

    def failed(self, outbox: Box, error: ClientError) -> None:
        self._owner.say(f"{outbox} takes no records: {error}; they are kept and sent again")


def _hint(error: AnotherCluster) -> str:
    """Returns what to do when a cluster took the place of ours."""
    told = error.cluster_id
    return (
        f'; lines wait. If it took the place of yours, set cluster_id = "{told}" in agent.toml'
        if told
        else ""
    )
