"""Asks connectors for their task configs, and hands these to the leader, which commits them.

The herder decides when to ask and hears of every outcome; while nothing runs on this worker (`active` returns False) it
hears of no failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from klamm.connect.children.interface import Children
from klamm.connect.herding.actions import Action, ComputeTasks, WriteTasks
from klamm.connect.herding.cluster import Cluster, LeaderBusy
from klamm.connect.herding.herder import Herder
from klamm.connect.topics.config_writer import ConfigWriter
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class TaskConfigs:
    """See the module. `perform` carries out what the herder decides, and sets its timer."""

    def __init__(
        self,
        herder: Herder,
        children: Children,
        *,
        writer: ConfigWriter,
        cluster: Cluster,
        perform: Callable[[Sequence[Action]], None],
        active: Callable[[], bool],
    ) -> None:
        self._herder = herder
        self._children = children
        self._writer = writer
        self._cluster = cluster
        self._perform = perform
        self._active = active

    async def compute(self, question: ComputeTasks) -> None:
        """Ask the connector's process."""
        name, epoch = question.name, question.epoch
        try:
            present = self._writer.configs.tasks(name) if name in self._writer.configs else ()
            configs = await self._children.task_configs(name, question.max_tasks, present)
        except KlammError as e:
            self._failed(name, epoch, str(e))
        else:
            self._perform(self._herder.on_task_configs(name, epoch, configs, self._writer.configs))

    async def write(self, action: WriteTasks) -> None:
        """Commit them as the leader, or send them to the leader."""
        name, epoch = action.name, action.epoch
        try:
            if self._cluster.is_leader:
                await self._writer.put_task_configs(
                    name, action.configs, lambda: self._herder.awaits(name, epoch)
                )
            else:
                await self._cluster.send_task_configs(name, action.configs)
        except LeaderBusy as e:
            log.info("the task configs of %s are sent to the leader again: %s", name, e)
            if self._active():
                self._herder.on_task_configs_delayed(name, epoch, now_ms())
                self._perform([])
        except KlammError as e:
            self._failed(name, epoch, str(e))

    def _failed(self, name: str, epoch: int, why: str) -> None:
        if self._active():
            self._perform(self._herder.on_task_configs_failed(name, epoch, why, now_ms()))
