"""Recompresses batches off the loop, for topics whose codec differs from their producer's.

Below 64 KiB, to compress a batch takes a millisecond or two and is part of the append. Above, it would hold everybody up (gzip
takes 45 ms for 1 MiB), and so would a compressed batch of any size: 6 KB can be 60 MB. These go to a thread: codecs are C code that releases the interpreter, and no record is looked
at. Meanwhile the connection is not read, so that its requests stay in order; other connections are served.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError
from klamm_broker.log.validation import check_record_set, codec_of, needs_recompression, recompress
from klamm_kafka.wire.batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_PREFIX_BYTES
from klamm_kafka.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm_broker.log.config import LogConfig
    from klamm_broker.server.topics import TopicTable
    from klamm_kafka.wire.hot import ProduceData, Records, TopicKey

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 64 * 1024
"""The size of a request from which a thread pays off."""
_HEAD: Final = struct.Struct(">8xi9xh")  # of a batch: length, attributes


def wanted(topics: TopicTable, data: ProduceData, size: int) -> bool:
    """Decides whether a request of this size has work for a thread: records for a topic with a codec of its own, that are many or compressed."""
    for key, partitions in data.topics:
        config = _config(topics, key)
        codec = None if config is None else codec_of(config)
        if codec is not None and (size > LARGE_BYTES or _is_packed(partitions, codec)):
            return True
    return False


def _is_packed(partitions: Iterable[tuple[int, Records]], codec: int) -> bool:
    """Decides whether any batch must be decompressed first. Looks at headers only, and does not trust them."""
    for _, records in partitions:
        position = 0
        while isinstance(records, memoryview) and position + HEADER_BYTES <= len(records):
            length, attributes = _HEAD.unpack_from(records, position)
            if attributes & COMPRESSION_MASK not in {0, codec}:
                return True
            position += max(HEADER_BYTES, LENGTH_PREFIX_BYTES + length)
    return False


def _config(topics: TopicTable, key: TopicKey) -> LogConfig | None:
    topic = topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)
    return topic.config if topic is not None else None


def job(topics: TopicTable, data: ProduceData, now_ms: int) -> Callable[[], ProduceData]:
    """Returns a job that gives the same request with its batches in their topics' codecs. Any thread may run it.

    Batches that cannot be accepted stay as they are; the append refuses them. In place of those that cannot be recompressed is the
    reason: to find it again would hold everybody up.
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


def _converted(records: Records, config: LogConfig, now_ms: int) -> Records:
    if not records or not isinstance(records, memoryview):
        return records
    try:
        # `from_client=False`: a client's records would be looked at for their keys or old timestamps.
        batches = check_record_set(records, config, now_ms=now_ms, from_client=False, where="produce")
    except (LogError, ProtocolError) as e:
        log.debug("left to the append: %s", e)
        return records
    too_large = any(header.size > config.max_message_bytes for _, header in batches)
    if too_large or not needs_recompression(batches, config):
        return records
    try:
        return memoryview(recompress(records, batches, config, "produce")[0])
    except (LogError, ProtocolError) as e:
        return e
