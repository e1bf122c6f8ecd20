"""The task of MirrorHeartbeat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from klamm_kafka.client import Cluster
from klamm_mirror.heartbeat.config import Settings, parse
from klamm_mirror.loop import LoopTask, open_cluster
from klamm_mirror.metrics.tables import figures
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import Heartbeat

SOURCE_ALIAS: Final = "sourceClusterAlias"
TARGET_ALIAS: Final = "targetClusterAlias"
AGE_ABOUT: Final = {"heartbeat_age_seconds": "Since the target last acknowledged a heartbeat, s."}


class MirrorHeartbeatTask(LoopTask):
    """A task that creates the topic, then writes one record each interval. It does not make up for missed ones."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._settings: Settings | None = None
        self._cluster: Cluster | None = None
        self._written = 0
        self._last_ms = time.time_ns() // 1_000_000
        self._next_s = 0.0
        self._made = False
        self._committed = False

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = parse(props)
        self._props = dict(props)

    async def open(self, stack: AsyncExitStack) -> None:
        self._cluster = await stack.enter_async_context(open_cluster(self._props, "target"))

    async def step(self) -> None:
        cluster, settings = self._cluster, self._settings
        assert cluster is not None, "opened"
        assert settings is not None, "started"
        if time.monotonic() < self._next_s:
            return
        source, target, topic = settings.source_alias, settings.target_alias, settings.topic
        if not self._made:
            admin = settings.plugins.forwarded(cluster)
            await internal_topics.create(cluster, topic, settings.replication_factor, admin=admin)
        self._made = False  # after a failure it is looked for again: somebody may have deleted it
        self._next_s = time.monotonic() + settings.interval_s
        now_ms = time.time_ns() // 1_000_000
        records = internal_topics.as_records([Heartbeat(source, target, now_ms)], now_ms)
        await internal_topics.produce(cluster, topic, records)
        self._made = True
        self._written += 1
        self._last_ms = now_ms
        if not self._committed:  # the offset never changes
            self._committed = True
            self.context.use_topics([topic])
            await self.commit([({SOURCE_ALIAS: source, TARGET_ALIAS: target}, {"offset": 0})])

    def stop(self) -> None:
        if self._settings is not None:
            self._settings.plugins.close()

    def figures(self) -> tuple[int, Mapping[str, Any]]:
        return self._written, {"last_heartbeat_ms": self._last_ms}

    def measure(self, *, idle: bool = False) -> None:
        if self._settings is None:
            return
        age_s = (time.time_ns() // 1_000_000 - self._last_ms) / 1000
        flow = (self._settings.source_alias, self._settings.target_alias)
        self.context.metrics([figures(flow, AGE_ABOUT, [age_s])])
