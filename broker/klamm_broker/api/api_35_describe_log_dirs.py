"""DescribeLogDirs, key 35: versions 1 to 5.

Behaviour: the one log directory, the sizes of its partitions, and the file system's total and usable bytes. Null
topics mean all; partitions that do not exist are left out.
Not supported: cordoned directories (always false) and future replicas (there is one directory).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.server.topics import Partition
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
def describe_log_dirs(
    broker: Broker, ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if request.topics is None:
        asked = {topic.name: topic.partitions for topic in broker.topics}
    else:
        asked = {topic.topic: _existing(broker, topic.topic, topic.partitions) for topic in request.topics}
    directory = broker.logs.directory
    space = os.statvfs(directory)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(directory.resolve()),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=[_describe(p) for p in partitions])
            for name, partitions in asked.items()
            if partitions
        ],
        total_bytes=space.f_frsize * space.f_blocks,
        usable_bytes=space.f_frsize * space.f_bavail,
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])


def _existing(broker: Broker, topic: str, indexes: list[int]) -> list[Partition]:
    found = (broker.partition(topic, index) for index in indexes)
    return [partition for partition in found if partition is not None]


def _describe(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.log.size, offset_lag=0, is_future_key=False
    )
