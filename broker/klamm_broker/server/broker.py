"""The broker's state: topics and their partitions, on top of the logs; what every handler works with.

`Broker` knows no sockets. It is opened once, serves from one event loop's thread, and is closed once. Partition
state keeps log end offset, high watermark, last stable offset and leader epoch apart (they live in the
`PartitionLog`); on a single node an append advances the high watermark at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from klamm_base.errors import KlammError
from klamm_broker.log.config import LogConfig
from klamm_broker.log.manager import LogManager
from klamm_broker.server.config import BrokerConfig, Listener
from klamm_broker.server.topics import Partition, Topic, TopicEntry, TopicsFile, TopicTable
from klamm_broker.server.waiting import WaitingRoom

if TYPE_CHECKING:
    from klamm_broker.log.partition_log import AppendInfo
    from klamm_broker.server.groups import GroupShell

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 100_000
"""Partitions of one topic. Each is a directory with open files; a typing error must not fill a disk."""

OFFSETS_TOPIC: Final = "__consumer_offsets"


class TopicExists(KlammError):
    """A topic of that name is there already."""


class Broker:
    """Owns logs, topics and coordinators of one node.

    `listeners` are the addresses that clients are told, by listener name; set by `main` once the ports are known.
    """

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.node_id = config.node_id
        self.listeners: dict[str, Listener] = {}
        self.topics = TopicTable()
        self.waiting = WaitingRoom(loop)
        self.stopping = False
        self._file = TopicsFile(config.log_dir)
        self._ticks: list[asyncio.TimerHandle] = []
        self.logs: LogManager
        self.groups: GroupShell

    @property
    def cluster_id(self) -> str:
        return self.logs.cluster_id

    @staticmethod
    def now_ms() -> int:
        """Wall clock in milliseconds."""
        return int(time.time() * 1000)

    # ---- life

    def open(self) -> None:
        """Lock the data directory, recover every partition, start the coordinators. Raises KlammError."""
        from klamm_broker.server.groups import GroupShell

        config = self.config
        self.logs = LogManager.open(
            config.log_dir,
            cluster_id=config["cluster.id"],
            node_id=config.node_id,
            now_ms=self.now_ms(),
        )
        self._file.load()
        self._finish_deletions()
        self._open_topics()
        self.groups = GroupShell(self)
        self.groups.open()

    def close(self) -> None:
        """Flush, checkpoint, leave the clean-shutdown marker."""
        self.groups.close()
        self.logs.close(now_ms=self.now_ms())

    # ---- topics

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.by_name.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        overrides: Mapping[str, str] | None = None,
        id: bytes | None = None,
    ) -> Topic:
        """Create a topic; it is on the disk when this returns. The caller has checked name and count.

        Raises TopicExists, ConfigError (overrides), StorageError.
        """
        if name in self._file.entries:
            raise TopicExists(f"Topic '{name}' already exists.")
        topic = Topic(
            name=name,
            id=id or uuid.uuid4().bytes,
            overrides=dict(overrides or {}),
            config=self.log_config(overrides or {}),
        )
        self._file.entries[name] = TopicEntry(id=topic.id, partitions=partitions, configs=topic.overrides)
        self._file.save()
        self._add_partitions(topic, partitions)
        self.topics.add(topic)
        log.info("created topic %s with %d partitions", name, partitions)
        return topic

    def auto_create(self, name: str) -> Topic:
        """A topic by name, created with the broker's defaults if need be (an internal one with its own)."""
        topic = self.topics.by_name.get(name)
        if topic is not None:
            return topic
        config = self.config
        if name == OFFSETS_TOPIC:
            overrides = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            }
            return self.create_topic(
                name, partitions=config["offsets.topic.num.partitions"], overrides=overrides
            )
        return self.create_topic(name, partitions=config["num.partitions"])

    def add_partitions(self, topic: Topic, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self._file.entries[topic.name].partitions = total
        self._file.save()
        self._add_partitions(topic, total)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its records."""
        self._file.entries[topic.name].deleting = True
        self._file.save()
        self.topics.remove(topic)
        for partition in topic.partitions:
            self.waiting.gone(partition)
        self.groups.on_partitions_deleted([(topic.name, p.index) for p in topic.partitions])
        for partition in topic.partitions:
            self.logs.delete(topic.name, partition.index)
        del self._file.entries[topic.name]
        self._file.save()
        log.info("deleted topic %s", topic.name)

    def set_topic_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own configuration. Raises ConfigError."""
        config = self.log_config(overrides)
        topic.overrides = dict(overrides)
        self._file.entries[topic.name].configs = topic.overrides
        self._file.save()
        topic.config = config
        for partition in topic.partitions:
            partition.log.config = config

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.from_topic(
            overrides,
            self.config.topic_defaults,
            producer_id_expiration_ms=self.config["producer.id.expiration.ms"],
        )

    def _add_partitions(self, topic: Topic, total: int) -> None:
        for index in range(len(topic.partitions), total):
            opened = self.logs.create(
                topic.name, index, topic_id=topic.id, config=topic.config, now_ms=self.now_ms()
            )
            topic.partitions.append(Partition(topic, index, opened))

    def _open_topics(self) -> None:
        """Serve what `topics.json` has; adopt partition directories that it does not know."""
        adopted = False
        for name, index, topic_id in self.logs.partition_dirs():
            entry = self._file.entries.get(name)
            if entry is None:
                log.warning(
                    "adopting topic %s from its partition directories, with default configuration", name
                )
                entry = self._file.entries[name] = TopicEntry(
                    id=topic_id or uuid.uuid4().bytes, partitions=0, configs={}
                )
            if index >= entry.partitions:
                entry.partitions = index + 1
                adopted = True
        if adopted:
            self._file.save()
        for name, entry in self._file.entries.items():
            topic = Topic(
                name=name, id=entry.id, overrides=entry.configs, config=self.log_config(entry.configs)
            )
            for index in range(entry.partitions):
                opened = self.logs.open_or_create(
                    name, index, topic_id=entry.id, config=topic.config, now_ms=self.now_ms()
                )
                topic.partitions.append(Partition(topic, index, opened))
            self.topics.add(topic)

    def _finish_deletions(self) -> None:
        doomed = {name for name, entry in self._file.entries.items() if entry.deleting}
        if not doomed:
            return
        for name, index, _ in self.logs.partition_dirs():
            if name in doomed:
                self.logs.delete(name, index)
        for name in doomed:
            del self._file.entries[name]
        self._file.save()

    # ---- records

    def append(
        self,
        partition: Partition,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
    ) -> AppendInfo:
        """Append and wake the fetches that wait for it. Raises LogError."""
        info = partition.log.append(batches, now_ms=now_ms, origin=origin)
        if partition.waiters:
            self.waiting.advanced(partition, len(batches))
        return info

    def describe(self) -> Mapping[str, Any]:
        """A few figures for logs and health answers."""
        return {"topics": len(self.topics), "partitions": sum(len(t.partitions) for t in self.topics)}
