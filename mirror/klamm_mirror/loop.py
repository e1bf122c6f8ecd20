"""The base of the checkpoint and heartbeat tasks: a driver task that does small steps and survives broker
outages.

A step that fails because a broker is away or moved is tried again, with a pause that doubles up to 10 s.
Meanwhile the task stays RUNNING and says what it waits for. Any other error fails the task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster
from klamm_mirror.clients import ClientSettings
from klamm_mirror.metrics.tables import Pace
from klamm_mirror.settings.common_config import Side
from klamm_plugins.connector import DriverTask, SourceOffset, SourcePartition

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
PROGRESS_S: Final = 1.0
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 10.0
ASK_PATIENCE_S: Final = 5.0
"""Seconds in which a command looks for a broker again and again."""

Offsets = Sequence[tuple[SourcePartition, SourceOffset | None]]


def open_cluster(props: Mapping[str, str], side: Side) -> Cluster:
    """Returns a client of one of the two clusters. Raises ConfigError for security settings that it does not support."""
    return ClientSettings.of(props, side, "admin").cluster()


def ask_cluster(props: Mapping[str, str], side: Side) -> Cluster:
    """Returns a client for a command, whose user waits: it names a cluster that cannot be reached, and gives it up sooner."""
    client = ClientSettings.of(props, side, "admin")
    return client.cluster(name=props[f"{side}.cluster.alias"], patience_s=ASK_PATIENCE_S)


class LoopTask(DriverTask):
    """A task in steps. Subclasses open clients in `open` and do what is due in `step`, a few times a second."""

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Makes what `step` uses. The stack closes it at the end."""

    @abstractmethod
    async def step(self) -> None:
        """Does what is due. After a retriable ClientError, it is called again after a pause."""

    @abstractmethod
    def figures(self) -> tuple[int, Mapping[str, Any]]:
        """Returns the number of records written since the start, and details for the task's status."""

    def measure(self, *, idle: bool = False) -> None:
        """Reports figures for /metrics, if there are any; called a few times a minute. `idle`: the last call before a
        pause.
        """

    def run(self) -> None:
        asyncio.run(self._run())

    async def commit(self, offsets: Offsets) -> None:
        """Stores source offsets without blocking the loop."""
        await asyncio.to_thread(self.context.commit, offsets)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            await self.open(stack)
            stepping: asyncio.Task[None] | None = None
            backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S)
            said_at, pace = -PROGRESS_S, Pace()
            try:
                while not self.context.stopping.is_set():
                    if stepping is not None and stepping.done():
                        _judge(stepping, backoff)
                        stepping = None
                    if stepping is None and self.context.paused:
                        self.measure(idle=True)
                        self.context.stay_paused()
                    elif stepping is None and time.monotonic() >= backoff.until:
                        stepping = asyncio.create_task(self.step())
                    if time.monotonic() - said_at >= PROGRESS_S:
                        self._say(backoff)
                        said_at = time.monotonic()
                        if pace.due(said_at):
                            self.measure()
                            pace.took(said_at, time.monotonic())
                    await asyncio.sleep(TICK_S)
            finally:
                if stepping is not None:
                    await _finish(stepping)
            self._say(backoff)

    def _say(self, backoff: Backoff) -> None:
        records, details = self.figures()
        waiting_for = None if backoff.why is None else "broker"
        if backoff.why is not None:
            details = {**details, "why": backoff.why}
        self.context.progress(records, waiting_for=waiting_for, details=details)


def _judge(step: asyncio.Task[None], backoff: Backoff) -> None:
    """Decides when the next step may begin after a finished one. Raises errors that a retry cannot cure."""
    try:
        step.result()
    except ClientError as e:
        if not e.retriable:
            raise
        log.warning("%s; trying again in %g s", e, backoff.failed(time.monotonic(), str(e)))
    else:
        if backoff.why is not None:
            log.info("going on")
        backoff.succeeded()


FINISH_S: Final = 3.0


async def _finish(step: asyncio.Task[None]) -> None:
    """Gives a running step some time to finish, so that its writes are remembered."""
    try:
        await asyncio.wait_for(step, FINISH_S)
    except TimeoutError:
        log.info("a step did not end within %g s of the stop; it is done again at the next start", FINISH_S)
    except ClientError as e:
        log.info("the last step failed: %s", e)
