"""The gap ledger's topic: reads its latest entries, and writes new ones. One event loop. Raises ClientError."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.gaps.entries import Gap, GapTable, Known, decode
from klamm_mirror.target_admin import Admin
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 500


class Ledger:
    """The ledger of one flow. `cluster` is a client of the target; `table` holds what was read and written."""

    def __init__(self, cluster: Cluster, topic: str, replication_factor: int) -> None:
        self.table = GapTable()
        self.topic = topic
        self._cluster = cluster
        self._replication_factor = replication_factor
        self._position = -1

    async def make(self, admin: Admin | None = None) -> None:
        """Creates the topic, unless it exists. `admin` creates it instead of a request."""
        if await internal_topics.create(self._cluster, self.topic, self._replication_factor, admin=admin):
            log.info("made %s", self.topic)

    async def catch_up(self) -> bool:
        """Reads up to the end. Returns False while the topic does not exist."""
        try:
            end = await internal_topics.offset_of(self._cluster, self.topic, internal_topics.LATEST)
            if self._position < 0 or end < self._position:
                self.table = GapTable()
                self._position = await internal_topics.offset_of(
                    self._cluster, self.topic, internal_topics.EARLIEST
                )
            async for record in internal_topics.read(self._cluster, self.topic, self._position, end):
                self._apply(record)
                self._position = record.offset + 1
            self._position = max(self._position, end)
        except BrokerError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._position = -1
            raise
        return True

    async def write(self, entries: Sequence[Gap | Known]) -> None:
        """Appends entries, and makes the topic if it is not there. All in-sync replicas have them when it returns."""
        now_ms = time.time_ns() // 1_000_000
        for at in range(0, len(entries), BATCH_RECORDS):
            part = entries[at : at + BATCH_RECORDS]
            pairs = [entry.encode() for entry in part]
            records = [Record(timestamp=now_ms, key=key, value=value) for key, value in pairs]
            try:
                await internal_topics.produce(self._cluster, self.topic, records)
            except BrokerError as e:
                if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await self.make()
                await internal_topics.produce(self._cluster, self.topic, records)
            for entry in part:
                self.table.apply(entry)

    def _apply(self, record: Record) -> None:
        if record.value is None:
            return
        try:
            self.table.apply(decode(record.key, record.value))
        except MalformedRecord as e:
            log.warning("%s, offset %d, is left out: %s", self.topic, record.offset, e)
