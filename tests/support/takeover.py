"""A mirror that changes hands: the same file for MirrorMaker 2 and for `klamm mirror start`, under load."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import wait_until
from support.exactly_once import committed_values
from support.kafka_broker import wait_for
from support.klamm import Server, klamm
from support.mirror_maker import MirrorMaker

from klamm_kafka.client import Cluster
from klamm_mirror.checkpoint.groups import IDLE, group_state

TOPIC, REMOTE = "orders", "A.orders"
PARTITIONS = 3
GROUP = "readers"
START_S = 180.0
"""A limit for what needs the start of a JVM on a busy machine."""
QUICK = {
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "tasks.max": "2",
}


class Load:
    """A thread that writes the numbers 0, 1, 2, … to the partitions of a topic in turns, until the end."""

    def __init__(self, bootstrap: str) -> None:
        self.count = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        while not self._ending.wait(0.02):
            for _ in range(30):
                self._producer.produce(TOPIC, str(self.count).encode(), partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)

    def end(self) -> int:
        """Returns how many records there are, all acknowledged."""
        self._ending.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0
        return self.count

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Takeover:
    """Two clusters and one file. `mirror_maker` and `klamm` run it in turns."""

    def __init__(self, directory: Path, source: str, target: str, settings: dict[str, str]) -> None:
        self.source, self.target = source, target
        servers = {"clusters": "A,B", "A.bootstrap.servers": source, "B.bootstrap.servers": target}
        flow = {"A->B.enabled": "true", "A->B.topics": TOPIC, "A->B.groups": GROUP}
        self.mirror_maker = MirrorMaker(directory, QUICK | servers | flow | settings)
        self.file = self.mirror_maker.file
        self.admin = AdminClient({"bootstrap.servers": source})
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)

    def copied(self) -> list[int]:
        """Returns what readers of committed records see at the target, partition by partition."""
        return [int(value) for value in committed_values(self.target, REMOTE)]

    def ends(self) -> list[int]:
        """Returns the ends of the copy's partitions; zeros while there is none."""
        consumer = Consumer({"bootstrap.servers": self.target, "group.id": "ends", "log_level": 0})
        try:
            if REMOTE not in consumer.list_topics(timeout=30).topics:
                return [0] * PARTITIONS
            places = [TopicPartition(REMOTE, p) for p in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, 30, cached=False)[1] for place in places]
        finally:
            consumer.close()

    def wait_for_copies(self, more: int) -> None:
        """Waits until each partition of the copy has grown by so many."""
        before = self.ends()
        wait_for(  # a topic that was just made has no leader yet
            f"{more} more copies",
            lambda: all(now >= was + more for now, was in zip(self.ends(), before, strict=True)),
            START_S,
        )

    def committed(self) -> list[int]:
        """Returns the next offset to copy of each partition, as the offset topic has it."""
        shown = klamm("mirror", "offsets", "list", str(self.file), "A->B", "--topic", TOPIC, "-o", "json")
        return [row["offset"] or 0 for row in json.loads(shown.stdout)]

    def wait_for_sessions(self) -> None:
        """Waits until the groups of the flows have no members: MirrorMaker ends at once where others have."""
        for bootstrap, group in ((self.source, "B-mm2"), (self.target, "A-mm2")):
            wait_until(lambda b=bootstrap, g=group: not in_use(b, g), f"the end of {group}", timeout_s=60)

    def wait_for_all(self, count: int) -> list[int]:
        """Returns the copy once it has so many different records."""
        wait_until(lambda: len(set(self.copied())) >= count, "all records", timeout_s=START_S)
        return self.copied()

    # Groups

    def commit(self, offsets: list[int]) -> None:
        """Sets the group's offsets at the source."""
        places = [TopicPartition(TOPIC, p, offset) for p, offset in enumerate(offsets)]
        with self._member(self.source) as consumer:
            consumer.commit(offsets=places, asynchronous=False)

    def translated(self) -> list[int]:
        """Returns the group's offsets at the target; negative ones where there are none."""
        with self._member(self.target) as consumer:
            places = [TopicPartition(REMOTE, p) for p in range(PARTITIONS)]
            return [place.offset for place in consumer.committed(places, 30)]

    def next_records(self) -> list[int]:
        """Returns the record that the group would read next at the target, for each partition."""
        places = [TopicPartition(REMOTE, p, offset) for p, offset in enumerate(self.translated())]
        return [self._record_at(place) for place in places]

    def _record_at(self, place: TopicPartition) -> int:
        with self._member(self.target) as consumer:
            consumer.assign([place])
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                for message in consumer.consume(1, 0.5):
                    if message.error() is None:
                        return int(message.value() or b"")
        raise AssertionError(f"no record at {place}")

    @contextmanager
    def _member(self, bootstrap: str) -> Iterator[Consumer]:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0}
        )
        try:
            yield consumer
        finally:
            consumer.close()

    # Whose turn it is

    @contextmanager
    def run_by_mirror_maker(self, how: signal.Signals = signal.SIGTERM) -> Iterator[MirrorMaker]:
        """MirrorMaker's turn; `how` ends it."""
        with self.mirror_maker:
            yield self.mirror_maker
            assert self.mirror_maker.alive, self.mirror_maker.log
            self.mirror_maker.stop(how)

    @contextmanager
    def run_by_klamm(self, how: signal.Signals = signal.SIGTERM) -> Iterator[Server]:
        """Klamm's turn; `how` ends it."""
        with Server("mirror", "start", str(self.file), timeout_s=START_S) as server:
            yield server
            if how is signal.SIGKILL:
                everything = psutil.Process(server.process.pid).children(recursive=True)
                server.process.kill()
                for process in everything:
                    with suppress(psutil.NoSuchProcess):  # it notices the end of its parent
                        process.kill()


def source_record(partition: int, offset: int) -> int:
    """Returns the number that `Load` wrote there."""
    return offset * PARTITIONS + partition


def in_use(bootstrap: str, group: str) -> bool:
    """Returns whether a worker group has members."""

    async def ask() -> str:
        async with Cluster(bootstrap) as cluster:
            return await group_state(cluster, group)

    return asyncio.run(ask()) not in IDLE
