"""Flows under IdentityReplicationPolicy between any clusters, in this process, for tests of what goes round."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name
from support.mirroring import Running, produce, props, read

from klamm_mirror.provenance.config import ORIGIN

REST_S = float(os.environ.get("KLAMM_REST_SECONDS", "60"))
"""The seconds for which a soak watches that nothing goes round."""


class Circle:
    """Flows such as "AB" between `clusters` (addresses by alias), for one topic with one partition.

    Entered again, it goes on where it stopped. `mesh`: flows leave out records that come to their target directly, as the mirror's file would
    tell them.
    """

    def __init__(
        self, clusters: Mapping[str, str], flows: Iterable[str], topic: str, *, mesh: bool = False, **settings: str
    ) -> None:  # fmt: skip
        self.clusters = clusters
        self.topic = topic
        self.flows = list(flows)
        self.running: dict[str, Running] = {}
        self._settings = {k.replace("__", "."): v for k, v in settings.items()}
        self._mesh = mesh
        self._commits: dict[str, list[Any]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Circle:
        for flow in self.flows:
            running = Running(self._config(*flow))
            self._stack.callback(running.stop)
            self.running[flow] = running.start(self._commits.get(flow))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        for flow, running in self.running.items():
            self._commits.setdefault(flow, []).extend(running.commits)

    def _config(self, source: str, target: str) -> dict[str, str]:
        config = props(self.clusters[source], self.clusters[target], topics=self.topic) | self._settings
        config |= {"source.cluster.alias": source, "target.cluster.alias": target}
        direct = [f[0] for f in self.flows if f[1] == target and f[0] != source] if self._mesh else []
        config |= {ORIGIN.format(alias): ".*" for alias in direct}
        return config | {"replication.policy.class": "IdentityReplicationPolicy"}

    def settle(self, timeout_s: float = 60) -> None:
        """Waits until each flow has everything that its source has, and nothing has come meanwhile."""
        deadline = time.monotonic() + timeout_s
        before: dict[str, int] = {}
        while True:
            ends = {alias: end(servers, self.topic) for alias, servers in self.clusters.items()}
            if ends == before and all(_done(r, self.topic) == ends[f[0]] for f, r in self.running.items()):
                return
            for running in self.running.values():
                assert not running.errors, running.errors
            shown = {flow: running.details() for flow, running in self.running.items()}
            assert time.monotonic() < deadline, f"{ends} {shown}"
            before = ends
            time.sleep(0.1)

    def rest(self, seconds: float) -> None:
        """Watches for so long that no cluster gets another record."""
        ends = {alias: end(servers, self.topic) for alias, servers in self.clusters.items()}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for running in self.running.values():
                assert not running.errors, running.errors
            assert {a: end(servers, self.topic) for a, servers in self.clusters.items()} == ends
            time.sleep(0.2)

    def values(self, alias: str) -> list[bytes]:
        """Returns the values of all records of the topic at a cluster, in order."""
        return [row[1] or b"" for row in read(self.clusters[alias], self.topic, None)]

    def left_out(self, flow: str, why: str) -> int:
        return self.running[flow].details().get(f"batches_{why}", 0)


def topic_at(clusters: Mapping[str, str], **config: str) -> str:
    """A new topic with one partition at all of the clusters."""
    name = new_name()
    for servers in clusters.values():
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics([NewTopic(name, 1, 1, config=config)])
        made[name].result(60)
    return name


def write(servers: str, topic: str, tag: str, count: int, **config: Any) -> list[bytes]:
    """Writes `count` records, whose values begin with `tag`, with keys of their own. Returns the values."""
    values = [f"{tag}{i}".encode() for i in range(count)]
    rows = [(f"{tag}{i}".encode(), v, [], 1_700_000_000_000 + i) for i, v in enumerate(values)]
    produce(servers, topic, rows, **config)
    return values


def end(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1])
    finally:
        consumer.close()


def _done(running: Running, topic: str) -> int:
    found = running.details().get("partitions", {}).get(f"{topic}-0", {})
    return int(found.get("offset", -1))
