"""Sources of positions: records of `__consumer_offsets`, a mirror's offsets, a Spark job's metrics, headers of batches."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace

import pytest

from klamm.admin.errors import AdminError
from klamm.admin.groups import GroupListing
from klamm.admin.model import TopicPartition
from klamm.lag.commits import CommitReader, Seen
from klamm.lag.fetching import time_at, whole
from klamm.lag.group_source import kind_of
from klamm.lag.spark_source import positions
from klamm.lag.topic_source import GroupReader, MirrorReader, TopicSource
from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_base.metrics_text import lines
from klamm_kafka.wire.batch import Record, encode_batch, read_header
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from klamm_spark.status import JobStatus, families

TP = TopicPartition("t", 3)


def commit(offset: int | None, at: int = 5000, version: int = 1, group: str = "g") -> Record:
    key = struct.pack(">h", 1) + OffsetCommitKey(group=group, topic="t", partition=3).encode(0)
    value = None
    if offset is not None:
        said = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=at)
        value = struct.pack(">h", version) + bytes(said.encode(version))
    return Record(key=bytes(key), value=value, timestamp=at)


def control(*, committed: bool) -> Record:
    return Record(key=struct.pack(">hh", 0, committed), value=b"\0" * 6)


@pytest.mark.parametrize("version", [0, 1, 3, 4])
def test_commits_are_read(version):
    reader = CommitReader(11)
    batch = encode_batch([commit(1), commit(7, version=version), commit(None)], base_offset=10)
    assert list(reader.read(bytes(batch))) == [Seen("g", TP, 7, 5000, 11), Seen("g", TP, None, 5000, 12)]
    assert (reader.position, reader.unfinished) == (13, 13)


def test_other_records_are_left_out_and_broken_ones_counted():
    group = Record(key=struct.pack(">h", 2) + b"\0\1g", value=b"\0\0")
    broken = Record(key=struct.pack(">h", 1) + b"\0", value=b"\0\1")
    reader = CommitReader(0)
    assert list(reader.read(bytes(encode_batch([group, broken, commit(5)])))) == [Seen("g", TP, 5, 5000, 2)]
    assert reader.unreadable == 1


def test_commits_of_transactions_count_when_they_are_committed():
    reader, txn = CommitReader(0), {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    first = encode_batch([commit(5)], base_offset=0, base_sequence=0, **txn)
    other = encode_batch([commit(6, group="h")], base_offset=1)
    assert [s.group for s in reader.read(bytes(first + other))] == ["h"]
    assert (reader.position, reader.unfinished) == (2, 0), "a restart needs the open transaction"
    end = encode_batch([control(committed=True)], base_offset=2, is_control=True, **txn)
    assert list(reader.read(bytes(end))) == [Seen("g", TP, 5, 5000, 2)]
    aborted = encode_batch([commit(8)], base_offset=3, base_sequence=1, **txn)
    end = encode_batch([control(committed=False)], base_offset=4, is_control=True, **txn)
    assert list(reader.read(bytes(aborted + end))) == []
    assert reader.unfinished == 5


def test_a_cut_batch_is_left_for_later():
    batches = bytes(encode_batch([commit(5)])), bytes(encode_batch([commit(6)], base_offset=1))
    assert bytes(whole(batches[0] + batches[1][:-1])) == batches[0]
    assert bytes(whole(batches[0][:30])) == b""


def test_offsets_of_a_mirror_are_positions_at_the_source():
    key = json.dumps(["MirrorSourceConnector", {"cluster": "A", "partition": 3, "topic": "t"}]).encode()
    rows = [
        Record(key=key, value=b'{"offset":41}', timestamp=7),
        Record(key=b'["file",{"filename":"x"}]', value=b'{"position":3}'),
        Record(key=key, value=None),
    ]
    found = list(MirrorReader("B", 0, lambda _: True).positions(memoryview(bytes(encode_batch(rows)))))
    assert [(p.cluster, p.group, p.kind, p.partition, p.offset, p.at_ms, p.order) for p in found] == [
        ("A", "A->B", "mirror", TP, 42, 7, 0), ("A", "A->B", "mirror", TP, None, -1, 2),
    ]  # fmt: skip


def test_a_topic_that_was_never_asked_for_is_not_read_to_its_end():
    source = TopicSource(None, OFFSETS_TOPIC, lambda at: GroupReader("c", at, lambda _: True), {})
    assert not source.caught_up


async def test_a_topic_that_may_not_be_read_is_said():
    async def metadata(_topics: list[str]) -> SimpleNamespace:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return SimpleNamespace(
            topics=[SimpleNamespace(name=OFFSETS_TOPIC, error_code=refused, partitions=[])]
        )

    admin = SimpleNamespace(metadata=metadata)
    source = TopicSource(admin, OFFSETS_TOPIC, lambda at: GroupReader("c", at, lambda _: True), {})
    with pytest.raises(AdminError, match="cannot read __consumer_offsets"):
        await source.poll(0)


def test_a_spark_job_tells_its_positions():
    status = JobStatus("job")
    status.take(
        {
            "event": "progress", "query": "q", "batch": 1, "at": "1970-01-01T00:00:09.500Z", "rows": 1,
            "offsets": {"t": {"3": 42, "11": 5}},
        },
        1.0,
    )  # fmt: skip
    found = list(positions("".join(lines(families(status))), "c"))
    assert [(p.group, p.kind, p.partition, p.offset, p.at_ms) for p in found] == [
        ("spark-q", "spark", TP, 42, 9500), ("spark-q", "spark", TopicPartition("t", 11), 5, 9500),
    ]  # fmt: skip


def test_the_time_of_a_record_lies_between_those_of_its_batch():
    rows = [Record(timestamp=at, value=b"x") for at in (1000, 1500, 2000)]
    header = read_header(encode_batch(rows, base_offset=10))
    assert [time_at(header, n) for n in (3, 10, 11, 12)] == [1000, 1000, 1500, 2000]
    stamped = read_header(encode_batch(rows, base_offset=10, log_append_time=9000))
    assert time_at(stamped, 10) == 9000


@pytest.mark.parametrize(
    ("name", "protocol", "type_", "kind"),
    [
        ("g", "consumer", "Classic", "consumer"), ("connect-sink", "consumer", "Classic", "connect"), ("g", "", "", "consumer"),
        ("s", "share", "Share", "share"), ("s", "streams", "Streams", "streams"), ("connect-cluster", "connect", "Classic", None),
    ],
)  # fmt: skip
def test_kinds_of_groups(name, protocol, type_, kind):
    assert kind_of(GroupListing(group=name, protocol_type=protocol, state="Stable", type=type_)) == kind


def test_a_spark_sink_in_connect_is_told_by_its_worker():
    at = 'connector="lake",task="0",query="{}"'.format
    text = "".join(
        f'klamm_spark_position{{{at(query)},topic="t",partition="3"}} 42\nklamm_spark_last_progress_timestamp_seconds{{{at(query)}}} 9.5\n'
        for query in ("output", "second")
    )
    found = [(p.group, p.kind, p.partition, p.offset, p.at_ms) for p in positions(text, "c")]
    assert found == [("spark-lake", "spark", TP, 42, 9500), ("spark-lake-second", "spark", TP, 42, 9500)]
