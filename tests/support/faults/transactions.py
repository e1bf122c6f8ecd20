"""Transactional load: producers that commit, abort, vanish and come back as zombies; consume-transform-produce."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support.faults.load import PATIENCE_S, Load, unique_value
from support.faults.recorder import Pending, Recorder
from support.history import Outcome, Transaction

TRY_S: Final = 10


class Fenced(Exception):
    """The producer is of no use any more; what became of its transaction is not known."""


class TransactionalLoad(Load):
    """A producer with a transactional id, made anew after fatal errors. A transaction has a unique name."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int) -> None:
        super().__init__(name, recorder, bootstrap, seed)
        self.settings = {
            **self.client, "transactional.id": name, "transaction.timeout.ms": 60_000, "linger.ms": 1,
            "message.timeout.ms": 55_000,
        }  # fmt: skip
        self.count = 0
        self.committed = self.aborted = 0

    def new_producer(self) -> Producer:
        """A producer that has fenced the one before it and ended its transaction."""
        producer = Producer(self.settings)
        self.patiently(lambda: producer.init_transactions(TRY_S))
        self.count += 1
        return producer

    def produce(self, producer: Producer, pending: Pending, transaction: str, topic: str, partition: int, value: bytes) -> None:  # fmt: skip
        number = pending.add(topic, partition, value, transaction=transaction)

        def answered(error: KafkaError | None, message: object) -> None:
            offset = message.offset()  # type: ignore[attr-defined]
            pending.answered(number, error, -1 if offset is None else offset)

        producer.produce(topic, value, partition=partition, on_delivery=answered)

    def end(self, producer: Producer, *, commit: bool) -> Outcome:
        """OK: committed; FAILED: aborted. Raises Fenced."""
        if commit:
            try:
                self.patiently(lambda: producer.commit_transaction(TRY_S))
            except KafkaException as e:
                if not e.args[0].txn_requires_abort():
                    raise Fenced(str(e)) from e
            else:
                self.committed += 1
                return Outcome.OK
        try:
            self.patiently(lambda: producer.abort_transaction(TRY_S))
        except KafkaException as e:
            raise Fenced(str(e)) from e
        self.aborted += 1
        return Outcome.FAILED

    def note(self, name: str, outcome: Outcome, invoked: int, offsets: dict[tuple[str, str, int], int] | None = None) -> None:  # fmt: skip
        self.recorder.history.transactions.append(
            Transaction(name=name, outcome=outcome, invoked=invoked, completed=self.recorder.tick(), offsets=offsets or {})
        )  # fmt: skip
        self.progress += 1

    def patiently(self, call: Callable[[], object]) -> None:
        """Call until it succeeds or fails for good; an error that says it may be retried is."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
            except KafkaException as e:
                self.last_error = str(e)
                if not e.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def finish(self) -> None:
        """End whatever a producer of this id has left open. After the thread's end."""
        self.new_producer()


class TransactionLoad(TransactionalLoad):
    """Writes to several partitions in each transaction; a few producers vanish in the middle, or wake up too late."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, topic: str, partitions: int) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.topic, self.partitions = topic, partitions
        self.zombies = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            producer = self.new_producer()
            pending = Pending(self.recorder, f"{self.name}.{self.count}", idempotent=True)
            try:
                self._serve(producer, pending)
            finally:
                pending.give_up()

    def _serve(self, producer: Producer, pending: Pending) -> None:
        """Transactions until the end, or until this producer is replaced."""
        while not self.stopping.is_set():
            name = f"{self.name}.{self.recorder.unique()}"
            invoked = self.recorder.tick()
            fate = self.chance.choices(("commit", "abort", "vanish", "zombie"), (70, 22, 4, 4))[0]
            try:
                producer.begin_transaction()
                self._write(producer, pending, name)
                if fate in ("vanish", "zombie"):
                    producer.flush(1)
                    self._replace(producer, name, invoked, zombie=fate == "zombie")
                    return
                outcome = self.end(producer, commit=fate == "commit")
            except (Fenced, KafkaException) as e:
                if not isinstance(e, Fenced) and e.args[0].txn_requires_abort():
                    try:
                        outcome = self.end(producer, commit=False)
                    except Fenced:
                        self.note(name, Outcome.UNKNOWN, invoked)
                        return
                else:
                    self.note(name, Outcome.UNKNOWN, invoked)
                    return
            self.note(name, outcome, invoked)
            self.rest(0.02)

    def _write(self, producer: Producer, pending: Pending, name: str) -> None:
        for _ in range(self.chance.randint(1, 12)):
            partition = self.chance.randrange(self.partitions)
            self.produce(producer, pending, name, self.topic, partition, unique_value(self, 200))
            if self.chance.random() < 0.1:
                producer.poll(0)
                self.rest(0.02)

    def _replace(self, producer: Producer, name: str, invoked: int, *, zombie: bool) -> None:
        """The producer is left alone; another one of its id takes over, and then it may try to commit all the same."""
        successor = self.new_producer()
        self.note(
            name, Outcome.FAILED, invoked
        )  # nobody has asked for a commit, and the id has an owner anew
        if not zombie:
            return
        self.zombies += 1
        try:
            self.patiently(lambda: producer.commit_transaction(TRY_S))
        except KafkaException:
            del successor
            return
        raise AssertionError(f"{name}: a producer that was fenced was told that its transaction is committed")


class FlowLoad(TransactionalLoad):
    """Consume-transform-produce: results and offsets of the group in one transaction. One of several members."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, group: str, source: str, sink: str, partitions: int, protocol: str = "classic") -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.group, self.source, self.sink, self.partitions = group, source, sink, partitions
        self.consumer_settings = {
            **self.client, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 20, "group.protocol": protocol,
        } | ({"session.timeout.ms": 6000} if protocol == "classic" else {})  # fmt: skip

    def work(self) -> None:
        consumer = Consumer(self.consumer_settings)
        consumer.subscribe([self.source])
        try:
            while not self.stopping.is_set():
                producer = self.new_producer()
                pending = Pending(self.recorder, f"{self.name}.{self.count}", idempotent=True)
                try:
                    self._rewind(consumer)
                    self._serve(consumer, producer, pending)
                finally:
                    pending.give_up()
        finally:
            consumer.close()

    def _serve(self, consumer: Consumer, producer: Producer, pending: Pending) -> None:
        while not self.stopping.is_set():
            messages = [m for m in consumer.consume(40, 0.05) if m.error() is None]
            if not messages:
                continue
            name = f"{self.name}.{self.recorder.unique()}"
            invoked = self.recorder.tick()
            offsets: dict[tuple[str, str, int], int] = {}
            try:
                producer.begin_transaction()
                for m in messages:
                    value = (m.value() or b"") + b"|%d" % self.recorder.unique()
                    self.produce(
                        producer, pending, name, self.sink, self.chance.randrange(self.partitions), value
                    )
                    offsets[self.group, m.topic(), m.partition()] = m.offset() + 1
                places = [TopicPartition(t, p, o) for (_, t, p), o in offsets.items()]
                metadata = consumer.consumer_group_metadata()
                outcome = self._finish(producer, places, metadata)
            except (Fenced, KafkaException) as e:
                outcome = self._after_error(producer, e)
            self.note(name, outcome, invoked, offsets)
            if outcome is Outcome.UNKNOWN:
                return
            if outcome is Outcome.FAILED:
                self._rewind(consumer)

    def _finish(self, producer: Producer, places: list[TopicPartition], metadata: object) -> Outcome:
        """Send the offsets and end the transaction. A second try of `send_offsets_to_transaction` may hang in librdkafka
        when the connection was lost in the first one (seen with Apache Kafka, too): it is aborted instead.
        """
        try:
            producer.send_offsets_to_transaction(places, metadata, TRY_S)
        except KafkaException as e:
            self.last_error = str(e)
            if e.args[0].fatal():
                raise
            return self.end(producer, commit=False)
        return self.end(producer, commit=self.chance.random() > 0.1)

    def _after_error(self, producer: Producer, error: Exception) -> Outcome:
        if isinstance(error, Fenced) or not error.args[0].txn_requires_abort():
            return Outcome.UNKNOWN
        try:
            return self.end(producer, commit=False)
        except Fenced:
            return Outcome.UNKNOWN

    def _rewind(self, consumer: Consumer) -> None:
        """Go back to what the group has committed, or to the beginning."""
        deadline = time.monotonic() + PATIENCE_S
        while assigned := consumer.assignment():
            try:
                for place in consumer.committed(assigned, timeout=TRY_S):
                    if place.error is not None:
                        raise KafkaException(place.error)
                    consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            except KafkaException:  # not reachable, or the assignment has changed meanwhile
                if time.monotonic() > deadline:
                    raise
                self.rest(0.05)
            else:
                return


def origin(value: bytes) -> bytes:
    """What a result of `FlowLoad` was made of."""
    return value.rpartition(b"|")[0]
