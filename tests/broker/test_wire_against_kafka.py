"""The wire layer against Apache Kafka's own classes, all in one Java process: messages, batches, error codes."""

from pathlib import Path

import pytest
from support import kafka_oracle
from support.wire_strategies import all_messages, expressible, filled, versions_of

from klamm_kafka.wire.batch import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    encode_end_txn_marker,
    read_header,
)
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ErrorCode, UnencodableValue, UnsupportedVersion

pytestmark = pytest.mark.usefixtures("apache_kafka")

JAVA_SOURCE = Path(__file__).parents[1] / "support" / "WireOracle.java"
RECORD_PACKAGES = {
    "ConsumerGroup": "org.apache.kafka.coordinator.group.generated",
    "GroupMetadata": "org.apache.kafka.coordinator.group.generated",
    "OffsetCommit": "org.apache.kafka.coordinator.group.generated",
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated",
}
ROWS = [
    Record(0, 1_000, b"k", b"v" * 100, [("h", b"1"), ("n", None)]),
    Record(1, 1_007, None, b"", []),
    Record(2, 998, b"", None, [("x", b"")]),
]


def java_name(cls):
    if cls.KIND in {"key", "value"}:
        package = next(p for stem, p in RECORD_PACKAGES.items() if cls.__name__.startswith(stem))
        return f"{package}.{cls.__name__}"
    suffix = "" if cls.KIND == "data" else "Data"
    return f"org.apache.kafka.common.message.{cls.__name__}{suffix}"


def ask(lines):
    oracle = kafka_oracle.require()
    done = oracle.run(str(JAVA_SOURCE), stdin="\n".join(lines), timeout=100)
    if "jdk.compiler" in done.stderr:
        pytest.skip(f"{oracle.java} has no compiler (Debian: apt-get install default-jdk-headless)")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def show(records):
    def text(value):
        return "null" if value is None else value.hex()

    for record in records:
        headers = "".join(f",{key}={text(value)}" for key, value in record.headers)
        yield f"{record.offset},{record.timestamp},{text(record.key)},{text(record.value)}{headers}"


def test_kafka_reads_what_we_write_and_writes_it_again():
    questions, expected = [], []
    for cls in all_messages():
        for version in versions_of(cls):
            for seed in (0, 1):
                encoded = expressible(filled(cls, seed), version).encode(version).hex()
                questions.append(f"message {java_name(cls)} {version} {version} {encoded}")
                expected.append(encoded)
            encoded = cls().encode(version).hex()
            questions.append(f"message {java_name(cls)} {version} {version} {encoded}")
            expected.append(encoded)
    answers = ask(questions)
    wrong = [
        f"{question[:120]}: {answer[:200]}"
        for question, answer, right in zip(questions, answers, expected, strict=True)
        if answer != right
    ]
    assert wrong == []


def with_one_field(cls):
    """Yields (path, instance) for every field at every depth: the instance has that field set, and nothing else."""
    for spec in cls.FIELDS:
        full = getattr(filled(cls, 0), spec.name)
        yield spec.name, cls(**{spec.name: full})
        if spec.nullable != "none":
            yield f"{spec.name}=null", cls(**{spec.name: None})
        for path, inner in with_one_field(spec.struct) if spec.struct else ():
            yield f"{spec.name}.{path}", cls(**{spec.name: [inner] if spec.array else inner})


def ours(message, version):
    try:
        return message.encode(version).hex()
    except UnsupportedVersion:
        return "error org.apache.kafka.common.errors.UnsupportedVersionException"
    except UnencodableValue:
        return "error java.lang.NullPointerException"


def test_what_older_versions_cannot_say():
    """A value goes to Kafka in the newest version; written in each older one it is dropped or refused as by us."""
    questions, expected, paths = [], [], []
    for cls in all_messages():
        newest = cls.MAX_VERSION
        for path, drawn in with_one_field(cls):
            message = expressible(drawn, newest)
            encoded = message.encode(newest).hex()
            for version in versions_of(cls):
                questions.append(f"message {java_name(cls)} {newest} {version} {encoded}")
                expected.append(ours(message, version))
                paths.append(f"{cls.__name__}.{path} v{newest} as v{version}")
    answers = ask(questions)
    assert {answer.split(" ")[0] for answer in answers} >= {"error"}
    wrong = [
        f"{path}: kafka {answer[:90]}, ours {right[:90]}"
        for path, answer, right in zip(paths, answers, expected, strict=True)
        if answer.partition(": ")[0] != right
    ]
    assert wrong == []


def test_batches_both_ways_and_error_codes():
    written = [encode_batch(ROWS, base_offset=40, compression=c, producer_id=5, producer_epoch=1, base_sequence=9)
            for c in Compression]  # fmt: skip
    marker = encode_end_txn_marker(
        committed=True, producer_id=5, producer_epoch=1, coordinator_epoch=0, timestamp=9, base_offset=3
    )
    questions = [f"batch {batch.hex()}" for batch in [*written, marker]]
    questions += [f"build {codec.name.lower()}" for codec in Compression]
    *answers, errors = ask([*questions, "errors"])
    rows = " ".join(show([row._replace(offset=40 + i) for i, row in enumerate(ROWS)]))
    assert answers[:5] == [f"40,42,5,11,false {rows}"] * 5
    assert answers[5] == "3,3,5,-1,true 3,9,00000001,000000000000"
    for codec, built in zip(Compression, answers[6:], strict=True):
        batch = bytes.fromhex(built)
        header = read_header(batch)
        check_crc(batch, 0, header)
        assert (header.compression, header.base_offset, header.leader_epoch) == (codec, 7, 3)
        assert decode_records(batch) == [
            Record(
                7 + i,
                1_000 + i,
                b"k%d" % i if i % 3 else None,
                b"value %d" % i,
                [("h", b"\1")] if i % 2 else [],
            )
            for i in range(500)
        ]
    assert errors.split() == [f"{e.name},{e.value},{str(e.retriable).lower()}" for e in ErrorCode]
