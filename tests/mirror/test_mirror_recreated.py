"""A topic that was deleted and made again at the source: always found, and copied as the policy says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from support.broker import new_name
from support.gaps import decide, delete, gaps, make
from support.kafka_broker import KafkaBroker
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_mirror.copy.gap_policy import new_name as copy_name
from klamm_mirror.gaps.entries import State
from klamm_mirror.stops import Action, Kind

OLD = 100


@pytest.fixture(
    scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))]
)
def source(request, processes, tmp_path_factory) -> Iterator[str]:
    work = tmp_path_factory.mktemp("source")
    if request.param == "klamm":
        with EmbeddedBroker(work / "data") as klamm:
            yield klamm.bootstrap
        return
    with KafkaBroker(work) as kafka:
        yield kafka.address


@pytest.fixture(scope="module")
def target(processes, tmp_path_factory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("target") / "data") as running:
        yield running.bootstrap


def make_anew(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list:
    """Deletes the topic and makes it again with `count` records in each partition."""
    delete(bootstrap, topic)
    make(bootstrap, topic, partitions, **{"retention.ms": "9876543210000"})
    new = rows(count, "new")
    for partition in range(partitions):
        produce(bootstrap, topic, new, partition=partition)
    return new


def first_offset(bootstrap: str, topic: str) -> int:
    place, admin = TopicPartition(topic, 0), AdminClient({"bootstrap.servers": bootstrap})
    return admin.list_offsets({place: OffsetSpec.earliest()})[place].result(60).offset


def copied(source: str, target: str, **more: str) -> tuple[str, list, Running]:
    """A topic whose 100 records are at the target, and the mirror that runs."""
    topic = make(source, new_name())
    old = rows(OLD)
    produce(source, topic, old)
    mirror = Running(props(source, target, topics=topic, **more)).start()
    mirror.until(lambda: mirror.records == OLD, "copied")
    return topic, old, mirror


def again(mirror: Running, source: str, target: str, topic: str, **more: str) -> Running:
    """Another mirror that goes on where this one stopped: the connector too is new."""
    mirror.stop()
    assert mirror.commits
    return Running(props(source, target, topics=topic, **more)).start(mirror.commits)


@pytest.mark.parametrize("count", [40, OLD, 160], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("moment", ["running", "down"])
def test_it_is_found_however_long_it_is(source, target, moment, count):
    topic, old, mirror = copied(source, target)
    try:
        if moment == "down":
            mirror.stop()
        new = make_anew(source, topic, count)
        if moment == "down":
            mirror = again(mirror, source, target, topic)
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert (stop["kind"], stop["from"]) == ("recreated", OLD)
        mirror.until(lambda: gaps(target, topic), "an entry in the ledger")
        [gap] = gaps(target, topic)
        assert (gap.kind, gap.state, gap.start) == (Kind.RECREATED, State.OPEN, OLD)
        assert read(target, f"A.{topic}", None) == old
        [done] = decide(target, topic, Action.APPEND)
        assert done.state is State.RESOLVED
        assert read(target, f"A.{topic}", OLD + count) == old + new
        mirror.until(lambda: "stopped" not in mirror.details(), "it goes on")
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "no lag")
    finally:
        mirror.stop()
    # the next run goes on in the new topic, and asks nobody
    more = rows(10, "more")
    produce(source, topic, more)
    mirror = again(mirror, source, target, topic)
    try:
        assert read(target, f"A.{topic}", OLD + count + 10) == old + new + more
        assert "stopped" not in mirror.details()
    finally:
        mirror.stop()


@pytest.mark.parametrize("moment", ["running", "down"])
@pytest.mark.parametrize("policy", ["append", "truncate-target", "new-topic"])
def test_the_policy_goes_on_by_itself(source, target, policy, moment):
    topic, old, mirror = copied(source, target, mirror__topic__recreated=policy)
    try:
        if moment == "down":
            mirror.stop()
        new = make_anew(source, topic, 60)
        if moment == "down":
            mirror = again(mirror, source, target, topic, mirror__topic__recreated=policy)
        mirror.until(lambda: mirror.records == (60 if moment == "down" else OLD + 60), "the new topic")
        mirror.until(lambda: [g.state for g in gaps(target, topic)] == [State.RECORDED], "the ledger")
    finally:
        mirror.stop()
    [gap] = gaps(target, topic)
    more = rows(10, "more")
    produce(source, topic, more)
    mirror = again(mirror, source, target, topic, mirror__topic__recreated=policy)
    try:
        match policy:
            case "append":
                assert read(target, f"A.{topic}", OLD + 70) == old + new + more
            case "truncate-target":
                mirror.until(lambda: mirror.records == 10, "what came later")
                assert first_offset(target, f"A.{topic}") == OLD
                assert read(target, f"A.{topic}", None) == new + more
            case _:
                assert gap.new_id is not None
                copy = copy_name(f"A.{topic}", gap.new_id)
                assert read(target, copy, 70) == new + more
                assert read(target, f"A.{topic}", None) == old
    finally:
        mirror.stop()


def test_a_deleted_topic_that_was_copied_whole_is_noted_and_stops_nothing(source, target):
    topic, _, mirror = copied(source, target)
    try:
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "no lag")
        delete(source, topic)
        mirror.until(lambda: gaps(target, topic), "an entry in the ledger")
        mirror.until(lambda: gaps(target, topic)[0].state is State.RECORDED, "recorded")
        [gap] = gaps(target, topic)
        assert (gap.kind, gap.start, gap.end) == (Kind.DELETED, OLD, OLD)
        mirror.until(lambda: "stopped" not in mirror.details(), "it goes on")
    finally:
        mirror.stop()


@pytest.mark.parametrize("deletions", ["off", "delete"])
def test_a_deleted_topic_is_deleted_at_the_target_by_policy_once_it_is_copied_whole(
    source, target, deletions
):
    topic, _, mirror = copied(
        source, target, sync__topic__deletions=deletions, refresh__topics__interval__seconds="1"
    )
    admin = AdminClient({"bootstrap.servers": target})
    try:
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "no lag")
        delete(source, topic)
        mirror.until(lambda: gaps(target, topic), "an entry in the ledger")
        if deletions == "delete":
            mirror.until(lambda: f"A.{topic}" not in admin.list_topics(timeout=60).topics, "it is deleted")
        else:
            mirror.until(lambda: gaps(target, topic)[0].state is State.RECORDED, "recorded")
            looks = len(mirror.contexts[0].said)
            mirror.until(lambda: len(mirror.contexts[0].said) > looks + 4, "some looks later")
            assert f"A.{topic}" in admin.list_topics(timeout=60).topics
    finally:
        mirror.stop()


def test_a_topic_that_somebody_made_in_place_of_a_deleted_copy_stays(source, target, caplog):
    topic, _, mirror = copied(
        source, target, sync__topic__deletions="delete", refresh__topics__interval__seconds="1"
    )
    admin = AdminClient({"bootstrap.servers": target})
    try:
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "no lag")
        delete(source, topic)
        mirror.until(lambda: f"A.{topic}" not in admin.list_topics(timeout=60).topics, "it is deleted")
        make(target, f"A.{topic}")
        produce(target, f"A.{topic}", rows(50, "own"))
        mirror.until(lambda: f"A.{topic} stays" in caplog.text, "another look")
        assert len(read(target, f"A.{topic}", None)) == 50
    finally:
        mirror.stop()


def test_a_topic_that_was_deleted_while_the_mirror_was_down_is_a_gap_of_unknown_size(source, target):
    topic, _, mirror = copied(source, target)
    mirror.stop()
    produce(source, topic, rows(10, "lost"))
    delete(source, topic)
    mirror = again(mirror, source, target, topic)
    try:
        mirror.until(lambda: mirror.details().get("stopped"), "stopped")
        mirror.until(lambda: gaps(target, topic), "an entry in the ledger")
        [gap] = gaps(target, topic)
        assert (gap.kind, gap.start, gap.end, gap.state) == (Kind.DELETED, OLD, None, State.OPEN)
        [done] = decide(target, topic, None)
        assert done.state is State.RESOLVED
        mirror.until(lambda: "stopped" not in mirror.details(), "it goes on")
    finally:
        mirror.stop()
    mirror = Running(props(source, target, topics=topic))
    try:
        assert mirror.start(mirror.commits).configs == [], "the next start has forgotten it"
    finally:
        mirror.stop()


def test_partitions_that_came_with_the_new_topic_wait_for_the_decision_too(source, target):
    topic, old, mirror = copied(source, target)
    mirror.stop()
    new = make_anew(source, topic, 30, partitions=2)
    mirror = again(mirror, source, target, topic)
    try:
        mirror.until(lambda: len(mirror.details().get("stopped", {})) == 2, "both are stopped")
        mirror.until(lambda: len(gaps(target, topic)) == 2, "both are in the ledger")
        decide(target, topic, Action.APPEND)
        assert read(target, f"A.{topic}", OLD + 30) == old + new
        assert read(target, f"A.{topic}", 30, partition=1) == new
    finally:
        mirror.stop()
