"""A mirror reads from the replica in its own rack, and from the leader when that replica is away."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode
from support.mirroring import Running, produce, props, rows

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.mark.usefixtures("apache_kafka")
def test_records_come_from_the_replica_in_the_rack(target, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with (
        KafkaBroker(tmp_path, SELECTOR | {"broker.rack": "a"}) as first,
        SecondNode(first, tmp_path / "two", {"broker.rack": "b"}) as second,
    ):
        admin = AdminClient({"bootstrap.servers": first.address, "log_level": 0})
        topic = NewTopic("racked", 1, replica_assignment=[[1, 2]], config={"retention.ms": "-1"})
        admin.create_topics([topic])["racked"].result(60)
        produce(first.address, "racked", rows(500))
        config = props(first.address, target.bootstrap, topics="racked", source__consumer__client__rack="b")
        with Running(config) as running:
            running.until(lambda: running.records >= 500, "the first records")
            produce(first.address, "racked", rows(500))
            running.until(lambda: running.records >= 1_000, "the next records")
            assert "racked-0 is read from broker 2, the replica next to rack b" in caplog.messages
            second.kill()
            wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == 1, "one broker", timeout_s=60)
            produce(first.address, "racked", rows(500))
            running.until(lambda: running.records >= 1_500, "records from the leader")
        assert running.records == 1_500
