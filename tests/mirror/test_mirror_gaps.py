"""Gaps in a partition: purged ranges, refused batches, truncated logs. Each stops its partition alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import NO_RETENTION, new_name, new_topic
from support.gaps import change, decide, delete, gaps, make
from support.kafka_broker import KafkaBroker
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_mirror.gaps.entries import State
from klamm_mirror.stops import Action, Kind

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def source(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("source") / "data", config=NO_RETENTION) as running:
        yield running


@pytest.fixture(scope="module")
def target(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data", config=NO_RETENTION) as running:
        yield running


def purge(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(60)


def purged_while_down(source, target, **more: str) -> tuple[str, list, Running]:
    """A topic of two partitions that was copied up to record 100, and purged up to 200; its mirror runs again."""
    topic, sent = new_topic(source, 2), rows(300)
    produce(source.bootstrap, topic, sent[:100])
    config = props(source.bootstrap, target.bootstrap, topics=topic, **more)
    with Running(config) as mirror:
        mirror.until(lambda: mirror.records == 100, "copied")
    produce(source.bootstrap, topic, sent[100:200])
    produce(source.bootstrap, topic, sent[200:])
    purge(source.bootstrap, topic, 200)
    produce(source.bootstrap, topic, rows(20, "other"), partition=1)
    return topic, sent, Running(config).start(mirror.commits)


def test_a_purged_range_stops_its_partition_until_somebody_leaves_it_out(source, target):
    topic, sent, mirror = purged_while_down(source, target)
    try:
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert (stop["kind"], stop["from"], stop["to"]) == ("purged", 100, 200)
        assert "deleted offsets 100 to 199 (100 of them)" in stop["why"]
        assert mirror.details()["degraded"].startswith(f"{topic}-0 stopped: the source deleted")
        assert read(target.bootstrap, f"A.{topic}", 20, partition=1) == rows(20, "other")
        mirror.until(lambda: gaps(target.bootstrap, topic), "an entry")
        purge(source.bootstrap, topic, 250)  # the gap grows while nobody decides
        [done] = decide(target.bootstrap, topic, None)
        assert (done.state, done.action, done.start, done.end) == (State.RESOLVED, Action.SKIP, 100, 250)
        assert read(target.bootstrap, f"A.{topic}", 150) == sent[:100] + sent[250:]
        mirror.until(lambda: "stopped" not in mirror.details(), "it goes on")
        assert mirror.details()["gaps"]["latest"][0]["state"] == "resolved"
    finally:
        mirror.stop()


def test_a_purged_range_is_recorded_where_the_policy_says_so(source, target):
    topic, sent, mirror = purged_while_down(source, target, mirror__gap__policy="record")
    try:
        assert read(target.bootstrap, f"A.{topic}", 200) == sent[:100] + sent[200:]
        mirror.until(lambda: mirror.details().get("gaps", {}).get("records") == 100, "the status")
        [gap] = gaps(target.bootstrap, topic)
        assert (gap.kind, gap.state, gap.start, gap.end) == (Kind.PURGED, State.RECORDED, 100, 200)
        assert "stopped" not in mirror.details()
    finally:
        mirror.stop()


def limit(target, topic: str, size: int) -> None:
    change(target.bootstrap, topic, "max.message.bytes", str(size))


def refused(source, target, **more: str) -> tuple[str, list, Running]:
    """A topic whose third batch of partition 0 is too large for the target; partition 1 has small ones."""
    topic = new_topic(source, 2, {"max.message.bytes": "4000000"})
    new_topic(target, 2, {"max.message.bytes": "1500"}, name=f"A.{topic}")
    sizes = [10, 20, 5000, 30, 40, 50]
    sent = [(b"k", b"%d:" % i + b"x" * size, [], 1_700_000_000_000 + i) for i, size in enumerate(sizes)]
    produce(source.bootstrap, topic, sent, **{"batch.num.messages": 1})
    config = props(
        source.bootstrap, target.bootstrap, topics=topic, sync__topic__configs__enabled="false", **more
    )
    return topic, sent, Running(config).start()


def test_a_refused_batch_stops_its_partition_and_is_copied_once_the_target_takes_it(source, target):
    topic, sent, mirror = refused(source, target)
    remote = f"A.{topic}"
    try:
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert (stop["kind"], stop["from"], stop["to"]) == ("refused", 2, 3)
        small = [(b"k", b"s%d" % i, [], 1_700_000_000_000) for i in range(30)]
        produce(source.bootstrap, topic, small, partition=1, **{"batch.num.messages": 1})
        assert read(target.bootstrap, remote, 30, partition=1) == small
        mirror.until(lambda: gaps(target.bootstrap, topic), "an entry")
        [again] = decide(target.bootstrap, topic, Action.RETRY)
        assert again.state is State.OPEN, "the target still refuses it"
        assert "raise max.message.bytes" in again.why
        limit(target, remote, 100_000)
        [done] = decide(target.bootstrap, topic, Action.RETRY, [0])
        assert (done.state, done.action) == (State.RESOLVED, Action.RETRY)
        assert read(target.bootstrap, remote, len(sent)) == sent
        mirror.until(lambda: mirror.details()["gaps"]["waiting"] == 0, "nothing waits")
    finally:
        mirror.stop()
    assert [o["offset"] for c in mirror.commits for p, o in c if p["partition"] == 0 and "offset" in o][
        -1
    ] == 5


@pytest.mark.parametrize("how", ["by hand", "by policy"])
def test_a_refused_batch_is_left_out(source, target, how):
    policy = {"mirror__gap__policy": "record"} if how == "by policy" else {}
    topic, sent, mirror = refused(source, target, **policy)
    try:
        mirror.until(lambda: gaps(target.bootstrap, topic), "an entry")
        if how == "by hand":
            decide(target.bootstrap, topic, Action.SKIP)
        assert read(target.bootstrap, f"A.{topic}", 5) == sent[:2] + sent[3:]
        [gap] = gaps(target.bootstrap, topic)
        mirror.until(lambda: not gaps(target.bootstrap, topic)[0].waits, "decided")
        assert (gap.kind, gap.start, gap.end) == (Kind.REFUSED, 2, 3)
    finally:
        mirror.stop()


def test_a_refused_batch_is_tried_by_the_next_start_and_its_gap_is_closed(source, target):
    topic, sent, mirror = refused(source, target)
    try:
        mirror.until(lambda: gaps(target.bootstrap, topic), "an entry")
    finally:
        mirror.stop()
    limit(target, f"A.{topic}", 100_000)
    config = props(source.bootstrap, target.bootstrap, topics=topic, sync__topic__configs__enabled="false")
    mirror = Running(config).start(mirror.commits)
    try:
        assert read(target.bootstrap, f"A.{topic}", len(sent)) == sent
        mirror.until(lambda: gaps(target.bootstrap, topic)[0].state is State.RESOLVED, "closed")
    finally:
        mirror.stop()


def test_a_retention_that_must_not_be_deleted_keeps_its_partition_stopped(source, target):
    """DeleteRecords is refused for a compacted topic."""
    topic = new_topic(source, config={"cleanup.policy": "compact"})
    keyed = [(b"k%d" % i, b"v", [], 1_700_000_000_000) for i in range(10)]
    produce(source.bootstrap, topic, keyed)
    config = props(
        source.bootstrap, target.bootstrap, topics=topic, mirror__topic__recreated="truncate-target"
    )
    mirror = Running(config).start()
    try:
        mirror.until(lambda: mirror.records == 10, "copied")
        delete(source.bootstrap, topic)
        new_topic(source, config={"cleanup.policy": "compact"}, name=topic)
        produce(source.bootstrap, topic, keyed)
        mirror.until(
            lambda: (
                "not possible" in mirror.details().get("stopped", {}).get(f"{topic}-0", {}).get("why", "")
            ),
            "stopped",
        )
        [done] = decide(target.bootstrap, topic, Action.APPEND)
        assert done.state is State.RESOLVED
        assert read(target.bootstrap, f"A.{topic}", 20) == keyed + keyed
    finally:
        mirror.stop()


def cut_log(directory: Path, topic: str, keep: int) -> None:
    """Takes everything behind the first `keep` bytes from a partition's only segment, as a crash of a disk does."""
    [log] = directory.rglob(f"{topic}-0/00000000000000000000.log")
    with log.open("r+b") as file:
        file.truncate(keep)


def log_size(directory: Path, topic: str) -> int:
    [log] = directory.rglob(f"{topic}-0/00000000000000000000.log")
    return log.stat().st_size


@pytest.mark.parametrize("moment", ["running", "down"])
@pytest.mark.parametrize("kind", ["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))])
def test_a_log_that_lost_its_end_is_found_though_it_has_grown_again(tmp_path, target, kind, moment):
    broker = EmbeddedBroker(tmp_path / "a") if kind == "klamm" else KafkaBroker(tmp_path)
    with broker:
        bootstrap = broker.bootstrap if isinstance(broker, EmbeddedBroker) else broker.address
        directory = tmp_path / "a" if kind == "klamm" else broker.data
        topic, first, second, other = new_name(), rows(50, "a"), rows(50, "b"), rows(90, "c")
        make(bootstrap, topic)
        produce(bootstrap, topic, first)
        kept = log_size(directory, topic)
        produce(bootstrap, topic, second)
        config = props(bootstrap, target.bootstrap, topics=topic, emit__offset__syncs__enabled="false")
        mirror = Running(config).start()
        try:
            mirror.until(lambda: mirror.records == 100, "copied")
            mirror.until(
                lambda: mirror.commits and mirror.commits[-1][-1][1].get("offset") == 99, "committed"
            )
            if moment == "down":
                mirror.stop()
            broker.kill()
            cut_log(directory, topic, kept)
            broker.start()
            produce(bootstrap, topic, other)  # longer than before
            if moment == "down":
                mirror = Running(config).start(mirror.commits)
            mirror.until(lambda: mirror.details().get("stopped"), "stopped")
            stop = mirror.details()["stopped"][f"{topic}-0"]
            assert (stop["kind"], stop["from"], stop["to"]) == ("truncated", 50, 100)
            mirror.until(lambda: gaps(target.bootstrap, topic), "an entry")
            decide(target.bootstrap, topic, None)
            assert read(target.bootstrap, f"A.{topic}", 190) == first + second + other
        finally:
            mirror.stop()
