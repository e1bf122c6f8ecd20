"""A consumer that waits at the start of an empty topic while the broker restarts: nothing was truncated."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from support.broker import new_topic, wait_until

from klamm.testing import EmbeddedBroker


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("written", [0, 1])
def test_a_restart_is_not_taken_for_a_truncation(tmp_path, written):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(written):
            producer.produce(topic, b"%d" % number)
        producer.flush(60)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0,
                "auto.offset.reset": "error", "enable.partition.eof": True,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        seen, at_end = [], []

        def read():
            message = consumer.poll(0.1)
            if message is None:
                return
            error = message.error()
            if error is None:
                seen.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.append(message.offset())
            else:
                assert error.retriable() or error.code() in {
                    KafkaError._TRANSPORT,
                    KafkaError._ALL_BROKERS_DOWN,
                }, error

        def at(offset):
            read()
            return offset in at_end

        wait_until(lambda: at(written), "the end before the restarts")
        for _ in range(2):  # the second time the epoch that is asked for wrote nothing at all
            broker.stop()
            broker.start()
        producer.produce(topic, b"after")
        assert producer.flush(60) == 0
        wait_until(lambda: at(written + 1), "the end after the restarts")
        assert seen[-1] == b"after"
        assert len(seen) == written + 1
        consumer.close()
