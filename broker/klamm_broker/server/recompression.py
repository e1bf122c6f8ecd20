"""Recompresses large batches off the loop, for topics whose codec differs from their producer's.

Below 64 KiB recompression takes a millisecond or two and is part of the append. Above, it would hold everybody up (gzip
takes 45 ms for 1 MiB), so it runs in a thread: codecs are C code that releases the interpreter, and no record is looked
at. Meanwhile the connection is not read, so that its requests stay in order; other connections are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError
from klamm_broker.log.validation import check_record_set, needs_recompression, recompress
from klamm_kafka.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm_broker.log.config import LogConfig
    from klamm_broker.server.topics import TopicTable
    from klamm_kafka.wire.hot import ProduceData, TopicKey

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 64 * 1024
"""The size of a request from which a thread pays off."""


def wanted(topics: TopicTable, data: ProduceData) -> bool:
    """Decides whether a request has records for a topic with a codec of its own."""
    return any(
        (config := _config(topics, key)) and config.compression_type != "producer" for key, _ in data.topics
    )


def _config(topics: TopicTable, key: TopicKey) -> LogConfig | None:
    topic = topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)
    return topic.config if topic is not None else None


def job(topics: TopicTable, data: ProduceData, now_ms: int) -> Callable[[], ProduceData]:
    """Returns a job that gives the same request with its batches in their topics' codecs. Any thread may run it.

    Batches that cannot be accepted or decompressed stay as they are; the append refuses them.
    """
    configs = [_config(topics, key) for key, _ in data.topics]

    def run() -> ProduceData:
        converted = []
        for (key, partitions), config in zip(data.topics, configs, strict=True):
            if config is not None and config.compression_type != "producer":
                batches = [(index, _converted(records, config, now_ms)) for index, records in partitions]
                converted.append((key, batches))
            else:
                converted.append((key, partitions))
        return data._replace(topics=converted)

    return run


def _converted(records: memoryview | None, config: LogConfig, now_ms: int) -> memoryview | None:
    if not records:
        return records
    if len(records) > config.max_message_bytes:
        return records
    try:
        # `from_client=False`: a client's records would be looked at for their keys or old timestamps.
        batches = check_record_set(records, config, now_ms=now_ms, from_client=False, where="produce")
        if not needs_recompression(batches, config):
            return records
        return memoryview(recompress(records, batches, config, "produce")[0])
    except (LogError, ProtocolError) as e:
        log.debug("left to the append: %s", e)
        return records
