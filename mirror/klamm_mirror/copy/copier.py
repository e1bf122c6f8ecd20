"""Copies partitions from one cluster to the other: fetcher, sender, offset syncs and commits of one task.

`commit` gets, for each partition, the source offset of the last record up to which the target has
everything, with the id of its topic. MirrorMaker stores the same offset; the next run begins after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from klamm_kafka.client import ClientError, Cluster
from klamm_mirror.clients import ClientSettings, ProducerSettings
from klamm_mirror.copy.changes import Committed, Uncommitted
from klamm_mirror.copy.copies import Copies
from klamm_mirror.copy.exactly_once import Committer, ExactlyOnce
from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.fetcher import Fetcher
from klamm_mirror.copy.gap_keeper import GapKeeper
from klamm_mirror.copy.gap_policy import GapSettings
from klamm_mirror.copy.keeping_sender import KeepingSender
from klamm_mirror.copy.parcels import Unchanged
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.segment_writer import SegmentWriter, changed_records
from klamm_mirror.copy.sender import Sender
from klamm_mirror.copy.throttle import Throttle
from klamm_mirror.copy.transactional_sender import TransactionalSender
from klamm_mirror.offsets.syncs import SyncWriter
from klamm_mirror.origins import LeftOut
from klamm_mirror.provenance.config import ProvenanceSettings
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Batch
from klamm_mirror.stops import within

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
PROGRESS_S: Final = 0.5
COMMIT_S: Final = 2.0
DRAIN_S: Final = 2.0
SHOWN_PARTITIONS: Final = 50
PARTITIONS_BYTES, STOPS_BYTES = 5_000, 4_000
"""Parts of the details, which may have 16 KiB of JSON however long the topics' names are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopierSettings:
    """The copier's settings. `syncs` is the way to the cluster of offset syncs. `syncs_topic` None: write none."""

    source: ClientSettings
    target: ClientSettings
    syncs: ClientSettings
    producer: ProducerSettings
    fetch: FetchSettings
    gaps: GapSettings
    syncs_topic: str | None = None
    lag_max: int = 100
    segments_topic: str | None = None
    """The topic of offset segments at the target; None: write none."""
    throttle: str = ""
    """The task's shares of the flow's limits, see `throttle.Limits.share`."""
    transaction_interval_s: float = 0.1
    """The shortest time between the ends of two transactions, where there are any."""
    keep: bool = False
    """True: copies keep offsets, see `settings.keep_offsets`."""
    provenance: ProvenanceSettings | None = None
    """None: neither marks records nor looks at marks."""


class Copier:
    """Copies while `run` runs. `commit` stores offsets; an error of it ends `run`. With `once`, the transactions do."""

    def __init__(
        self,
        settings: CopierSettings,
        partitions: Sequence[MirrorPartition],
        commit: Callable[[Committed], Awaitable[None]],
        rewriter: Rewriter | Unchanged,
        once: ExactlyOnce | None = None,
    ) -> None:
        self.partitions = partitions
        self._settings = settings
        self._commit = commit
        self._rewriter = rewriter
        self._uncommitted = Uncommitted(partitions)
        self._storing = asyncio.Lock()
        self._gaps: GapKeeper | None = None
        self._fetcher: Fetcher | None = None
        self._sender: Sender | None = None
        self._syncs: SyncWriter | None = None
        self._segments: SegmentWriter | None = None
        self._once = once
        self._stopping = asyncio.Event()
        self._committer: Committer | None = None
        self._provenance: Provenance | None = None
        self._copies: Copies | None = None

    async def run(self, tick: Callable[[], bool], report: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Copies until `tick` returns False. Calls `tick` ten times a second, in this thread. `report` runs beside it."""
        async with AsyncExitStack() as stack:
            parts = [*await self._open(stack), report()]
            running = [asyncio.create_task(part) for part in parts]
            stopping = self._stopping
            # A commit waits for a target that is away; meanwhile the ticks go on, and tell of it.
            store_until = self._store_until if self._committer is None else self._committer.run
            storing = asyncio.create_task(store_until(stopping))
            try:
                while tick():
                    done, _ = await asyncio.wait(
                        [*running, storing], timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()  # they end only by an error
            finally:
                for task in running:
                    task.cancel()
                stopping.set()
                await asyncio.gather(*running, storing, return_exceptions=True)
                await self._finish(failed=sys.exc_info()[0] is not None)

    async def _store_until(self, stopping: asyncio.Event) -> None:
        """Commits every two seconds. Ends after a commit, never within one."""
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMMIT_S):
                    await stopping.wait()
                    return
            await self._store()

    async def _open(self, stack: AsyncExitStack) -> list[Any]:
        settings = self._settings

        async def cluster(client: ClientSettings) -> Cluster:
            return await stack.enter_async_context(client.cluster())

        if settings.syncs_topic is not None:
            where = await cluster(settings.syncs)
            self._syncs = SyncWriter(where, settings.syncs_topic, settings.lag_max)
        if settings.segments_topic is not None and self._once is None:
            self._segments = SegmentWriter(
                await cluster(settings.target), settings.segments_topic, self.partitions
            )
        if settings.provenance is not None:
            clients = await cluster(settings.source), await cluster(settings.target)
            self._provenance = Provenance(
                settings.provenance, *clients, topics={p.topic for p in self.partitions}
            )
        provenance = self._provenance
        common = await cluster(settings.target), self.partitions, self._on_ack, settings.producer, provenance
        meta = await cluster(settings.source)
        copies = Copies(await cluster(settings.target), meta, self.partitions) if settings.keep else None
        sender = self._sender = self._new_sender(common)
        self._copies = copies
        fetcher = self._fetcher = Fetcher(
            settings.source.cluster, meta, self.partitions, settings.fetch,
            fetched=sender.wake.set, room=sender.room, adopted=self._adopted, rewriter=self._rewriter,
            check_source=self._check_source,
            throttle=Throttle.of(settings.throttle), provenance=provenance, copies=copies,
        )  # fmt: skip
        gaps = self._gaps = GapKeeper(
            settings.gaps, self.partitions, source=meta, target=await cluster(settings.target),
            new_producer=sender.new_producer, moved=partial(setattr, sender, "stale", True), mapped=self._mapped,
            provenance=provenance,
        )  # fmt: skip
        parts = gaps, sender, self._syncs, self._segments, provenance, copies
        return [self._fetch(gaps, fetcher), *(part.run() for part in parts if part is not None)]

    def _new_sender(self, common: tuple[Any, ...]) -> Sender:
        if self._settings.keep:
            return KeepingSender(*common)
        once = self._once
        if once is None:
            return Sender(*common)
        sender = TransactionalSender(*common, producer=once.producer)
        self._committer = Committer(once, sender, self.partitions, self._settings.segments_topic)
        return sender

    async def _fetch(self, gaps: GapKeeper, fetcher: Fetcher) -> None:
        """Fetches once the ledger has said what is known of the topics."""
        await gaps.loaded.wait()
        await fetcher.run()

    async def _adopted(self, partitions: Sequence[MirrorPartition]) -> None:
        """Stores the ids of topics before their first records are copied."""
        if self._gaps is not None:
            self._gaps.learned(partitions)
        for partition in partitions:
            partition.changed()
        if self._committer is None:
            await asyncio.shield(self._store())
        else:
            await asyncio.shield(self._committer.end(self._stopping))

    async def _check_source(self, cluster_id: str | None) -> None:
        if self._gaps is not None:
            await self._gaps.check_source(cluster_id)

    def _on_ack(self, partition: MirrorPartition, batch: Batch, base: int) -> None:
        if self._committer is not None:
            self._committer.bytes += len(batch.data)
        if self._syncs is not None and base >= 0:
            self._syncs.acked(partition.topic, partition.partition, batch, base)

    async def _store(self) -> None:
        async with self._storing:
            news = self._uncommitted.news()
            # What is committed is never copied again, so its mapping must be there before.
            if news and await self._write_segments():
                await self._commit(news)
                self._uncommitted.committed(news)

    async def _mapped(self) -> bool:
        """Writes what changed of the mapping. Returns False when it must wait for the target."""
        if self._committer is not None:
            await asyncio.shield(self._committer.end(self._stopping))
            return True
        return await self._write_segments()

    async def _write_segments(self) -> bool:
        """Returns False when they must wait for the target."""
        if self._segments is None:
            changed_records(self.partitions)  # nobody wants them
            return True
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._segments.flush()
        except (ClientError, TimeoutError) as e:
            log.info("the last offset segments wait, and the commit with them: %s", str(e) or "no answer")
            return False
        return True

    async def _finish(self, *, failed: bool) -> None:
        """Waits a moment for the answers to what was sent, and stores what is acknowledged.

        `failed`: an error ends the copying. A transaction is then left to the next start, which aborts it.
        """
        if self._sender is not None:
            await self._sender.drain(DRAIN_S)
        try:
            if self._syncs is not None:
                async with asyncio.timeout(DRAIN_S):
                    await self._syncs.flush()
        except (ClientError, TimeoutError) as e:
            log.warning("the last offset syncs could not be written: %s", str(e) or "no answer in time")
        if self._committer is None:
            await self._store()
        elif not failed:
            await self._committer.finish()

    # ---- figures

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def lag(self) -> int | None:
        """Records behind the source; None while that of a partition that runs, or of all, is not known."""
        lags = [lag for p in self.partitions if (lag := p.lag) is not None or p.stopped is None]
        unknown = None in lags or (not lags and bool(self.partitions))
        return None if unknown else sum(lag or 0 for lag in lags)

    def gap_records(self) -> Mapping[tuple[str, int], int]:
        """Returns how many offsets the ledger says are missing, by topic and partition."""
        return {} if self._gaps is None else self._gaps.gap_records()

    def waiting_for(self, lag: int | None) -> str | None:
        """Returns `target` or `source` for a cluster that does not answer properly, `input` when everything is copied."""
        gaps, sender, fetcher = self._gaps, self._sender, self._fetcher
        if (
            (gaps and gaps.why)
            or (sender and sender.why)
            or (self._committer and self._committer.why)
            or (self._provenance and self._provenance.why)
            or (self._copies and self._copies.why)
            or any(p.writing.why and not p.stopped for p in self.partitions)
        ):
            return "target"
        if (fetcher and fetcher.why) or any(p.reading.why and not p.stopped for p in self.partitions):
            return "source"
        if self.partitions and all(p.stopped for p in self.partitions):
            return "resolve"
        return None if lag else "input"

    @property
    def left_out(self) -> Mapping[LeftOut, int]:
        """The number of batches that were not copied because of their origin."""
        return {} if self._fetcher is None else self._fetcher.counts.left_out

    def details(self, lag: int | None) -> Mapping[str, Any]:
        """Returns sums for the task's status, and the partitions that are furthest behind."""
        by_lag = self.partitions if lag == 0 else sorted(self.partitions, key=lambda p: -(p.lag or 0))
        counts = self._fetcher.counts if self._fetcher is not None else None
        parts = self._gaps, self._sender, self._committer, self._fetcher, self._provenance, self._copies
        reasons = [part.why for part in parts if part is not None]
        reasons += [w for p in self.partitions if not p.stopped for w in (p.writing.why, p.reading.why)]
        found: dict[str, Any] = {
            "bytes": sum(p.bytes for p in self.partitions),
            "batches_passed": counts.passed if counts else 0,
            "batches_reencoded": counts.reencoded if counts else 0,
            "batches_recompressed": counts.recompressed if counts else 0,
            "batches_split": sum(p.splits for p in self.partitions),
            "records_filtered": self._rewriter.filtered,
            **{f"batches_{why.name.lower()}": n for why, n in self.left_out.items() if n},
            **({"transactions": self._committer.transactions} if self._committer else {}),
            "offset_syncs": self._syncs.written if self._syncs is not None else 0,
            "offsets_purged_at_source": sum(p.purged for p in self.partitions),
            "partitions": within({str(p): _figures(p) for p in by_lag[:SHOWN_PARTITIONS]}, PARTITIONS_BYTES),
        }
        why = next((r for r in reasons if r), None) or (self._syncs.why if self._syncs else None)
        if why:
            found["why"] = why[:300]
        held = sorted({p.topic for p in self.partitions if p.held_by and p.lag})
        if held:
            found["throttled"] = held[:10]
        promoted = sorted({p.topic for p in self.partitions if p.promoted})
        if promoted:
            found["promoted"] = promoted[:SHOWN_PARTITIONS]
        stopped = {str(p): p.stopped.as_json() for p in self.partitions if p.stopped}
        if stopped:
            found["stopped"] = within(stopped, STOPS_BYTES)
            found["stopped_partitions"] = len(stopped)
            found["degraded"] = _degraded(stopped)
        if self._gaps is not None and (gaps := self._gaps.details()):
            found["gaps"] = gaps
        return found


def _degraded(stopped: Mapping[str, Mapping[str, Any]]) -> str:
    """Says in a sentence which partitions are stopped."""
    name, first = next(iter(stopped.items()))
    others = len(stopped) - 1
    more = (
        "" if not others else " and one more partition" if others == 1 else f" and {others} more partitions"
    )
    return f"{name}{more} stopped: {first['why']}"


def _figures(partition: MirrorPartition) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "offset": partition.done, "lag": partition.lag, "latency_ms": partition.latency_ms,
    }  # fmt: skip
    if partition.purged:
        figures["purged"] = partition.purged
    return figures
