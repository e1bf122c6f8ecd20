"""Fetches from the source's leaders, one long poll per broker, and hands batches to the partitions.

The fetcher waits for a broker that is away. A partition whose log is not the one that it was read from stops
(`source_check`); so does one that the source refuses to give. The others go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.wire.errors import CorruptRecord, ErrorCode, ProtocolError
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.rewrite import Rewriter
from klamm_mirror.copy.source_check import SourceCheck, unreadable
from klamm_mirror.copy.start_offset import KEY, parse_start
from klamm_mirror.copy.throttle import Throttle
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.raw import Counts, last_epoch, producer_ids
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

NO_OFFSET: Final = -1
"""The answer to a question for a time after the last record."""
FETCH_BYTES: Final = 16 << 20
PARTITION_BYTES: Final = 4 << 20
WAIT_MS: Final = 500
BUSY_WAIT_MS: Final = 20
"""The wait of a fetch that leaves out full partitions: they may have room soon."""
BUFFER_BYTES: Final = 64 << 20
"""Bytes that a task may hold, fetched and not acknowledged, before it stops fetching."""
ANSWER_S: Final = 30.0
"""Seconds for an answer of up to `max_bytes` over a slow line."""
LOOK_S: Final = 0.1
METADATA_S: Final = 30.0
_IDS_VERSION: Final = 13
_MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Limits of fetches: sizes in bytes, waits in ms."""

    max_bytes: int = FETCH_BYTES
    partition_bytes: int = PARTITION_BYTES
    min_bytes: int = 1
    wait_ms: int = WAIT_MS
    committed_only: bool = False
    metadata_s: float = METADATA_S
    answer_s: float = ANSWER_S
    rack: str = ""
    """The rack in which the task runs: a leader may then name a replica there to read from."""
    start: int = EARLIEST
    """The place of partitions without a committed offset: EARLIEST, LATEST, or a time in ms."""

    @classmethod
    def of(cls, consumer: Mapping[str, str], poll_timeout_ms: int, start: str | None = None) -> FetchSettings:
        """Reads a consumer's settings, under Java's names. `start` wins over its auto.offset.reset. Raises ConfigError."""
        isolation = consumer.get("isolation.level", "read_committed")
        if isolation not in {"read_uncommitted", "read_committed"}:
            raise ConfigError(
                f"Invalid value {isolation} for configuration source.consumer.isolation.level: "
                "Must be read_uncommitted or read_committed",
                key="source.consumer.isolation.level",
            )
        reset = consumer.get("auto.offset.reset", "earliest")
        if reset not in {"earliest", "latest"}:
            raise ConfigError(
                f"Invalid value {reset} for configuration source.consumer.auto.offset.reset: "
                "Must be earliest or latest",
                key="source.consumer.auto.offset.reset",
            )
        return cls(
            max_bytes=_number(consumer, "fetch.max.bytes", FETCH_BYTES),
            partition_bytes=_number(consumer, "max.partition.fetch.bytes", PARTITION_BYTES),
            min_bytes=_number(consumer, "fetch.min.bytes", 1),
            wait_ms=min(_number(consumer, "fetch.max.wait.ms", WAIT_MS), poll_timeout_ms),
            committed_only=isolation == "read_committed",
            rack=consumer.get("client.rack", "").strip(),
            metadata_s=_number(consumer, "metadata.max.age.ms", round(METADATA_S * 1000)) / 1000,
            answer_s=_number(consumer, "request.timeout.ms", round(ANSWER_S * 1000)) / 1000,
            start=parse_start(start or reset),
        )


def _number(consumer: Mapping[str, str], key: str, default: int) -> int:
    text = consumer.get(key, str(default)).strip()
    if not text.isdigit():
        raise ConfigError(
            f"Invalid value {text} for configuration source.consumer.{key}: Must be a whole number",
            key=f"source.consumer.{key}",
        )
    return int(text)


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
        self._rewriter = rewriter
        self.counts = Counts()
        self.why: str | None = None
        self._data = data
        self._meta = meta
        self._partitions = {(p.topic, p.partition): p for p in partitions}
        self._settings = settings
        self._fetched = fetched
        self._room = room
        self._leaders: dict[tuple[str, int], int] = {}
        """The brokers to read from: leaders, or the replicas that they name."""
        self._replicas: dict[tuple[str, int], int] = {}
        """The partitions that are read from a replica, until the metadata is asked for again."""
        self._nearest: dict[tuple[str, int], int] = {}
        """The replicas that were named last, for the log."""
        self._epochs: dict[tuple[str, int], int] = {}
        self._ids: dict[str, bytes] = {}
        self._adopted = adopted
        self._check = SourceCheck(meta, partitions)
        self._provenance = provenance
        self._throttle = throttle
        self._stale = True
        self._asked_at = 0.0
        self._metadata = Backoff()
        self._loops: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Fetches until cancelled. Raises ConnectError for an error that a repetition cannot cure."""
        try:
            while True:
                now = time.monotonic()
                if (
                    self._stale or now - self._asked_at > self._settings.metadata_s
                ) and now >= self._metadata.until:
                    await self._find_leaders()
                for node in set(self._leaders.values()) - {-1} - set(self._loops):
                    self._loops[node] = asyncio.create_task(self._follow(node))
                for node, loop in list(self._loops.items()):
                    if loop.done():
                        del self._loops[node]
                        loop.result()
                await asyncio.sleep(LOOK_S)
        finally:
            for loop in self._loops.values():
                loop.cancel()
            await asyncio.gather(*self._loops.values(), return_exceptions=True)

    # ---- one broker

    async def _follow(self, node: int) -> None:
        """Fetches from a broker while it leads any partition."""
        away = Backoff()
        while any(leader == node for leader in self._leaders.values()):
            try:
                if not await self._fetch(node):
                    self._room.clear()
                    try:
                        async with asyncio.timeout(LOOK_S):
                            await self._room.wait()
                    except TimeoutError:
                        pass
                away.succeeded()
            except ClientError as e:
                if not e.retriable:
                    raise ConnectError(f"The source cluster cannot be read: {e}") from None
                if away.why is None:
                    log.warning("waiting for broker %d of the source: %s", node, e)
                self.why, self._stale = str(e), True
                await asyncio.sleep(away.failed(time.monotonic(), str(e)))

    async def _fetch(self, node: int) -> bool:
        """Asks once for all partitions that want records. Returns False when none does."""
        now = time.monotonic()
        ours = [
            p for key, p in self._partitions.items()
            if self._leaders.get(key) == node and p.stopped is None and self._ids.get(p.topic) in {None, p.topic_id}
        ]  # fmt: skip
        if self._throttle.active:  # this runs for thousands of partitions, hundreds of times a second
            for partition in ours:
                partition.held_by = self._throttle.held_by(partition.topic, now)
        wanted = [p for p in ours if not p.full and p.held_by is None and now >= p.reading.until]
        if sum(p.buffered for p in self._partitions.values()) >= BUFFER_BYTES:
            return False
        for partition in wanted:
            if partition.position < 0:
                await self._begin(partition)
        wanted = [p for p in wanted if p.position >= 0]
        if not wanted:
            return False
        connection = await self._data.broker(node)
        fit = await self._check.validate(connection, wanted, self._epochs)
        self._stale = self._stale or len(fit) < len(wanted)
        if not (wanted := fit):
            return True
        version = connection.version_for(FetchRequest)
        if version >= _IDS_VERSION and any(self._ids.get(p.topic, UUID_ZERO) == UUID_ZERO for p in wanted):
            version = _IDS_VERSION - 1
        answer: FetchResponse = await connection.request(
            self._request(wanted, self._patience_ms(ours, wanted)),
            version,
            timeout_s=self._settings.wait_ms / 1000 + self._settings.answer_s,
        )
        if answer.error_code:
            error = broker_error(answer.error_code, "fetching from the source")
            if answer.error_code in _MOVED or error.retriable:
                self._stale = True
                await asyncio.sleep(LOOK_S)
                return True
            raise error
        self.why = None
        await self._take(answer)
        return True

    def _patience_ms(self, ours: Sequence[MirrorPartition], wanted: Sequence[MirrorPartition]) -> int:
        """Returns how long a broker may wait for records, ms: not beyond the time when others may be read again."""
        held = [p for p in ours if p.held_by is not None]
        if len(wanted) + len(held) < len(ours):
            return BUSY_WAIT_MS
        if not held:
            return self._settings.wait_ms
        wait_s = self._throttle.wait_s((p.topic for p in held), time.monotonic())
        return min(max(int(wait_s * 1000), BUSY_WAIT_MS), self._settings.wait_ms)

    def _request(self, wanted: Sequence[MirrorPartition], wait_ms: int) -> FetchRequest:
        settings, topics = self._settings, dict[str, FetchTopic]()
        now, counts = time.monotonic(), Counter(p.topic for p in wanted if self._throttle.active)
        for partition in wanted:
            name = partition.topic
            topic = topics.setdefault(
                name, FetchTopic(topic=name, topic_id=self._ids.get(name, UUID_ZERO), partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._epochs.get((name, partition.partition), -1),
                    fetch_offset=partition.position,
                    partition_max_bytes=self._throttle.topic_bytes(
                        name, counts[name], now, settings.partition_bytes
                    ),
                )
            )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=self._throttle.flow_bytes(now, settings.max_bytes),
            isolation_level=int(settings.committed_only),
            topics=list(topics.values()),
            rack_id=settings.rack,
        )

    async def _take(self, answer: FetchResponse) -> None:
        names = {topic_id: name for name, topic_id in self._ids.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = self._partitions.get((name, data.partition_index))
                if partition is not None:
                    await self._take_one(partition, data)
        self._fetched()

    async def _take_one(self, partition: MirrorPartition, data: PartitionData) -> None:
        if data.error_code:
            await self._refused(partition, data.error_code)
            return
        settings = self._settings
        partition.high_watermark = data.last_stable_offset if settings.committed_only else data.high_watermark
        if data.preferred_read_replica >= 0:
            self._read_from(partition, data.preferred_read_replica)
        partition.reading.succeeded()
        partition.heard(time.time_ns() // 1_000_000)
        if not data.records:
            return
        self._throttle.take(partition.topic, len(data.records), time.monotonic())
        # An answer's bytes go first to the partitions that are asked for first. A partition that got some moves to
        # the end.
        key = partition.topic, partition.partition
        self._partitions[key] = self._partitions.pop(key)
        aborted = None
        if settings.committed_only:
            aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        lens = None
        if self._provenance is not None:
            await self._provenance.learn(producer_ids(data.records))
            lens = self._provenance.lens(partition.topic)
        began = partition.position
        try:
            batches, position = await self._rewriter.convert(
                partition, data.records, self.counts, aborted, lens
            )
        except CorruptRecord as e:
            # A checksum that was damaged on the way may hold the next time.
            log.warning("%s at offset %d: %s; fetched again", partition, partition.position, e)
            partition.reading.failed(time.monotonic(), str(e))
            return
        except ProtocolError as e:
            unreadable(partition, f"{partition} at offset {partition.position}: {e}")
            return
        if partition.position != began:
            return  # meanwhile another broker leads the partition, and has answered the same fetch
        whole = bool(batches) and batches[-1].next_offset == position
        partition.add(
            batches, position, batches[-1].epoch if whole else last_epoch(data.records, partition.epoch)
        )
        partition.sensors.fetched(batches, time.time_ns() // 1_000_000)

    def _read_from(self, partition: MirrorPartition, replica: int) -> None:
        key = partition.topic, partition.partition
        if self._nearest.get(key) != replica:
            log.info(
                "%s is read from broker %d, the replica next to rack %s",
                partition,
                replica,
                self._settings.rack,
            )
        self._nearest[key] = self._replicas[key] = self._leaders[key] = replica

    async def _refused(self, partition: MirrorPartition, code: int) -> None:
        key = partition.topic, partition.partition
        if self._replicas.pop(key, None) is not None:  # a replica that is behind: its leader knows better
            self._leaders[key], self._stale = -1, True
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self._check.out_of_range(partition)
            except BrokerError as e:
                self._asked_in_vain(partition, e)
            return
        error = broker_error(code, f"fetching {partition}")
        if not error.retriable and code not in _MOVED:
            unreadable(partition, f"the source does not give the records: {error}")
            return
        if partition.reading.why is None:
            log.warning("%s waits for the source: %s", partition, error)
        partition.reading.failed(time.monotonic(), str(error))
        self._stale = True

    async def _begin(self, partition: MirrorPartition) -> None:
        """Sets the place of a partition that has no committed offset. A time after the last record means the end."""
        try:
            offset = await self._check.offset(partition, partition.start)
            if offset == NO_OFFSET:
                offset = await self._check.offset(partition, LATEST)
        except BrokerError as e:
            self._asked_in_vain(partition, e)
            return
        if partition.start != EARLIEST:
            log.info("%s begins at offset %d: earlier records are not copied (%s)", partition, offset, KEY)
        partition.begin(offset)

    def _asked_in_vain(self, partition: MirrorPartition, error: BrokerError) -> None:
        if not error.retriable:
            unreadable(partition, f"the source does not tell its offsets: {error}")
            return
        partition.reading.failed(time.monotonic(), str(error))
        self._stale = True

    # ---- metadata

    async def _find_leaders(self) -> None:
        try:
            answer = await self._meta.refresh(sorted({p.topic for p in self._partitions.values()}))
        except ClientError as e:
            if self.why is None:
                log.warning("waiting for the source cluster: %s", e)
            self.why = str(e)
            self._metadata.failed(time.monotonic(), str(e))
            return
        self._asked_at, self._stale = time.monotonic(), False
        self._data.brokers = dict(self._meta.brokers)
        there = {
            (t.name or "", p.partition_index): p for t in answer.topics for p in t.partitions
        }  # fmt: skip
        self._ids = {t.name: t.topic_id for t in answer.topics if t.name and t.topic_id != UUID_ZERO}
        adopted = [p for t in answer.topics for p in self._check.identify(t, self._asked_at)]
        if adopted:
            await self._adopted(adopted)
        self._replicas.clear()
        self._epochs = {key: p.leader_epoch for key, p in there.items()}
        self._leaders = {key: there[key].leader_id if key in there else -1 for key in self._partitions}
        missing = [
            str(p) for key, p in self._partitions.items()
            if self._leaders[key] < 0 and not p.stopped and not p.gone
        ]  # fmt: skip
        if missing:
            self.why, self._stale = f"{missing[0]} has no leader at the source", True
            self._metadata.failed(time.monotonic(), self.why)
        else:
            self._metadata.succeeded()
            if all(p.stopped or p.gone for p in self._partitions.values()):
                self.why = None  # no fetch will say that all is well again
