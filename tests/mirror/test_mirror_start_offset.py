"""`mirror.start.offset`: where a partition without a committed offset begins, and which partitions it is not about."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.broker import new_name, new_topic, wait_until
from support.mirroring import Running, produce, props, read, rows

from klamm_base.errors import ConfigError
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.start_offset import parse_start, start_of
from klamm_mirror.source.connector import MirrorSourceConnector


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", EARLIEST), (" Latest ", LATEST), ("0", 0), ("1769846400000", 1_769_846_400_000),
        ("2026-01-31T08:00:00Z", 1_769_846_400_000), ("2026-01-31T09:00:00+01:00", 1_769_846_400_000),
        ("2026-01-31T08:00:00.250", 1_769_846_400_250), ("2026-01-31", 1_769_817_600_000),
    ],
)  # fmt: skip
def test_words_and_times(text, start):
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "now", "-5", "2026-13-01", "1.5"])
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match=r"mirror\.start\.offset: Must be earliest, latest"):
        parse_start(text)


def test_partitions_that_came_later_begin_at_earliest():
    def start(topic: str, partition: int) -> int:
        return start_of(
            topic, partition, LATEST, found_later={"new-0"}, committed={"old": True, "new": False}
        )

    assert start("old", 1) == EARLIEST  # the topic is copied already
    assert start("old", 0) == LATEST  # its offset was reset
    assert start("new", 0) == EARLIEST
    assert start("other", 3) == LATEST


def config(source, target, topic: str, start: str) -> dict[str, str]:
    return props(
        source.bootstrap, target.bootstrap, topics=topic, mirror__start__offset=start,
        refresh__topics__interval__seconds="1", heartbeats__replication__enabled="false",
    )  # fmt: skip


def last_commit(mirror: Running, partition: int) -> int | None:
    found = [
        o["offset"] for c in mirror.commits for p, o in c if p["partition"] == partition and "offset" in o
    ]
    return found[-1] if found else None


def test_latest_leaves_the_past_out_and_loses_nothing_that_comes_later(source, target):
    topic, sent = new_topic(source, 2), rows(400)
    produce(source.bootstrap, topic, sent[:100])
    settings = config(source, target, topic, "latest")
    with Running(settings) as mirror:
        # The empty partition's begin is kept as well
        mirror.until(lambda: (last_commit(mirror, 0), last_commit(mirror, 1)) == (99, -1), "both begins")
        mirror.stop_tasks()
        commits = mirror.commits
    # While the mirror is down, partition 1 gets its first records, and the topic a third partition
    produce(source.bootstrap, topic, sent[100:200], partition=1)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    produce(source.bootstrap, topic, sent[200:300], partition=2)
    mirror = Running(settings)
    mirror.start(commits)
    try:
        produce(source.bootstrap, topic, sent[300:], partition=0)
        assert read(target.bootstrap, f"A.{topic}", 100, partition=1) == sent[100:200]
        assert read(target.bootstrap, f"A.{topic}", 100, partition=2) == sent[200:300]
        assert read(target.bootstrap, f"A.{topic}", 100, partition=0) == sent[300:]
    finally:
        mirror.stop()


def test_a_topic_that_is_made_while_the_mirror_runs_is_copied_from_its_beginning(source, target):
    prefix = new_name("made")
    new_topic(source, name=f"{prefix}-a")
    with Running(config(source, target, f"{prefix}.*", "latest")) as mirror:
        topic, sent = new_topic(source, name=f"{prefix}-b"), rows(50)
        produce(source.bootstrap, topic, sent)
        wait_until(lambda: mirror.context.reconfigurations, "new tasks are asked for")
        mirror.stop_tasks()
        mirror.contexts.clear()
        mirror.start()
        assert read(target.bootstrap, f"A.{topic}", 50) == sent


@pytest.mark.parametrize("before", ["made.*", "other.*"])
def test_a_topic_that_was_made_before_the_next_look_of_a_connector_that_starts_again(source, target, before):
    """It begins at its beginning, unless only the changed configuration selects it."""
    prefix = new_name("made")
    new_topic(source, name=f"{prefix}-a")
    settings = config(source, target, f"{prefix}.*", "latest") | {"refresh.topics.interval.seconds": "600"}
    with Running(settings) as mirror:
        topic = new_topic(source, name=f"{prefix}-b")
    changed = Running(settings)
    changed.context.present_task_configs = [{**each, "topics": before} for each in mirror.configs]
    try:
        changed.start(mirror.commits)
        later = changed.configs[0]["task.partitions.found.later"]
        assert later == (f"{topic}-0" if before == "made.*" else "")
    finally:
        changed.stop()


def test_a_time_begins_with_the_first_record_from_it_on(source, target):
    topic, sent = new_topic(source, 2), rows(300)
    produce(source.bootstrap, topic, sent)
    produce(source.bootstrap, topic, sent[:10], partition=1)
    with Running(config(source, target, topic, str(sent[120][3]))) as mirror:
        first = next(i for i, row in enumerate(sent) if row[3] >= sent[120][3])
        assert read(target.bootstrap, f"A.{topic}", 300 - first) == sent[first:]
        # No record is as late as that: the partition begins at its end
        mirror.until(lambda: last_commit(mirror, 1) == 9, "the begin of the other partition")


def test_a_wrong_start_is_refused_with_its_value():
    values = MirrorSourceConnector.validate(props("a:1", "b:1", mirror__start__offset="soon"))
    said = {v.name: v.errors for v in values}["mirror.start.offset"]
    assert len(said) == 1
    assert "soon" in said[0]
