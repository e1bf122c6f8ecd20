"""MirrorMaker's records: what Apache Kafka 4.3.1 wrote is read, and written again, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_mirror.topics.fields import MalformedRecord, UnsupportedVersion
from klamm_mirror.topics.formats import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
)
from klamm_plugins.errors import DataError

RECORDINGS = Path(__file__).parent / "recordings"
RECORDED = {"offset-syncs": OffsetSync, "checkpoints": Checkpoint, "heartbeats": Heartbeat}

NAMES = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.one_of(
    st.builds(OffsetSync, NAMES, INT32, INT64, INT64),
    st.builds(Checkpoint, NAMES, NAMES, INT32, INT64, INT64, NAMES),
    st.builds(Heartbeat, NAMES, NAMES, INT64),
)


def recorded(name: str) -> list[tuple[bytes, bytes]]:
    lines = (RECORDINGS / f"{name}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(bytes.fromhex(r["key"]["hex"]), bytes.fromhex(r["value"]["hex"])) for r in records]


def as_kafka_prints(record: OffsetSync | Checkpoint | Heartbeat) -> str:
    match record:
        case OffsetSync(topic, partition, up, down):
            return f"OffsetSync{{topicPartition={topic}-{partition}, upstreamOffset={up}, downstreamOffset={down}}}"
        case Checkpoint(group, topic, partition, up, down, metadata):
            where = f"consumerGroupId={group}, topicPartition={topic}-{partition}"
            return f"Checkpoint{{{where}, upstreamOffset={up}, downstreamOffset={down}, metadata={metadata}}}"
        case Heartbeat(source, target, ts):
            return f"Heartbeat{{sourceClusterAlias={source}, targetClusterAlias={target}, timestamp={ts}}}"


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_bytes_are_read_and_written_again(name):
    for key, value in recorded(name):
        assert RECORDED[name].decode(key, value).encode() == (key, value)


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_read_is_what_kafkas_formatter_prints(name):
    printed = (RECORDINGS / f"{name}.formatted.txt").read_text().splitlines()
    ours = [as_kafka_prints(RECORDED[name].decode(*each)) for each in recorded(name)]
    shared = min(len(printed), len(ours))  # the two were recorded a few records apart
    assert shared >= 5
    assert ours[:shared] == printed[:shared]


@given(RECORDS)
def test_every_record_comes_back(record):
    assert type(record).decode(*record.encode()) == record


@given(RECORDS, st.data())
def test_a_record_that_is_cut_short_is_malformed(record, data):
    key, value = record.encode()
    if data.draw(st.booleans()):
        key = key[: data.draw(st.integers(0, len(key) - 1))]
    else:
        value = value[: data.draw(st.integers(0, len(value) - 1))]
    with pytest.raises(MalformedRecord, match="at byte"):
        type(record).decode(key, value)


@given(st.sampled_from(list(RECORDED.values())), st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_a_record_or_malformed(kind, key, value):
    try:
        record = kind.decode(key, value)
    except MalformedRecord:
        return
    encoded = record.encode()
    assert key.startswith(encoded[0])
    assert value.startswith(encoded[1])


def test_fields_of_a_later_release_behind_a_value_are_left_alone():
    key, value = Checkpoint("g", "t", 0, 1, 2).encode()
    assert Checkpoint.decode(key, value + b"more") == Checkpoint("g", "t", 0, 1, 2)


def test_errors_name_record_field_and_place():
    key, value = Heartbeat("a", "b", 1).encode()
    with pytest.raises(UnsupportedVersion, match="heartbeat value: version 7, only 0 is known"):
        Heartbeat.decode(key, b"\0\7" + value[2:])
    with pytest.raises(MalformedRecord, match="heartbeat value: there is none"):
        Heartbeat.decode(key, None)
    with pytest.raises(MalformedRecord, match="checkpoint key: topic at byte 3 has length 9, 1 bytes follow"):
        Checkpoint.decode(b"\0\1g\0\x09x", value)
    with pytest.raises(MalformedRecord, match="heartbeat key: sourceClusterAlias at byte 0 is no UTF-8"):
        Heartbeat.decode(b"\0\1\xff\0\0", value)


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match="topic: 40000 bytes, more than the 32767"):
        OffsetSync("t" * 40000, 0, 0, 0).encode()
    with pytest.raises(DataError, match="partition: 4294967296 is no integer of 32 bits"):
        OffsetSync("t", 2**32, 0, 0).encode()
