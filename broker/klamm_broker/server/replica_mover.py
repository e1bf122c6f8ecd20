"""Carries out AlterReplicaLogDirs: moves partitions to another log directory, one after the other.

A thread copies, job by job. Between two jobs the loop checks whether the move is still wanted, and whether the rest is
small enough for the copy to take over. If a move fails, the partition stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError
from klamm_broker.log.replica_move import TAIL_BYTES, ReplicaMove
from klamm_broker.server.slices import drive

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.storage import Storage

log = logging.getLogger(__name__)

ROUNDS_BEFORE_MORE: Final = 20
"""Rounds of copying before the final step may copy more and more, for a partition that grows faster than it is copied."""

_SWAP_S: Final = 0.01
"""The interval of looking whether the cleaner has put a segment in place, which takes some milliseconds."""


class ReplicaMover:
    """Moves partitions. The first move starts its task, and `Broker` stops it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def begin(self, topic: str, partition: int, target: Path) -> None:
        """Begin a move. Raises what `LogManager.begin_move` raises."""
        self._storage.logs.begin_move(topic, partition, target)
        if self._task is None and self._storage.logs.moves:
            self._task = self._storage.loop.create_task(self._run())

    def resume(self) -> None:
        """Begin again the moves that the last run did not finish."""
        logs = self._storage.logs
        for (topic, partition), target in logs.unfinished_moves.items():
            try:
                self.begin(topic, partition, target)
            except KeyError:
                continue  # the topic is deleted
            except (LogError, OSError) as e:
                log.error("%s-%d is not moved to %s: %s", topic, partition, target, e)  # noqa: TRY400
        logs.unfinished_moves.clear()

    async def stop(self) -> None:
        """End the current job. The next start begins the moves again."""
        self._stopping = True
        for move in self._storage.logs.moves.values():
            move.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        moves = self._storage.logs.moves
        try:
            while moves and not self._stopping:
                key = next(iter(moves))
                move = moves[key]
                try:
                    await self._move(move)
                except Exception as e:  # any other exception is a defect of ours: the other moves go on
                    defect = not isinstance(e, (LogError, OSError))
                    log.error(  # noqa: TRY400 - with its traceback where that helps
                        "%s is not moved to %s: %s", move.log.name, move.target.path, e, exc_info=defect
                    )
                    if isinstance(e, OSError):
                        self._storage.logs.report(move.directory_of(e), e)
                    if moves.get(key) is move:
                        self._storage.logs.cancel_move(*key)
                    else:
                        self._storage.logs.clear_move(move)
        finally:
            self._task = None

    async def _move(self, move: ReplicaMove) -> None:
        tail, rounds = TAIL_BYTES, 0
        while not move.cancelled:
            if move.log.swapping:
                await asyncio.sleep(_SWAP_S)
                continue
            if move.missing <= tail and rounds:
                if move.coming:
                    self._storage.logs.end_move(move, self._storage.now_ms())
                    await self._steps(self._storage.logs.leaving(move))
                    return
                try:
                    await self._steps(self._storage.logs.preparing_move(move))
                finally:
                    move.prepared()
                continue  # look at what was appended meanwhile
            job = move.plan()
            try:
                await self._storage.loop.run_in_executor(None, job.run)
            finally:
                move.job = None
            move.done(job)
            rounds += 1
            if rounds > ROUNDS_BEFORE_MORE and move.missing > job.size // 2:
                tail *= 2
        if not self._stopping:
            self._storage.logs.clear_move(move)

    async def _steps(self, steps: Steps[None]) -> None:
        result = drive(self._storage.loop, steps)
        if result is not None:
            await result
