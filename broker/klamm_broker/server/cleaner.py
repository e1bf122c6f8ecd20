"""Schedules the log cleaner: picks the dirtiest log, hands it to the cleaner process, puts the results in place.

The cleaner is a task of the event loop and never blocks it for long. It gathers facts in slices. Threads rename,
write, force to disk and remove files; only the last renames of a finished segment run on the loop. If the log is
deleted, cut, closed, copied or given another policy during a round, the cleaner gives up the round and throws its
result away. A partition with unreadable records is left alone until the next start, as in Kafka. After a dead process
or a failing disk the cleaner tries again, with growing pauses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_base.backoff import pause
from klamm_broker.log import swap
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.cleaner import plan
from klamm_broker.log.cleaner.job import Cleaned, Done, Failed, Job, Report
from klamm_broker.log.cleaner.plan import Candidate, DirtySegment, LogFacts
from klamm_broker.log.errors import LogError, StorageError
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.txn_index import AbortedTxn
from klamm_broker.server.clean_points import CleanPoints
from klamm_broker.server.cleaner_process import CleanerProcess, ProcessEnded
from klamm_broker.server.cleaner_stats import CleanerStats, size_text

if TYPE_CHECKING:
    from klamm_broker.server.storage import Storage

log = logging.getLogger(__name__)

_SLICE: Final = 200
"""Logs to look at before the loop serves others: under a millisecond."""
_IDLE_S: Final = 60.0
_WATCH_S: Final = 0.25
"""The interval at which a round checks that it is still wanted."""
_RETRY_S_MAX: Final = 3600.0
_NEVER_MS: Final = 2**63 - 1


class _Unwanted(Exception):
    """The log has changed since the round began."""


class LogCleaner:
    """The broker's log cleaner. `Broker` starts and stops it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.stats = CleanerStats(last_run_s=time.monotonic())
        self.uncleanable: dict[TopicPartition, str] = {}
        """Partitions that are not cleaned until the next start, and why."""
        self._process = CleanerProcess()
        self._points: CleanPoints
        self._task: asyncio.Task[None] | None = None
        self._retries: dict[TopicPartition, tuple[int, float]] = {}  # failures, not before (monotonic)

    def start(self) -> None:
        """Begin to clean, unless log.cleaner.enable=false."""
        self._points = CleanPoints(self._storage.config.log_dirs)
        self._points.keep_only(self._partitions_in)
        for each in self._storage.logs:  # damage may have cut the log; new records behind the cut are dirty
            self._points.cut(each.directory.parent, (each.topic, each.partition), each.log_end_offset)
        if self._config("enable"):
            self._task = self._storage.loop.create_task(self._run())

    async def stop(self) -> None:
        """Give up the current round and end the process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._process.kill()

    def on_partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Forget these partitions. A new log of the same name is not clean."""
        for partition in partitions:
            self.uncleanable.pop(partition, None)
            self._retries.pop(partition, None)
        for directory in self._points.drop(partitions):
            self._storage.loop.run_in_executor(None, self._points.write_job(directory))

    def _config(self, name: str) -> Any:
        return self._storage.config[f"log.cleaner.{name}"]

    async def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            try:
                if await self._round():
                    idle_since = time.monotonic()
                    continue
            except (LogError, OSError):
                log.exception("the log cleaner failed; it will be tried again")
            if time.monotonic() - idle_since > _IDLE_S:
                await self._process.rest()
            await asyncio.sleep(max(self._config("backoff.ms") / 1000, 0.01))

    async def _round(self) -> bool:
        """Clean the dirtiest log, if any is dirty enough. Returns whether a log was cleaned."""
        self.stats.last_run_s = time.monotonic()
        found: dict[str, tuple[PartitionLog, Candidate]] = {}
        compacted = [p for p in self._storage.logs if p.config.compact]
        for number, partition_log in enumerate(compacted):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            candidate = self._candidate(partition_log)
            if candidate is not None:
                found[partition_log.name] = partition_log, candidate
        candidates = [candidate for _, candidate in found.values()]
        self.stats.max_dirty_percent = int(100 * max((c.ratio for c in candidates), default=0))
        self.stats.max_compaction_delay_ms = max((c.delay_ms for c in candidates), default=0)
        chosen = plan.dirtiest(candidates)
        cleaned = chosen is not None and await self._clean(found[chosen.name][0], chosen)
        await self._delete(compacted)
        return cleaned

    # Choosing a log

    def _candidate(self, partition_log: PartitionLog) -> Candidate | None:
        key = partition_log.topic, partition_log.partition
        _, not_before = self._retries.get(key, (0, 0.0))
        if not self._usable(partition_log) or key in self.uncleanable or time.monotonic() < not_before:
            return None
        facts = self._facts(partition_log)
        dirty, wrong = plan.first_dirty(facts)
        if wrong is not None:
            if not partition_log.config.delete or dirty > facts.log_end_offset:
                log.warning("%s: %s; cleaning begins at %d", partition_log.name, wrong, dirty)
            self._points.set(partition_log.directory.parent, key, dirty)
        return plan.candidate(facts, self._storage.now_ms())

    @staticmethod
    def _usable(partition_log: PartitionLog) -> bool:
        return not (partition_log.closed or partition_log.failed or partition_log.copying)

    def _facts(self, partition_log: PartitionLog) -> LogFacts:
        config = partition_log.config
        largest, first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < _NEVER_MS
        segments = partition_log.segments
        return LogFacts(
            name=partition_log.name,
            segments=[
                DirtySegment(
                    s.base_offset,
                    s.size,
                    s.largest_timestamp if largest and s is not segments[-1] else -1,
                    s.first_batch_timestamp if first and s is not segments[-1] else -1,
                )
                for s in segments
            ],
            log_start_offset=partition_log.log_start_offset,
            log_end_offset=partition_log.log_end_offset,
            last_stable_offset=partition_log.last_stable_offset,
            clean_offset=self._points.get(
                partition_log.directory.parent, (partition_log.topic, partition_log.partition)
            ),
            config=config,
        )

    # One log

    async def _clean(self, partition_log: PartitionLog, candidate: Candidate) -> bool:
        """Clean one log. Returns whether that succeeded."""
        key = partition_log.topic, partition_log.partition
        check = self._watch(partition_log)
        began, partition_log.cleaning = time.monotonic(), True
        try:
            done = await self._work(partition_log, candidate, check)
        except _Unwanted as e:
            log.info("%s: cleaning given up, %s", partition_log.name, e)
            self.stats.aborted += 1
        except (ProcessEnded, OSError, StorageError, ValueError) as e:
            self._failed(key, partition_log, e)
        else:
            if isinstance(done, Failed) and done.kind == "data":
                self.uncleanable[key] = done.reason
                log.error("%s cannot be cleaned until the next start: %s", partition_log.name, done.reason)
            elif isinstance(done, Failed):
                self._failed(key, partition_log, OSError(done.reason))
            else:
                await self._finish(partition_log, candidate, done, time.monotonic() - began)
                return True
        finally:
            partition_log.cleaning = False
        await self._process.kill()  # it may still work on the abandoned round
        await self._clear(partition_log.directory)
        return False

    async def _work(
        self, partition_log: PartitionLog, candidate: Candidate, check: Callable[[], None]
    ) -> Done | Failed:
        """Let the process clean the log, and put every segment in place. Raises _Unwanted, and what the process raises."""
        reports = self._process.work(
            self._job(partition_log, candidate),
            _last_records(partition_log, candidate.end),
            _aborted_beyond(partition_log, candidate.end),
        )
        async with contextlib.aclosing(reports):
            while True:
                report = await self._next(reports, check)
                check()
                if not isinstance(report, Cleaned):
                    return report
                await _to_its_end(self._put_in_place(partition_log, report, check))

    async def _put_in_place(
        self, partition_log: PartitionLog, cleaned: Cleaned, check: Callable[[], None]
    ) -> None:
        """Swap a finished segment in. Steps that touch many files or wait for the disk run in threads."""
        swap = partition_log.begin_swap(cleaned)
        try:
            await asyncio.to_thread(swap.prepare)
        except OSError as e:
            raise partition_log.swap_refused(e) from e
        try:
            check()
            began = time.perf_counter()
            partition_log.adopt(swap)
            self._note_swap(began)
        except (_Unwanted, StorageError):
            await asyncio.to_thread(swap.undo)
            raise
        try:
            await asyncio.to_thread(swap.retire)
            began = time.perf_counter()
            partition_log.finish_swap(swap)
            self._note_swap(began)
            await asyncio.to_thread(swap.sync)
        except OSError as e:
            raise partition_log.swap_failed(e) from e
        partition_log.end_swap(swap, self._storage.now_ms())

    def _note_swap(self, began: float) -> None:
        self.stats.longest_swap_s = max(self.stats.longest_swap_s, time.perf_counter() - began)

    async def _next(self, reports: AsyncGenerator[Report], check: Callable[[], None]) -> Report:
        """Returns the next report. Ends the process if the log changes meanwhile."""
        waiting = asyncio.ensure_future(anext(reports))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_WATCH_S)
                if not waiting.done():
                    check()
            return waiting.result()
        except BaseException:
            await self._process.kill()
            waiting.cancel()
            await asyncio.wait([waiting])
            raise

    def _watch(self, partition_log: PartitionLog) -> Callable[[], None]:
        """Returns a check that raises _Unwanted once the log has changed under the cleaner."""
        logs, truncations, directory = self._storage.logs, partition_log.truncations, partition_log.directory

        def check() -> None:
            if logs.get(partition_log.topic, partition_log.partition) is not partition_log:
                raise _Unwanted("it has been deleted")
            if not self._usable(partition_log) or partition_log.directory != directory:
                raise _Unwanted("it has been closed or moved")
            if partition_log.truncations != truncations:
                raise _Unwanted("it has been cut")
            if not partition_log.config.compact:
                raise _Unwanted("it is not to be compacted any more")

        return check

    def _job(self, partition_log: PartitionLog, candidate: Candidate) -> Job:
        config = partition_log.config
        return Job(
            directory=str(partition_log.directory.resolve()),
            segments=[
                (s.base_offset, s.size) for s in partition_log.segments if s.base_offset < candidate.end
            ],
            first_dirty=candidate.first_dirty,
            end=candidate.end,
            now_ms=self._storage.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            memory=self._config("dedupe.buffer.size"),
            load_factor=self._config("io.buffer.load.factor"),
            buffer_bytes=self._config("io.buffer.size"),
            bytes_per_s=self._config("io.max.bytes.per.second"),
        )

    # Afterwards

    async def _finish(
        self, partition_log: PartitionLog, candidate: Candidate, done: Done, seconds: float
    ) -> None:
        key, directory = (partition_log.topic, partition_log.partition), partition_log.directory.parent
        self._retries.pop(key, None)
        self._points.set(directory, key, done.clean_offset)
        self._points.keep_only(self._partitions_in)
        stats = self.stats
        stats.runs += 1
        stats.bytes_read += done.bytes_read + done.map_bytes_read
        stats.bytes_written += done.bytes_written
        stats.records_read += done.records_read
        stats.records_written += done.records_written
        stats.records_without_key += done.records_without_key
        stats.cpu_s, stats.last_duration_s = done.cpu_s, seconds
        stats.max_buffer_utilization_percent = int(100 * done.buffer_utilization)
        stats.cleaner_recopy_percent = 100 * done.bytes_written // max(done.bytes_read, 1)
        log.info(
            "%s: cleaned offsets %d to %d in %.1f s: %d of %d records and %s of %s are left",
            partition_log.name, candidate.first_dirty, done.clean_offset, seconds, done.records_written,
            done.records_read, size_text(done.bytes_written), size_text(done.bytes_read),
        )  # fmt: skip
        if done.records_without_key:
            log.warning(
                "%s: %d records without a key were removed: a compacted topic cannot keep them",
                partition_log.name, done.records_without_key,
            )  # fmt: skip
        await asyncio.to_thread(self._points.write_job(directory))

    def _partitions_in(self, directory: Path) -> set[TopicPartition]:
        return {(p.topic, p.partition) for p in self._storage.logs if p.directory.parent == directory}

    def _failed(self, key: TopicPartition, partition_log: PartitionLog, error: Exception) -> None:
        failures = self._retries.get(key, (0, 0.0))[0] + 1
        wait_s = pause(failures, first=max(self._config("backoff.ms") / 1000, 0.1), longest=_RETRY_S_MAX)
        self._retries[key] = failures, time.monotonic() + wait_s
        self.stats.crashes += isinstance(error, ProcessEnded)
        log.error(
            "%s: cleaning failed, it will be tried again in %.1f s: %s", partition_log.name, wait_s, error
        )

    @staticmethod
    async def _clear(directory: Path) -> None:
        """Remove the files that an abandoned round has written."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(swap.discard, directory)

    async def _delete(self, compacted: list[PartitionLog]) -> None:
        """Apply retention to compacted logs. Other logs get it at log.retention.check.interval.ms."""
        due: list[Path] = []
        deleted = 0
        now_ms = self._storage.now_ms()
        for number, partition_log in enumerate(compacted):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if self._usable(partition_log):
                deleted += partition_log.delete_old_segments(now_ms)
                due += partition_log.take_deleted(now_ms)
        if deleted:
            self._storage.fetch_sessions.note_log_starts()
        if due:
            await asyncio.to_thread(_unlink, due)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if this task is cancelled meanwhile: the broker stops only after that."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _last_records(partition_log: PartitionLog, end: int) -> Iterator[tuple[int, int | None, int]]:
    """Yields (producer id, last data offset, epoch) of active producers without records from `end` on."""
    for entry in list(partition_log.producers.entries.values()):
        last = entry.batches[-1].last_offset if entry.batches else None
        if last is None or last < end:
            yield entry.producer_id, last, entry.epoch


def _aborted_beyond(partition_log: PartitionLog, end: int) -> Iterator[AbortedTxn]:
    """Yields aborted transactions with records below `end` whose markers lie in segments that are not cleaned."""
    for segment in partition_log.segments:
        if segment.base_offset >= end:
            yield from segment.txn_index.overlapping(0, end)
