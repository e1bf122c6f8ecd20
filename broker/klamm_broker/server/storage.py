"""The topics, their logs, the fetches that wait for them and the appends that are not committed yet.

Everything that reads or writes records works on `Storage`: handlers, coordinators, the cleaner, the mover. Partition
state keeps log end offset, high watermark, last stable offset and leader epoch apart (they live in the
`PartitionLog`); on a single node an append advances the high watermark at once. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from klamm_broker.log.validation import Prepared
from klamm_broker.server.fetch_sessions import FetchSessions
from klamm_broker.server.group_commit import GroupCommit
from klamm_broker.server.topics import Partition, Topic, TopicTable
from klamm_broker.server.waiting import WaitingRoom
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.log.log_manager import LogManager
    from klamm_broker.log.partition_log import AppendInfo
    from klamm_broker.server.config import BrokerConfig


class Storage:
    """`config` is replaced when a dynamic property changes: read it each time. `Broker.open` sets `logs`."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.topics = TopicTable()
        self.waiting = WaitingRoom(loop)
        self.commits = GroupCommit(self.waiting)  # of durability=fsync and flush.messages
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.logs: LogManager

    @staticmethod
    def now_ms() -> int:
        """Wall clock in milliseconds."""
        return int(time.time() * 1000)

    # ---- topics

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.by_name.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def serve_topic(self, name: str) -> Topic:
        """Serve a topic that the registry has and whose logs are open."""
        topic = Topic(name=name, id=self.logs.topic_id(name), entry=self.logs.topics[name])
        self.serve_partitions(topic)
        self.topics.add(topic)
        return topic

    def serve_partitions(self, topic: Topic) -> None:
        """Serve the partitions that the registry has and that are not served yet."""
        for index in range(len(topic.partitions), topic.entry.partitions):
            opened = self.logs.get(topic.name, index)
            assert opened is not None, "the registry has the partition, so its log is open"
            topic.partitions.append(Partition(topic, index, opened))

    # ---- records

    def append_one(self, partition: Partition, batch: bytearray | memoryview, now_ms: int) -> int | None:
        """Append a client's record set by the straight way, and wake readers. Returns its offset, or None: call `append` then.

        This is the hot path: it counts the topic's metrics itself, as each call costs.
        """
        log = partition.log
        offset = log.append_one(batch, now_ms)
        if offset is None:
            return None
        size, metrics = len(batch), partition.topic.metrics
        metrics.messages_in += log.log_end_offset - offset
        metrics.bytes_in += size
        if partition.trouble:
            partition.written_again()
        if partition.waiters:
            self.waiting.advanced(partition, size)
        return offset

    def append(
        self,
        partition: Partition,
        batches: bytearray | memoryview | Prepared,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator", "mirror"] = "client",
        transaction_version: int | None = 0,
    ) -> AppendInfo:
        """Append, then commit or wake. A client's records are prepared. Raises LogError and ProtocolError, and then nothing has changed.

        With `durability=fsync` the records wait for the next round of `GroupCommit`. Otherwise they are readable at
        once, and the fetches that wait for them are woken.
        """
        size = batches.received if isinstance(batches, Prepared) else len(batches)
        if origin == "mirror":
            assert not isinstance(batches, Prepared), "batches of another cluster's log stay as they are"
            info = partition.log.append_copied(batches, now_ms=now_ms)
        else:
            info = partition.log.append(
                batches, now_ms=now_ms, origin=origin, transaction_version=transaction_version
            )
        if not info.duplicate:
            metrics = partition.topic.metrics
            metrics.messages_in += info.last_offset - info.first_offset + 1
            metrics.bytes_in += size
        if partition.trouble:
            partition.written_again()
        if partition.log.high_watermark < partition.log.log_end_offset:
            self.commits.appended(partition, size)
        elif partition.waiters:
            self.waiting.advanced(partition, size)
        return info

    def when_committed(
        self, partition: Partition, end_offset: int, callback: Callable[[ErrorCode], None]
    ) -> None:
        """Call `callback` once the high watermark is at `end_offset` or beyond; at once if it is there already.

        The callback gets NONE, or the reason that the records will never be committed: KAFKA_STORAGE_ERROR, or
        UNKNOWN_TOPIC_OR_PARTITION when the topic is deleted.
        """
        if partition.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
            return
        self.commits.wait(partition, end_offset, callback)
