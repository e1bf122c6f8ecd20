"""A lane of fetches: one connection to a broker of the source, with a fetch session and a share of its partitions.

A lane has one request under way at a time, a long poll. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster, Connection, RequestTimedOut, broker_error
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.fetch import FetchRequest, FetchResponse
from klamm_mirror.copy.fetch_session import SESSION_ERRORS, Asked, FetchSessionHandler
from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.fetch_size import FetchSize
from klamm_mirror.copy.intake import MOVED, Intake
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_check import SourceCheck
from klamm_mirror.copy.source_metadata import Key, SourceMetadata
from klamm_mirror.copy.throttle import Throttle
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

BUSY_WAIT_MS: Final = 20
"""The shortest wait of a fetch, for one that leaves out full partitions: they may have room soon."""
LOOK_S: Final = 0.1
HEARD_MS: Final = 250
"""The time after which an answer counts as one for partitions that it does not name, too: not each, as they are many."""
CLOSE_S: Final = 1.0
"""The time for the end of a session. A broker that does not hear of it forgets the session by itself."""
_IDS_VERSION: Final = 13


class FetchLane:
    """A lane to one broker. `data` is a client of the source that no other lane to this broker uses.

    `partitions` is its share, which may change at any time. `may_fetch` is False while enough is buffered. `fetched` is
    called after each answer, `room` is set when the target has acknowledged something.
    """

    def __init__(
        self, node: int, data: Cluster, settings: FetchSettings, metadata: SourceMetadata,
        *, check: SourceCheck, intake: Intake, throttle: Throttle,
        may_fetch: Callable[[], bool], fetched: Callable[[], None], room: asyncio.Event,
    ) -> None:  # fmt: skip
        self.node = node
        self.partitions: dict[Key, MirrorPartition] = {}
        self.size = FetchSize(settings)
        self.why: str | None = None
        """The reason that the broker cannot be read from."""
        self._data = data
        self._settings = settings
        self._metadata = metadata
        self._check = check
        self._intake = intake
        self._throttle = throttle
        self._may_fetch = may_fetch
        self._fetched = fetched
        self._room = room
        self._session = FetchSessionHandler()
        self._heard_ms = 0

    async def run(self) -> None:
        """Fetches while there is a share. Raises ConnectError for an error that a repetition cannot cure."""
        away = Backoff()
        while self.partitions:
            try:
                if not await self._fetch():
                    self.why = None
                    await self._wait_for_room()
                away.succeeded()
            except ClientError as e:
                self._session.begin_anew()
                if isinstance(e, RequestTimedOut):
                    self.size.took(self.size.max_bytes, math.inf)
                if not e.retriable:
                    raise unreadable_source(e) from None
                if away.why is None:
                    log.warning("waiting for broker %d of the source: %s", self.node, e)
                self.why, self._metadata.stale = str(e), True
                await asyncio.sleep(away.failed(time.monotonic(), str(e)))

    async def close(self, meta: Cluster) -> None:
        """Ends the session by another client, as an answer may still be due in the lane's own."""
        request = self._session.close()
        if request is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                connection = await meta.broker(self.node)
                await connection.request(request)
        except (ClientError, TimeoutError) as e:
            log.debug("broker %d keeps fetch session %d: %s", self.node, request.session_id, e)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(LOOK_S):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _fetch(self) -> bool:
        """Asks once for all partitions that want records. Returns False when none does."""
        now = time.monotonic()
        ours = self._ours(now)
        if not self._may_fetch():
            return False
        full = self.size.buffer_bytes
        wanted = [p for p in ours if p.held_by is None and p.buffered < full and now >= p.reading.until]
        if new := [p for p in wanted if p.position < 0]:
            await self._intake.begin(new)
            wanted = [p for p in wanted if p.position >= 0]
        if not wanted:
            return False
        connection = await self._data.broker(self.node)
        fit = await self._check.validate(connection, wanted, self._metadata)
        self._metadata.stale = self._metadata.stale or len(fit) < len(wanted)
        if fit:
            await self._ask(connection, fit, self._patience_ms(ours, fit))
        return True

    def _ours(self, now: float) -> list[MirrorPartition]:
        """Returns the partitions of the share that may be read from this broker."""
        brokers, ids, node = self._metadata.brokers, self._metadata.ids, self.node
        ours = [
            p for key, p in self.partitions.items()
            if brokers.get(key) == node and not (p.stopped or p.promoted) and ids.get(p.topic, p.topic_id) == p.topic_id
        ]  # fmt: skip
        if self._throttle.active:  # this runs for thousands of partitions, hundreds of times a second
            for partition in ours:
                partition.held_by = self._throttle.held_by(partition.topic, now)
        return ours

    def _patience_ms(self, ours: Sequence[MirrorPartition], wanted: Sequence[MirrorPartition]) -> int:
        """Returns how long a broker may wait for records, ms: not beyond the time when others may be read again."""
        if len(wanted) == len(ours):
            return self._settings.wait_ms
        now, asked = time.monotonic(), set(wanted)
        others = [p for p in ours if p not in asked]
        waits = [p.reading.until - now for p in others if p.held_by is None]  # a full one may have room now
        if held := [p.topic for p in others if p.held_by is not None]:
            waits.append(self._throttle.wait_s(held, now))
        return min(max(int(min(waits) * 1000), BUSY_WAIT_MS), self._settings.wait_ms)

    async def _ask(self, connection: Connection, wanted: Sequence[MirrorPartition], wait_ms: int) -> None:
        version = connection.version_for(FetchRequest)
        if version >= _IDS_VERSION and not self._metadata.has_ids:
            version = _IDS_VERSION - 1
        now, settings = time.monotonic(), self._settings
        request = self._session.build(self._asked(wanted, now), uses_ids=version >= _IDS_VERSION)
        request.max_wait_ms, request.min_bytes = wait_ms, settings.min_bytes
        request.max_bytes = self._throttle.flow_bytes(now, self.size.max_bytes)
        request.isolation_level, request.rack_id = int(settings.committed_only), settings.rack
        answer: FetchResponse = await connection.request(
            request, version, timeout_s=settings.wait_ms / 1000 + settings.answer_s
        )
        if self._session.handle_response(answer):
            self.why = None
            self.size.took(_bytes(answer), time.monotonic() - now)
            await self._take(answer, wanted)
        elif answer.error_code not in {0, *SESSION_ERRORS}:
            await self._refused(answer.error_code)

    def _asked(self, wanted: Sequence[MirrorPartition], now: float) -> Mapping[Key, Asked]:
        ids, epochs, most = self._metadata.ids, self._metadata.epochs, self.size.partition_bytes
        if not self._throttle.active:
            return {
                (key := p.key): (ids.get(p.topic, UUID_ZERO), p.position, epochs.get(key, -1), most)
                for p in wanted
            }
        each = {
            topic: self._throttle.topic_bytes(topic, count, now, most)
            for topic, count in Counter(p.topic for p in wanted).items()
        }
        return {
            p.key: (ids.get(p.topic, UUID_ZERO), p.position, epochs.get(p.key, -1), each[p.topic])
            for p in wanted
        }

    async def _refused(self, code: int) -> None:
        error = broker_error(code, "fetching from the source")
        if code not in MOVED and not error.retriable:
            raise error
        self._metadata.stale = True
        await asyncio.sleep(LOOK_S)

    async def _take(self, answer: FetchResponse, wanted: Sequence[MirrorPartition]) -> None:
        """Takes an answer. Partitions that it does not name have no news."""
        now_ms = time.time_ns() // 1_000_000
        for topic in answer.responses:
            name = self._session.name_of(topic)
            for data in topic.partitions:
                partition = self.partitions.get((name, data.partition_index))
                if (
                    partition is not None
                    and self._is_due(partition)
                    and await self._intake.take(partition, data)
                ):
                    self._rotate(partition)
        if now_ms - self._heard_ms >= HEARD_MS:
            self._heard_ms = now_ms
            for partition in wanted:
                if partition.heard_ms < now_ms and partition.reading.why is None:
                    partition.heard(now_ms)
        self._fetched()
        await asyncio.sleep(0)  # the sender goes first: the next request looks at all partitions

    def _is_due(self, partition: MirrorPartition) -> bool:
        """Returns False for an answer from before the partition went on at another offset, or in another topic."""
        asked = self._session.asked(partition.key)
        return (
            asked is not None
            and asked[1] == partition.position
            and (partition.topic_id is None or asked[0] in {UUID_ZERO, partition.topic_id})
        )

    def _rotate(self, partition: MirrorPartition) -> None:
        """Puts a partition that got bytes behind the others: a full request's bytes go to the first that it names."""
        if self.partitions.pop(partition.key, None) is not None:
            self.partitions[partition.key] = partition


def _bytes(answer: FetchResponse) -> int:
    return sum(len(p.records) for t in answer.responses for p in t.partitions if p.records)


def unreadable_source(error: ClientError) -> ConnectError:
    """Returns the exception that ends the task."""
    return ConnectError(f"The source cluster cannot be read: {error}")
