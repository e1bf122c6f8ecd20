"""DescribeLogDirs, key 35: versions 1 to 5.

Behaviour: lists every log directory with the sizes of its partitions, and its file system's total and usable bytes. A
partition that is being moved also appears in the new directory, as a future replica with its lag. A directory that
cannot be used is KAFKA_STORAGE_ERROR. Null topics mean all; partitions that do not exist are left out.
Not supported: cordoned directories (always false).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

Found = dict[Path, dict[str, list[DescribeLogDirsPartition]]]
"""Partitions by directory and topic."""


@handles(
    ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    ],
)
def describe_log_dirs(
    broker: BrokerState, ctx: RequestContext, request: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    if not ctx.may_cluster(AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        asked = ((topic.name, range(len(topic.partitions))) for topic in list(broker.topics))
    else:
        asked = ((topic.topic, dict.fromkeys(topic.partitions)) for topic in request.topics)
    found: Found = {directory.path: {} for directory in broker.logs.directories}
    number = 0
    for topic, indexes in asked:
        for index in indexes:
            _add(broker, topic, index, found)
            number += 1
            if not number % STEP:
                yield None
    unusable = list(broker.logs.unusable)  # a directory may have failed meanwhile
    results = [_describe(path, topics) for path, topics in found.items() if path not in unusable]
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
        for path in unusable
    ]
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=results)


def _add(broker: BrokerState, topic: str, index: int, found: Found) -> None:
    partition = broker.partition(topic, index)
    if partition is None or partition.log.offline:
        return
    current = DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size)
    found[partition.log.directory.parent].setdefault(topic, []).append(current)
    move = broker.logs.moves.get((topic, index))
    if move is not None:
        future = DescribeLogDirsPartition(
            partition_index=index, partition_size=move.size, offset_lag=move.lag, is_future_key=True
        )
        found[move.target.path].setdefault(topic, []).append(future)


def _describe(path: Path, topics: dict[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResult:
    try:
        space = os.statvfs(path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(path),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
        total_bytes=space.f_frsize * space.f_blocks,
        usable_bytes=space.f_frsize * space.f_bavail,
    )
