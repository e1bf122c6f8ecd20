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
from klamm_base.version import __version__
from klamm_kafka.client import ClientError, Cluster, Connection
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_mirror.copy.copies import Copies
from klamm_mirror.copy.fetch_lane import LOOK_S, FetchLane, unreadable_source
from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.fetch_size import NEAR_S, lanes_for
from klamm_mirror.copy.intake import Intake
from klamm_mirror.copy.parcels import Unchanged
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import NO_BROKER, SourceMetadata
from klamm_mirror.copy.throttle import Throttle
from klamm_mirror.gaps.source_cluster import OtherSource
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Counts

log = logging.getLogger(__name__)

BUFFER_BYTES: Final = 64 << 20
"""Bytes that a task may hold, fetched and not acknowledged, before it stops fetching."""

LOOKS: Final = 4
"""Further answers that a broker gives which seems to be far. A long line costs them at the start."""


class Fetcher:
    """Fetches for a task's partitions.

    `connect` makes a client of the source, for fetches only, because they wait at the broker; `meta` is another for
    questions. `adopted` stores the topic ids of partitions that had none, before they are fetched. `check_source` raises
    OtherSource for a cluster that is another one than before.
    `throttle` holds partitions back. `rewriter` changes records. `provenance` decides which batches are copied; None: all.
    `copies` say where partitions go on whose copies keep offsets; None: their committed offsets do.
    """

    def __init__(
        self, connect: Callable[[], Cluster], meta: Cluster, partitions: Sequence[MirrorPartition], settings: FetchSettings,
        *, fetched: Callable[[], None], room: asyncio.Event,
        adopted: Callable[[Sequence[MirrorPartition]], Awaitable[None]],
        check_source: Callable[[str | None], Awaitable[None]],
        rewriter: Rewriter | Unchanged, throttle: Throttle, provenance: Provenance | None = None,
        copies: Copies | None = None,
    ) -> None:  # fmt: skip
        self._connect = connect
        self._clients: list[Cluster] = []
        """The clients of the lanes: each broker's first lane has the first client, and so on."""
        self._meta = meta
        self._partitions = {p.key: p for p in partitions}
        self._settings = settings
        self._fetched = fetched
        self._room = room
        self._adopted = adopted
        self._check_source = check_source
        self._throttle = throttle
        self._metadata = SourceMetadata(settings.nearest_s)
        self._check = SourceCheck(meta, partitions)
        self._intake = Intake(
            settings, self._metadata, self._check,
            rewriter=rewriter, throttle=throttle, provenance=provenance, copies=copies,
        )  # fmt: skip
        self._why: str | None = None
        self._asked_at = 0.0
        self._asking = Backoff()
        self._seen_changes = 0
        self._lanes: dict[int, list[FetchLane]] = {}
        self._round_trips: dict[int, float] = {}
        """The brokers that were reached, and the seconds that it took them to answer."""
        self._reaching: dict[int, asyncio.Task[None]] = {}
        self._away: dict[int, str] = {}
        """The reasons that brokers could not be reached yet."""
        self._running: dict[FetchLane, asyncio.Task[None]] = {}

    @property
    def why(self) -> str | None:
        """The reason that the source cannot be read."""
        lanes = (lane.why for lanes in self._lanes.values() for lane in lanes if lane.partitions)
        return next((why for why in (self._why, *self._away.values(), *lanes) if why), None)

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
                await self._look_after()
                if self._seen_changes != self._metadata.changes:
                    self._share_out()
                await asyncio.sleep(LOOK_S)
        finally:
            tasks = [*self._running.values(), *self._reaching.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(
                *(lane.close(self._meta) for lanes in self._lanes.values() for lane in lanes)
            )
            await asyncio.gather(*(client.close() for client in self._clients))

    # ---- lanes

    def _share_out(self) -> None:
        """Gives partitions to the lanes to their brokers. A broker gets its lanes once it was reached."""
        self._seen_changes = self._metadata.changes
        shares: dict[int, list[MirrorPartition]] = {node: [] for node in self._lanes}
        for key, partition in self._partitions.items():
            if (node := self._metadata.broker(key)) != NO_BROKER:
                shares.setdefault(node, []).append(partition)
        for node, share in shares.items():
            if node in self._round_trips:
                self._spread(node, share)
            elif node not in self._reaching:
                self._reaching[node] = asyncio.create_task(self._reach(node))
        count = sum(len(lanes) for lanes in self._lanes.values())
        for node, lanes in self._lanes.items():
            far = self._round_trips[node] >= NEAR_S
            for lane in lanes:
                lane.size.fit(lanes=count, share=len(lane.partitions), far=far)
                if lane not in self._running and lane.partitions:
                    self._running[lane] = asyncio.create_task(lane.run())

    def _spread(self, node: int, share: Sequence[MirrorPartition]) -> None:
        """Gives each partition to the lane that has it already, or to the one with the fewest."""
        lanes = self._lanes.setdefault(node, [])
        while len(lanes) < lanes_for(self._round_trips[node], len(share)):
            lanes.append(self._open(node, len(lanes)))
        stay = {p.key for p in share}
        for lane in lanes:
            lane.partitions = {key: p for key, p in lane.partitions.items() if key in stay}
        known = {key for lane in lanes for key in lane.partitions}
        for partition in share:
            if partition.key not in known:
                min(lanes, key=lambda lane: len(lane.partitions)).partitions[partition.key] = partition

    async def _reach(self, node: int) -> None:
        """Learns how far a broker is."""
        away = Backoff()
        while node in self._metadata.brokers.values():
            try:
                self._round_trips[node] = await round_trip_s(await self._client(0).broker(node))
            except ClientError as e:
                if not e.retriable:
                    raise unreadable_source(e) from None
                if away.why is None:
                    log.warning("waiting for broker %d of the source: %s", node, e)
                self._away[node], self._metadata.stale = str(e), True
                await asyncio.sleep(away.failed(time.monotonic(), str(e)))
            else:
                self._share_out()
                break
        self._away.pop(node, None)

    def _client(self, index: int) -> Cluster:
        while len(self._clients) <= index:
            client = self._connect()
            client.brokers = dict(self._meta.brokers)
            self._clients.append(client)
        return self._clients[index]

    def _open(self, node: int, index: int) -> FetchLane:
        return FetchLane(
            node, self._client(index), self._settings, self._metadata,
            check=self._check, intake=self._intake, throttle=self._throttle,
            may_fetch=self._may_fetch, fetched=self._fetched, room=self._room,
        )  # fmt: skip

    async def _look_after(self) -> None:
        """Notes what has ended. Raises its error."""
        for node, reaching in list(self._reaching.items()):
            if reaching.done():
                del self._reaching[node]
                reaching.result()
        ended: list[FetchLane] = []
        for lane, running in list(self._running.items()):
            if running.done():
                del self._running[lane]
                running.result()
                if lane.partitions:  # it got a share at the moment when it had none
                    self._running[lane] = asyncio.create_task(lane.run())
                else:
                    ended.append(lane)
        await asyncio.gather(*(lane.close(self._meta) for lane in ended))
        for node, lanes in list(self._lanes.items()):
            if not any(lane in self._running for lane in lanes):
                del self._lanes[node], self._round_trips[node]

    def _may_fetch(self) -> bool:
        return sum(p.buffered for p in self._partitions.values()) < BUFFER_BYTES

    # ---- metadata

    async def _find_leaders(self) -> None:
        try:
            answer = await self._meta.refresh(sorted({topic for topic, _ in self._partitions}))
            await self._check_source(answer.cluster_id)
        except ClientError as e:
            if isinstance(e, OtherSource):
                self._metadata.forget()
            if self._why is None:
                log.warning("waiting for the source cluster: %s", e)
            self._why = str(e)
            self._asking.failed(time.monotonic(), str(e))
            return
        self._asked_at = time.monotonic()
        for client in self._clients:
            client.brokers = dict(self._meta.brokers)
        adopted = [p for t in answer.topics for p in self._check.identify(t, self._asked_at)]
        if adopted:
            await self._adopted(adopted)
        self._metadata.learn(answer, self._asked_at)
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


async def round_trip_s(connection: Connection) -> float:
    """Returns how far a broker is: the quickest of some answers, as a near one that is busy may be slow with a single one."""
    quickest = connection.round_trip_s
    for _ in range(LOOKS):
        if quickest < NEAR_S:
            break
        asked_at = time.monotonic()
        await connection.request(
            ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        )
        quickest = min(quickest, time.monotonic() - asked_at)
    return quickest
