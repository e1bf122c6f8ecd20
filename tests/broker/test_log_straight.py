"""The straight way into a log and the general one write the same bytes, give the same answers and leave the same state.

Two logs get the same record sets: one by `append` alone, one by `append_one` first, as the broker does it.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import LogError
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker, stamp
from klamm_kafka.wire.compression import Compression

NOW = 1_800_000_000_000
HOUR_MS = 3_600_000
CONFIGS = {
    "plain": LogConfig(),
    "small": LogConfig(segment_bytes=900, index_interval_bytes=150, max_message_bytes=500),
    "small index": LogConfig(segment_index_bytes=60, index_interval_bytes=100),
    "young": LogConfig(segment_ms=1000),
    "jitter": LogConfig(segment_ms=1000, segment_jitter_ms=500),
    "append time": LogConfig(message_timestamp_type="LogAppendTime"),
    "zstd": LogConfig(compression_type="zstd"),
    "compact": LogConfig(cleanup_policy=("compact",)),
    "late": LogConfig(message_timestamp_before_max_ms=HOUR_MS),
    "flush": LogConfig(flush_messages=3),
    "mirror": LogConfig(klamm_mirror_state="mirror"),
}
STRAIGHT = {"plain", "small", "small index", "young"}
FAULTS = {
    "length": lambda b: b.__setitem__(slice(8, 12), (len(b) - 11).to_bytes(4)),
    "magic 1": lambda b: b.__setitem__(16, 1),
    "magic 3": lambda b: b.__setitem__(16, 3),
    "crc": lambda b: b.__setitem__(17, b[17] ^ 1),
    "offset": lambda b: b.__setitem__(7, 1),
    "count": lambda b: b.__setitem__(slice(57, 61), (9999).to_bytes(4)),
    "count and delta": lambda b: (
        b.__setitem__(slice(57, 61), (999).to_bytes(4)),
        b.__setitem__(slice(23, 27), (998).to_bytes(4)),
    ),
    "base timestamp": lambda b: b.__setitem__(slice(27, 35), (NOW * 2).to_bytes(8)),
    "negative delta": lambda b: b.__setitem__(slice(23, 27), b"\xff" * 4),
    "control": lambda b: b.__setitem__(22, b[22] | 0x20),
    "append time": lambda b: b.__setitem__(22, b[22] | 0x08),
    "codec": lambda b: b.__setitem__(22, 7),
    "high attributes": lambda b: b.__setitem__(21, 0x80),
    "cut": lambda b: b.__delitem__(slice(len(b) - 3, None)),
    "header cut": lambda b: b.__delitem__(slice(40, None)),
    "tail": lambda b: b.extend(b"\0"),
    "twice": lambda b: b.extend(bytes(b)),
    "empty": lambda b: b.clear(),
}
CRC_COVERS = {
    "base timestamp",
    "count",
    "count and delta",
    "negative delta",
    "control",
    "append time",
    "codec",
    "high attributes",
}

ODDITIES = [
    *({"fault": name} for name in FAULTS),
    *({"shift": n} for n in (-2, -1, 1)),
    *({"later_ms": n} for n in (-2 * HOUR_MS, -500, 400, 1500, 2 * HOUR_MS)),
    *({"short": n} for n in (0, 40, 70)),  # the bytes that the disk takes
    {"codec": Compression.LZ4},
    {"codec": Compression.GZIP},
    {"key": b"k"},
    {"epoch": 1},
    {"transactional": True},
    {"transactional": True, "producer": 1},
]
batches = st.builds(
    lambda sizes, producer, oddity: {"sizes": sizes, "producer": producer, **oddity},
    st.lists(st.integers(0, 120), min_size=1, max_size=3),
    st.sampled_from([-1, 1, 2]),
    st.just({}) | st.sampled_from(ODDITIES),
)
BEGIN = [
    ({"sizes": [1], "producer": n, "key": b"k"}, None) for n in (-1, -1, 1, 2)
]  # then the straight way is open
changes = st.sampled_from(
    ["epoch", "config", "roll", "truncate", "commit", "abort", "close", "let go", "replica"]
)


class Side:
    """One of the two logs. `straight` counts the batches that went the straight way."""

    def __init__(self, directory: Path, config: LogConfig, *, straight: bool) -> None:
        self.log = PartitionLog.open(directory, "t", 0, config, clean=True, now_ms=NOW)
        self.tries_straight = straight
        self.straight = 0

    def append(self, data: bytes, now_ms: int, **how) -> tuple[object, bytes]:
        """Returns the outcome and the buffer as it is then."""
        buffer = bytearray(data)
        log = self.log
        if self.tries_straight and not how:
            offset = log.append_one(memoryview(buffer), now_ms)
            if offset is not None:
                self.straight += 1
                return (offset, log.log_end_offset - 1, -1, log.log_start_offset, False), bytes(buffer)
            assert buffer == data, "a batch that is not taken stays as it came"
        try:
            info = log.append(memoryview(buffer), now_ms=now_ms, **({"transaction_version": None} | how))
        except LogError as e:
            return (type(e), str(e).replace(str(log.directory), "DIR"), e.records), b""
        return tuple(info), bytes(buffer)

    def state(self) -> dict[str, object]:
        log = self.log
        return {
            "offsets": (log.log_end_offset, log.high_watermark, log.last_stable_offset, log.log_start_offset),
            "producers": log.producers.entries,
            "segments": log.segment_base_offsets,
            "timestamps": [
                (s.size, s.max_timestamp, s.offset_of_max_timestamp, s.first_batch_timestamp)
                for s in log.segments
            ],
            "epochs": log.epochs.entries,
        }

    def files(self) -> dict[str, bytes]:
        self.log.close()
        return {path.name: path.read_bytes() for path in sorted(self.log.directory.iterdir())}


@contextmanager
def disk_takes(count: int | None):
    """Lets a write through up to `count` bytes; 0: the disk is full."""
    real = os.pwrite

    def write(fd: int, data, offset: int) -> int:
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, memoryview(data)[:count], offset)

    os.pwrite = write if count is not None else real
    try:
        yield
    finally:
        os.pwrite = real


class Producers:
    """Numbers the batches as clients do."""

    def __init__(self) -> None:
        self.next: dict[tuple[int, int], int] = {}

    def encode(self, now_ms: int, *, sizes, producer=-1, epoch=0, shift=0, later_ms=0, codec=Compression.NONE,
               fault=None, key=None, transactional=False, short=None) -> bytes:  # fmt: skip
        rows = [Record(timestamp=now_ms + later_ms + i, key=key, value=bytes(n)) for i, n in enumerate(sizes)]
        batch = encode_batch(rows, compression=codec, is_transactional=transactional)
        if producer >= 0:
            sequence = self.next.get((producer, epoch), 0)
            stamp(batch, producer, epoch, max(0, sequence + shift * len(rows)))
            if shift == 0 and fault is None:
                self.next[producer, epoch] = sequence + len(rows)
        elif fault is None:
            stamp(batch, -1, -1, -1)
        if fault is not None:
            FAULTS[fault](batch)
            if fault in CRC_COVERS:
                attributes_on = bytes(batch[43:57])
                stamp(batch, *_producer(attributes_on))
        return bytes(batch)


def _producer(fields: bytes) -> tuple[int, int, int]:
    signed = [(0, 8), (8, 10), (10, 14)]
    return tuple(int.from_bytes(fields[a:b], signed=True) for a, b in signed)  # type: ignore[return-value]


def change(kind: str, side: Side, now_ms: int) -> object:
    log = side.log
    match kind:
        case "epoch":
            log.leader_epoch += 1
        case "config":
            log.config = replace(log.config, retention_ms=1)
        case "roll":
            log.roll(now_ms)
        case "truncate":
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - 2), now_ms=now_ms)
        case "commit" | "abort":
            marker = encode_end_txn_marker(
                committed=kind == "commit",
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=now_ms,
            )
            return side.append(bytes(marker), now_ms, origin="coordinator", transaction_version=0)
        case "close":
            log.release()
        case "let go":
            log.segments[-1].let_go()
        case "replica":
            log.sole_replica = not log.sole_replica
    return None


@settings(max_examples=250, deadline=None)
@given(
    name=st.sampled_from([*sorted(CONFIGS), *sorted(STRAIGHT)]),
    steps=st.lists(st.tuples(batches, st.none() | st.none() | changes), min_size=1, max_size=8),
)
def test_both_ways_do_the_same(memory_path, name, steps):
    folder = Path(tempfile.mkdtemp(dir=memory_path))
    sides = [Side(folder / str(n), CONFIGS[name], straight=n == 1) for n in (0, 1)]
    producers, now_ms = Producers(), NOW
    try:
        for values, kind in [*BEGIN, *steps]:
            now_ms += 300
            data = producers.encode(now_ms, **values)
            with disk_takes(values.get("short")):
                how = {"transaction_version": 0} if values.get("transactional") else {}
                outcomes = [side.append(data, now_ms, **how) for side in sides]
            assert outcomes[0] == outcomes[1]
            if kind is not None:
                done = [change(kind, side, now_ms) for side in sides]
                assert done[0] == done[1]
            assert sides[0].state() == sides[1].state()
        assert sides[0].files() == sides[1].files()
        assert name in STRAIGHT or sides[1].straight == 0
    finally:
        for side in sides:
            side.log.release()
        shutil.rmtree(folder)


@pytest.mark.parametrize("producer", [-1, 7])
@pytest.mark.parametrize("codec", list(Compression))
def test_ordinary_batches_go_the_straight_way(tmp_path, producer, codec):
    """The first batch of a segment, and of a producer, goes the general way: all others the straight one."""
    side = Side(tmp_path, LogConfig(), straight=True)
    producers = Producers()
    for n in range(10):
        data = producers.encode(NOW + n, sizes=[100] * 20, producer=producer, codec=codec)
        assert side.append(data, NOW + n)[0] == (20 * n, 20 * n + 19, -1, 0, False)
    assert side.straight >= 8
    side.log.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_takes_the_general_way(tmp_path, fault):
    sides = [Side(tmp_path / str(n), LogConfig(), straight=n == 1) for n in (0, 1)]
    producers = Producers()
    for values, _ in BEGIN:
        data = producers.encode(NOW, **values)
        assert sides[0].append(data, NOW) == sides[1].append(data, NOW)
    before = sides[1].straight
    data = producers.encode(NOW, sizes=[3], fault=fault)
    assert sides[0].append(data, NOW) == sides[1].append(data, NOW)
    assert (sides[1].straight, sides[0].state()) == (before, sides[1].state())
    for side in sides:
        side.log.release()


def test_a_full_index_ends_the_segment(tmp_path):
    """With one timestamp for all batches the time index stays small, so that the offset index is full first."""
    sides = [Side(tmp_path / str(n), CONFIGS["small index"], straight=n == 1) for n in (0, 1)]
    producers = Producers()
    for _ in range(40):
        data = producers.encode(NOW, sizes=[0, 100])
        assert sides[0].append(data, NOW) == sides[1].append(data, NOW)
    assert sides[0].state() == sides[1].state()
    assert len(sides[1].log.segment_base_offsets) > 2
    assert sides[0].files() == sides[1].files()
