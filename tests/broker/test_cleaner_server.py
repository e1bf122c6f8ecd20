"""The cleaner in a running broker: slow readers, topics that change under it, a process that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.broker import new_topic, wait_until
from support.exactly_once import kill_9

from klamm.testing import EmbeddedBroker
from klamm_broker.log import checkpoints
from klamm_broker.server.clean_points import CleanPoints

FAST = {"log.cleaner.backoff.ms": "20"}
COMPACT = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
START = int(time.time() * 1000) - 100_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", config=FAST) as running:
        yield running


class Writer:
    """Produces batches whose timestamps are 400 ms apart: three to a segment."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        self.topic = topic
        self.last: dict[bytes, bytes] = {}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2, "log_level": 0})
        self._batches = 0
        self.errors: list[object] = []

    def batch(self, keys: range, size: int = 100) -> None:
        self._batches += 1
        for key in keys:
            value = b"%d:" % self._batches + bytes(size)
            self.last[b"%d" % key] = value
            self._producer.produce(
                self.topic, value, b"%d" % key, partition=0, timestamp=START + 400 * self._batches,
                on_delivery=lambda error, _: self.errors.append(error) if error else None,
            )  # fmt: skip
        assert self._producer.flush(60) == 0
        assert not self.errors


def directory_of(broker: EmbeddedBroker, topic: str) -> Path:
    return broker.data_dir / f"{topic}-0"


def clean_offset(broker: EmbeddedBroker, topic: str) -> int:
    return checkpoints.read_offsets(broker.data_dir / checkpoints.CLEANER_OFFSET).get((topic, 0), -1)


def cleaner_process(broker: EmbeddedBroker) -> int | None:
    """Returns the process id of the broker's cleaner."""
    for child in psutil.Process(broker.pid).children():
        with contextlib.suppress(psutil.Error):  # it ends meanwhile
            if any("klamm_broker.log.cleaner" in word for word in child.cmdline()):
                return child.pid
    return None


def read_all(
    broker: EmbeddedBroker, topic: str, pause_s: float = 0, until: int = 1 << 62
) -> dict[bytes, bytes]:
    """Returns what a reader of the whole topic, or of the part before an offset, ends up with, by key."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False,
        "enable.partition.eof": True, "fetch.message.max.bytes": 2000 if pause_s else 1 << 20,
        "queued.max.messages.kbytes": 2 if pause_s else 1000, "fetch.wait.max.ms": 10,
        "auto.offset.reset": "error", "log_level": 0,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            assert message.error().code() == -191, message.error()  # the end of the partition
            break
        if message.offset() >= until:
            break
        values[message.key()] = message.value()
        time.sleep(pause_s)
    consumer.close()
    return values


def alter(broker: EmbeddedBroker, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_slow_reader_of_a_topic_under_constant_compaction(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1, COMPACT)
    writer = Writer(broker, topic)
    for _ in range(100):
        writer.batch(range(20))
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            writer.batch(range(20))
            time.sleep(0.002)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(keep_writing)
        try:
            first = clean_offset(broker, topic)
            seen = read_all(broker, topic, 0.001, until=3000)
            wait_until(lambda: clean_offset(broker, topic) > first, "it was compacted meanwhile")
        finally:
            stop.set()
        writing.result()
    assert seen.keys() == writer.last.keys()
    assert read_all(broker, topic) == writer.last


def test_listing_offsets_right_after_a_compaction(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1, COMPACT)
    writer = Writer(broker, topic)
    for _ in range(30):
        writer.batch(range(10))
    wait_until(lambda: clean_offset(broker, topic) >= 260, "cleaned")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    asked = [START + 400 * n for n in (1, 15, 30)]
    found = [consumer.offsets_for_times([TopicPartition(topic, 0, t)], 60)[0].offset for t in asked]
    consumer.close()
    assert found[2] == 290
    assert 250 <= found[0] == found[1] <= 290, "the first record that is left"


def test_the_checkpoint_and_the_files(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1, {**COMPACT, "file.delete.delay.ms": "0"})
    writer = Writer(broker, topic)
    for _ in range(60):
        writer.batch(range(10))
    directory = directory_of(broker, topic)
    wait_until(lambda: clean_offset(broker, topic) >= 560, "cleaned")
    wait_until(lambda: not list(directory.glob("*.deleted")), "the old files are removed")
    assert sum(path.stat().st_size for path in directory.glob("*.log")) < 10_000
    assert read_all(broker, topic) == writer.last


def test_the_cleaner_process_is_killed(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1, {**COMPACT, "min.cleanable.dirty.ratio": "0.01"})
    writer = Writer(broker, topic)
    kills = 0
    for _ in range(25):
        writer.batch(range(50), 2000)
        kills += kill_9(cleaner_process(broker))
    assert kills or wait_until(lambda: kill_9(cleaner_process(broker)), "a cleaner to kill")
    assert read_all(broker, topic) == writer.last
    wait_until(lambda: clean_offset(broker, topic) >= 1000, "it is cleaned all the same", timeout_s=60)
    assert read_all(broker, topic) == writer.last
    wait_until(lambda: not list(directory_of(broker, topic).glob("*.cleaned")), "no file is left of a round")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("how", ["deleted", "switched"])
def test_a_topic_changes_while_it_is_cleaned(tmp_path: Path, how: str) -> None:
    """The cleaner is slowed down to a crawl, and stands still in the middle of its first round."""
    config = {**FAST, "log.cleaner.io.max.bytes.per.second": "60000"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        topic = new_topic(broker, 1, {**COMPACT, "min.compaction.lag.ms": str(10**10)})
        writer = Writer(broker, topic)
        for _ in range(30):
            writer.batch(range(10), 1000)
        directory = directory_of(broker, topic)

        def stands_still() -> bool:
            pid = cleaner_process(broker)
            if pid is None:
                return False
            os.kill(pid, signal.SIGSTOP)
            if not list(directory.glob("*.cleaned")):
                os.kill(pid, signal.SIGCONT)
                return False
            return True

        alter(broker, topic, min_compaction_lag_ms="0")
        wait_until(stands_still, "it is in the middle of a cleaning")
        if how == "deleted":
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.delete_topics([topic])[topic].result(60)
            assert not directory.exists()
            assert new_topic(broker, 1, COMPACT, name=topic) == topic
        else:
            alter(broker, topic, cleanup_policy="delete")
        wait_until(lambda: "cleaning given up" in broker.log_text, "it is given up")
        wait_until(lambda: not list(directory.glob("*.cleaned")), "what it wrote is removed")
        wait_until(lambda: clean_offset(broker, topic) == -1, "nothing of it counts as clean")
        if how == "switched":
            assert read_all(broker, topic) == writer.last


@pytest.mark.usefixtures("processes")
def test_damage_leaves_the_log_alone_until_the_next_start(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config={**FAST, "log.cleaner.enable": "false"}) as broker:
        topic, other = new_topic(broker, 1, COMPACT), new_topic(broker, 1, COMPACT)
        for name in (topic, other):
            writer = Writer(broker, name)
            for _ in range(20):
                writer.batch(range(10))
        time.sleep(0.2)  # many times the cleaner's pause
        assert not (broker.data_dir / checkpoints.CLEANER_OFFSET).exists(), "log.cleaner.enable=false"
        broker.stop()
        path = next(iter(sorted(directory_of(broker, topic).glob("*.log"))))
        data = bytearray(path.read_bytes())
        data[200] ^= 0xFF
        path.write_bytes(data)
        broker.config = FAST
        broker.start()
        wait_until(lambda: clean_offset(broker, other) >= 160, "the other one is cleaned")
        wait_until(lambda: "cannot be cleaned until the next start" in broker.log_text, "it is told")
        assert path.read_bytes() == data
        assert broker.log_text.count("cannot be cleaned") == 1


def test_a_log_that_was_cut_is_not_clean_where_it_is_written_anew(tmp_path: Path) -> None:
    partition, end = ("t", 0), 50
    checkpoints.write_offsets(tmp_path / checkpoints.CLEANER_OFFSET, {partition: end + 1, ("u", 0): end})
    points = CleanPoints([tmp_path])
    for name in ("t", "u", "v"):
        points.cut(tmp_path, (name, 0), end)
    assert points.get(tmp_path, partition) is None
    assert points.get(tmp_path, ("u", 0)) == end
    assert points.get(tmp_path, ("v", 0)) is None


@pytest.mark.usefixtures("processes")
def test_an_idle_broker_has_no_cleaner_process(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config=FAST) as broker:
        new_topic(broker, 1, COMPACT)
        time.sleep(0.2)  # many times the cleaner's pause
        assert cleaner_process(broker) is None


@pytest.mark.usefixtures("processes")
def test_kill_9_of_the_broker_while_it_cleans(tmp_path: Path) -> None:
    """At any moment of many cleanings: every last value is there afterwards, and the log goes on being cleaned."""
    with EmbeddedBroker(tmp_path / "data", config={**FAST, "log.cleaner.backoff.ms": "1"}) as broker:
        topic = new_topic(broker, 1, COMPACT)
        writer = Writer(broker, topic)
        for cycle in range(15):
            for _ in range(6):
                writer.batch(range(30), 500)
            time.sleep(cycle % 7 * 0.013)
            broker.kill()
            broker.start()
            assert read_all(broker, topic) == writer.last, f"after {cycle + 1} kills"
        writer.batch(range(30))
        end = clean_offset(broker, topic)
        for _ in range(6):
            writer.batch(range(30))
        wait_until(lambda: clean_offset(broker, topic) > end, "it is cleaned on")
        wait_until(lambda: not list(directory_of(broker, topic).glob("*.swap")), "no file is left of a round")
