"""Fetches from the source's leaders for a task: keeps lanes to the brokers, and the metadata.

The fetcher waits for a broker that is away. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster
from klamm_mirror.copy.fetch_lane import LOOK_S, FetchLane
from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.intake import Intake
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import NO_BROKER, SourceMetadata
from klamm_mirror.copy.throttle import Throttle
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Counts

log = logging.getLogger(__name__)

BUFFER_BYTES: Final = 64 << 20
"""Bytes that a task may hold, fetched and not acknowledged, before it stops fetching."""


class Fetcher:
    """Fetches for a task's partitions.

    `data` is a client of the source that is used for fetches only, because they wait at the broker; `meta` is
    another for questions. `adopted` stores the topic ids of partitions that had none, before they are fetched.
    `throttle` holds partitions back. `rewriter` changes records. `provenance` decides which batches are copied; None: all.
    """

    def __init__(
        self, data: Cluster, meta: Cluster, partitions: Sequence[MirrorPartition], settings: FetchSettings,
        *, fetched: Callable[[], None], room: asyncio.Event,
        adopted: Callable[[Sequence[MirrorPartition]], Awaitable[None]],
        rewriter: Rewriter, throttle: Throttle, provenance: Provenance | None = None,
    ) -> None:  # fmt: skip
        self._data = data
        self._meta = meta
        self._partitions = {p.key: p for p in partitions}
        self._settings = settings
        self._fetched = fetched
        self._room = room
        self._adopted = adopted
        self._throttle = throttle
        self._metadata = SourceMetadata()
        self._check = SourceCheck(meta, partitions)
        self._intake = Intake(
            settings, self._metadata, self._check, rewriter=rewriter, throttle=throttle, provenance=provenance
        )
        self._why: str | None = None
        self._asked_at = 0.0
        self._asking = Backoff()
        self._seen_changes = 0
        self._lanes: dict[int, FetchLane] = {}
        self._running: dict[FetchLane, asyncio.Task[None]] = {}

    @property
    def why(self) -> str | None:
        """The reason that the source cannot be read."""
        reasons = (lane.why for lane in self._lanes.values() if lane.partitions)
        return self._why or next((why for why in reasons if why), None)

    @property
    def counts(self) -> Counts:
        return self._intake.counts

    async def run(self) -> None:
        """Fetches until cancelled. Raises ConnectError for an error that a repetition cannot cure."""
        try:
            while True:
                now = time.monotonic()
                old = now - self._asked_at > self._settings.metadata_s
                if (self._metadata.stale or old) and now >= self._asking.until:
                    await self._find_leaders()
                if self._seen_changes != self._metadata.changes:
                    self._share_out()
                for lane, running in list(self._running.items()):
                    if running.done():
                        await self._ended(lane, running)
                await asyncio.sleep(LOOK_S)
        finally:
            for running in self._running.values():
                running.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            await asyncio.gather(*(lane.close(self._meta) for lane in self._lanes.values()))

    # ---- lanes

    def _share_out(self) -> None:
        """Gives partitions to the lanes to their brokers, and makes lanes that are missing."""
        self._seen_changes = self._metadata.changes
        shares: dict[int, dict[tuple[str, int], MirrorPartition]] = {node: {} for node in self._lanes}
        for key, partition in self._partitions.items():
            if (node := self._metadata.broker(key)) != NO_BROKER:
                shares.setdefault(node, {})[key] = partition
        for node, share in shares.items():
            lane = self._lanes.get(node) or self._open(node)
            lane.partitions = share
            if lane not in self._running:
                self._running[lane] = asyncio.create_task(lane.run())

    def _open(self, node: int) -> FetchLane:
        lane = self._lanes[node] = FetchLane(
            node, self._data, self._settings, self._metadata,
            check=self._check, intake=self._intake, throttle=self._throttle,
            may_fetch=self._may_fetch, fetched=self._fetched, room=self._room,
        )  # fmt: skip
        return lane

    async def _ended(self, lane: FetchLane, running: asyncio.Task[None]) -> None:
        running.result()
        del self._running[lane]
        if lane.partitions:  # it got a share at the moment when it had none
            self._running[lane] = asyncio.create_task(lane.run())
        else:
            del self._lanes[lane.node]
            await lane.close(self._meta)

    def _may_fetch(self) -> bool:
        return sum(p.buffered for p in self._partitions.values()) < BUFFER_BYTES

    # ---- metadata

    async def _find_leaders(self) -> None:
        try:
            answer = await self._meta.refresh(sorted({topic for topic, _ in self._partitions}))
        except ClientError as e:
            if self._why is None:
                log.warning("waiting for the source cluster: %s", e)
            self._why = str(e)
            self._asking.failed(time.monotonic(), str(e))
            return
        self._asked_at = time.monotonic()
        self._data.brokers = dict(self._meta.brokers)
        adopted = [p for t in answer.topics for p in self._check.identify(t, self._asked_at)]
        if adopted:
            await self._adopted(adopted)
        self._metadata.learn(answer)
        missing = [
            str(p) for key, p in self._partitions.items()
            if self._metadata.broker(key) == NO_BROKER and not p.stopped and not p.gone
        ]  # fmt: skip
        if missing:
            self._why = f"{missing[0]} has no leader at the source"
            self._metadata.stale = True
            self._asking.failed(time.monotonic(), self._why)
        else:
            self._why = None
            self._asking.succeeded()
