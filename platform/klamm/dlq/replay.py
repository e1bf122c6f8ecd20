"""Sends dead letters to the topics they were meant for, each exactly once. A transaction also moves the offset of the
replay's group (`klamm-dlq-replay-TOPIC`), so that the next replay goes on where this replay ended, however it ended.

A replay of chosen letters moves no offset, and says so: the offset would pass over the letters that were left out.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from klamm.dlq.letters import CannotReplay, Letter, Wanted
from klamm.dlq.reading import committed, letters, ranges
from klamm_base.errors import KlammError

_TRANSACTION_S: Final = 30.0
_ANSWER_S: Final = 10.0


def group_of(topic: str) -> str:
    """Return the consumer group, and the transactional id, of replays of a dead letter topic."""
    return f"klamm-dlq-replay-{topic}"


@dataclass(slots=True, kw_only=True)
class Replay:
    """One run.

    `to`: a topic for all letters, instead of their own; `again`: begin with the first letter, replayed or not;
    `skip`: leave out, and count, letters that cannot be replayed, instead of stopping; `most`: end after so many
    letters; `stop`: end before the next batch once it is set. The results are in `sent` (by topic), `left_out` (not wanted) and `refused`.
    """

    topic: str
    wanted: Wanted = field(default_factory=Wanted)
    to: str | None = None
    again: bool = False
    skip: bool = False
    most: int | None = None
    dry_run: bool = False
    stop: threading.Event | None = None
    sent: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    refused: list[str] = field(default_factory=list)
    _partitions: dict[str, int] = field(default_factory=dict)

    @property
    def remembers(self) -> bool:
        """True if this run moves the group's offset."""
        return self.wanted.all and not self.dry_run

    def run(self, consumer: Consumer, producer: Producer) -> None:
        """Replay the letters.

        Raises CannotReplay for the first letter that cannot be sent, KlammError where Kafka refuses; letters of
        earlier transactions stay sent.
        """
        found = ranges(consumer, self.topic)
        topics = consumer.list_topics(timeout=_ANSWER_S).topics  # all: to ask for one might create it
        self._partitions = {name: len(topic.partitions) for name, topic in topics.items()}
        ends = {p: high for p, (_, high) in found.items()}
        if not self.dry_run:
            # First: this fences another running replay, so that nobody moves the offsets that we ask for next.
            self._fence_others(producer)
        starts = {p: low for p, (low, _) in found.items()}
        if self.wanted.all and not self.again:
            starts = committed(consumer, self.topic, found)
        for batch in letters(consumer, self.topic, starts, ends, self.stop):
            room = None if self.most is None else self.most - self.sent.total()
            if room == 0:
                return
            self._replay(batch if room is None else self._first(batch, room), consumer, producer)

    @staticmethod
    def _fence_others(producer: Producer) -> None:
        try:
            producer.init_transactions(_TRANSACTION_S)
        except KafkaException as e:
            error: KafkaError = e.args[0]
            raise KlammError(f"dead letters cannot be sent: {error.str()} ({error.name()})") from e

    def _first(self, batch: list[Letter], most: int) -> list[Letter]:
        """Return the beginning of the batch that holds so many wanted letters."""
        cut: list[Letter] = []
        for letter in batch:
            if most == 0:
                break
            most -= self.wanted(letter)
            cut.append(letter)
        return cut

    def _replay(self, batch: list[Letter], consumer: Consumer, producer: Producer) -> None:
        sendable, done, stop = self._sendable(batch)
        if self.dry_run:
            self.sent.update(topic for _, (topic, _) in sendable)
        elif sendable or (self.remembers and done):
            self._send(sendable, done, consumer, producer)
        if stop is not None:
            raise stop

    def _sendable(
        self, batch: list[Letter]
    ) -> tuple[list[tuple[Letter, tuple[str, int]]], list[Letter], CannotReplay | None]:
        """Return the letters of a batch to send, with their places; the letters that are done then; the error that
        stops the run, if any.
        """
        sendable: list[tuple[Letter, tuple[str, int]]] = []
        done: list[Letter] = []
        for letter in batch:
            if not self.wanted(letter):
                self.left_out += 1
            else:
                try:
                    sendable.append((letter, self._place(letter)))
                except CannotReplay as e:
                    if not self.skip:
                        return sendable, done, e
                    self.refused.append(str(e))
            done.append(letter)
        return sendable, done, None

    def _place(self, letter: Letter) -> tuple[str, int]:
        """Return the letter's topic and partition; the key chooses where the topic no longer has the partition."""
        topic, partition = letter.destination(self.to)
        if topic not in self._partitions:
            raise CannotReplay(f"{letter} belongs into the topic {topic}, which does not exist")
        return topic, partition if partition < self._partitions[topic] else -1

    def _send(
        self,
        sendable: Iterable[tuple[Letter, tuple[str, int]]],
        done: list[Letter],
        consumer: Consumer,
        producer: Producer,
    ) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        counts: Counter[str] = Counter()
        try:
            producer.begin_transaction()
            for letter, (topic, partition) in sendable:
                producer.produce(
                    topic,
                    letter.value,
                    letter.key,
                    partition,
                    on_delivery=delivered,
                    timestamp=letter.timestamp or 0,
                    headers=letter.again(),  # type: ignore[arg-type]
                )
                producer.poll(0)
                counts[topic] += 1
            producer.flush(_TRANSACTION_S)
            if self.remembers and done:
                offsets = {x.partition: x.offset + 1 for x in done}
                producer.send_offsets_to_transaction(
                    [TopicPartition(self.topic, p, o) for p, o in offsets.items()],
                    consumer.consumer_group_metadata(),
                    _TRANSACTION_S,
                )
            producer.commit_transaction(_TRANSACTION_S)
        except KafkaException as e:
            why = failures[0] if failures else e.args[0]
            self._abort(producer)
            raise KlammError(f"dead letters could not be sent again: {why.str()} ({why.name()})") from e
        self.sent.update(counts)

    @staticmethod
    def _abort(producer: Producer) -> None:
        try:
            producer.abort_transaction(_TRANSACTION_S)
        except KafkaException:
            # We are fenced, or the broker is away: the broker aborts the transaction itself after its timeout.
            return
