"""Exactly once under kills of the mirror and of both brokers, record by record and offset by offset.

KLAMM_KILLS sets their number (30); KLAMM_SEED chooses them.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.broker import new_topic
from support.mirroring_once import Mirror, read_committed

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_mirror.offsets.segment_topic import SegmentReader

KILLS = int(os.environ.get("KLAMM_KILLS", "30"))
SEED = int(os.environ.get("KLAMM_SEED", "7"))
PARTITIONS = 3
SAMPLE = 11
ABORTED = b"aborted"


class Load(threading.Thread):
    """Writes numbered records to every partition, some in transactions, of which every third is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.errors: list[Exception] = []
        self.written = 0
        self._topic = topic
        self._plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        self._transactional = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"load-{topic}", "linger.ms": 2}
        )
        self._round = 0

    def run(self) -> None:
        self._transactional.init_transactions(60)
        while not self.stopping.is_set():
            self._write(20)
            time.sleep(0.02)
        if self._plain.flush(60):
            self.errors.append(TimeoutError("records of the load were not acknowledged"))

    def _write(self, count: int) -> None:
        for _ in range(count):
            for partition in range(PARTITIONS):
                self._plain.produce(self._topic, b"%d" % self.written, partition=partition)
            self.written += 1
        self._plain.poll(0)
        self._round += 1
        if self._round % 10 == 0:
            self._abort()

    def _abort(self) -> None:
        try:
            self._transactional.begin_transaction()
            self._transactional.produce(self._topic, ABORTED, partition=0)
            self._transactional.abort_transaction(30)
        except Exception:  # a broker that was killed; the next transaction comes soon
            time.sleep(0.1)


async def check_offsets(target: str, source: str, topic: str) -> int:
    """Checks the mapping of every few records. Returns their number."""
    checked = 0
    async with Cluster(target) as cluster:
        reader = SegmentReader(cluster, "mm2-offset-segments.A.internal")
        assert await reader.catch_up()
        for partition in range(PARTITIONS):
            there = {value: offset for offset, value in read_committed(target, f"A.{topic}", partition)}
            records = read_committed(source, topic, partition)
            for offset, value in [*records[::SAMPLE], records[-1]]:
                assert reader.store.translate((topic, partition), offset) == there[value], (partition, offset)
                assert reader.store.translate_back((topic, partition), there[value]) == offset
                checked += 1
    return checked


@pytest.mark.usefixtures("soak")
@pytest.mark.timeout(60 + 40 * KILLS)
async def test_no_record_is_lost_or_comes_twice(tmp_path: Path):
    print(f"seed {SEED}, {KILLS} kills")
    chance = random.Random(SEED)
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        topic = new_topic(source, partitions=PARTITIONS)
        mirror, load = (
            Mirror(source.bootstrap, target.bootstrap, topic, tmp_path),
            Load(source.bootstrap, topic),
        )
        load.start()
        try:
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.3, 2))
                victim = chance.choice(["mirror", "mirror", "source", "target"])
                if victim == "mirror":
                    mirror.kill()
                else:
                    broker = source if victim == "source" else target
                    broker.kill()
                    time.sleep(chance.uniform(0, 0.5))
                    broker.start()
            load.stopping.set()
            load.join(90)
            assert not load.errors
            wanted = [b"%d" % i for i in range(load.written)]
            mirror.wait_for_records(load.written)
            for partition in range(PARTITIONS):
                deadline = time.monotonic() + 60
                while True:
                    got = [v for _, v in read_committed(target.bootstrap, f"A.{topic}", partition)]
                    if len(got) >= len(wanted) or time.monotonic() > deadline:
                        break
                assert len(got) == len(wanted), (partition, len(got), len(wanted))
                assert got == wanted, partition
            checked = await check_offsets(target.bootstrap, source.bootstrap, topic)
            print(f"{PARTITIONS * load.written} records and {checked} offsets checked")
        finally:
            load.stopping.set()
            mirror.worker.end()
