"""The task of MirrorCheckpointConnector: gives its checkpointer the time, and Connect what it wants to know."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from klamm_mirror import filters
from klamm_mirror.checkpoint import EMIT, REFRESH, SYNC, TASK, TASKS, MirrorCheckpointConnector
from klamm_mirror.checkpointer import Checkpointer, CheckpointSettings
from klamm_mirror.formats import Checkpoint
from klamm_mirror.loop import LoopTask, open_cluster
from klamm_mirror.policy import policy_from
from klamm_mirror.sensor_tables import ROWS_MAX, tables
from klamm_mirror.sensors import CHECKPOINT_ABOUT, CHECKPOINT_PREFIX, WINDOW_MS, CheckpointSensors


class MirrorCheckpointTask(LoopTask):
    """Calls the checkpointer; keeps Connect's source offsets as MirrorMaker does (they are always 0)."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"

    def __init__(self) -> None:
        self._parsed: dict[str, Any] = {}
        self._props: dict[str, str] = {}
        self._settings: CheckpointSettings | None = None
        self._checkpointer: Checkpointer | None = None
        self._committed: set[tuple[str, str, int]] = set()
        self._sensors = CheckpointSensors(ROWS_MAX)

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)
        self._parsed = MirrorCheckpointConnector.config().parse(props)
        self._settings = settings_of(
            self._parsed, task=int(props.get(TASK, "0")), tasks=int(props.get(TASKS, "1"))
        )

    async def open(self, stack: AsyncExitStack) -> None:
        assert self._settings is not None, "started"
        source = await stack.enter_async_context(open_cluster(self._props, "source"))
        target = await stack.enter_async_context(open_cluster(self._props, "target"))
        at_source = self._parsed["offset-syncs.topic.location"] == "source"
        self._checkpointer = Checkpointer(
            self._settings, source=source, target=target, syncs_at_source=at_source, on_written=self._written
        )

    async def step(self) -> None:
        assert self._checkpointer is not None, "opened"
        assert self._settings is not None
        written = await self._checkpointer.step(time.monotonic(), time.time_ns() // 1_000_000)
        new = {(c.group, c.topic, c.partition) for c in written} - self._committed
        if new:
            self.context.use_topics([self._settings.checkpoints_topic])
            await self.commit(
                [({"group": g, "topic": t, "partition": p}, {"offset": 0}) for g, t, p in sorted(new)]
            )
            self._committed |= new

    def _written(self, checkpoints: Sequence[Checkpoint], began_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        keys = [(c.group, c.topic, c.partition) for c in checkpoints]
        self._sensors.written(keys, max(now_ms - began_ms, 0), now_ms)

    def measure(self, *, idle: bool = False) -> None:
        if self._checkpointer is None or self._checkpointer.groups is None:
            return
        self._sensors.keep(self._checkpointer.groups)
        rows = self._sensors.rows(time.time_ns() // 1_000_000 + (WINDOW_MS if idle else 0))
        flow = (self._parsed["source.cluster.alias"], self._parsed["target.cluster.alias"])
        by = ("group", "topic", "partition")
        self.context.metrics(
            tables(
                CHECKPOINT_PREFIX,
                CHECKPOINT_ABOUT,
                flow=flow,
                by=by,
                rows=rows,
                left_out=self._sensors.left_out,
            )
        )

    def figures(self) -> tuple[int, Mapping[str, Any]]:
        if self._checkpointer is None:
            return 0, {}
        counts = self._checkpointer.counts
        return counts.checkpoints, {
            "groups": len(self._checkpointer.groups or ()),
            "checkpoints": counts.checkpoints,
            "group_offsets_set": counts.synced,
            "offsets_without_sync": counts.untranslated,
        }


def settings_of(parsed: Mapping[str, Any], *, task: int, tasks: int) -> CheckpointSettings:
    """What a task's configuration means for its checkpointer."""
    policy = policy_from(parsed)
    source, target = parsed["source.cluster.alias"], parsed["target.cluster.alias"]

    def every(name: str) -> float | None:
        return parsed[f"{name}.interval.seconds"] if parsed[f"{name}.enabled"] else None

    def original(topic: str) -> str | None:
        return policy.upstream_topic(topic) if policy.topic_source(topic) == target else None

    aliases = (target, source) if parsed["offset-syncs.topic.location"] == "source" else (source, target)
    return CheckpointSettings(
        syncs_topic=policy.offset_syncs_topic(aliases[0]),
        back_syncs_topic=policy.offset_syncs_topic(aliases[1]),
        checkpoints_topic=policy.checkpoints_topic(source),
        replication_factor=parsed["checkpoints.topic.replication.factor"],
        wants_group=filters.group_filter(parsed).wants,
        wants_topic=filters.topic_filter(parsed).wants,
        rename=partial(policy.format_remote_topic, source),
        original=original,
        emit_every_s=every(EMIT),
        sync_every_s=every(SYNC),
        refresh_every_s=every(REFRESH),
        task=task,
        tasks=tasks,
    )
