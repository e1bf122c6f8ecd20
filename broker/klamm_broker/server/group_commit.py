"""Group commit for `durability=fsync`: acknowledged records are on the disk, and one fsync serves all that wait.

An append that may not be acknowledged yet moves the log end only, and its partition becomes due. With
`durability=fsync` that is every append; for a topic with `flush.messages` it is the append that reaches that number.
Threads force all due partitions to the disk, one round at a time; appends during a round belong to the next one. After
a round the high watermarks follow, the callbacks below them are called, and parked fetches are woken: nobody reads
records that a power cut could take back.

A partition whose fsync fails takes nothing more (`PartitionLog.flush_failed`), and its callbacks get
KAFKA_STORAGE_ERROR. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError
from klamm_broker.log.flush_job import FlushJob
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.topics import Partition
    from klamm_broker.server.waiting import WaitingRoom

log = logging.getLogger(__name__)

THREADS: Final = 4
"""Files that are forced to the disk at the same time: a disk takes several, and several directories may be several disks."""

RETRY_S: Final = 0.5
"""The pause before a commit that could not begin is tried again."""

Callback = Callable[[ErrorCode], None]


class GroupCommit:
    """Commits appends in rounds. See the module's docstring. The counters are for metrics and tests."""

    def __init__(self, waiting: WaitingRoom) -> None:
        self._readers = waiting
        self._loop = waiting.loop
        self._due: dict[
            Partition, int
        ] = {}  # partitions with appends since the last round began, and their bytes
        self._waiting: dict[Partition, deque[tuple[int, Callback]]] = {}
        self._behind: set[Partition] = set()  # with records that are not committed
        self._round: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="commit")
        self._stopped = False
        self.rounds = 0
        self.syncs = 0  # files that were forced to disk
        self.commits = 0  # callbacks that were told of success

    @property
    def busy(self) -> bool:
        """True while some records are not committed, now or for good; otherwise no answer has to wait."""
        return bool(self._behind)

    def appended(self, partition: Partition, size: int) -> None:
        """Make the partition due: `size` bytes have been appended, and the next round commits them."""
        self._behind.add(partition)
        if self._stopped:
            return  # a retry that comes late: closing the logs flushes them
        self._due[partition] = self._due.get(partition, 0) + size
        if self._round is None:
            self._round = self._loop.create_task(self._run())

    def wait(self, partition: Partition, end_offset: int, callback: Callback) -> None:
        """Call back once the high watermark has risen to `end_offset`. Callbacks come in the order of the calls."""
        if partition.log.failed or partition.deleted:
            callback(_error(partition))
            return
        self._waiting.setdefault(partition, deque()).append((end_offset, callback))

    async def settle(self, timeout_s: float) -> bool:
        """Wait until all rounds are over, as a commit may lead to further appends. Returns whether they were in time.

        Connections must stay open until then. After a clean start the broker knows only the last batch of a producer, so a
        producer could not repeat earlier batches that were stored and not answered.
        """
        deadline = self._loop.time() + timeout_s
        while self._round is not None and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait([self._round], timeout=left)
        return self._round is None

    async def stop(self) -> None:
        """Wait for the rounds that are under way. Afterwards nobody waits any more."""
        while self._round is not None:
            await asyncio.wait([self._round])
        self._stopped = True
        self._pool.shutdown()

    def gone(self, partition: Partition) -> None:
        """Tell everybody who waits that the partition's topic is deleted."""
        self._due.pop(partition, None)
        self._behind.discard(partition)
        self._tell(partition)

    async def _run(self) -> None:
        try:
            while self._due:
                await self._one_round()
        finally:
            self._round = None

    async def _one_round(self) -> None:
        due, self._due = self._due, {}
        now_ms = int(time.time() * 1000)
        jobs: list[tuple[Partition, FlushJob]] = []
        for partition in due:
            if partition.log.high_watermark >= partition.log.log_end_offset:
                continue  # the last round has seen to it
            try:
                job = partition.log.begin_commit(now_ms)
            except LogError as e:
                self._not_begun(partition, due[partition], e)
                continue
            if job is not None:
                jobs.append((partition, job))
        self.rounds += 1
        self.syncs += sum(len(job.files) for _, job in jobs)
        outcomes = await asyncio.gather(
            *(self._loop.run_in_executor(self._pool, job.run) for _, job in jobs), return_exceptions=True
        )
        for (partition, job), outcome in zip(jobs, outcomes, strict=True):
            if outcome is None:
                _end(partition, job)
            elif not partition.log.failed:
                partition.log.flush_failed(
                    outcome if isinstance(outcome, OSError) else OSError(repr(outcome))
                )
        for partition, size in due.items():
            if partition.log.high_watermark >= partition.log.log_end_offset or partition.deleted:
                self._behind.discard(partition)
            if partition.waiters and not partition.log.failed:
                self._readers.advanced(partition, size)
            self._tell(partition)

    def _not_begun(self, partition: Partition, size: int, error: LogError) -> None:
        """Handle a commit that could not begin, as an index could not be written to a full disk. It is tried again soon.

        Producers get the error, as they may repeat a batch that turns out to be stored. A coordinator waits: its records stay in
        the log and will be committed, so after an error its state would differ from what the next start loads.
        """
        if not partition.log.failed:
            log.warning("%s: cannot be committed yet: %s", partition, error)
            self._loop.call_later(RETRY_S, self.appended, partition, size)
            if partition.topic.internal:
                return
        waiting = self._waiting.pop(partition, None) or ()
        for _, callback in waiting:
            self._call(partition, callback, ErrorCode.KAFKA_STORAGE_ERROR)

    def _tell(self, partition: Partition) -> None:
        """Call those whose records are committed, or never will be."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        lost = partition.log.failed or partition.deleted
        while waiting and (lost or waiting[0][0] <= partition.log.high_watermark):
            end_offset, callback = waiting.popleft()
            error = ErrorCode.NONE
            if end_offset > partition.log.high_watermark:
                error = _error(partition)
            else:
                self.commits += 1
            self._call(partition, callback, error)
        if not waiting and self._waiting.get(partition) is waiting:
            del self._waiting[partition]

    @staticmethod
    def _call(partition: Partition, callback: Callback, error: ErrorCode) -> None:
        try:
            callback(error)
        except Exception:  # a defect of ours: the others have a right to their answers
            log.exception("%s: what follows a commit failed", partition)


def _end(partition: Partition, job: FlushJob) -> None:
    try:
        partition.log.end_flush(job)
    except LogError:
        log.debug("%s: another flush failed meanwhile", partition)


def _error(partition: Partition) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition.deleted else ErrorCode.KAFKA_STORAGE_ERROR
