"""An application's log records into a topic: for the standard library's logging, and for structlog.

    logging.getLogger().addHandler(KafkaHandler("127.0.0.1:9092", "app-logs"))

A call costs microseconds and never blocks: records go into a queue in memory, and a thread of its own sends them, or writes
them to a spool on disk while no broker takes them. What has no room is dropped by policy and counted.

| module | what |
|---|---|
| `handler.py` | `KafkaHandler`, for logging |
| `events.py` | `KafkaLoggerFactory` and `EcsRenderer`, for structlog |
| `documents.py` (pure) | a record as an ECS document |
| `shipper.py` | queue and thread |
| `client.py` | the producer: what it gives back, whether it makes headway |
| `store.py` | the spool's folders: a free one to write to, those of processes that are gone to send |
"""

from __future__ import annotations

from klamm.logging.events import EcsRenderer, KafkaLogger, KafkaLoggerFactory
from klamm.logging.handler import KafkaHandler

__all__ = ["EcsRenderer", "KafkaHandler", "KafkaLogger", "KafkaLoggerFactory"]
