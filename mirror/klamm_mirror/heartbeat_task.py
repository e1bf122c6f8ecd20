"""The task of MirrorHeartbeatConnector."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror import internal_topics
from klamm_mirror.formats import Heartbeat
from klamm_mirror.heartbeat import MirrorHeartbeatConnector
from klamm_mirror.loop import LoopTask, open_cluster
from klamm_mirror.policy import policy_from

SOURCE_ALIAS: Final = "sourceClusterAlias"
TARGET_ALIAS: Final = "targetClusterAlias"


class MirrorHeartbeatTask(LoopTask):
    """Makes the topic, then writes one record each interval; one that was missed is not made up for."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._topic = ""
        self._aliases = ("", "")
        self._cluster: Cluster | None = None
        self._written = 0
        self._next_s = 0.0
        self._interval_s = 1.0
        self._replicas = 1
        self._made = False
        self._committed = False

    def start(self, props: Mapping[str, str]) -> None:
        parsed = MirrorHeartbeatConnector.config().parse(props)
        self._props = dict(props)
        self._topic = policy_from(parsed).heartbeats_topic()
        self._aliases = (parsed["source.cluster.alias"], parsed["target.cluster.alias"])
        self._interval_s = parsed["emit.heartbeats.interval.seconds"]
        self._replicas = parsed["heartbeats.topic.replication.factor"]

    async def open(self, stack: AsyncExitStack) -> None:
        self._cluster = await stack.enter_async_context(open_cluster(self._props, "target"))

    async def step(self) -> None:
        assert self._cluster is not None, "opened"
        if time.monotonic() < self._next_s:
            return
        (source, target), topic = self._aliases, self._topic
        if not self._made:
            await internal_topics.create(self._cluster, topic, self._replicas)
        self._made = False  # after a failure it is looked for again: somebody may have deleted it
        self._next_s = time.monotonic() + self._interval_s
        now_ms = time.time_ns() // 1_000_000
        key, value = Heartbeat(source, target, now_ms).encode()
        await internal_topics.produce(self._cluster, topic, [Record(timestamp=now_ms, key=key, value=value)])
        self._made = True
        self._written += 1
        if not self._committed:  # the offset never changes
            self._committed = True
            self.context.use_topics([topic])
            await self.commit([({SOURCE_ALIAS: source, TARGET_ALIAS: target}, {"offset": 0})])

    def figures(self) -> tuple[int, Mapping[str, Any]]:
        return self._written, {}
