"""Forces finished segments, and logs whose flush.messages or flush.ms is over, to disk in the background.

`fsync` waits for the disk without the interpreter, so it runs in a thread; everything else stays on the loop. It does
one log at a time: more at once would not help a slow disk. Recovery after a crash does not read again what is on disk.

A partition whose `fsync` failed refuses appends until the broker is started again. It is never flushed again, as a
second `fsync` would succeed without the data. The shutdown is then not a clean one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from klamm_broker.log.errors import LogError
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

PAUSE_S: Final = 5.0
"""The longest wait of a finished segment: recovery then reads about one segment of each partition again."""
PAUSE_S_MIN: Final = 0.05


class Flusher:
    """The broker's background flushes. `Broker` starts and stops it."""

    def __init__(self, logs: LogManager, *, interval_ms: int) -> None:
        self._logs = logs
        self._pause_s = max(min(interval_ms / 1000, PAUSE_S), PAUSE_S_MIN)
        self._task: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._run())

    async def stop(self) -> None:
        """Begin no further flush, and wait for the current one: the log must learn whether it failed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            for partition_log in self._logs.wanting_flush(_now_ms()):
                try:
                    await self._flush(partition_log)
                except LogError as e:  # nothing was asked of the disk yet
                    log.error("%s: flush failed; it will be tried again: %s", partition_log.name, e)  # noqa: TRY400
                except Exception:  # a defect of ours: the other logs are flushed all the same
                    log.exception("%s: flush failed; it will be tried again", partition_log.name)

    @staticmethod
    async def _flush(partition_log: PartitionLog) -> None:
        job = partition_log.begin_flush(_now_ms())
        if job is None:
            return
        running = asyncio.create_task(asyncio.to_thread(job.run))
        try:
            await asyncio.shield(running)
        except OSError as e:
            partition_log.flush_failed(e)
        except asyncio.CancelledError:
            # The broker stops and will flush again itself: that must not succeed where this flush fails.
            await asyncio.wait([running])
            if isinstance(error := running.exception(), OSError):
                partition_log.flush_failed(error)
            raise
        else:
            partition_log.end_flush(job)


def _now_ms() -> int:
    return int(time.time() * 1000)
