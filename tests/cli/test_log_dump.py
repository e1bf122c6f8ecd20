"""`klamm log dump` and `kafka-dump-log`: Kafka's files against what DumpLogSegments said of them; broken and large files."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import kafka_oracle
from support.broker import new_topic
from support.klamm import klamm
from support.log_dumps import cases, unpack

from klamm.kafka_tools import run as kafka_tools
from klamm_broker.coordinator.share.model import ShareKey, StateBatch
from klamm_broker.coordinator.share.state_records import ShareState, StateRecord
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker
from klamm_kafka.wire.compression import Compression

RECORDED = Path(__file__).parent.parent / "fixtures/kafka-tools-4.3.1/dump-log.json.gz"
FIRST = "00000000000000000000"


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("kafka"))


@pytest.mark.parametrize("archive", ["clean", "killed"])
def test_says_what_dump_log_segments_said(archive, archives, capsys):
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    seen = 0
    for case in cases(archive, archives[archive]):
        code = kafka_tools.main("kafka-dump-log", case.args)
        out, err = capsys.readouterr()
        assert [code, case.normal(out), case.normal_err(err)] == recorded[case.name], case.name
        seen += 1
    assert seen == sum(name.startswith(archive) for name in recorded) > 60


@pytest.mark.usefixtures("apache_kafka")
def test_says_what_dump_log_segments_says_of_our_files(tmp_path, capsys):
    """Files that our broker wrote, with groups of both protocols and transactions; the real tool reads them too."""
    from support.kafka_tools import KafkaTools
    from support.tool_life import living

    from klamm.testing import EmbeddedBroker

    data = tmp_path / "broker" / "data"
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    tools = KafkaTools(kafka_oracle.require(), tmp_path)
    try:
        with EmbeddedBroker(data, config=settings) as broker, living(broker.bootstrap, "members"):
            pass
        compared = 0
        for case in cases("ours", data):
            if not Path(case.args[-1].split(",")[0]).parent.name.startswith(("__", "members")):
                continue
            theirs = tools.run("kafka-dump-log", *case.args)
            code = kafka_tools.main("kafka-dump-log", case.args)
            out, err = capsys.readouterr()
            assert case.normal(out) == case.normal(theirs.out), case.name
            assert (code, case.normal_err(err)) == (theirs.code, case.normal_err(theirs.err)), case.name
            compared += 1
        assert compared > 20
    finally:
        tools.close()


def segment(directory: Path, *batches: bytes) -> Path:
    path = directory / f"{FIRST}.log"
    path.write_bytes(b"".join(map(bytes, batches)))
    return path


@pytest.mark.usefixtures("processes")
def test_contents_headers_and_markers(tmp_path):
    rows = [Record(0, 5, b"k", b"v\xff", [("h", b"1"), ("i", None)]), Record(1, 6, None, None)]
    path = segment(
        tmp_path,
        encode_batch(
            rows, compression=Compression.GZIP, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1
        ),
        encode_end_txn_marker(
            committed=True, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp=9, base_offset=2
        ),
    )
    done = klamm("log", "dump", str(path), "--print-data-log")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 2147483647 lastSequence: 0 "
    )
    assert lines[2].endswith("isvalid: true")
    assert lines[3] == (
        "| offset: 0 CreateTime: 5 keySize: 1 valueSize: 2 sequence: 2147483647 headerKeys: [h,i] key: k payload: v\ufffd"
    )
    assert lines[4] == "| offset: 1 CreateTime: 6 keySize: -1 valueSize: -1 sequence: 0 headerKeys: []"
    assert lines[6].endswith(" endTxnMarker: COMMIT coordinatorEpoch: 3")


def damaged(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("make", "code", "out", "err"),
    [
        (lambda b: b + b[:30], 0, "Found 30 invalid bytes at the end of", ""),
        (lambda b: damaged(b, 63), 0, "isvalid: false", ""),
        (lambda b: b + bytes(100), 1, "isvalid: true", "no batch at position 68: its size field says 0"),
        (lambda b: b[:16] + b"\1" + b[17:], 1, "", "has the record format 1 of Kafka before 0.11"),
        (lambda b: b[:16] + b"\x07" + b[17:], 1, "", "magic 7"),
        (lambda b: b"", 0, "Log starting offset: 0", ""),
    ],
)  # fmt: skip
def test_a_broken_log_is_said(make, code, out, err, tmp_path, capsys):
    path = segment(tmp_path, make(bytes(encode_batch([Record(0, 1, b"", b"")]))))
    assert kafka_tools.main("kafka-dump-log", ["--files", str(path)]) == code
    said = capsys.readouterr()
    assert out in said.out
    assert err in said.err
    assert "Traceback" not in said.err


def test_records_that_cannot_be_read_end_the_file_not_the_command(tmp_path, capsys):
    good = tmp_path / "good"
    good.mkdir()
    whole = bytes(encode_batch([Record(0, 1, b"key", b"value")] * 3))
    bad = segment(tmp_path, whole[:61] + b"\xff" * (len(whole) - 61))
    words = [
        "--deep-iteration",
        "--files",
        f"{bad},{segment(good, whole)},{tmp_path}/none.log,{tmp_path}/x.txt,{tmp_path}/y",
    ]
    assert kafka_tools.main("kafka-dump-log", words) == 1
    out, err = capsys.readouterr()
    assert out.count("| offset") == 3  # of the good one
    assert f"{bad}: the batch at position 0 cannot be read: " in err
    assert f"Ignoring unknown file {tmp_path}/x.txt\nIgnoring unknown file {tmp_path}/y\n" in err
    assert "none.log: the name does not begin with an offset" in err


def test_broken_indexes_are_said(archives, tmp_path, capsys):
    source = archives["clean"] / "codecs-0"
    target = tmp_path / "codecs-0"
    shutil.copytree(source, target)
    for name, data, said in (
        (f"{FIRST}.index", b"\0\0\0\1\x7f\0\0\0", "points at position 2130706432, but"),
        (f"{FIRST}.index", b"\0\0\0\1\0\0\0\5", "where no whole batch of at most"),
        (f"{FIRST}.snapshot", b"\0\1", "is too short for a snapshot"),
        (f"{FIRST}.snapshot", b"\0\1\0\0\0\0\0\0\0\0", "the checksum does not match"),
        (f"{FIRST}.txnindex", b"\0\1" + bytes(32), "an entry of version 1, only 0 is known"),
        (f"{FIRST}.txnindex", bytes(35), "35 bytes is not a multiple of 34"),
    ):
        (target / name).write_bytes(data)
        assert kafka_tools.main("kafka-dump-log", ["--files", str(target / name)]) == 1, name
        err = capsys.readouterr().err
        assert said in err or "no batch at position" in err, (name, err)
        (target / name).unlink()


def test_gaps_between_offsets_are_listed(tmp_path, capsys):
    rows = [Record(offset, 1, b"k", b"v") for offset in (2, 5, 6)]
    path = segment(tmp_path, encode_batch(rows, base_offset=2, keep_offsets=True))
    assert kafka_tools.main("kafka-dump-log", ["--deep-iteration", "--files", str(path)]) == 0
    said = capsys.readouterr().err
    assert said == f"Non-consecutive offsets in {path}\n  -1 is followed by 2\n  2 is followed by 5\n"


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("IntegerDecoder", b"\0\0\1\0", "256"),
        ("LongDecoder", bytes(7) + b"\7", "7"),
        ("DefaultDecoder", b"\1\xff", "01ff"),
    ],
)
def test_plain_decoders(name, data, shown, tmp_path, capsys):
    path = segment(tmp_path, encode_batch([Record(0, 1, b"k", data)]))
    full = f"org.apache.kafka.tools.api.{name}"
    assert kafka_tools.main("kafka-dump-log", ["--value-decoder-class", full, "--files", str(path)]) == 0
    assert f" key: k payload: {shown}\n" in capsys.readouterr().out


def test_what_there_is_no_decoder_for_is_said(tmp_path, capsys):
    path = segment(tmp_path, encode_batch([Record(0, 1, b"k", b"v")]))
    for words, said in (
        (["--cluster-metadata-decoder"], "__cluster_metadata"),
        (["--remote-log-metadata-decoder"], "tiered storage"),
        (["--value-decoder-class", "com.example.Mine"], "a Java class cannot be loaded here"),
    ):
        assert kafka_tools.main("kafka-dump-log", [*words, "--files", str(path)]) == 1
        assert said in capsys.readouterr().err
    assert (
        kafka_tools.main("kafka-dump-log", ["--value-decoder-class", "LongDecoder", "--files", str(path)])
        == 1
    )
    assert "the record at offset 0 does not fit the decoder" in capsys.readouterr().err


def test_states_of_share_groups(tmp_path, capsys):
    key = ShareKey("g", bytes(16), 3)
    state = ShareState(start_offset=5, complete_count=2, batches=(StateBatch(5, 6, 2, 1),), written_ms=7)
    rows = [StateRecord(key, state), StateRecord(key, state, is_update=True), StateRecord(key, None)]
    path = segment(tmp_path, encode_batch([Record(0, 1, *row.encode()) for row in rows]))
    assert kafka_tools.main("kafka-dump-log", ["--share-group-state-decoder", "--files", str(path)]) == 0
    said = capsys.readouterr().out
    named = '"data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}'
    batches = '"stateBatches":[{"firstOffset":5,"lastOffset":6,"deliveryState":2,"deliveryCount":1}]}}'
    for kind, shown in ((0, f'"writeTimestamp":7,{batches}'), (1, batches), (0, "<DELETE>")):
        assert f'{{"type":"{kind}",{named} payload: ' in said
        assert shown in said


def test_coordinators_records_that_are_unknown_or_broken(tmp_path, capsys):
    rows = [
        Record(0, 1, b"\0\x63", b"v"), Record(1, 1, b"\0\1\0\1g\0\1t\0\0\0\0", None), Record(2, 1, b"\0\1\0", b"v"),
        Record(3, 1, None, b"v"),
    ]  # fmt: skip
    path = segment(tmp_path, encode_batch(rows))
    assert (
        kafka_tools.main(
            "kafka-dump-log", ["--offsets-decoder", "--skip-record-metadata", "--files", str(path)]
        )
        == 1
    )
    out, err = capsys.readouterr()
    lines = out.splitlines()[3:]
    assert lines[0] == "| key: Unknown record type 99 at offset 0, skipping."
    assert lines[1] == '| key: {"type":"1","data":{"group":"g","topic":"t","partition":0}} payload: <DELETE>'
    assert lines[2].startswith("| key: Error at offset 2, skipping. ")
    assert "Failed to decode message at offset 3" in err


def test_files_of_a_running_broker(broker):
    name = new_topic(broker)
    produced = klamm("produce", name, "-b", broker.bootstrap, stdin="one\ntwo\n")
    assert produced.returncode == 0
    directory = Path(broker.data_dir) / f"{name}-0"
    files = [str(f) for f in sorted(directory.iterdir()) if f.suffix in (".log", ".index", ".timeindex")]
    done = klamm("log", "dump", "--print-data-log", *files)
    assert done.returncode == 0, done.stderr
    assert " payload: one\n" in done.stdout
    assert klamm("consume", name, "-b", broker.bootstrap, "--from-beginning", "-e").stdout == "one\ntwo\n"


@pytest.mark.usefixtures("processes")
def test_memory_does_not_grow_with_the_file(tmp_path):
    """96 MB of batches of 1 MB, with records; the process may take 30 MB more than it does for one batch."""
    batch = bytes(encode_batch([Record(i, 1, None, bytes(100_000)) for i in range(10)]))
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    segment(small, batch)
    with (large / f"{FIRST}.log").open("wb") as file:
        for _ in range(96):
            file.write(batch)  # offsets repeat: 96 findings
    peaks = [_peak_kib(d / f"{FIRST}.log") for d in (small, large)]
    assert peaks[1] - peaks[0] < 30 * 1024, peaks


def _peak_kib(path: Path) -> int:
    code = (
        "import resource, sys\nfrom klamm.kafka_tools.run import main\n"
        f"code = main('kafka-dump-log', ['--deep-iteration', '--files', {str(path)!r}])\n"
        "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stderr.splitlines()[-1].rpartition(" ")[2])


@pytest.mark.usefixtures("processes")
def test_what_cannot_be_dumped_is_said_by_our_command_and_passed_over_by_kafkas(tmp_path, capsys):
    segment, other = tmp_path / f"{FIRST}.log", tmp_path / "passwd"
    segment.write_bytes(encode_batch([Record(timestamp=1, value=b"v")]))
    other.write_text("root")
    absent, log = tmp_path / "nofile", tmp_path / "absent.log"
    done = klamm("log", "dump", *map(str, (absent, tmp_path, other, log, segment)))
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[:2] == [
        f"klamm: {absent}: no such file",
        f"klamm: {tmp_path}: a directory: name the files in it",
    ]
    assert said[2].startswith(f"klamm: {other}: none of Kafka's files")
    assert said[3:] == [f"klamm: {log}: no such file"]
    assert "baseOffset: 0" in done.stdout, "the others are dumped all the same"
    assert kafka_tools.main("kafka-dump-log", ["--files", str(other)]) == 0
    assert f"Ignoring unknown file {other}" in capsys.readouterr().err
