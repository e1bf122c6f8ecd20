"""The task of MirrorSource: an event loop in the task's thread that copies its partitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from klamm_base.freed_memory import keep_freed
from klamm_kafka.client import TransactionFailed
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.copy.changes import Committed
from klamm_mirror.copy.copier import PROGRESS_S, Copier, CopierSettings
from klamm_mirror.copy.copies import BeginAgain
from klamm_mirror.copy.fetch_size import UNDER_WAY_BYTES
from klamm_mirror.copy.parcels import Unchanged
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.schema_rewrite import SchemaRewriter
from klamm_mirror.copy.source_offsets import Position, has_begun, source_partition
from klamm_mirror.copy.start_offset import start_of
from klamm_mirror.metrics.tables import Pace
from klamm_mirror.origins import LeftOut
from klamm_mirror.schemas.translation import Translation
from klamm_mirror.settings.keep_offsets import check_pipeline
from klamm_mirror.source.beginning import TransactionalBeginning
from klamm_mirror.source.config import Settings, parse
from klamm_mirror.source.reporting import Reported, report_idle, report_on
from klamm_mirror.source.upkeep import upkeep_of
from klamm_mirror.upkeep import Upkeep
from klamm_plugins.connector import DriverTask
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

SETTLE_S: Final = 2.0
SETTLE_STEP_S: Final = 0.05
RETRY_S: Final = 0.5
KEPT_BYTES: Final = UNDER_WAY_BYTES
"""Freed memory that the task's process keeps: an answer, the batches made of it, and the next answer come and go together."""
SAYING_SHARE: Final = 0.01
"""The share of the time that the task's status may take, however many partitions there are."""


class MirrorSourceTask(DriverTask):
    """A task that continues after each partition's committed offset, or from the source's beginning."""

    kafka_name = "org.apache.kafka.connect.mirror.MirrorSourceTask"

    def __init__(self) -> None:
        self._alias = self._target = ""
        self._partitions: list[MirrorPartition] = []
        self._settings: CopierSettings | None = None
        self._found_later: frozenset[str] = frozenset()
        self._rewriter: Rewriter | Unchanged | None = None
        self._before = 0
        self._saying = Pace(PROGRESS_S, SAYING_SHARE)
        self._missing: Mapping[tuple[str, int], int] = {}
        """The records in gaps, by topic and partition."""
        self._beginning: TransactionalBeginning | None = None
        self._left_out: Mapping[LeftOut, int] = {}
        self._upkeep: list[Upkeep] = []
        self._update: Mapping[str, str] | None = None
        """Changed settings that the task has not taken yet."""

    def start(self, props: Mapping[str, str]) -> None:
        settings = parse(props)
        keep_freed(KEPT_BYTES)
        self._alias, self._target = settings.source_alias, settings.target_alias
        self._settings = settings.copier
        self._found_later = settings.found_later
        self._partitions = [_new(place, whole=settings.copier.keep) for place in settings.partitions]
        if settings.copier.keep:
            check_pipeline(self.context.record_pipeline())
            self._rewriter = Unchanged()
        else:
            self._rewriter = Rewriter(
                self._alias, settings.copier.producer, self.context.record_pipeline(),
                _schemas_of(settings),
            )  # fmt: skip
        # Copies that keep offsets are exact without a transaction: they say themselves how far they are.
        if self.context.transactions is None or settings.copier.keep:
            self._resume()
        else:  # no offset is read before the producer has fenced its predecessors
            self._beginning = TransactionalBeginning(self.context, settings.copier)
        self.context.use_topics(sorted({p.remote for p in self._partitions}))
        self._start_upkeep(settings)

    def _start_upkeep(self, settings: Settings) -> None:
        for work in self._upkeep:
            work.stop()
        self._upkeep = upkeep_of(settings)
        for work in self._upkeep:
            work.start()

    def run(self) -> None:
        while self._partitions and not self.context.stopping.is_set():
            try:
                asyncio.run(self._copy())
            except (TransactionFailed, BeginAgain) as e:
                what = "the copies' ends" if isinstance(e, BeginAgain) else "the committed offsets"
                log.warning("going on at %s: %s", what, e)
                if self._beginning is not None:
                    self._beginning.after = str(e)
                self.context.wait(RETRY_S)
                self._restart()
            if self.context.paused:
                report_idle(self._figures(), self.context.metrics)
                self._pause_upkeep(True)
                self.context.stay_paused()
                self._pause_upkeep(False)
                self._restart()
            if self._update is not None:
                self._take_update(self._update)

    async def _copy(self) -> None:
        assert self._settings is not None, "started"
        assert self._rewriter is not None
        async with AsyncExitStack() as stack:
            once = None
            if self._beginning is not None:
                once = await self._beginning.begin(stack, self._offsets, self._settle, self._before)
                if once is None:
                    return
                await asyncio.to_thread(self._resume)
            copier = Copier(self._settings, self._partitions, self._commit, self._rewriter, once)
            report = partial(report_on, lambda: self._figures(copier), self.context.metrics)
            await copier.run(lambda: self._tick(copier), report)
            self._say(copier)

    def stop(self) -> None:
        if isinstance(self._rewriter, Rewriter):
            self._rewriter.close()
        for work in self._upkeep:
            work.stop()

    def _pause_upkeep(self, paused: bool) -> None:
        for work in self._upkeep:
            work.paused = paused

    def _tick(self, copier: Copier) -> bool:
        if self._saying.due(time.monotonic()):
            self._say(copier)
        self._update = self.context.take_update() or self._update
        return not self.context.stopping.is_set() and not self.context.paused and self._update is None

    def _say(self, copier: Copier) -> None:
        began, lag = time.thread_time(), copier.lag
        records = self._before + copier.records
        details = {**copier.details(lag), **{work.name: work.details() for work in self._upkeep}}
        self.context.progress(records, lag=lag, waiting_for=copier.waiting_for(lag), details=details)
        now = time.monotonic()
        self._saying.took(now - (time.thread_time() - began), now)

    def _figures(self, copier: Copier | None = None) -> Reported:
        """Returns what to report; without a copier, gaps and batches that were left out are those of before."""
        if copier is not None:
            self._missing, self._left_out = copier.gap_records(), copier.left_out
        return Reported(
            flow=(self._alias, self._target), partitions=self._partitions, upkeep=self._upkeep,
            missing=self._missing, left_out=self._left_out,
        )  # fmt: skip

    def _offsets(self, committed: Committed) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Returns Connect's partitions and offsets."""
        return [(source_partition(self._alias, p.topic, p.partition), here.encode()) for p, here in committed]

    async def _commit(self, committed: Committed) -> None:
        await self._settle()
        await asyncio.to_thread(self.context.commit, self._offsets(committed))

    async def _settle(self) -> None:
        """Waits until dead letters are stored: the offsets behind bad records may be committed only then."""
        assert self._rewriter is not None, "started"
        pipeline, until = self._rewriter.pipeline, None
        while pipeline is not None and not pipeline.settle(0):
            if self.context.stopping.is_set():
                until = until or time.monotonic() + SETTLE_S
                if time.monotonic() >= until:
                    raise ConnectError("dead letters were not stored before the task had to stop")
            await asyncio.sleep(SETTLE_STEP_S)

    def _resume(self) -> None:
        """Continues after the committed offsets."""
        asked = [source_partition(self._alias, p.topic, p.partition) for p in self._partitions]
        for partition, offset in zip(self._partitions, self.context.offsets(asked), strict=True):
            if offset is not None:
                partition.resume(Position.decode(offset))
                if partition.whole:
                    partition.position = -1  # the copy knows better
        self._set_starts()

    def _set_starts(self) -> None:
        """Says where partitions without a committed offset begin."""
        assert self._settings is not None, "started"
        start, new = self._settings.fetch.start, [p for p in self._partitions if p.position < 0]
        if start == EARLIEST or not new:
            return
        topics = sorted({p.topic for p in new})
        first = self.context.offsets([source_partition(self._alias, topic, 0) for topic in topics])
        committed = {t: o is not None and has_begun(o) for t, o in zip(topics, first, strict=True)}
        for p in new:
            p.start = start_of(
                p.topic, p.partition, start, found_later=self._found_later, committed=committed
            )

    def _restart(self) -> None:
        """Forgets, after a pause, what was fetched and not acknowledged, and resumes."""
        self._before += sum(p.records for p in self._partitions)
        self._partitions = [_again(p) for p in self._partitions]
        if self._beginning is None:
            self._resume()

    def _take_update(self, props: Mapping[str, str]) -> None:
        """Goes on with changed settings and partitions, where each partition was."""
        settings, known = parse(props), {(p.topic, p.partition): p for p in self._partitions}
        self._update, self._settings, self._found_later = None, settings.copier, settings.found_later
        self._before += sum(p.records for p in self._partitions)
        self._partitions = [
            _new(place, whole=settings.copier.keep) if (p := known.get(place[:2])) is None else _again(p)
            for place in settings.partitions
        ]
        self.context.use_topics(sorted({p.remote for p in self._partitions}))
        if self._beginning is None:
            self._resume()
        if isinstance(self._rewriter, Rewriter):
            self._rewriter.take(_schemas_of(settings))  # it knows the topics
        self._start_upkeep(settings)
        log.info("%d partitions go on with changed settings", len(self._partitions))


def _schemas_of(settings: Settings) -> SchemaRewriter | None:
    return None if settings.translation is None else SchemaRewriter(Translation(settings.translation))


def _new(place: tuple[str, int, str], *, whole: bool) -> MirrorPartition:
    topic, partition, remote = place
    return MirrorPartition(topic=topic, partition=partition, remote=remote, named=remote, whole=whole)


def _again(p: MirrorPartition) -> MirrorPartition:
    """Returns the partition without what was fetched and not acknowledged."""
    return MirrorPartition(
        topic=p.topic, partition=p.partition, remote=p.named, named=p.named, whole=p.whole, sensors=p.sensors,
        trend=p.trend, heard_ms=p.heard_ms, even_ms=p.even_ms, last_ms=p.last_ms, purged=p.purged,
        writing=p.writing, scarce=p.scarce, joins_at=p.joins_at,
    )  # fmt: skip
