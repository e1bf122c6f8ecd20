"""Flows that keep offsets where source or target are not what they were: restored, recreated, purged, ordinary, away."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import NO_RETENTION, new_name, new_topic, wait_until
from support.mirror_topics import end_of, keeping, log_bytes, promote_by_config, read_offsets, wait_same
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_mirror.copy import copies, gap_keeper
from klamm_mirror.copy.keeping_sender import KeepingSender
from klamm_mirror.source.connector import MirrorSourceConnector


@pytest.fixture
def clusters(processes: None, tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with (
        EmbeddedBroker(tmp_path / "a", config=NO_RETENTION) as source,
        EmbeddedBroker(tmp_path / "b", config=NO_RETENTION) as target,
    ):
        yield source, target


def recreate(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "it is gone")
    new_topic(broker, name=topic)


def delete_before(broker: EmbeddedBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    at = TopicPartition(topic, 0, offset)
    admin.delete_records([at])[at].result(60)


def test_a_target_that_lost_what_it_had_acknowledged_gets_it_again(clusters, tmp_path):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        target.kill()
        shutil.copytree(target.data_dir, tmp_path / "earlier")
        target.start()
        produce(source.bootstrap, topic, rows(100, "lost"))
        wait_same(source.bootstrap, target.bootstrap, topic)
        target.kill()
        shutil.rmtree(target.data_dir)
        (tmp_path / "earlier").rename(target.data_dir)
        target.start()
        assert end_of(target.bootstrap, topic) == 100
        produce(source.bootstrap, topic, rows(100, "later"))
        wait_same(source.bootstrap, target.bootstrap, topic)
        assert "stopped" not in mirror.details()
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)


def test_a_target_that_loses_records_just_before_the_next_batch_gets_them_again(
    clusters, tmp_path, monkeypatch
):
    """The batch goes on the connection on which the copy has told its end, and never on a later one."""
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        target.kill()
        shutil.copytree(target.data_dir, tmp_path / "earlier")
        target.start()
        produce(source.bootstrap, topic, rows(100, "lost"))
        wait_same(source.bootstrap, target.bootstrap, topic)
        before_sending, lost = KeepingSender.before_sending, threading.Event()

        def lose() -> None:
            target.kill()
            shutil.rmtree(target.data_dir)
            (tmp_path / "earlier").rename(target.data_dir)
            target.start()

        async def then_lose(sender: KeepingSender, *asked: Any) -> Any:
            found = await before_sending(sender, *asked)
            if not lost.is_set():
                lost.set()
                await asyncio.to_thread(lose)
            return found

        monkeypatch.setattr(KeepingSender, "before_sending", then_lose)
        produce(source.bootstrap, topic, rows(100, "later"))
        wait_until(lost.is_set, "the loss")
        wait_same(source.bootstrap, target.bootstrap, topic)
        assert "stopped" not in mirror.details()
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)


@pytest.mark.parametrize("policy", ["stop", "new-topic"])
def test_a_topic_that_was_made_again_goes_into_a_copy_of_its_own(clusters, policy):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic, mirror__topic__recreated=policy) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        before = log_bytes(target.bootstrap, topic)
        recreate(source, topic)
        produce(source.bootstrap, topic, rows(150, "new"))
        if policy == "stop":
            mirror.until(lambda: mirror.details().get("stopped"), "the stop")
            assert mirror.details()["stopped"][f"{topic}-0"]["kind"] == "recreated"
        else:
            admin = AdminClient({"bootstrap.servers": target.bootstrap})
            names = wait_until(
                lambda: [
                    t for t in admin.list_topics(timeout=60).topics if t.startswith(f"{topic}.recreated-")
                ],
                "the new copy",
            )
            wait_until(lambda: end_of(target.bootstrap, names[0]) == 150, "all copied")
            assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, names[0])
    assert log_bytes(target.bootstrap, topic) == before


def test_records_that_the_source_deleted_unread_are_a_gap_and_a_hole(clusters):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
    commits = mirror.commits
    produce(source.bootstrap, topic, rows(100, "unread"))
    delete_before(source, topic, 150)
    again = keeping(source.bootstrap, target.bootstrap, topic, mirror__gap__policy="record")
    again.start(commits)
    try:
        wait_same(source.bootstrap, target.bootstrap, topic)
        again.until(lambda: again.details().get("gaps"), "the gap's entry")
        assert again.details()["gaps"]["records"] == 50
        there = read_offsets(source.bootstrap, topic, "read_uncommitted")
        wait_until(
            lambda: read_offsets(target.bootstrap, topic, "read_uncommitted") == there, "the start followed"
        )
    finally:
        again.stop()


def test_a_copy_that_was_deleted_is_made_anew(clusters):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "it is gone")
    again = keeping(source.bootstrap, target.bootstrap, topic)
    again.start(mirror.commits)
    try:
        wait_same(source.bootstrap, target.bootstrap, topic)
        assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)
    finally:
        again.stop()


def test_a_flow_out_of_a_mirror_topic_takes_no_producer_of_the_other_cluster_for_a_marked_one(
    clusters, tmp_path
):
    source, target = clusters
    topic, other = new_topic(source), new_name("other")
    with EmbeddedBroker(tmp_path / "c", config=NO_RETENTION) as third:
        new_topic(third, name=other)
        produce(third.bootstrap, other, rows(10))
        identity = {"replication__policy__class": "IdentityReplicationPolicy"}
        back = props(third.bootstrap, target.bootstrap, topics=other, **identity)
        with Running(
            back | {"source.cluster.alias": "C"}
        ):  # the first producer at the target, marked as of C
            wait_same(third.bootstrap, target.bootstrap, other)
        produce(
            source.bootstrap, topic, rows(50), **{"enable.idempotence": True}
        )  # the first producer at the source
        with keeping(source.bootstrap, target.bootstrap, topic):
            wait_same(source.bootstrap, target.bootstrap, topic)
        on = props(target.bootstrap, third.bootstrap, topics=topic, **identity)
        with Running(on | {"source.cluster.alias": "B", "target.cluster.alias": "C"}):
            assert read(third.bootstrap, topic, 50) == rows(50)


def test_the_way_back_brings_what_is_the_targets_own_and_nothing_else(clusters):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(50))
    identity = {"replication__policy__class": "IdentityReplicationPolicy"}
    back = props(target.bootstrap, source.bootstrap, topics=topic, **identity)
    back |= {"source.cluster.alias": "B", "target.cluster.alias": "A"}
    with keeping(source.bootstrap, target.bootstrap, topic) as there, Running(back) as returning:
        wait_same(source.bootstrap, target.bootstrap, topic)
        returning.until(
            lambda: returning.details().get("batches_of_target"), "what came from there is left out"
        )
        promote_by_config(target.bootstrap, topic)
        produce(target.bootstrap, topic, rows(20, "own"))
        produce(target.bootstrap, topic, rows(20, "more"), **{"enable.idempotence": True})
        wait_until(lambda: end_of(source.bootstrap, topic) == 90, "the target's own at the source")
        there.until(lambda: there.details().get("promoted"), "the copy is left alone")
    assert read(source.bootstrap, topic, None) == rows(50) + rows(20, "own") + rows(20, "more")
    assert end_of(target.bootstrap, topic) == 90


CONTRADICTIONS = {
    "transforms": "x",
    "predicates": "x",
    "producer.override.compression.type": "zstd",
    "target.producer.compression.type": "zstd",
    "mirror.topic.recreated": "append",
    "mirror.provenance": "true",
    "sync.schemas.ids": "translate",
}


@pytest.mark.parametrize("key", CONTRADICTIONS)
def test_settings_that_change_batches_are_refused_by_name(key):
    config = {
        "name": "m", "connector.class": "MirrorSourceConnector", "mirror.keep.offsets": "true",
        "source.cluster.alias": "A", "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "a:9092", "target.cluster.bootstrap.servers": "b:9092",
        "replication.policy.class": "IdentityReplicationPolicy", key: CONTRADICTIONS[key],
    }  # fmt: skip
    errors = {v.name: v.errors for v in MirrorSourceConnector.validate(config)}
    assert any("mirror.keep.offsets=true" in error for error in errors[key]), errors[key]
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        MirrorSourceConnector().start(config)
    assert not [
        v.name for v in MirrorSourceConnector.validate(config | {"mirror.keep.offsets": "false", key: ""})
        if any("mirror.keep.offsets" in error for error in v.errors)
    ]  # fmt: skip


def delete_copy(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)


def make_copy(broker: EmbeddedBroker, topic: str, **config: str) -> None:
    new_topic(broker, config={k.replace("__", "."): v for k, v in config.items()}, name=topic)


def test_a_copy_that_is_deleted_while_the_flow_runs_is_copied_from_the_start(clusters):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        delete_copy(target, topic)
        make_copy(target, topic, klamm__mirror__state="mirror")
        produce(source.bootstrap, topic, rows(50, "later"))
        wait_same(source.bootstrap, target.bootstrap, topic)
        assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)
        delete_copy(target, topic)  # and nothing is produced
        make_copy(target, topic, klamm__mirror__state="mirror")
        wait_same(source.bootstrap, target.bootstrap, topic)
        assert "stopped" not in mirror.details()
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)


def test_an_ordinary_topic_in_place_of_a_copy_keeps_its_records(clusters, monkeypatch):
    monkeypatch.setattr(copies, "LOOK_S", 6.0)  # all that follows happens between two looks
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
        delete_before(source, topic, 90)
        produce(source.bootstrap, topic, rows(1))
        wait_same(source.bootstrap, target.bootstrap, topic)
        delete_copy(target, topic)
        make_copy(target, topic)
        produce(target.bootstrap, topic, rows(200, "own"))
        mirror.until(lambda: mirror.details().get("stopped"), "the stop")
        assert "is no mirror topic" in mirror.details()["stopped"][f"{topic}-0"]["why"]
    assert read(target.bootstrap, topic, 200) == rows(200, "own")


def test_a_topic_that_was_in_the_way_and_is_deleted_is_copied_whole(clusters, monkeypatch):
    monkeypatch.setattr(gap_keeper, "RETRY_S", 1.0)
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        wait_same(source.bootstrap, target.bootstrap, topic)
    delete_copy(target, topic)
    make_copy(target, topic)
    again = keeping(source.bootstrap, target.bootstrap, topic)
    again.start(mirror.commits)
    try:
        again.until(lambda: again.details().get("stopped"), "the stop")
        delete_copy(target, topic)
        make_copy(target, topic, klamm__mirror__state="mirror")
        produce(source.bootstrap, topic, rows(50, "later"))
        wait_same(source.bootstrap, target.bootstrap, topic)
    finally:
        again.stop()
    assert log_bytes(source.bootstrap, topic) == log_bytes(target.bootstrap, topic)


def test_a_copy_of_another_cluster_is_left_alone(clusters):
    source, target = clusters
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(100))
    make_copy(target, topic, klamm__mirror__state="mirror", klamm__mirror__source="elsewhere C")
    with keeping(source.bootstrap, target.bootstrap, topic) as mirror:
        mirror.until(lambda: mirror.details().get("stopped"), "the stop")
        assert "klamm.mirror.source=elsewhere C" in mirror.details()["stopped"][f"{topic}-0"]["why"]
    assert end_of(target.bootstrap, topic) == 0
