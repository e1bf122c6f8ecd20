"""Marks: records in a topic of a cluster that say from which cluster the records of a producer id come.

    mm2-provenance.internal    key: producer id    value: {"version": 0, "cluster": …, "alias": …, "flow": "A->B"}

A mirror's task takes a producer id for each origin and writes its mark, acknowledged by all in-sync replicas, before the
first batch. Record batches keep their producer id in their headers, also when a broker recompresses or compacts them. So
whoever reads a batch and finds no mark of its producer id, up to the topic's end, knows that no mirror wrote it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.origins import Origin
from klamm_mirror.settings.policy import PROVENANCE_TOPIC
from klamm_mirror.topics import internal_topics, topic_admin
from klamm_plugins.errors import ConnectError, DataError

log = logging.getLogger(__name__)

VERSION: Final = 0
UNMARKED_MAX: Final = 50_000
"""Producer ids without a mark that are remembered. An id that was forgotten is looked for again."""
NO_ORIGIN_LEAVES: Final = (
    "where no other flow brings this one's records back, mirror.provenance=false does without"
)


class MalformedMark(DataError):
    """A record that is no mark of a version that is known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One producer id's origin, and the flow that writes with it."""

    producer_id: int
    origin: Origin
    flow: str

    def encode(self, now_ms: int) -> Record:
        value = {
            "version": VERSION,
            "cluster": self.origin.cluster,
            "alias": self.origin.alias,
            "flow": self.flow,
        }
        return Record(timestamp=now_ms, key=b"%d" % self.producer_id, value=json.dumps(value).encode())

    @classmethod
    def decode(cls, record: Record) -> Mark:
        """Raises MalformedMark."""
        try:
            value = json.loads(record.value or b"")
            if value["version"] != VERSION:
                raise MalformedMark(f"version {value['version']}, only {VERSION} is known")
            origin = Origin(str(value["cluster"]), str(value["alias"]))
            return cls(int(record.key or b""), origin, str(value.get("flow", "")))
        except (ValueError, KeyError, TypeError) as e:
            raise MalformedMark(f"key {record.key!r}, value {record.value!r}: {e!r}") from None


class MarkReader:
    """The marks of one cluster, read when an unknown producer id comes. `cluster` is a client of it; `side` is its name in
    a flow.
    """

    def __init__(self, cluster: Cluster, side: str = "source") -> None:
        self._cluster = cluster
        self._side = side
        self._origins: dict[int, Origin] = {}
        self._unmarked: dict[int, None] = {}
        self._position = 0
        self._reading = asyncio.Lock()

    def origin(self, producer_id: int) -> Origin | None:
        """Returns the origin of a producer's records; None for records that were first written here."""
        return self._origins.get(producer_id)

    async def learn(self, producer_ids: Iterable[int]) -> None:
        """Makes the origins of these producer ids known. Raises ClientError, ConnectError."""
        unknown = [p for p in producer_ids if p >= 0 and p not in self._origins and p not in self._unmarked]
        if not unknown:
            return
        async with self._reading:
            await self._catch_up()
        for producer_id in unknown:
            if producer_id not in self._origins:
                self._unmarked[producer_id] = None
        while len(self._unmarked) > UNMARKED_MAX:
            del self._unmarked[next(iter(self._unmarked))]

    async def _catch_up(self) -> None:
        """Reads to the present end. The marks of a topic that was deleted stay known."""
        try:
            end = await internal_topics.offset_of(self._cluster, PROVENANCE_TOPIC, LATEST)
            if end < self._position:
                log.error("%s was deleted or shortened: what it said before is still known", PROVENANCE_TOPIC)
                self._position = 0
            if end > self._position:
                await self._read(end)
        except BrokerError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and await self._is_missing():
                return
            if e.retriable:
                raise
            raise ConnectError(
                f"{PROVENANCE_TOPIC} of the {self._side} cannot be read, so records that came from the target would go back: {e}. "
                f"Permit Describe and Read; {NO_ORIGIN_LEAVES}"
            ) from None

    async def _read(self, end: int) -> None:
        first = await internal_topics.offset_of(self._cluster, PROVENANCE_TOPIC, EARLIEST)
        async for record in internal_topics.read(
            self._cluster, PROVENANCE_TOPIC, max(first, self._position), end
        ):
            if record.value is not None:
                self._apply(record)
        self._position = end

    def _apply(self, record: Record) -> None:
        try:
            mark = Mark.decode(record)
        except MalformedMark as e:
            raise ConnectError(
                f"{PROVENANCE_TOPIC} of the {self._side}, offset {record.offset}, is no mark, so records that came from the "
                f"target might go back: {e}. A newer version wrote it: update this mirror, too"
            ) from None
        self._origins[mark.producer_id] = mark.origin
        self._unmarked.pop(mark.producer_id, None)

    async def _is_missing(self) -> bool:
        """Asks every broker: one that has not heard of a new topic yet must not decide that there are no marks."""
        return bool(await topic_admin.absent(self._cluster, [PROVENANCE_TOPIC]))


class MarkWriter:
    """Writes a task's marks into a cluster. `cluster` is a client of it; `flow` is `A->B`."""

    def __init__(self, cluster: Cluster, flow: str, replication_factor: int) -> None:
        self._cluster = cluster
        self._flow = flow
        self._replication_factor = replication_factor
        self._written: dict[int, Mark] = {}
        self._end = 0

    async def write(self, producer_id: int, origin: Origin) -> None:
        """Returns once all in-sync replicas have the mark. Raises ClientError (to be tried again), ConnectError."""
        mark = Mark(producer_id, origin, self._flow)
        await self._produce([mark])
        self._written[producer_id] = mark

    async def look(self) -> None:
        """Writes all marks again if somebody has deleted the topic. Raises ClientError, ConnectError."""
        try:
            end = await internal_topics.offset_of(self._cluster, PROVENANCE_TOPIC, LATEST)
        except BrokerError as e:
            if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            end = 0
        if self._written and end < self._end:
            log.error("%s at the target was deleted: its marks are written again", PROVENANCE_TOPIC)
            await self._produce(self._written.values())

    async def _produce(self, marks: Iterable[Mark]) -> None:
        now_ms = time.time_ns() // 1_000_000
        records = [mark.encode(now_ms) for mark in marks]
        try:
            self._end = 1 + await internal_topics.produce(self._cluster, PROVENANCE_TOPIC, records)
        except BrokerError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self._create()
                raise  # the caller tries again, when the topic has a leader
            if not e.retriable:
                raise _cannot_write(e) from None
            raise

    async def _create(self) -> None:
        try:
            await internal_topics.create(self._cluster, PROVENANCE_TOPIC, self._replication_factor)
        except ClientError as e:
            if not e.retriable:
                raise _cannot_write(e) from None
            raise


def _cannot_write(error: ClientError) -> ConnectError:
    return ConnectError(
        f"{PROVENANCE_TOPIC} of the target cannot be written to, so other flows could not see where the records come "
        f"from: {error}. Create it there (one partition, cleanup.policy=compact) and permit Describe and Write; "
        f"{NO_ORIGIN_LEAVES}"
    )
