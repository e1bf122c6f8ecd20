"""An application's log records into a topic: for the standard library's logging, and for structlog.

    logging.getLogger().addHandler(KafkaHandler("127.0.0.1:9092", "app-logs"))

A call takes microseconds and never blocks: it puts the record into a queue in memory. A thread sends the records, or writes them to
a spool on disk while no broker takes them. Records without room are dropped by policy and counted.

Queue, thread and spool are in `klamm_agent.handler`.
"""

from __future__ import annotations

from klamm.logging.events import EcsRenderer, KafkaLogger, KafkaLoggerFactory
from klamm.logging.handler import KafkaHandler

__all__ = ["EcsRenderer", "KafkaHandler", "KafkaLogger", "KafkaLoggerFactory"]
