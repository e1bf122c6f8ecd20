"""The task of MirrorCheckpoint: drives its checkpointer and reports to Connect."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from klamm_mirror.checkpoint.config import Settings, parse
from klamm_mirror.checkpointer import Checkpointer
from klamm_mirror.formats import Checkpoint
from klamm_mirror.loop import LoopTask, open_cluster
from klamm_mirror.sensor_tables import ROWS_MAX, tables
from klamm_mirror.sensors import CHECKPOINT_ABOUT, CHECKPOINT_PREFIX, WINDOW_MS, CheckpointSensors


class MirrorCheckpointTask(LoopTask):
    """A task that calls the checkpointer. Connect's source offsets are always 0, as with MirrorMaker."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._settings: Settings | None = None
        self._checkpointer: Checkpointer | None = None
        self._committed: set[tuple[str, str, int]] = set()
        self._sensors = CheckpointSensors(ROWS_MAX)

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)
        self._settings = parse(props)

    async def open(self, stack: AsyncExitStack) -> None:
        assert self._settings is not None, "started"
        source = await stack.enter_async_context(open_cluster(self._props, "source"))
        target = await stack.enter_async_context(open_cluster(self._props, "target"))
        self._checkpointer = Checkpointer(
            self._settings.checkpointer,
            source=source,
            target=target,
            syncs_at_source=self._settings.syncs_at_source,
            on_written=self._written,
        )

    async def step(self) -> None:
        assert self._checkpointer is not None, "opened"
        assert self._settings is not None
        written = await self._checkpointer.step(time.monotonic(), time.time_ns() // 1_000_000)
        new = {(c.group, c.topic, c.partition) for c in written} - self._committed
        if new:
            self.context.use_topics([self._settings.checkpointer.checkpoints_topic])
            await self.commit(
                [({"group": g, "topic": t, "partition": p}, {"offset": 0}) for g, t, p in sorted(new)]
            )
            self._committed |= new

    def _written(self, checkpoints: Sequence[Checkpoint], began_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        keys = [(c.group, c.topic, c.partition) for c in checkpoints]
        self._sensors.written(keys, max(now_ms - began_ms, 0), now_ms)

    def measure(self, *, idle: bool = False) -> None:
        if self._settings is None or self._checkpointer is None or self._checkpointer.groups is None:
            return
        self._sensors.keep(self._checkpointer.groups)
        rows = self._sensors.rows(time.time_ns() // 1_000_000 + (WINDOW_MS if idle else 0))
        flow = (self._settings.source_alias, self._settings.target_alias)
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
