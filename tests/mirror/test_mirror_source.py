"""MirrorSourceConnector between two of our brokers: what arrives, what is committed, what happens when things go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.broker import new_name, new_topic, wait_until
from support.mirroring import Running, assigned, change, produce, props, read, rows, setting

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_mirror import topic_ids
from klamm_mirror.source.connector import MirrorSourceConnector
from klamm_mirror.topics.formats import OffsetSync
from klamm_plugins.errors import ConnectError


@pytest.fixture(scope="module")
def source(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("source") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def target(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data") as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_as_they_are_and_none_is_decoded(source, target, codec):
    topic = new_topic(source)
    sent = rows(3000)
    produce(source.bootstrap, topic, sent, **{"compression.type": codec, "enable.idempotence": True})
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        got = read(target.bootstrap, f"A.{topic}", len(sent))
        mirror.until(lambda: mirror.records == len(sent), "all counted")
        assert mirror.details()["batches_reencoded"] == 0
        assert mirror.details()["batches_passed"] > 0
    assert got == sent
    partition = {"cluster": "A", "topic": topic, "partition": 0}
    [(committed, offset)] = mirror.commits[-1]
    assert committed == partition
    ids = {name: offset[name] for name in ("topic_id", "copy_id")}
    assert offset == {"offset": len(sent) - 1, "leader_epoch": 0, "copy_end": len(sent)} | ids
    assert {len(topic_ids.from_text(each)) for each in ids.values()} == {16}


def test_the_next_run_goes_on_behind_the_committed_offset_in_the_middle_of_a_batch(source, target):
    topic = new_topic(source)
    sent = rows(1000)
    produce(source.bootstrap, topic, sent)
    partition = {"cluster": "A", "topic": topic, "partition": 0}
    mirror = Running(props(source.bootstrap, target.bootstrap, topics=topic))
    mirror.start([[(partition, {"offset": 499})]])
    try:
        assert read(target.bootstrap, f"A.{topic}", 500) == sent[500:]
        mirror.until(lambda: mirror.details().get("batches_reencoded") == 1, "one batch cut")
    finally:
        mirror.stop()


def test_topics_are_made_with_their_partitions_and_settings_and_grow(source, target):
    topic = new_topic(source, 3, {"retention.ms": "12345000", "min.insync.replicas": "1"})
    config = props(
        source.bootstrap, target.bootstrap, topics=topic,
        refresh__topics__interval__seconds="1", sync__topic__configs__interval__seconds="1",
    )  # fmt: skip
    with Running(config, tasks=2) as mirror:
        assert assigned(mirror) == [f"{topic}-0,{topic}-2", f"{topic}-1"]
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        remote = admin.list_topics(f"A.{topic}", timeout=60).topics[f"A.{topic}"]
        assert len(remote.partitions) == 3
        assert setting(admin, f"A.{topic}", "retention.ms") == "12345000"
        ours = AdminClient({"bootstrap.servers": source.bootstrap})
        ours.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
        wait_until(lambda: mirror.context.reconfigurations, "new tasks are asked for")
        assert len(admin.list_topics(f"A.{topic}", timeout=60).topics[f"A.{topic}"].partitions) == 5
        change(ours, topic, "retention.ms", "777000")
        wait_until(lambda: setting(admin, f"A.{topic}", "retention.ms") == "777000", "settings follow")


def test_offset_syncs_are_written_at_the_source(source, target):
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(500))
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.details().get("offset_syncs", 0) > 0, "a sync")
    found = []
    for key, value, _, _ in read(source.bootstrap, "mm2-offset-syncs.B.internal", None):
        found.append(OffsetSync.decode(key, value))
    assert OffsetSync(topic, 0, 499, 499) in found


def test_offsets_that_are_altered_must_make_sense_and_any_may_be_removed():
    good, offset = {"cluster": "A", "topic": "t", "partition": 0}, {"offset": 41}
    assert MirrorSourceConnector.alter_offsets({}, [(good, offset), ({"garbage": 1}, None)])
    for partition, wrong in [
        ({"garbage": 1}, offset),
        ({**good, "partition": -1}, offset),
        (good, {"offset": "4"}),
    ]:
        with pytest.raises(ConnectError, match="must be"):
            MirrorSourceConnector.alter_offsets({}, [(partition, wrong)])


def test_a_cluster_is_not_mirrored_to_itself(source):
    alias = new_name("alone")
    mirror = Running(props(source.bootstrap, source.bootstrap, source__cluster__alias=alias))
    with pytest.raises(ConfigError, match=r"one cluster .*cannot be mirrored to itself"):
        mirror.start()
    mirror.stop()
    assert isinstance(mirror.context.errors[0], ConfigError)
    there = AdminClient({"bootstrap.servers": source.bootstrap}).list_topics(timeout=60).topics
    assert not [topic for topic in there if alias in topic], "nothing is made"


def test_what_the_source_deleted_is_counted_and_logged(source, target, caplog):
    from confluent_kafka import TopicPartition

    topic = new_topic(source)
    sent = rows(300)
    produce(source.bootstrap, topic, sent[:200])
    produce(source.bootstrap, topic, sent[200:])
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 200)]).values():
        done.result(60)
    partition = {"cluster": "A", "topic": topic, "partition": 0}
    mirror = Running(props(source.bootstrap, target.bootstrap, topics=topic, mirror__gap__policy="record"))
    mirror.start([[(partition, {"offset": 49})]])
    try:
        assert read(target.bootstrap, f"A.{topic}", 100) == sent[200:]
        mirror.until(lambda: mirror.details().get("offsets_purged_at_source") == 150, "the gap is counted")
    finally:
        mirror.stop()
    assert "deleted offsets 50 to 199 (150 of them)" in caplog.text


def test_a_topic_that_was_made_anew_stops_and_says_so(source, target):
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 100, "copied")
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "deleted")
        new_topic(source, name=topic)
        produce(source.bootstrap, topic, rows(150, "new"))
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert "made anew" in stop["why"]
        assert stop["kind"] == "recreated"
        assert mirror.details()["degraded"].startswith(f"{topic}-0 stopped: the topic was deleted")
        assert mirror.records == 100
        mirror.until(lambda: mirror.contexts[0].said[-1]["waiting_for"] == "resolve", "it waits for somebody")


def test_tasks_that_begin_later_see_that_a_topic_was_made_anew(source, target):
    """New topics make the runtime begin all tasks again; the connector goes on."""
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    mirror = Running(props(source.bootstrap, target.bootstrap, topics=topic)).start()
    try:
        mirror.until(lambda: mirror.records == 100, "copied")
        mirror.stop_tasks()
        assert mirror.commits
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "deleted")
        new_topic(source, name=topic)
        produce(source.bootstrap, topic, rows(150, "new"))
        last = mirror.commits[-1]
        mirror.contexts.clear()
        mirror.start([last])
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert "made anew" in stop["why"]
        assert stop["kind"] == "recreated"
        assert mirror.details()["degraded"].startswith(f"{topic}-0 stopped: the topic was deleted")
        assert mirror.records == 0
    finally:
        mirror.stop()


def test_a_pause_keeps_order_and_loses_nothing(source, target):
    topic = new_topic(source)
    sent = rows(4000)
    produce(source.bootstrap, topic, sent[:2000])
    with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
        mirror.until(lambda: mirror.records == 2000, "the first half")
        context = mirror.contexts[0]
        context.pause()
        assert context.is_paused.wait(60)
        produce(source.bootstrap, topic, sent[2000:])
        context.resume()
        mirror.until(lambda: mirror.records == 4000, "the second half")
    assert read(target.bootstrap, f"A.{topic}", 4000) == sent


def test_a_batch_that_is_too_large_names_the_setting_and_stops_its_partition_alone(source, target):
    topic = new_topic(source, 2, config={"max.message.bytes": "4000000"})
    remote = new_topic(target, 2, name=f"A.{topic}", config={"max.message.bytes": "1000"})
    produce(source.bootstrap, topic, [(b"k", b"x" * 5000, [], 1_700_000_000_000)])
    small = [(b"k", b"x", [], 1_700_000_000_000)]
    produce(source.bootstrap, topic, small, partition=1)
    mirror = Running(
        props(source.bootstrap, target.bootstrap, topics=topic, sync__topic__configs__enabled="false")
    ).start()
    try:
        mirror.until(lambda: mirror.details().get("stopped"), "the partition stops")
        why = mirror.details()["stopped"][f"{topic}-0"]["why"]
        assert "raise max.message.bytes" in why
        assert remote in why
        assert read(target.bootstrap, remote, 1, partition=1) == small
    finally:
        mirror.stop()


def test_topics_that_came_from_the_target_are_left_alone(source, target):
    name = new_name()
    for topic in (name, f"B.{name}", f"C.{name}", f"C.B.{name}"):
        new_topic(source, name=topic)
    with Running(props(source.bootstrap, target.bootstrap, topics=f".*{name}")) as mirror:
        assert assigned(mirror) == [f"C.{name}-0,{name}-0"]


def test_a_partition_with_much_to_copy_starves_no_other(source, target):
    """One answer holds one batch here: it goes to each partition in turn."""
    topic = new_topic(source, 2)
    produce(source.bootstrap, topic, rows(3000), **{"batch.num.messages": 1})
    produce(source.bootstrap, topic, rows(1), partition=1)
    config = props(
        source.bootstrap, target.bootstrap, topics=topic, source__consumer__fetch__max__bytes="100"
    )
    with Running(config) as mirror:

        def said() -> list[dict[str, Any]]:
            """Returns what was said of the partitions once the small one was there."""
            partitions = [status["details"].get("partitions", {}) for status in mirror.contexts[0].said]
            return [p for p in partitions if p.get(f"{topic}-1", {}).get("offset") == 1]

        mirror.until(said, "the small partition")
        assert said()[0][f"{topic}-0"]["lag"] > 0
