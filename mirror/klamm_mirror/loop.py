"""What checkpoints and heartbeats share: a driver task that does a small step now and then, and outlives its brokers.

A step that fails because a broker is away or moved is tried again, with a pause that doubles up to 10 s; the task
stays RUNNING and says what it waits for. Anything else fails the task.
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
from klamm_mirror.common_config import Side, client_security, client_settings
from klamm_mirror.sensor_tables import Pace
from klamm_plugins.connector import DriverTask, SourceOffset, SourcePartition

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
PROGRESS_S: Final = 1.0
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 10.0

Offsets = Sequence[tuple[SourcePartition, SourceOffset | None]]


def open_cluster(props: Mapping[str, str], side: Side) -> Cluster:
    """A client of one of the two clusters. Raises ConfigError for what it cannot speak."""
    return Cluster(
        client_settings(props, side, "admin")["bootstrap.servers"],
        client_id="klamm-mirror",
        security=client_security(props, side, "admin"),
    )


class LoopTask(DriverTask):
    """Subclasses open what they need in `open` and do what is due in `step`, a few times a second."""

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Make what `step` uses; the stack closes it at the end."""

    @abstractmethod
    async def step(self) -> None:
        """Do what is due. ClientError that is retriable: called again after a pause."""

    @abstractmethod
    def figures(self) -> tuple[int, Mapping[str, Any]]:
        """Records written since the start, and details for the task's status."""

    def measure(self, *, idle: bool = False) -> None:
        """Say figures for /metrics, where there are any; called a few times a minute. `idle`: for the last time before a pause."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def commit(self, offsets: Offsets) -> None:
        """Store source offsets without holding the loop up."""
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
        self.context.progress(records, waiting_for=waiting_for, details=details)


def _judge(step: asyncio.Task[None], backoff: Backoff) -> None:
    """Decides when the next step may begin, after one that has ended. Raises what is not worth another try."""
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
    """Let a step under way come to its end, for a while: what it has written should be remembered."""
    try:
        await asyncio.wait_for(step, FINISH_S)
    except TimeoutError:
        log.info("a step did not end within %g s of the stop; it is done again at the next start", FINISH_S)
    except ClientError as e:
        log.info("the last step failed: %s", e)
