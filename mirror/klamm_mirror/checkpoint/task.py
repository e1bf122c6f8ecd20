"""The task of MirrorCheckpoint: drives its checkpointer and reports to Connect."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from klamm_mirror.checkpoint.checkpointer import Checkpointer
from klamm_mirror.checkpoint.config import Settings, parse
from klamm_mirror.loop import LoopTask, open_cluster
from klamm_mirror.metrics.sensors import CHECKPOINT_ABOUT, CHECKPOINT_PREFIX, WINDOW_MS, CheckpointSensors
from klamm_mirror.metrics.tables import ROWS_MAX, figures, tables
from klamm_mirror.topics.formats import Checkpoint

AGE_ABOUT: Final = {
    "checkpoint_age_seconds": "Since all groups' checkpoints were last up to date, s.",
    "group_offset_age_seconds": "Since the groups' offsets at the target were last looked at and set, s.",
}


class MirrorCheckpointTask(LoopTask):
    """A task that calls the checkpointer. Connect's source offsets are always 0, as with MirrorMaker."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._settings: Settings | None = None
        self._checkpointer: Checkpointer | None = None
        self._committed: set[tuple[str, str, int]] = set()
        self._sensors = CheckpointSensors(ROWS_MAX)
        self._began_ms = 0

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)
        self._settings = parse(props)

    async def open(self, stack: AsyncExitStack) -> None:
        assert self._settings is not None, "started"
        self._began_ms = time.time_ns() // 1_000_000
        source = await stack.enter_async_context(open_cluster(self._props, "source"))
        target = await stack.enter_async_context(open_cluster(self._props, "target"))
        self._checkpointer = Checkpointer(
            self._settings.checkpointer,
            source=source,
            target=target,
            syncs_at_source=self._settings.syncs_at_source,
            on_written=self._written,
            admin=self._settings.plugins.forwarded(target),
        )

    async def step(self) -> None:
        assert self._checkpointer is not None, "opened"
        assert self._settings is not None
        written = await self._checkpointer.step(time.monotonic(), time.time_ns() // 1_000_000)
        new = {(c.group, c.topic, c.partition) for c in written} - self._committed
        if new:
            self.context.use_topics([self._settings.checkpointer.checkpoints_topic])
            await self.commit(
                [({"partition": p, "topic": t, "group": g}, {"offset": 0}) for g, t, p in sorted(new)]
            )
            self._committed |= new

    def stop(self) -> None:
        if self._settings is not None:
            self._settings.plugins.close()

    def _written(self, checkpoints: Sequence[Checkpoint], began_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        keys = [(c.group, c.topic, c.partition) for c in checkpoints]
        self._sensors.written(keys, max(now_ms - began_ms, 0), now_ms)

    def measure(self, *, idle: bool = False) -> None:
        if self._settings is None or self._checkpointer is None:
            return
        if self._checkpointer.groups is not None:
            self._sensors.keep(list(self._checkpointer.groups))
        now_ms = time.time_ns() // 1_000_000
        rows = self._sensors.rows(now_ms + (WINDOW_MS if idle else 0))
        flow = (self._settings.source_alias, self._settings.target_alias)
        by, left_out = ("group", "topic", "partition"), self._sensors.left_out
        found = tables(CHECKPOINT_PREFIX, CHECKPOINT_ABOUT, flow=flow, by=by, rows=rows, left_out=left_out)
        ages = [None if at_ms is None else (now_ms - at_ms) / 1000 for at_ms in self._passes()]
        self.context.metrics([*found, figures(flow, AGE_ABOUT, ages)])

    def _passes(self) -> tuple[int | None, int | None]:
        """Returns when checkpoints were last complete, and when groups' offsets were last set, ms; the task's start
        before the first time; None for work that is switched off.
        """
        assert self._settings is not None, "started"
        assert self._checkpointer is not None, "opened"
        settings, checkpointer = self._settings.checkpointer, self._checkpointer
        emitted = None if settings.emit_every_s is None else checkpointer.passed_ms or self._began_ms
        synced = None if settings.sync_every_s is None else checkpointer.synced_ms or self._began_ms
        return emitted, synced

    def figures(self) -> tuple[int, Mapping[str, Any]]:
        if self._checkpointer is None:
            return 0, {}
        counts = self._checkpointer.counts
        return counts.checkpoints, {
            "groups": len(self._checkpointer.groups or ()),
            "groups_left_out": self._checkpointer.left_out.told(),
            "checkpoints": counts.checkpoints,
            "group_offsets_set": counts.synced,
            "offsets_exact": counts.exact,
            "offsets_by_sync": counts.by_sync,
            "offsets_without_sync": counts.untranslated,
            **dict(zip(("checkpoints_ms", "group_offsets_ms"), self._passes(), strict=True)),
        }
