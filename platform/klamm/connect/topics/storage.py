"""The storage of a worker's configs, offsets and statuses: topics of the cluster, or (standalone) memory
and a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from confluent_kafka.admin import AdminClient

from klamm.connect.config import WorkerConfig
from klamm.connect.topics.internal_topics import ensure_topics
from klamm.connect.topics.kafka_log import ADMIN_TIMEOUT_S, KafkaBasedLog, LogError, LogProducer, OnRecord

Which = Literal["config", "offset", "status"]


class RecordLog(Protocol):
    """A compacted log that is read whole; `kafka_log.KafkaBasedLog` says what each does."""

    topic: str
    consumed: int
    caught_up: bool

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def read_to_end(self, timeout_s: float = ADMIN_TIMEOUT_S, *, past_open: bool = True) -> None: ...


class RecordWriter(Protocol):
    """Writes to any of the logs; `kafka_log.LogProducer` says what each does."""

    @property
    def record_max(self) -> int: ...
    def send(self, topic: str, key: str, value: bytes | None) -> asyncio.Future[None]: ...
    async def close(self) -> None: ...


class Storage(Protocol):
    """The three logs and their writer."""

    @property
    def writer(self) -> RecordWriter: ...
    def log(self, which: Which, on_record: OnRecord) -> RecordLog: ...
    async def ensure(self, admin: AdminClient, config: WorkerConfig) -> None: ...
    def check(self) -> None: ...


class TopicStorage:
    """The topics that the worker's properties name."""

    def __init__(self, config: WorkerConfig, client: Mapping[str, Any], admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._client = client
        self.writer = LogProducer(client)
        self._config_log: KafkaBasedLog | None = None

    def log(self, which: Which, on_record: OnRecord) -> RecordLog:
        made = KafkaBasedLog(
            self._config[f"{which}.storage.topic"],
            self._client,
            on_record,
            transactions=which != "status" and self._config.transactional_leader,
            admin=self._admin,
            group=self._config["group.id"],
        )
        if which == "config":
            self._config_log = made
        return made

    async def ensure(self, admin: AdminClient, config: WorkerConfig) -> None:
        """Create the topics that are missing. Raises LogError, ConfigError."""
        await asyncio.to_thread(ensure_topics, admin, config)

    def check(self) -> None:
        """Check the logs once they are read. Raises LogError when configs would have no order."""
        found = self._config_log
        if found is not None and found.partition_count != 1:
            raise LogError(
                f"Topic '{found.topic}' supplied via the 'config.storage.topic' property is required to have a single "
                f"partition, but it has {found.partition_count}"
            )
