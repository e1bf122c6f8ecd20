"""`klamm mirror verify` between real clusters: copies by the mirror, and copies with faults that a test made by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_decided, wait_until
from support.gaps import delete, gaps
from support.klamm import KLAMM, klamm
from support.mirror import mirror_file
from support.mirroring import Running, props

pytestmark = pytest.mark.usefixtures("processes")

Record = dict[str, Any]
YESTERDAY_MS = (int(time.time()) - 86_400) * 1000


def sample(count: int, *, first: int = 0) -> list[Record]:
    return [
        {"key": b"k%d" % (i % 7), "value": b"v%d" % i, "timestamp": YESTERDAY_MS + i, "headers": [("h", b"%d" % i)]}
        for i in range(first, first + count)
    ]  # fmt: skip


def write(bootstrap: str, topic: str, records: list[Record], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for record in records:
        producer.produce(topic, partition=0, **record)
        producer.poll(0)
    assert producer.flush(60) == 0


def flow_file(folder: Path, source: Any, target: Any, topics: str) -> Path:
    """Returns a file of a flow of these topics, without the heartbeats of other tests."""
    flow = {"A->B.enabled": "true", "topics": topics, "heartbeats.replication.enabled": "false"}
    return mirror_file(folder / "mm2.properties", {"A": source.bootstrap, "B": target.bootstrap}, flow)


def verify(path: Path, *args: str, patience: str = "1") -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON, and standard error."""
    state = str(path.with_suffix(".state"))
    done = klamm(
        "mirror", "verify", str(path), "A->B", *args, "--patience", patience, "--state", state, "-o", "json"
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def only(found: dict[str, Any]) -> dict[str, Any]:
    [topic] = found["topics"]
    [partition] = topic["compared"]
    return partition


def counts(partition: dict[str, Any]) -> dict[str, int]:
    return {k: v for k, v in partition.items() if type(v) is int and v and k != "partition"}


def aborted_and_committed(bootstrap: str, topic: str) -> None:
    """900 records in three transactions, of which the second is aborted."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "zstd"}
    )
    producer.init_transactions()
    for number, abort in enumerate([False, True, False]):
        producer.begin_transaction()
        for record in sample(300, first=300 * number):
            producer.produce(topic, partition=0, **record)
        if abort:
            producer.flush(60)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_decided(bootstrap, topic)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_what_the_mirror_copied_is_equal(source, target, tmp_path, isolation):
    topic, stamped = new_name("orders"), new_name("stamped")
    new_topic(source, 2, {"retention.ms": "1234567890000"}, name=topic)
    new_topic(source, 1, {"message.timestamp.type": "LogAppendTime"}, name=stamped)
    aborted_and_committed(source.bootstrap, topic)
    write(source.bootstrap, stamped, sample(500))
    names = f"{topic},{stamped}"
    path = flow_file(tmp_path, source, target, names)
    with Running(
        props(source.bootstrap, target.bootstrap, topics=names, source__consumer__isolation__level=isolation)
    ):
        code, found, said = verify(path, patience="30")
    assert (code, said) == (0, "")
    assert found["equal"]
    by_name = {t["topic"]: t for t in found["topics"] if t["topic"] in names}
    assert [p["same"] for p in by_name[stamped]["compared"]] == [500]
    assert [p["same"] for p in by_name[topic]["compared"]] == [600, 0]
    first = by_name[topic]["compared"][0]
    assert first["aborted_left_out"] + first["aborted_copied"] == 300
    shown = klamm("mirror", "verify", str(path), "A->B", stamped, "--state", str(tmp_path / "s"))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[-2:] == [
        f"{stamped} -> A.{stamped} partition 0: 500 records equal",
        "equal",
    ]


def by_hand(source: Any, target: Any, records: list[Record], copies: list[Record], **config: str) -> str:
    """Returns a topic with records at the source, and what is to be their copy."""
    topic = new_topic(source, 1, {"max.message.bytes": "1000000", **config})
    new_topic(target, 1, {"max.message.bytes": "1000000", **config}, name=f"A.{topic}")
    write(source.bootstrap, topic, records)
    write(target.bootstrap, f"A.{topic}", copies)
    return topic


@pytest.mark.parametrize("field", ["value", "key", "timestamp", "headers"])
def test_the_first_differing_record_is_named(source, target, tmp_path, field):
    records = sample(2000)
    copies = [*records[:100], *records]  # a mirror that was killed
    other = {"value": b"?", "key": None, "timestamp": YESTERDAY_MS - 5, "headers": []}[field]
    copies[1600] = {**copies[1600], field: other}
    topic = by_hand(source, target, records, copies)
    code, found, _ = verify(flow_file(tmp_path, source, target, topic))
    partition = only(found)
    assert code == 1
    assert not found["equal"]
    assert partition["first"] == {"source_offset": 1500, "target_offset": 1600, "field": field}
    assert counts(partition) == {"same": 1999, "repeated": 100, "different": 1}


def test_lost_records_foreign_records_and_settings_are_differences(source, target, tmp_path):
    records = sample(1000)
    topic = by_hand(
        source,
        target,
        records,
        [*records[:300], *records[310:600], *sample(5, first=9000), *records[600:990]],
    )
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    path = flow_file(tmp_path, source, target, topic)
    code, found, _ = verify(path)
    assert code == 1
    assert counts(only(found)) == {"same": 980, "missing": 10, "extra": 5, "behind": 10}
    assert only(found)["first"] == {"source_offset": 300, "target_offset": 300, "field": "missing"}
    assert found["topics"][0]["configs"] == []
    change_setting(admin, f"A.{topic}", "max.message.bytes", "2000000")
    _, found, _ = verify(path)
    assert found["topics"][0]["configs"] == [
        {"name": "max.message.bytes", "source": "1000000", "target": "2000000"}
    ]


def change_setting(admin: AdminClient, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def purge(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(60)


@pytest.mark.parametrize(("at_source", "at_target"), [(400, 0), (0, 400), (300, 400), (0, 1000)])
def test_logs_whose_beginning_was_deleted_are_equal(source, target, tmp_path, at_source, at_target):
    records = sample(1000)
    topic = by_hand(source, target, records, records)
    for cluster, name, before in ((source, topic, at_source), (target, f"A.{topic}", at_target)):
        if before:
            purge(cluster.bootstrap, name, before)
    code, found, _ = verify(flow_file(tmp_path, source, target, topic))
    assert code == 0, found
    assert only(found)["same"] == 1000 - max(at_source, at_target)


def test_timestamps_of_the_targets_brokers_are_not_compared(source, target, tmp_path):
    topic = new_topic(source)
    new_topic(target, 1, {"message.timestamp.type": "LogAppendTime"}, name=f"A.{topic}")
    write(source.bootstrap, topic, sample(200))
    write(target.bootstrap, f"A.{topic}", sample(200))
    code, found, _ = verify(flow_file(tmp_path, source, target, topic))
    assert (code, only(found)["same"]) == (0, 200)
    assert "LogAppendTime" in only(found)["notes"][0]


def test_a_topic_that_one_side_has_compacted_further(source, target, tmp_path):
    records = sample(700)  # seven keys
    topic = by_hand(
        source, target, records[:100] + records[400:], records[300:], **{"cleanup.policy": "compact"}
    )
    code, found, _ = verify(flow_file(tmp_path, source, target, topic))
    assert code == 0
    assert counts(only(found)) == {"same": 300, "compacted_at_source": 100, "compacted_at_target": 100}
    lost = by_hand(source, target, records, records[:-1], **{"cleanup.policy": "compact"})
    code, found, _ = verify(flow_file(tmp_path, source, target, lost))
    assert (code, only(found)["first"]["source_offset"]) == (1, 699)


def test_a_command_that_was_killed_goes_on_where_it_was(source, target, tmp_path):
    records = [{"value": b"%d" % i, "timestamp": YESTERDAY_MS + i} for i in range(600_000)]
    topic = by_hand(source, target, records, records)
    path = flow_file(tmp_path, source, target, topic)
    state = path.with_suffix(".state")
    command = [str(KLAMM), "mirror", "verify", str(path), "A->B", "--state", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def stored() -> int:
        return json.loads(state.read_text())["partitions"][f"{topic}-0"]["source"] if state.exists() else 0

    try:
        wait_until(lambda: stored() > 0 or process.poll() is not None, "a stored state")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert 0 < stored() < 600_000
    code, found, said = verify(path)
    assert code == 0, found
    assert "going on with a comparison that did not end" in said
    assert counts(only(found)) == {"same": 600_000}
    assert not state.exists()


def test_groups_that_would_skip_records_are_told(source, target, tmp_path):
    from klamm_mirror.topics.formats import Checkpoint

    records = sample(100)
    topic = by_hand(source, target, records, [*records[:20], *records])
    good, bad = new_name("good"), new_name("bad")
    for group, place in ((good, 55), (bad, 95)):
        key, value = Checkpoint(group, f"A.{topic}", 0, 50, place).encode()
        write(target.bootstrap, "A.checkpoints.internal", [{"key": key, "value": value}])
    code, found, _ = verify(flow_file(tmp_path, source, target, topic))
    assert code == 1
    judged = {g["group"]: (g["verdict"], g["exact"], g["records"]) for g in found["groups"]}
    assert judged == {good: ("repeats", 70, 15), bad: ("skips", 70, 25)}


def test_a_topic_that_was_made_anew_is_compared_with_its_new_copy(source, target, tmp_path):
    topic = new_topic(source)
    write(source.bootstrap, topic, sample(20))
    path, again = flow_file(tmp_path, source, target, topic), {"mirror.topic.recreated": "new-topic"}
    with Running(props(source.bootstrap, target.bootstrap, topics=topic) | again) as mirror:
        mirror.until(lambda: mirror.records == 20, "copied")
        delete(source.bootstrap, topic)
        new_topic(source, name=topic)
        write(source.bootstrap, topic, sample(30, first=20))
        mirror.until(lambda: mirror.records == 50, "copied again")
        wait_until(lambda: gaps(target.bootstrap, topic)[0].done_ms, "noted")
    code, found, _ = verify(path)
    assert (code, found["equal"], counts(only(found))) == (0, True, {"same": 30})
    assert found["topics"][0]["target_topic"].startswith(f"A.{topic}.recreated-")


def test_a_topic_that_was_appended_is_compared_with_what_was_copied_of_it(source, target, tmp_path):
    topic = new_topic(source)
    write(source.bootstrap, topic, sample(20))
    path, again = flow_file(tmp_path, source, target, topic), {"mirror.topic.recreated": "append"}
    with Running(props(source.bootstrap, target.bootstrap, topics=topic) | again) as mirror:
        mirror.until(lambda: mirror.records == 20, "copied")
        delete(source.bootstrap, topic)
        new_topic(source, name=topic)
        write(source.bootstrap, topic, sample(30, first=20))
        mirror.until(lambda: mirror.records == 50, "copied again")
        wait_until(lambda: gaps(target.bootstrap, topic)[0].done_ms, "noted")
    code, found, _ = verify(path)
    assert (code, found["equal"], counts(only(found))) == (0, True, {"same": 30})
    [note] = only(found)["notes"]
    assert note == "target offsets 0 to 19 were there when the topic was appended, by the gap ledger"


def test_what_cannot_be_compared(source, target, tmp_path):
    path = flow_file(tmp_path, source, target, "none-such")
    assert klamm("mirror", "verify", str(path), "A->B", "other").returncode == 2
    assert klamm("mirror", "verify", str(path), "B->A").returncode == 2
    away = mirror_file(
        tmp_path / "away.properties",
        {"A": source.bootstrap, "B": "127.0.0.1:1"},
        {"A->B.enabled": "true", "topics": "x"},
    )
    done = klamm("mirror", "verify", str(away), "A->B")
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr
