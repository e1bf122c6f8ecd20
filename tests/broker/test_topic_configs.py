"""Every topic configuration of Kafka 4.3: those that mean something on one node are honoured, the others stored and listed."""

from __future__ import annotations

import os
import sys

import pytest
from support.inprocess import connect, produce, serving

from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import InvalidTimestamp, RecordTooLarge
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_kafka.wire.batch import Record, encode_batch, read_header
from klamm_kafka.wire.errors import ErrorCode

NOW = 1_800_000_000_000
HOUR = 3_600_000

COMPACTION = {  # tests/broker/test_cleaner*.py
    "delete.retention.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
}  # fmt: skip
COMPRESSION = {  # tests/broker/test_log_recompression.py
    "compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
}  # fmt: skip
STORED = {  # no replicas, no other node, no remote storage
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "local.retention.bytes",
    "local.retention.ms", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable",
    "unclean.leader.election.enable",
}  # fmt: skip


@pytest.fixture
def open_log(tmp_path):
    opened = []

    def make(**config):
        path = tmp_path / f"t-{len(opened)}"
        opened.append(
            PartitionLog.open(path, "t", len(opened), LogConfig.from_topic(config), clean=True, now_ms=NOW)
        )
        return opened[-1]

    yield make
    for log in opened:
        log.release()


def batch(size=10, timestamp=NOW, count=1):
    return encode_batch([Record(timestamp=timestamp, key=b"k", value=b"x" * size) for _ in range(count)])


def append(log, size=10, timestamp=NOW, now_ms=NOW):
    return log.append(batch(size, timestamp), now_ms=now_ms)


def cleanup_policy(make):
    for policy, deleted in (("delete", 1), ("compact", 0), ("compact,delete", 1)):
        log = make(**{"cleanup.policy": policy, "retention.ms": "1000"})
        append(log)
        log.roll(NOW)
        append(log, timestamp=NOW + HOUR, now_ms=NOW + HOUR)
        assert log.delete_old_segments(NOW + HOUR) == deleted


def file_delete_delay_ms(make):
    log = make(**{"file.delete.delay.ms": "500", "retention.ms": "1"})
    append(log)
    log.delete_old_segments(NOW + HOUR)
    assert list(log.directory.glob("*.deleted"))
    log.remove_deleted(NOW + HOUR + 499)
    assert list(log.directory.glob("*.deleted"))
    log.remove_deleted(NOW + HOUR + 500)
    assert not list(log.directory.glob("*.deleted"))


def flush_messages(make):
    log = make(**{"flush.messages": "3"})
    append(log)
    append(log)
    assert not log.wants_flush(NOW)
    assert log.high_watermark == 2
    append(log)
    assert log.wants_flush(NOW)
    assert log.high_watermark == 2, "what would be one too many to lose waits for the flush"


def flush_ms(make):
    log = make(**{"flush.ms": "1000"})
    append(log)
    assert not log.wants_flush(NOW + 999)
    assert log.wants_flush(NOW + 1000)


def index_interval_bytes(make):
    for interval, entries in (("0", 9), ("1000000", 0)):
        log = make(**{"index.interval.bytes": interval})
        for _ in range(10):
            append(log)
        assert len(log.segments[-1].index) == entries


def max_message_bytes(make):
    exactly = len(batch(100))
    log = make(**{"max.message.bytes": str(exactly)})
    append(log, 100)
    with pytest.raises(RecordTooLarge):
        append(log, 101)


def message_timestamp_type(make):
    log = make(**{"message.timestamp.type": "LogAppendTime"})
    info = append(log, timestamp=5, now_ms=NOW + 77)
    piece = log.read(0, 1000, up_to=1)
    header = read_header(os.pread(piece.fd, piece.size, piece.position))
    assert info.log_append_time_ms == header.max_timestamp == NOW + 77
    assert append(make(), timestamp=5).log_append_time_ms == -1


def message_timestamp_before_max_ms(make):
    log = make(**{"message.timestamp.before.max.ms": "1000"})
    append(log, timestamp=NOW - 1000)
    with pytest.raises(InvalidTimestamp):
        append(log, timestamp=NOW - 1001)


def message_timestamp_after_max_ms(make):
    log = make(**{"message.timestamp.after.max.ms": "1000"})
    append(log, timestamp=NOW + 1000)
    with pytest.raises(InvalidTimestamp):
        append(log, timestamp=NOW + 1001)
    append(
        make(**{"message.timestamp.after.max.ms": "0", "message.timestamp.type": "LogAppendTime"}),
        timestamp=NOW * 2,
    )


def preallocate(make):
    log = make(**{"preallocate": "true", "segment.bytes": "1048576"})
    path = log.directory / f"{0:020d}.log"
    if sys.platform.startswith("linux"):
        assert path.stat().st_size == 1 << 20
    append(log)
    log.roll(NOW)
    assert path.stat().st_size == len(batch())
    append(log)
    log.release()  # kill -9: the reserve is behind what was written, and is cut off
    again = PartitionLog.open(log.directory, "t", 0, log.config, clean=False, recovery_point=0, now_ms=NOW)
    assert again.log_end_offset == 2
    assert again.size == 2 * len(batch())
    append(again)
    again.close()
    again = PartitionLog.open(log.directory, "t", 0, log.config, clean=True, now_ms=NOW)
    assert again.log_end_offset == 3
    again.release()


def retention_bytes(make):
    size = len(batch(1000))
    log = make(**{"retention.bytes": str(2 * size)})
    for _ in range(4):
        append(log, 1000)
        log.roll(NOW)
    assert log.delete_old_segments(NOW) == 2
    assert log.log_start_offset == 2


def retention_ms(make):
    log = make(**{"retention.ms": "1000"})
    append(log, timestamp=NOW - 500)
    log.roll(NOW)
    append(log)
    assert log.delete_old_segments(NOW + 500) == 0
    assert log.delete_old_segments(NOW + 501) == 1
    assert make(**{"retention.ms": "-1"}).delete_old_segments(NOW * 2) == 0


def segment_bytes(make):
    log = make(**{"segment.bytes": "1048576"})
    for _ in range(3):
        append(log, 600_000)
    assert log.segment_base_offsets == [0, 1, 2]


def segment_ms(make):
    log = make(**{"segment.ms": "1000"})
    append(log)
    append(log, timestamp=NOW + 1000)
    assert log.segment_base_offsets == [0]
    append(log, timestamp=NOW + 1001)
    assert log.segment_base_offsets == [0, 2]


def segment_jitter_ms(make):
    logs = [make(**{"segment.ms": "100000", "segment.jitter.ms": "50000"}) for _ in range(8)]
    for log in logs:
        append(log)
        append(log, timestamp=NOW + 75_000)
        append(log, timestamp=NOW + 100_001)
    counts = [log.segment_base_offsets[1:] for log in logs]
    assert all(counts), "no later than segment.ms"
    assert len({str(bases) for bases in counts}) > 1, "not all at once"


def segment_index_bytes(make):
    log = make(**{"segment.index.bytes": "24", "index.interval.bytes": "0"})
    for _ in range(8):
        append(log)
    assert len(log.segment_base_offsets) > 1


HONOURED = (
    cleanup_policy, file_delete_delay_ms, flush_messages, flush_ms, index_interval_bytes, max_message_bytes,
    message_timestamp_type, message_timestamp_before_max_ms, message_timestamp_after_max_ms, preallocate,
    retention_bytes, retention_ms, segment_bytes, segment_ms, segment_jitter_ms, segment_index_bytes,
)  # fmt: skip


@pytest.mark.parametrize("check", HONOURED, ids=lambda check: check.__name__)
def test_honoured(open_log, check):
    check(open_log)


def test_every_topic_configuration_of_kafka_is_one_of_these():
    here = {check.__name__.replace("_", ".") for check in HONOURED}
    kafkas = {key.name for key in TOPIC_CONFIGS if not key.internal}
    assert kafkas == here | COMPACTION | COMPRESSION | STORED | {"min.insync.replicas"}


async def test_min_insync_replicas(tmp_path):
    async with serving(tmp_path / "data") as server:
        server.broker.topic_changes.create_topic("t", partitions=1, overrides={"min.insync.replicas": "2"})
        connection = await connect(server)
        assert (await produce(connection, "t", b"v", acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await produce(connection, "t", b"v", acks=1)).error_code == ErrorCode.NONE
        await connection.close()


@pytest.mark.parametrize("name", sorted(STORED - {"remote.storage.enable"}))
def test_stored_and_listed(name):
    from klamm_broker.api.topic_configs import topic_entries
    from klamm_broker.server.config import BrokerConfig

    value = {"LIST": "*", "BOOLEAN": "true", "LONG": "77"}[TOPIC_CONFIGS[name].type.name]
    LogConfig.from_topic({name: value})
    (entry,) = [e for e in topic_entries(BrokerConfig.load({}), {name: value}) if e.key.name == name]
    assert entry.value == value
