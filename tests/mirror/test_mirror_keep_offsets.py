"""Flows with `mirror.keep.offsets=true`: copies with the source's own bytes, read-only until they are promoted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from support.broker import NO_RETENTION, new_name, new_topic, wait_until
from support.mirror_topics import (
    end_of,
    keeping,
    log_bytes,
    promote_by_config,
    read_offsets,
    refusal,
    state,
    transactions,
    wait_same,
)
from support.mirroring import produce, read, rows

from klamm.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def source(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("source") / "data", config=NO_RETENTION) as running:
        yield running


@pytest.fixture(scope="module")
def target(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data", config=NO_RETENTION) as running:
        yield running


def test_copies_have_the_bytes_of_their_sources_in_every_codec(source, target):
    topic = new_topic(source)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(source.bootstrap, topic, rows(500, codec), **{"compression.type": codec})
    source.kill()
    source.start()  # a second leader epoch
    produce(source.bootstrap, topic, rows(500, "later"), **{"enable.idempotence": True})
    with keeping(source.bootstrap, target.bootstrap, topic):
        wait_same(source.bootstrap, target.bootstrap, topic)
        produce(source.bootstrap, topic, rows(500, "live"))
        wait_same(source.bootstrap, target.bootstrap, topic)
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)
    assert read(target.bootstrap, topic, 3500) == read(source.bootstrap, topic, 3500)
    assert state(target.bootstrap, topic) == "mirror"
    assert state(source.bootstrap, topic) is None


def test_ordinary_producers_are_refused_until_the_copy_is_promoted(source, target):
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    mirror = keeping(source.bootstrap, target.bootstrap, topic)
    with mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        for config in ({}, {"enable.idempotence": "true"}, {"compression.type": "zstd"}):
            error = refusal(target.bootstrap, topic, rows(1), **config)
            assert error is not None
            assert error.code() == KafkaError.POLICY_VIOLATION, error
        assert end_of(target.bootstrap, topic) == 100
        promote_by_config(target.bootstrap, topic)
        assert refusal(target.bootstrap, topic, rows(10, "own"), **{"enable.idempotence": "true"}) is None
        produce(source.bootstrap, topic, rows(10, "too late"))
        mirror.until(lambda: mirror.details().get("promoted") == [topic], "the flow leaves the topic alone")
        assert "stopped" not in mirror.details()
    assert read(target.bootstrap, topic, 110) == rows(100) + rows(10, "own")
    assert end_of(target.bootstrap, topic) == 110
    with keeping(source.bootstrap, target.bootstrap, topic) as again:
        again.until(lambda: again.details().get("promoted") == [topic], "a later run leaves it alone, too")
        assert end_of(target.bootstrap, topic) == 110


def test_readers_see_the_same_of_transactions_at_both_clusters(source, target):
    topic = new_topic(source)
    open_ = transactions(source.bootstrap, topic, f"t-{topic}", [True, False, True, False])
    produce(source.bootstrap, topic, rows(50))
    open_.produce(topic, b"undecided", b"u", 0)
    assert open_.flush(60) == 0
    with keeping(source.bootstrap, target.bootstrap, topic):
        wait_same(source.bootstrap, target.bootstrap, topic)
        for isolation in ("read_committed", "read_uncommitted"):
            there = read_offsets(source.bootstrap, topic, isolation)
            assert read_offsets(target.bootstrap, topic, isolation) == there
        target.kill()
        target.start()
        open_.abort_transaction(60)
        wait_same(source.bootstrap, target.bootstrap, topic)
        for isolation in ("read_committed", "read_uncommitted"):
            there = read_offsets(source.bootstrap, topic, isolation)
            assert read_offsets(target.bootstrap, topic, isolation) == there
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)


def test_a_transaction_that_is_open_when_the_copy_is_promoted_is_aborted(source, target):
    topic = new_topic(source)
    open_ = transactions(source.bootstrap, topic, f"t-{topic}", [True])
    open_.produce(topic, b"undecided", b"u", 0)
    assert open_.flush(60) == 0
    with keeping(source.bootstrap, target.bootstrap, topic):
        wait_same(source.bootstrap, target.bootstrap, topic)
        promote_by_config(target.bootstrap, topic)
    open_.abort_transaction(60)
    target.kill()
    target.start()
    transactions(target.bootstrap, topic, f"own-{topic}", [False, True]).abort_transaction(60)
    values = [value for _, value in read_offsets(target.bootstrap, topic, "read_committed")]
    assert values == [f"t-{topic}-0-{i}".encode() for i in range(20)] + [
        f"own-{topic}-1-{i}".encode() for i in range(20)
    ]


def test_a_copy_begins_where_its_source_does_and_follows_its_start(source, target):
    from confluent_kafka.admin import AdminClient

    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(300))
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    at = TopicPartition(topic, 0, 137)
    admin.delete_records([at])[at].result(60)
    with keeping(source.bootstrap, target.bootstrap, topic):
        wait_same(source.bootstrap, target.bootstrap, topic)
        there = read_offsets(source.bootstrap, topic, "read_uncommitted")
        assert there[0][0] == 137
        assert read_offsets(target.bootstrap, topic, "read_uncommitted") == there
        at = TopicPartition(topic, 0, 250)
        admin.delete_records([at])[at].result(60)
        produce(source.bootstrap, topic, rows(1))
        wait_until(
            lambda: read_offsets(target.bootstrap, topic, "read_uncommitted")[0][0] == 250,
            "the start followed",
        )


def test_a_reader_of_the_copy_goes_on_over_new_leader_epochs_and_the_promotion(source, target):
    topic, group = new_topic(source), new_name("group")
    produce(source.bootstrap, topic, rows(10, "0"))
    expected = rows(10, "0")
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": group, "auto.offset.reset": "error",
        "topic.metadata.refresh.interval.ms": 500, "enable.auto.commit": False,
    })  # fmt: skip
    found: list[bytes | None] = []

    def read_on(count: int) -> bool:
        found.extend(m.value() for m in consumer.consume(1000, 0.1) if not m.error())
        return len(found) >= count

    with keeping(source.bootstrap, target.bootstrap, topic):
        wait_same(source.bootstrap, target.bootstrap, topic)
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.subscribe([topic])
        for epoch in range(1, 4):
            wait_until(lambda: read_on(len(expected)), "what there is")
            source.kill()
            source.start()
            if epoch == 2:
                target.kill()
                target.start()
            produce(source.bootstrap, topic, rows(10, str(epoch)))
            expected += rows(10, str(epoch))
        wait_same(source.bootstrap, target.bootstrap, topic)
        promote_by_config(target.bootstrap, topic)
    produce(target.bootstrap, topic, rows(10, "own"))
    expected += rows(10, "own")
    wait_until(lambda: read_on(len(expected)), "the target's own")
    consumer.commit(asynchronous=False)
    target.kill()
    target.start()
    produce(target.bootstrap, topic, rows(10, "after"))
    wait_until(lambda: read_on(len(expected) + 10), "after a restart")
    consumer.close()
    assert found == [row[1] for row in expected + rows(10, "after")]
