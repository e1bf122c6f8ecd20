"""Follows one of the mirror's own topics: the base of the readers of offset syncs, offset segments and the gap ledger."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord

log = logging.getLogger(__name__)


class TopicFollower(ABC):
    """Reads a topic, each time up to its end, and begins anew when it was recreated."""

    committed = False
    """True to read only records of committed transactions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self._position = -1
        self._topic_id = b""
        """The id of the topic that was read."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets all records."""

    @abstractmethod
    def take(self, record: Record) -> None:
        """Takes the next record. Raises MalformedRecord for one that is left out."""

    async def catch_up(self) -> bool:
        """Reads to the end. Returns False while the topic does not exist."""
        try:
            topic_id = await internal_topics.topic_id(self._cluster, self.topic)
            end = await self._offset(LATEST)
            if self._position < 0 or end < self._position or topic_id != self._topic_id:
                await self._begin()
                self._topic_id = topic_id
            await self._read(end)
        except BrokerError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._position = -1
            raise
        return True

    async def _offset(self, which: int) -> int:
        return await internal_topics.offset_of(self._cluster, self.topic, which, committed=self.committed)

    async def _begin(self) -> None:
        if self._position >= 0:
            log.warning("%s was recreated: it is read from the beginning", self.topic)
        self.reset()
        self._position = await self._offset(EARLIEST)

    async def _read(self, end: int) -> None:
        found = internal_topics.read(self._cluster, self.topic, self._position, end, committed=self.committed)
        async for record in found:
            try:
                self.take(record)
            except MalformedRecord as e:
                log.warning("%s, offset %d, is left out: %s", self.topic, record.offset, e)
            self._position = record.offset + 1
        self._position = max(self._position, end)
