"""Apache Kafka's DumpLogSegments reads what ours wrote, and finds nothing to complain about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import kafka_oracle

from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker
from klamm_kafka.wire.compression import Compression

pytestmark = pytest.mark.usefixtures("apache_kafka")

NOW = 1_800_000_000_000
COMPLAINT = re.compile(
    r"mismatch|corrupt|invalid|isvalid: false|out of order|is followed by|exception|error|unexpected",
    re.IGNORECASE,
)
FIRST_OF_FILE = re.compile(r"^  -1 is followed by \d+$")
"""The tool says this of every file that does not start at offset 0, Kafka's own included."""


def write(directory: Path, config: LogConfig) -> list[tuple[int, bytes | None, bytes | None]]:
    """Writes a log with every codec, an idempotent and a transactional producer; returns (offset, key, value) of its records."""
    log = PartitionLog.open(directory, "t", 0, config, clean=True, now_ms=NOW)
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    for i in range(60):
        records = [
            Record(
                timestamp=NOW - 500 + (i * 37) % 200 + n,
                key=b"key-%d" % i,
                value=b"value-%d-%d-" % (i, n) * (n + 1),
                headers=[("h", b"x")] * n,
            )
            for n in range(i % 4 + 1)
        ]
        kind = i % 4
        batch = encode_batch(
            records,
            compression=Compression(i % 5),
            producer_id=kind or -1,
            producer_epoch=0 if kind else -1,
            base_sequence=sequence(i, kind) if kind else -1,
            is_transactional=kind == 3,
        )
        info = log.append(batch, now_ms=NOW)
        rows += [(info.first_offset + n, r.key, r.value) for n, r in enumerate(records)]
        if i % 12 == 11:
            marker = encode_end_txn_marker(
                committed=i % 24 == 11, producer_id=3, producer_epoch=0, coordinator_epoch=1, timestamp=NOW
            )
            log.append(marker, now_ms=NOW, origin="coordinator")
        if i == 40:  # a second leader epoch
            log.close()
            log = PartitionLog.open(directory, "t", 0, config, clean=True, leader_epoch=3, now_ms=NOW)
    log.close()
    return rows


def sequence(i: int, kind: int) -> int:
    return sum(j % 4 + 1 for j in range(i) if j % 4 == kind)


def dump(directory: Path, *flags: str, suffixes: tuple[str, ...]) -> str:
    paths = sorted(str(p) for p in directory.iterdir() if p.suffix in suffixes)
    assert paths
    result = kafka_oracle.require().run(kafka_oracle.DUMP_LOG, "--files", ",".join(paths), *flags)
    assert result.returncode == 0, result.stderr
    complaints = [
        line
        for line in (result.stdout + result.stderr).splitlines()
        if COMPLAINT.search(line) and not FIRST_OF_FILE.match(line)
    ]
    assert not complaints
    return result.stdout


@pytest.fixture(scope="module", params=["small segments", "one segment", "recovered"])
def written(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("dump") / "t-0"
    small = request.param != "one segment"
    config = LogConfig(segment_bytes=1500 if small else 1 << 30, index_interval_bytes=200)
    rows = write(directory, config)
    if request.param == "recovered":
        for path in [*directory.glob("*index"), *directory.glob("*.snapshot")]:
            path.unlink()
        PartitionLog.open(directory, "t", 0, config, clean=False, leader_epoch=4, now_ms=NOW).close()
    return directory, rows


def test_every_record(written):
    directory, rows = written
    out = dump(directory, "--deep-iteration", "--print-data-log", suffixes=(".log",))
    found = re.findall(r"^\| offset: (\d+) .*? key: (\S*) payload: (\S*)$", out, re.MULTILINE)
    assert [(int(o), k.encode(), v.encode()) for o, k, v in found] == rows
    assert out.count("isControl: true") == 5
    assert out.count("isvalid: true") == 65


@pytest.mark.parametrize("flag", ["--verify-index-only", "--index-sanity-check"])
def test_indexes(written, flag):
    directory, _ = written
    out = dump(directory, "--deep-iteration", flag, suffixes=(".index", ".timeindex"))
    if flag == "--index-sanity-check":
        files = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
        assert out.count("passed sanity check") == len(files)


def test_index_entries_name_batches(written):
    """Kafka prints the entries that we think we wrote."""
    directory, _ = written
    out = dump(directory, suffixes=(".index", ".timeindex"))
    assert len(re.findall(r"^offset: \d+ position: \d+$", out, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", out, re.MULTILINE)) > 3


def test_snapshots_and_aborted_transactions(written):
    directory, _ = written
    out = dump(directory, suffixes=(".snapshot",))
    last = out.rpartition("Dumping ")[2]
    assert re.search(r"producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 ", last)
    assert re.search(r"producerId: 3 producerEpoch: 0 coordinatorEpoch: 1 ", last)
    aborted = dump(directory, suffixes=(".txnindex",))
    assert len(re.findall(r"producerId: 3 firstOffset: \d+ lastOffset: \d+", aborted)) == 2
