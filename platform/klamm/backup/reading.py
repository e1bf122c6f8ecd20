"""Reads one partition of a cluster for a backup, from an offset up to an end. One event loop; repeats what may pass."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from klamm.backup.committed import Selected, select
from klamm.backup.errors import BackupError
from klamm_base.backoff import Backoff
from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from klamm_kafka.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_kafka.wire.struct import Message

log = logging.getLogger(__name__)
T = TypeVar("T")

FETCH_BYTES: Final = 4 << 20
WAIT_MS: Final = 250
COMMITTED: Final = 1
NAMES_UP_TO: Final = 12
"""Later versions of Fetch know topics by id only."""
PATIENCE: Final = 2
"""A broker may be away for so many times a request's timeout: one goes to a leader that hangs, one to its successor."""
CUT_S: Final = 10.0
"""The time for which a log may seem to end before an offset that it had: a new leader learns only from its followers how far records are
committed, and a broker that is a leader no more may not know that yet.
"""
CUT_PAUSE_S: Final = 0.25
GONE_S: Final = 3.0
"""The time for which a topic may be unknown: brokers hear of topics and leaders one after the other."""


class TopicGoneError(BackupError):
    """The topic was deleted or made anew while it was read."""


class Source:
    """A client of the cluster that is read. Its metadata are always those of all topics, whichever partition asks for them.

    `topics`: ids by name; another id in later metadata tells that a topic was made anew.
    """

    def __init__(self, cluster: Cluster, topics: Mapping[str, bytes]) -> None:
        self.cluster = cluster
        self.give_up_s = PATIENCE * cluster.timeout_s
        self._topics = topics
        self._anew: frozenset[str] = frozenset()
        self._asking = asyncio.Lock()

    async def ask_leader(self, topic: str, partition: int, request: Message, version_max: int) -> Any:
        """Ask a partition's leader. Raises ClientError, TopicGoneError."""
        try:
            async with self._asking:
                if self.cluster.metadata is None:
                    await self._refresh()
            if topic in self._anew:
                raise TopicGoneError(f"topic {topic} was made anew while it was read")
            node = self.cluster.leader_id(topic, partition)
            if node is None or node < 0:
                raise self.cluster.no_leader(topic, partition)
            connection = await self.cluster.broker(node)
            version = min(connection.version_for(type(request)), version_max)
            return await connection.request(request, version)
        except ClientError as e:
            if e.retriable:
                self.forget()
            raise

    def forget(self) -> None:
        """Ask for the leaders again next time."""
        self.cluster.metadata = None

    async def _refresh(self) -> None:
        told = await self.cluster.refresh(self._topics)
        self._anew = frozenset(
            t.name for t in told.topics if t.name and not t.error_code and t.topic_id != self._topics[t.name]
        )


class PartitionReader:
    """A reader of committed batches. `position` jumps when retention deletes what was still to be read."""

    def __init__(
        self, source: Source, topic: str, partition: int, *, position: int, end: int, fetch_bytes: int = FETCH_BYTES
    ) -> None:  # fmt: skip
        self.position = position
        self.end = end
        self.purged = -1
        """The log's first offset, when it overtook the position; -1: it did not."""
        self.left_out = 0
        self._source = source
        self._topic = topic
        self._partition = partition
        self._fetch_bytes = fetch_bytes

    async def read(self) -> AsyncGenerator[Selected, None]:
        """Yield what answers hold, also where they hold nothing to keep. Raises BackupError, TopicGoneError."""
        moved = time.monotonic()
        while (at := self.position) < self.end:
            data = await self._patiently(self._fetch)
            lacking = await self._jump() if data is None else None
            if data is not None:
                yield (found := self._selected(data))
                if found.position <= at and 0 <= data.last_stable_offset < self.end:
                    lacking = (
                        f"ends at offset {data.last_stable_offset}, and had {self.end} before: it was cut"
                    )
            now = time.monotonic()
            if self.position > at:
                moved = now
            elif lacking is not None and now - moved > CUT_S:
                raise BackupError(f"{self} {lacking}")
            elif now - moved > self._source.give_up_s:
                raise BackupError(f"{self}: the broker sends nothing from offset {at} on, up to {self.end}")
            if lacking is not None:
                self._source.forget()
                await asyncio.sleep(CUT_PAUSE_S)

    def __str__(self) -> str:
        return f"{self._topic}-{self._partition}"

    def _selected(self, data: PartitionData) -> Selected:
        aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        try:
            found = select(data.records or b"", self.position, self.end, aborted)
        except ProtocolError as e:
            raise BackupError(f"{self} at offset {self.position}: {e}") from None
        self.position = max(self.position, found.position)
        self.left_out += found.left_out
        return found

    async def _fetch(self) -> PartitionData | None:
        """Return an answer; None where the position is no more in the log."""
        asked = FetchPartition(
            partition=self._partition, fetch_offset=self.position, partition_max_bytes=self._fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=self._fetch_bytes, isolation_level=COMMITTED,
            topics=[FetchTopic(topic=self._topic, partitions=[asked])],
        )  # fmt: skip
        answer = await self._source.ask_leader(self._topic, self._partition, request, NAMES_UP_TO)
        data: PartitionData = answer.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        self._check(data.error_code, f"reading {self} at {self.position}")
        return data

    async def _jump(self) -> str | None:
        """Go to the log's first offset. Returns why that cannot be: the position is not before it, but behind the log's end."""

        async def ask() -> int:
            asked = ListOffsetsPartition(partition_index=self._partition, timestamp=EARLIEST)
            topic = ListOffsetsTopic(name=self._topic, partitions=[asked])
            request = ListOffsetsRequest(replica_id=-1, topics=[topic])
            answer = await self._source.ask_leader(
                self._topic, self._partition, request, ListOffsetsRequest.MAX_VERSION
            )
            told = answer.topics[0].partitions[0]
            self._check(told.error_code, f"the first offset of {self}")
            return int(told.offset)

        first = await self._patiently(ask)
        if first <= self.position:
            return f"ends before offset {self.position}: it was cut or made anew meanwhile"
        self.purged = first
        self.position = min(first, self.end)
        return None

    def _check(self, code: int, what: str) -> None:
        if code:
            error = broker_error(code, what)
            if error.retriable:
                self._source.forget()
            raise error

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        backoff, since = Backoff(), time.monotonic()
        while True:
            try:
                return await ask()
            except ClientError as e:
                waited = time.monotonic() - since
                unknown = isinstance(e, BrokerError) and e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if unknown and waited > GONE_S:
                    raise TopicGoneError(f"topic {self._topic} was deleted while it was read") from None
                if not e.retriable or waited > self._source.give_up_s:
                    raise BackupError(f"{self} cannot be read: {e}") from None
                if backoff.why is None:
                    log.info("waiting for %s: %s", self, e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))
