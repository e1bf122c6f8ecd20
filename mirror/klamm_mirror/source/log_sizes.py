"""Asks the source's brokers for the bytes that they hold of each partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from klamm_kafka.client import ClientError, Cluster, broker_error
from klamm_kafka.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

log = logging.getLogger(__name__)


async def log_sizes(source: Cluster, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Returns the bytes by topic and partition. `topics` have so many partitions. What no broker tells is left out."""
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=t, partitions=list(range(n))) for t, n in topics.items()]
    )
    sizes: dict[tuple[str, int], int] = {}
    for found in await asyncio.gather(*(_of_broker(source, node, request) for node in source.brokers)):
        for key, size in found.items():
            sizes[key] = max(size, sizes.get(key, 0))
    return sizes


async def _of_broker(
    source: Cluster, node: int, request: DescribeLogDirsRequest
) -> dict[tuple[str, int], int]:
    try:
        answer: DescribeLogDirsResponse = await (await source.broker(node)).request(request)
        if answer.error_code:
            raise broker_error(answer.error_code, "asking for the sizes of logs")
    except ClientError as e:
        log.info("broker %d of the source does not tell its logs' sizes, for the tasks' shares: %s", node, e)
        return {}
    return {
        (topic.name, p.partition_index): p.partition_size
        for result in answer.results if not result.error_code
        for topic in result.topics
        for p in topic.partitions if not p.is_future_key
    }  # fmt: skip
