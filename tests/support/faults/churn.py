"""Topics that come and go while the broker does."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.faults.load import Load
from support.faults.recorder import Pending
from support.history import Outcome, TopicChange

KEPT_MAX = 10


class TopicLoad(Load):
    """Creates topics with names of their own, writes to them, deletes most of them."""

    def work(self) -> None:
        admin = AdminClient({**self.client, "socket.timeout.ms": 3000})
        producer = Producer({**self.client, "enable.idempotence": True, "message.timeout.ms": 3000})
        pending = Pending(self.recorder, self.name, idempotent=True)
        kept = 0
        try:
            while not self.stopping.is_set():
                topic = f"{self.name}-{self.recorder.unique()}"
                partitions = self.chance.randint(1, 4)
                created = self._change(
                    topic, partitions, admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=2)[topic], created=True
                )  # fmt: skip
                if created:
                    self._write(producer, pending, topic, partitions)
                    if kept < KEPT_MAX and self.chance.random() < 0.2:
                        kept += 1
                    else:
                        future = admin.delete_topics([topic], operation_timeout=2)[topic]
                        self._change(topic, partitions, future, created=False)
                self.rest(0.15)
        finally:
            producer.flush(60)
            pending.give_up()

    def _write(self, producer: Producer, pending: Pending, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            value = b"%s.%d" % (self.name.encode(), self.recorder.unique())
            number = pending.add(topic, partition, value)

            def answered(error, message, number=number):
                pending.answered(number, error, -1 if message.offset() is None else message.offset())

            producer.produce(topic, value, partition=partition, on_delivery=answered)
        producer.flush(3.5)

    def _change(self, topic: str, partitions: int, future, *, created: bool) -> bool:
        try:
            future.result(60)
        except (KafkaException, TimeoutError):
            outcome = Outcome.UNKNOWN
        else:
            outcome = Outcome.OK
            self.progress += 1
        self.recorder.history.topic_changes.append(
            TopicChange(topic=topic, partitions=partitions, created=created, outcome=outcome)
        )
        return outcome is Outcome.OK
