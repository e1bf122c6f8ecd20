"""Log directories that Apache Kafka wrote: ours opens them and finds every record, clean or after a kill."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path

import pytest
from support.archive import unpack

from klamm_broker.log import checkpoints, producer_snapshot
from klamm_broker.log.log_dir import read_meta
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import check_crc, decode_records, iter_headers

FIXTURE = Path(__file__).parents[1] / "fixtures" / "kafka-4.3.1"
NOW = 1_800_000_000_000
TOPICS = ["codecs", "idempotent", "transactions", "compacted", "append-time"]


@pytest.fixture(scope="module")
def expected():
    return json.loads(gzip.decompress((FIXTURE / "expected.json.gz").read_bytes()))


@pytest.fixture(params=["clean", "killed"])
def kafka_dir(request, tmp_path):
    unpack(FIXTURE / f"{request.param}.tar.xz", tmp_path)
    return tmp_path


def b64(data):
    return None if data is None else base64.b64encode(data).decode()


def read_batches(log: PartitionLog, up_to: int | None = None, max_bytes: int = 3000):
    """Yields (header, records) of everything, as a consumer fetches it."""
    offset = log.log_start_offset
    while piece := log.read(offset, max_bytes, up_to=log.high_watermark if up_to is None else up_to):
        data = os.pread(piece.fd, piece.size, piece.position)
        assert len(data) == piece.size
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            offset = header.next_offset
            yield header, decode_records(data, position)


def rows(log: PartitionLog, *, start: int = 0):
    return [
        {
            "offset": record.offset,
            "timestamp": header.max_timestamp if header.timestamp_type else record.timestamp,
            "type": header.timestamp_type,
            "key": b64(record.key),
            "value": b64(record.value),
            "headers": [[k, b64(v)] for k, v in record.headers],
        }
        for header, records in read_batches(log)
        if not header.is_control
        for record in records
        if record.offset >= start
    ]


def committed(log: PartitionLog):
    """Returns what a consumer of committed records keeps: up to the last stable offset, without aborted records."""
    end = log.last_stable_offset
    aborted = log.aborted_transactions(log.log_start_offset, end)
    kept = []
    for header, records in read_batches(log, up_to=end):
        in_aborted = any(
            t.producer_id == header.producer_id and t.first_offset <= header.base_offset <= t.last_offset
            for t in aborted
        )
        if not header.is_control and not in_aborted:
            kept += [r.offset for r in records if r.offset >= log.log_start_offset]
    return kept


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_there(kafka_dir, expected, topic):
    manager = LogManager(kafka_dir, now_ms=NOW)
    log = manager.get(topic, 0)
    assert rows(log, start=log.log_start_offset) == expected[topic]["read_uncommitted"]
    assert committed(log) == [row["offset"] for row in expected[topic]["read_committed"]]
    manager.close()


def test_an_open_transaction_of_a_killed_broker_holds_the_last_stable_offset_back(tmp_path, expected):
    unpack(FIXTURE / "killed.tar.xz", tmp_path)
    manager = LogManager(tmp_path, now_ms=NOW)
    log = manager.get("transactions", 0)
    undecided = expected["transactions"]["read_uncommitted"][-1]["offset"]
    assert (log.last_stable_offset, log.log_end_offset) == (undecided, undecided + 1)
    manager.close()


def test_checkpoints_epochs_and_identity(tmp_path):
    unpack(FIXTURE / "clean.tar.xz", tmp_path)
    ends = checkpoints.read_offsets(tmp_path / checkpoints.RECOVERY_POINT)
    starts = checkpoints.read_offsets(tmp_path / checkpoints.LOG_START_OFFSET)
    meta = read_meta(tmp_path)
    assert meta.node_id == 1
    ids = {
        path.parent.name: path.read_text().partition("topic_id: ")[2]
        for path in tmp_path.glob("*/partition.metadata")
    }
    epochs = {
        path.parent.name: [tuple(map(int, line.split())) for line in path.read_text().splitlines()[2:]]
        for path in tmp_path.glob("*/leader-epoch-checkpoint")
    }
    manager = LogManager(tmp_path, now_ms=NOW)
    assert manager.cluster_id == meta.cluster_id
    assert starts == {("idempotent", 0): 10}
    for log in manager:
        assert log.log_end_offset == ends[log.topic, 0]
        assert log.log_start_offset == starts.get((log.topic, 0), 0)
        assert manager.topics[log.topic].id == ids[log.name]
        assert log.leader_epoch > epochs[log.name][-1][0], "a new leader has a new epoch"
        for (epoch, _), (_, end) in zip(epochs[log.name], epochs[log.name][1:], strict=False):
            assert log.end_offset_for_epoch(epoch) == (epoch, end)
    manager.close()


def test_adopted_topics_lose_nothing_to_rules_that_are_not_known(tmp_path):
    unpack(FIXTURE / "clean.tar.xz", tmp_path)
    manager = LogManager(tmp_path, now_ms=NOW)
    assert {t.name for t in manager.topics.values() if t.configs == {"cleanup.policy": "compact"}} == {
        "compacted", "__consumer_offsets", "__transaction_state",
    }  # fmt: skip
    before = {log.name: log.log_start_offset for log in manager}
    manager.tick_retention(NOW + 10**13)
    assert {log.name: log.log_start_offset for log in manager} == before
    manager.close()


def test_snapshots_agree_with_a_replay(tmp_path):
    """Kafka's snapshot at the log end says the same as ours after reading the whole log."""
    unpack(FIXTURE / "clean.tar.xz", tmp_path)
    seen = 0
    for topic in ["idempotent", "transactions"]:
        directory = tmp_path / f"{topic}-0"
        newest = producer_snapshot.offsets(p.name for p in directory.iterdir())[-1]
        theirs = producer_snapshot.read(directory, newest)
        for path in directory.glob("*.snapshot"):
            path.unlink()
        log = PartitionLog.open(directory, topic, 0, config(), clean=True, now_ms=NOW)
        for entry in theirs:
            ours = log.producers.entries[entry.producer_id]
            assert ours.batches[-1:] == entry.batches
            assert (ours.epoch, ours.coordinator_epoch, ours.last_timestamp) == (
                entry.epoch,
                entry.coordinator_epoch,
                entry.last_timestamp,
            )
            assert ours.current_txn_first_offset == entry.current_txn_first_offset
            seen += 1
        log.release()
    assert seen


def test_rebuilt_indexes_equal_kafkas(tmp_path):
    """Our recovery of Kafka's segments writes the same index and aborted-transaction files, byte for byte."""
    unpack(FIXTURE / "clean.tar.xz", tmp_path)
    compared = 0
    for topic, interval in [("idempotent", 500), ("codecs", 4096), ("transactions", 4096)]:
        directory = tmp_path / f"{topic}-0"
        before = {p.name: p.read_bytes() for p in directory.iterdir() if "index" in p.name}
        for name in before:
            (directory / name).unlink()
        log = PartitionLog.open(
            directory,
            topic,
            0,
            config(index_interval_bytes=interval),
            clean=False,
            leader_epoch=99,
            now_ms=NOW,
        )
        log.close()
        after = {p.name: p.read_bytes() for p in directory.iterdir() if "index" in p.name}
        assert sorted(before) == sorted(after)
        for name, content in before.items():
            assert after[name] == content, f"{topic}/{name}"
            compared += bool(content)
    assert compared > 20


def config(**values):
    from klamm_broker.log.config import LogConfig

    return LogConfig(producer_id_expiration_ms=2**62, **values)
