"""Readers: with groups of both protocols, without a group in both isolations, and of committed offsets."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from support.faults.load import PATIENCE_S, Load
from support.faults.recorder import Recorder
from support.history import Commit, CommittedRead, Outcome

TRY_S: Final = 5


class GroupLoad(Load):
    """A member of a group: reads, and commits what it has read, each time waiting for the answer."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, group: str, topic: str, protocol: str = "classic", static: bool = False) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.group, self.topic = group, topic
        self.settings = {
            **self.client, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 20, "group.protocol": protocol,
        } | ({"session.timeout.ms": 6000} if protocol == "classic" else {})  # fmt: skip
        if static:
            self.settings["group.instance.id"] = name
        self.commits = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            consumer = Consumer(self.settings)
            consumer.subscribe([self.topic])
            leave = time.monotonic() + 6 + 20 * self.chance.random()
            try:
                while not self.stopping.is_set() and time.monotonic() < leave:
                    self._turn(consumer)
            finally:
                consumer.close()

    def _turn(self, consumer: Consumer) -> None:
        messages = [m for m in consumer.consume(100, 0.05) if m.error() is None]
        if not messages:
            return
        ends: dict[int, int] = {}
        for m in messages:
            self.recorder.delivery(self.group, m.topic(), m.partition(), m.offset(), m.value())
            ends[m.partition()] = m.offset() + 1
        self.progress += len(messages)
        commit(self, consumer, self.group, self.topic, ends)
        self.commits += 1


def commit(load: Load, consumer: Consumer, group: str, topic: str, ends: dict[int, int]) -> bool:
    """Commit and note it; whether it was acknowledged. Per partition, since each has an answer of its own."""
    invoked = load.recorder.tick()
    outcomes = dict.fromkeys(ends, Outcome.UNKNOWN)
    try:
        answered = consumer.commit(
            offsets=[TopicPartition(topic, p, o) for p, o in ends.items()], asynchronous=False
        )
    except KafkaException:
        answered = []
    for place in answered:
        if place.error is None:
            outcomes[place.partition] = Outcome.OK
    completed = load.recorder.tick()
    for partition, outcome in outcomes.items():
        load.recorder.history.commits.append(
            Commit(group=group, topic=topic, partition=partition, offset=ends[partition], outcome=outcome, invoked=invoked, completed=completed)
        )  # fmt: skip
    return all(outcome is Outcome.OK for outcome in outcomes.values())


class CommitLoad(Load):
    """Commits rising offsets for a group without members: nobody's memory helps the broker's."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, group: str, topic: str) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.group, self.topic = group, topic

    def work(self) -> None:
        consumer = Consumer({**self.client, "group.id": self.group, "enable.auto.commit": False})
        offset = 0
        try:
            while not self.stopping.is_set():
                offset += 1
                self.progress += commit(self, consumer, self.group, self.topic, {0: offset})
                self.rest(0.01)
        finally:
            consumer.close()


class ScanLoad(Load):
    """Reads topics from their beginnings, once, without a group, for as long as they grow."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, topics: dict[str, int], committed: bool) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.committed = committed
        self.places = [TopicPartition(t, p, 0) for t, count in topics.items() for p in range(count)]
        self.settings = {
            **self.client, "group.id": name, "enable.auto.commit": False, "enable.partition.eof": True,
            "auto.offset.reset": "error", "fetch.wait.max.ms": 20, "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }  # fmt: skip

    def work(self) -> None:
        consumer = Consumer(self.settings)
        consumer.assign(self.places)
        try:
            while not self.stopping.is_set():
                for m in consumer.consume(200, 0.05):
                    self._take(m)
        finally:
            consumer.close()

    def _take(self, m) -> None:
        error = m.error()
        if error is None:
            self.recorder.shown(self.name, self.committed, m.topic(), m.partition(), m.offset(), m.value())
            self.progress += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self.recorder.at_end(self.name, self.committed, m.topic(), m.partition(), m.offset())
        elif not error.retriable() and error.code() not in _PASSING:
            raise KafkaException(error)

    def behind(self, ends: dict[tuple[str, int], int]) -> list[str]:
        """Partitions that it has not read to these ends."""
        return [
            f"{self.name} {place.topic}-{place.partition}: {done} of {ends[place.topic, place.partition]}"
            for place in self.places
            if (done := self.recorder.read_up_to(self.name, self.committed, place.topic, place.partition))
            < ends[place.topic, place.partition]
        ]


_PASSING: Final = frozenset({
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
})  # fmt: skip
"""The errors that a consumer hears while its broker is away."""


class OffsetReader(Load):
    """Asks now and then what groups have committed. A transaction under way is waited for (require_stable)."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, groups: dict[str, dict[str, int]]) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.groups = groups
        self.last: dict[tuple[str, str, int], int] = {}

    def work(self) -> None:
        consumers = self._consumers()
        try:
            while not self.stopping.is_set():
                for group, consumer in consumers.items():
                    self._read(group, consumer)
                self.rest(0.2)
        finally:
            for consumer in consumers.values():
                consumer.close()

    def read_all(self) -> None:
        """Notes what all groups have committed now. Raises KafkaException when the broker does not say."""
        deadline = time.monotonic() + PATIENCE_S
        for group, consumer in self._consumers().items():
            while not self._read(group, consumer):
                if time.monotonic() > deadline:
                    raise AssertionError(f"the offsets of group {group} cannot be read")
            consumer.close()

    def _consumers(self) -> dict[str, Consumer]:
        return {
            group: Consumer({
                **self.client, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"
            })
            for group in self.groups
        }  # fmt: skip

    def _read(self, group: str, consumer: Consumer) -> bool:
        places = [TopicPartition(t, p) for t, count in self.groups[group].items() for p in range(count)]
        invoked = self.recorder.tick()
        try:
            answered = consumer.committed(places, timeout=TRY_S)
        except KafkaException:
            return False
        completed = self.recorder.tick()
        for place in answered:
            if place.error is not None:
                return False
            offset = max(place.offset, -1)
            self.last[group, place.topic, place.partition] = offset
            self.recorder.history.committed_reads.append(
                CommittedRead(group=group, topic=place.topic, partition=place.partition, offset=offset, invoked=invoked, completed=completed)
            )  # fmt: skip
        self.progress += 1
        return True
