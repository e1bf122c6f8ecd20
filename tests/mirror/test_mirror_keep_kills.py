"""Flows that keep offsets under kills: the worker's processes and both brokers. The copy stays the source's, byte for byte."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import NO_RETENTION, new_topic, wait_until
from support.klamm import Server
from support.mirror import mirror_file
from support.mirror_topics import end_of, log_bytes, transactions, wait_same
from support.mirroring import produce, rows

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")
ROUNDS = 6
PARTITIONS = 3


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with (
        EmbeddedBroker(tmp_path / "a", config=NO_RETENTION) as source,
        EmbeddedBroker(tmp_path / "b", config=NO_RETENTION) as target,
    ):
        yield source, target


def children(pid: int) -> list[int]:
    """Returns the processes below one, deepest last."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children(child)]
    return found


@pytest.mark.parametrize("once", ["disabled", "enabled"])
def test_a_copy_has_every_byte_once_whatever_is_killed(clusters, tmp_path, once):
    source, target = clusters
    topic = new_topic(source, partitions=PARTITIONS)
    path = mirror_file(
        tmp_path / "mm2.properties",
        {"A": source.bootstrap, "B": target.bootstrap},
        {
            "A->B.enabled": "true", "topics": topic, "A->B.mirror.keep.offsets": "true", "tasks.max": "2",
            "replication.policy.class": "IdentityReplicationPolicy", "heartbeats.replication.enabled": "false",
            "B.exactly.once.source.support": once,
        },
    )  # fmt: skip
    chance = random.Random(7)
    server = Server("mirror", "start", str(path))
    try:
        for round_ in range(ROUNDS):
            for partition in range(PARTITIONS):
                produce(
                    source.bootstrap, topic, rows(3000, f"{round_}-"), partition=partition,
                    **{"compression.type": chance.choice(["none", "zstd"])},
                )  # fmt: skip
            transactions(source.bootstrap, topic, f"t{round_}", [True, False]).abort_transaction(60)
            before = end_of(target.bootstrap, topic) if round_ else 0
            produce(source.bootstrap, topic, rows(20_000, "under way"))
            time.sleep(chance.random() / 2)
            victim = ("target", "flow", "source", "flow", "target", "all")[round_]
            if victim in {"target", "all"}:
                target.kill()
                target.start()
            if victim in {"source", "all"}:
                source.kill()
                source.start()
            if victim in {"flow", "all"}:
                for pid in children(server.process.pid):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue  # it ended with its parent
            wait_until(
                lambda before=before: end_of(target.bootstrap, topic) > before, "it goes on", timeout_s=90
            )
        wait_same(source.bootstrap, target.bootstrap, topic)
        for partition in range(PARTITIONS):
            wait_until(
                lambda p=partition: end_of(source.bootstrap, topic, p) == end_of(target.bootstrap, topic, p),
                f"partition {partition}",
            )
            assert log_bytes(source.bootstrap, topic, partition) == log_bytes(
                target.bootstrap, topic, partition
            )
    finally:
        server.stop()
