"""`KafkaHandler`: records of the standard library's logging into a topic."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klamm.logging.documents import Documents
from klamm_agent.handler.shipper import Shipper


class KafkaHandler(logging.Handler):
    """A handler that sends records as ECS JSON documents, or as the text of a formatter when one is set.

    `config` holds further producer settings by Kafka's names, `fields` is added to every JSON document, and `key` is every record's
    key. `queue_bytes` bounds the memory for waiting records; when it is full, `drop` says which record gives way: `newest` or `oldest`.
    `spool` is a folder for records while no broker takes them (each process has a folder inside it, and a later process sends what it
    finds); `spool_bytes` is its bound, and `spool_fsync` says whether it must survive a power loss. `flush_timeout` (s) is how long
    `flush` and `close` wait for the broker. After a fork the child has a queue and a producer of its own; queued records stay the
    parent's. Raises ConfigError for settings that cannot be used.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        level: int | str = logging.NOTSET,
        key: str | None = None,
        fields: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        queue_bytes: int = 16 * 1024 * 1024,
        drop: str = "newest",
        spool: str | Path | None = None,
        spool_bytes: int = 256 * 1024 * 1024,
        spool_fsync: bool = False,
        flush_timeout: float = 5.0,
    ) -> None:
        super().__init__(level)
        self.topic = topic
        self._documents = Documents(socket.gethostname(), fields or {})
        self._shipper = Shipper(
            bootstrap_servers,
            topic,
            key=key,
            config=config,
            queue_bytes=queue_bytes,
            drop=drop,
            spool=spool,
            spool_bytes=spool_bytes,
            spool_fsync=spool_fsync,
            flush_timeout=flush_timeout,
        )

    @property
    def dropped(self) -> int:
        """The number of dropped records."""
        return self._shipper.dropped

    def statistics(self) -> dict[str, Any]:
        """Returns `queued`, `spooled` (records), `dropped`, `drops` (by reason), `away` (no broker takes anything)."""
        return self._shipper.statistics()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues one record. Never blocks, never raises."""
        try:
            if self.formatter is None:
                value = self._documents.of(record)
            else:
                value = self.format(record).encode(errors="backslashreplace")
            self._shipper.put(value)
        except Exception:
            self._shipper.count_dropped("it cannot be written")
            self.handleError(record)

    def flush(self) -> None:
        """Waits until queued records are delivered or in the spool, at most `flush_timeout`."""
        self._shipper.flush()

    def close(self) -> None:
        """Delivers queued records within `flush_timeout`; the rest is spooled, or dropped and counted. For good."""
        self._shipper.close()
        super().close()
