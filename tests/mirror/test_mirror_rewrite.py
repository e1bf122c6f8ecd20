"""Flows that change their records: transforms, converters, another compression; beside MirrorMaker 4.3.1's."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_name, new_topic, wait_until
from support.kafka_broker import KafkaBroker
from support.klamm import Server, klamm
from support.mirror import mirror_file
from support.mirror_maker import MirrorMaker
from support.mirroring import Row, Running, produce, props, read

from klamm_kafka.wire.batch import Record, decode_records, encode_batch
from klamm_mirror.clients import ProducerSettings
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.raw import Counts, convert
from klamm_plugins.errors import DataError
from klamm_plugins.record_pipeline import RawRecord

PACKAGE = "org.apache.kafka.connect.transforms."
CHANGES = {
    "transforms": "drop,mark",
    "transforms.drop.type": f"{PACKAGE}Filter",
    "transforms.drop.predicate": "empty",
    "transforms.mark.type": f"{PACKAGE}InsertHeader",
    "transforms.mark.header": "via",
    "transforms.mark.value.literal": "mm",
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "predicates": "empty",
    "predicates.empty.type": f"{PACKAGE}predicates.RecordIsTombstone",
}
"""Drops tombstones, marks the others, makes values JSON."""


def given(count: int) -> list[Row]:
    """Returns rows of which every third is a tombstone."""
    stamp = int(time.time() * 1000) - 100_000
    return [
        (
            f"k{i}".encode(),
            None if i % 3 == 2 else f"v{i}".encode(),
            [("n", b"%d" % i)] if i % 2 else None,
            stamp + i,
        )
        for i in range(count)
    ]


class Upper:
    """A pipeline that drops odd offsets and writes values in capitals, to a topic of its own if told so."""

    def __init__(self, topic: str | None = None) -> None:
        self.seen = []
        self.topic = topic

    def convert(self, records):
        self.seen += records
        return [
            None if r.source_offset["offset"] % 2 else RawRecord(
                self.topic or r.topic, r.partition, r.key, r.value.upper(), [(h.name, h.value) for h in r.headers],
                r.timestamp,
            )
            for r in records
        ]  # fmt: skip

    def settle(self, within_s):
        return True

    def close(self):
        self.closed = True


def test_transforms_see_what_mirrormaker_shows_them():
    rows = [Record(0, 5, b"k", b"a", (("h", b"x"),)), Record(0, 6, None, b"b")]
    pipeline = Upper()
    rewriter = Rewriter("A", ProducerSettings.of(props("a:1", "b:1")), pipeline)
    partition = MirrorPartition(topic="t", partition=3, remote="A.t")
    batches, position = convert(encode_batch(rows), 0, Counts(), rewrite=rewriter.of(partition))
    first, second = pipeline.seen
    assert (first.topic, first.partition, first.key, first.value, first.timestamp) == (
        "A.t",
        3,
        b"k",
        b"a",
        5,
    )
    assert first.source_partition == {"cluster": "A", "topic": "t", "partition": 3}
    assert (first.source_offset, second.source_offset) == ({"offset": 0}, {"offset": 1})
    assert [(h.name, h.value) for h in first.headers] == [("h", b"x")]
    assert (position, rewriter.filtered, [(b.first, b.last, b.count) for b in batches]) == (2, 1, [(0, 0, 1)])
    assert decode_records(batches[0].data) == [Record(0, 5, b"k", b"A", [("h", b"x")])]


def test_a_transform_that_moves_a_record_is_named():
    rewriter = Rewriter("A", ProducerSettings.of(props("a:1", "b:1")), Upper("elsewhere"))
    partition = MirrorPartition(topic="t", partition=3, remote="A.t")
    data = encode_batch([Record(0, 5, b"k", b"a")])
    with pytest.raises(
        DataError, match=r"t-3 at offset 0: a transform moved the record from A\.t-3 to elsewhere-3"
    ):
        convert(data, 0, Counts(), rewrite=rewriter.of(partition))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_flow_with_a_compression_of_its_own(source, target, codec):
    topic = new_topic(source)
    theirs = "gzip" if codec != "gzip" else "lz4"
    rows = [(b"k", b"%06d" % i * 20, None, 1_000 + i) for i in range(2_000)]
    produce(source.bootstrap, topic, rows, **{"compression.type": theirs})
    config = props(
        source.bootstrap, target.bootstrap, topics=topic, target__producer__compression__type=codec
    )
    with Running(config) as running:
        running.until(lambda: running.records == len(rows), "all records")
        details = running.details()
        assert details["batches_recompressed"] > 0
        assert details["batches_passed"] == 0
    found = read(target.bootstrap, f"A.{topic}", None)
    assert [(k, v, t) for k, v, _, t in found] == [(k, v, t) for k, v, _, t in rows]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_transforms_and_converters_of_a_flow(source, target, tmp_path, support):
    a, b = new_name("a"), new_name("b")
    topic, rows = new_topic(source), given(300)
    produce(source.bootstrap, topic, rows)
    flow = f"{a}->{b}"
    settings = {f"{flow}.enabled": "true", f"{flow}.topics": topic, f"{b}.producer.compression.type": "zstd"}
    settings |= {f"{flow}.{key}": value for key, value in CHANGES.items()}
    settings[f"{b}.exactly.once.source.support"] = support
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    with Server("mirror", "start", str(path)) as server:
        wait_until(
            lambda: len(read(target.bootstrap, f"{a}.{topic}", None)) >= 200, "the records", timeout_s=60
        )
        produce(source.bootstrap, topic, given(3)[2:])  # a tombstone at the end is left out; progress goes on
        wait_until(lambda: committed(target.bootstrap, a, topic) == 300, "the offset behind it", timeout_s=60)
        assert server.stop() == 0
    assert "value.converter" in klamm("mirror", "verify", str(path), flow).stderr
    found = read(target.bootstrap, f"{a}.{topic}", None)
    kept = [row for row in rows if row[1] is not None]
    assert [(k, t) for k, _, _, t in found] == [(k, t) for k, _, _, t in kept]
    assert all(dict(headers)["via"] == b"mm" for _, _, headers, _ in found)


@pytest.mark.usefixtures("processes")
def test_bad_records_go_to_the_dead_letters_and_the_others_on(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic, rows = new_topic(source), given(30)
    produce(source.bootstrap, topic, rows)
    settings = {
        f"{a}->{b}.enabled": "true", f"{a}->{b}.topics": topic,
        f"{a}->{b}.transforms": "bad", f"{a}->{b}.predicates": "odd",
        f"{a}->{b}.transforms.bad.type": f"{PACKAGE}InsertField$Value",
        f"{a}->{b}.transforms.bad.static.field": "x", f"{a}->{b}.transforms.bad.static.value": "y",
        f"{a}->{b}.transforms.bad.predicate": "odd",
        f"{a}->{b}.predicates.odd.type": f"{PACKAGE}predicates.HasHeaderKey", f"{a}->{b}.predicates.odd.name": "n",
        f"{a}->{b}.errors.tolerance": "all",
        f"{a}->{b}.errors.deadletterqueue.topic.name": f"{a}.dead",
        f"{a}->{b}.errors.deadletterqueue.topic.replication.factor": "1",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    with Server("mirror", "start", str(path)) as server:
        wait_until(
            lambda: committed(target.bootstrap, a, topic) == 29, "the offset of the last", timeout_s=60
        )
        assert server.stop() == 0
    found = {key for key, *_ in read(target.bootstrap, f"{a}.{topic}", None)}
    dead = {key for key, *_ in read(target.bootstrap, f"{a}.dead", None)}
    # InsertField passes a tombstone as it is
    assert dead == {key for key, value, headers, _ in rows if headers and value is not None}
    assert found == {key for key, *_ in rows} - dead


@pytest.mark.usefixtures("processes")
def test_a_transform_that_cannot_be_made_ends_the_start(source, target, tmp_path):
    settings = {"a->b.enabled": "true", "a->b.transforms": "x", "a->b.transforms.x.type": "NoSuchTransform"}
    path = mirror_file(tmp_path / "mm2.properties", {"a": source.bootstrap, "b": target.bootstrap}, settings)
    done = klamm("mirror", "start", str(path), timeout_s=60)
    assert done.returncode == 2
    assert "NoSuchTransform" in done.stderr


def committed(bootstrap: str, alias: str, topic: str) -> int | None:
    """Returns the committed source offset of a flow's topic, from its offset topic."""
    rows = read(bootstrap, f"mm2-offsets.{alias}.internal", None)
    found = [
        json.loads(value).get("offset")
        for key, value, _, _ in rows
        if value and topic.encode() in (key or b"")
    ]
    return found[-1] if found else None


@pytest.mark.usefixtures("apache_kafka")
def test_the_same_as_mirrormaker(tmp_path_factory):
    with (
        KafkaBroker(tmp_path_factory.mktemp("source")) as source,
        KafkaBroker(tmp_path_factory.mktemp("target")) as target,
    ):
        topic = "orders"
        produce(source.address, topic, given(100))
        for name, start in (("theirs", mirrormaker), ("ours", mirror)):
            flow = {f"{name}->B.{key}": value for key, value in CHANGES.items() | {("topics", topic)}}
            file = {"clusters": f"{name},B", f"{name}.bootstrap.servers": source.address,
                    "B.bootstrap.servers": target.address, f"{name}->B.enabled": "true"} | flow  # fmt: skip
            with start(tmp_path_factory.mktemp(name), file):
                wait_until(
                    lambda name=name: count(target.address, f"{name}.{topic}") >= 67, name, timeout_s=150
                )
        theirs = read(target.address, f"theirs.{topic}", None)
        assert read(target.address, f"ours.{topic}", None) == theirs
        assert len(theirs) == 67
        assert dict(theirs[1][2])["via"] == b"mm"


def mirrormaker(directory, file):
    return MirrorMaker(directory, file)


def mirror(directory, file):
    path = directory / "mm2.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in file.items()))
    return Server("mirror", "start", str(path))


def count(bootstrap: str, topic: str) -> int:
    """Returns the end of a topic's only partition, 0 without the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    try:
        if consumer.list_topics(topic, timeout=10).topics[topic].error is not None:
            return 0
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    finally:
        consumer.close()
