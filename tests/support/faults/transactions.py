"""Transactional load through librdkafka: producers that commit, abort, vanish and come back as zombies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
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
        """Returns a producer that has fenced the one before it and ended its transaction."""
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

    def note(self, name: str, outcome: Outcome, invoked: int) -> None:
        self.recorder.history.transactions.append(
            Transaction(name=name, outcome=outcome, invoked=invoked, completed=self.recorder.tick())
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
        """Lets another producer of the same id take over; the first one may then try to commit all the same."""
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
