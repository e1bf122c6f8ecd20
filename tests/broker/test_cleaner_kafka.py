"""The same input into Apache Kafka and into ours, both made to clean: the same records remain.

And Apache Kafka reads what our cleaner wrote: its dump tool has no complaint, and a broker started on the directory
serves it. Segments are rolled by the records' timestamps (segment.ms), at the same offsets on both sides.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support import kafka_oracle
from support.broker import wait_decided, wait_until
from support.cleaning import Cleaning, batches
from support.kafka_broker import KafkaBroker

from klamm.testing import EmbeddedBroker
from klamm_broker.log import checkpoints
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker
from klamm_kafka.wire.compression import Compression

pytestmark = [pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(600)]

FAST = {"log.cleaner.backoff.ms": "50"}
START = int(time.time() * 1000) - 3_000_000
COMPLAINT = re.compile(
    r"mismatch|corrupt|invalid|isvalid: false|out of order|exception|error|unexpected", re.IGNORECASE
)

Row = tuple[int, int, bytes | None, bytes | None]


class Side:
    """One of the two brokers, with one topic."""

    def __init__(self, address: str, data: Path, topic: str, config: dict[str, str]) -> None:
        self.address, self.data, self.topic = address, data, topic
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)
        self.producer = self.new_producer(linger=True)

    def new_producer(self, *, linger: bool = False, **settings: str) -> Producer:
        return Producer({
            "bootstrap.servers": self.address, "enable.idempotence": True, "log_level": 0,
            "linger.ms": 5 if linger else 0, **{k.replace("_", "."): v for k, v in settings.items()},
        })  # fmt: skip

    def batch(
        self, rows: list[tuple[str | None, str | None]], at: int, producer: Producer | None = None
    ) -> None:
        sender = producer or self.producer
        for key, value in rows:
            sender.produce(self.topic, value, key, partition=0, timestamp=START + at)
        assert sender.flush(60) == 0

    def clean_offset(self) -> int:
        try:
            found = checkpoints.read_offsets(self.data / checkpoints.CLEANER_OFFSET)
        except (OSError, CorruptFile):  # Kafka does not replace it atomically
            return -1
        return found.get((self.topic, 0), -1)

    def wait_cleaned(self, offset: int) -> None:
        wait_until(
            lambda: self.clean_offset() >= offset, f"{self.address} cleans up to {offset}", timeout_s=60
        )

    def bases(self) -> list[int]:
        return sorted(int(p.stem) for p in (self.data / f"{self.topic}-0").glob("*.log"))

    def rows(self, isolation: str = "read_uncommitted") -> list[Row]:
        consumer = Consumer({
            "bootstrap.servers": self.address, "group.id": "g", "enable.auto.commit": False,
            "isolation.level": isolation, "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[Row] = []
        while True:
            message = consumer.poll(60)
            assert message is not None, "the end was not reached"
            if message.error():
                break
            found.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
        consumer.close()
        return found


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    work = tmp_path_factory.mktemp("kafka")
    with (
        KafkaBroker(work, FAST) as kafka,
        EmbeddedBroker(tmp_path_factory.mktemp("ours") / "data", config=FAST) as ours,
    ):
        yield [(kafka.address, kafka.data), (ours.bootstrap, ours.data_dir)]


def both(brokers, topic: str, fill: Callable[[Side], None], **config: str) -> tuple[list[Row], list[Row]]:
    """Returns both sides' records after `fill`."""
    settings = {
        "cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "3600000", **{k.replace("_", "."): v for k, v in config.items()},
    }  # fmt: skip
    sides = [Side(*broker, topic, settings) for broker in brokers]
    for side in sides:
        fill(side)
    kafka, ours = sides
    assert kafka.bases()[-1] == ours.bases()[-1]
    return kafka.rows(), ours.rows()


def test_keys_values_and_tombstones(brokers) -> None:
    def fill(side: Side) -> None:
        for i in range(120):
            rows = [(f"k{(i * 7 + n) % 23}", None if (i + n) % 17 == 3 else f"v{i}-{n}") for n in range(5)]
            side.batch(rows, i * 100)
        side.batch([("end", "x")], 100_000)
        side.wait_cleaned(600)

    kafka, ours = both(brokers, "plain", fill)
    assert len(ours) < 40
    assert any(value is None for _, _, _, value in ours)
    assert ours == kafka


def test_tombstones_go_at_their_horizon(brokers) -> None:
    def fill(side: Side) -> None:
        for i in range(40):
            side.batch([(f"k{i % 10}", f"v{i}"), (f"t{i % 5}", None)], i * 100)
        side.batch([("end", "x")], 100_000)
        side.wait_cleaned(80)
        for i in range(30):
            side.batch([(f"k{i % 10}", f"w{i}")], 200_000 + i * 100)
        side.batch([("end", "y")], 300_000)
        side.wait_cleaned(111)

    kafka, ours = both(brokers, "tombstones", fill, delete_retention_ms="0")
    assert not [row for row in ours if row[3] is None]
    assert ours == kafka


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(brokers, codec) -> None:
    def fill(side: Side) -> None:
        producer = side.new_producer(compression_type=codec, linger_ms="20")
        for i in range(30):
            side.batch([(f"k{(i + n) % 31}", f"v{i}-{n} " * 20) for n in range(10)], i * 100, producer)
        side.batch([("end", "x")], 100_000)
        side.wait_cleaned(300)

    kafka, ours = both(brokers, f"codec-{codec}", fill)
    assert ours == kafka


def test_transactions(brokers) -> None:
    # Half an hour ahead of the clock, so that markers, which carry the clock's time, do not decide on segments
    ahead = int(time.time() * 1000) - START + 1_800_000

    def fill(side: Side) -> None:
        producer = side.new_producer(transactional_id="t")
        producer.init_transactions(60)
        for i in range(24):
            producer.begin_transaction()
            side.batch([(f"k{(i + n) % 9}", f"v{i}-{n}") for n in range(4)], ahead + i * 2000, producer)
            (producer.abort_transaction if i % 3 == 1 else producer.commit_transaction)(60)
        wait_decided(side.address, side.topic)  # the last marker belongs before what follows
        side.batch([("end", "x")], ahead + 200_000)
        side.wait_cleaned(120)

    kafka, ours = both(brokers, "transactions", fill)
    assert 9 <= len(ours) < 40
    assert ours == kafka


def test_records_without_a_key_of_a_topic_that_is_switched(brokers) -> None:
    def fill(side: Side) -> None:
        for i in range(30):
            side.batch([(None, f"none{i}"), (f"k{i % 4}", f"v{i}")], i * 100)
        side.batch([("end", "x")], 100_000)
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, side.topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": side.address})
        admin.incremental_alter_configs([resource])[resource].result(60)
        side.wait_cleaned(60)

    kafka, ours = both(brokers, "switched", fill, cleanup_policy="delete", retention_ms="-1")
    assert len(ours) == 5
    assert ours == kafka


def test_the_time_index_of_an_emptied_batch(brokers) -> None:
    """A producer's last batch stays without records, with its largest timestamp: the dump tool says the same of both."""

    def fill(side: Side) -> None:
        side.batch([("a", "1"), ("b", "1")], 700, side.new_producer(linger=True))
        side.batch([("a", "2"), ("b", "2")], 100)
        side.batch([("c", "1")], 100_000)
        side.wait_cleaned(4)
        dumps.append(time_index_dump(side))

    dumps: list[list[str]] = []
    kafka, ours = both(brokers, "emptied", fill)
    assert ours == kafka
    assert dumps[0] == dumps[1]
    assert any(str(START + 700) in line for line in dumps[0])
    assert any("mismatch" in line for line in dumps[0]), "so it is no fault of ours"


def time_index_dump(side: Side) -> list[str]:
    """Returns what Kafka's tool says of the time index of the topic's first segment, paths left out."""
    directory = side.data / f"{side.topic}-0"
    result = kafka_oracle.require().run(
        kafka_oracle.DUMP_LOG, "--files", str(directory / "00000000000000000000.timeindex")
    )
    assert result.returncode == 0, result.stderr
    said = (result.stdout + result.stderr).replace(str(directory), "")
    return [line for line in said.splitlines() if not line.startswith("timestamp: 0 offset: 0")]


NOW = START
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=3000, index_interval_bytes=200, min_cleanable_dirty_ratio=0.0
)  # fmt: skip


def fill_log(log: PartitionLog) -> dict[bytes, bytes]:
    """Writes every codec, idempotent and transactional batches, tombstones; returns the last values."""
    values: dict[bytes, bytes] = {}
    sequences = {1: 0, 3: 0}
    for i in range(120):
        kind = (-1, 1, -1, 3)[i % 4]
        records = [
            Record(
                timestamp=NOW + i, key=b"k%d" % ((i + n) % 13), value=b"v%d-%d" % (i, n) * (n + 1),
                headers=[("h", b"x")] * n,
            )
            for n in range(i % 4 + 1)
        ]  # fmt: skip
        if i % 10 == 9:
            records.append(Record(timestamp=NOW + i, key=b"gone%d" % i, value=None))
        data = encode_batch(
            records,
            compression=Compression(i % 5),
            producer_id=kind,
            producer_epoch=0 if kind > 0 else -1,
            base_sequence=sequences[kind] if kind > 0 else -1,
            is_transactional=kind == 3,
        )
        log.append(data, now_ms=NOW + i, transaction_version=1)
        if kind > 0:
            sequences[kind] += len(records)
        if i % 4 != 3 or i % 8 == 3:
            values |= {r.key: r.value for r in records if r.value is not None}
        if i % 4 == 3:
            marker = encode_end_txn_marker(
                committed=i % 8 == 3, producer_id=3, producer_epoch=0, coordinator_epoch=1, timestamp=NOW + i
            )
            log.append(marker, now_ms=NOW + i, origin="coordinator")
    return values


def test_kafka_dumps_what_was_cleaned(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = PartitionLog.open(directory, "t", 0, CONFIG, clean=True, now_ms=NOW)
    fill_log(log)
    cleaning = Cleaning(log)
    cleaning.clean(NOW + 1000)
    fill_log_again(log)
    cleaning.clean(NOW + 2000)
    written = [(r.offset, r.key, r.value) for h, rows in batches(log) if not h.is_control for r in rows]
    empty = sum(not rows for _, rows in batches(log))
    horizons = sum(header.has_delete_horizon for header, _ in batches(log))
    assert empty
    assert horizons
    # the tool compares an entry with the records of its batch, and a batch that was emptied has none: Kafka's as well
    emptied = {header.last_offset for header, rows in batches(log) if not rows}
    excused = {
        f"Found timestamp mismatch in :{s.time_index.path}"
        for s in log.segments
        if s.time_index.last and s.time_index.last[1] in emptied
    }
    log.close()
    for path in directory.glob("*.deleted"):
        path.unlink()
    oracle = kafka_oracle.require()

    def dump(suffixes: tuple[str, ...], *flags: str) -> str:
        paths = ",".join(sorted(str(p) for p in directory.iterdir() if p.suffix in suffixes))
        result = oracle.run(kafka_oracle.DUMP_LOG, "--files", paths, *flags)
        assert result.returncode == 0, result.stderr
        said = (result.stdout + result.stderr).splitlines()
        assert not [line for line in said if COMPLAINT.search(line) and line not in excused]
        return result.stdout

    out = dump((".log",), "--deep-iteration", "--print-data-log")
    found = re.findall(r"^\| offset: (\d+) .*? key: (\S*)(?: payload: (\S*))?$", out, re.MULTILINE)
    assert [(int(o), k.encode(), v.encode() or None) for o, k, v in found] == written
    assert out.count("deleteHorizonMs: OptionalLong[") == horizons
    dump((".index", ".timeindex"), "--deep-iteration", "--index-sanity-check")
    dump((".index", ".timeindex"), "--deep-iteration", "--verify-index-only")


def fill_log_again(log: PartitionLog) -> None:
    for i in range(60):
        log.append(
            encode_batch([Record(timestamp=NOW + 1500 + i, key=b"k%d" % (i % 13), value=b"again" * 20)]),
            now_ms=NOW + 1500,
        )


def test_a_kafka_broker_starts_on_what_was_cleaned(tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        config = {"cleanup.policy": "compact"}
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(60)
        kafka.stop()
    manager = LogManager(kafka.data, now_ms=NOW)
    log = manager.get("t", 0)
    assert log is not None
    log.config = replace(CONFIG, segment_bytes=3000)
    values = fill_log(log)
    Cleaning(log).clean(NOW + 1000)
    expected = [
        (r.offset, r.timestamp, r.key, r.value)
        for header, rows in batches(log)
        if not header.is_control
        for r in rows
    ]
    for each in manager:  # as kill -9 leaves it: Kafka recovers the log
        each.release()
    manager.release()
    with kafka:
        side = object.__new__(Side)
        side.address, side.data, side.topic = kafka.address, kafka.data, "t"
        rows, committed = side.rows(), side.rows("read_committed")
    assert rows == expected
    assert {k: v for _, _, k, v in committed if v is not None} == values
