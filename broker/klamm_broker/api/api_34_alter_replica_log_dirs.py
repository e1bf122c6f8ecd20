"""AlterReplicaLogDirs, key 34: versions 1 to 2.

Behaviour: moves a partition to another of this broker's log directories while clients write and read it. The answer
comes when the move has begun; DescribeLogDirs shows its progress. A request for the directory that the partition is in
ends its move. Errors: LOG_DIR_NOT_FOUND for a path that is not in `log.dirs`, KAFKA_STORAGE_ERROR for an offline
directory or partition, UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist.
Not supported: throttling; remembering the directory for a partition that is created later.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.log.errors import LogError
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)


@handles(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=(1, 2),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def alter_replica_log_dirs(
    broker: BrokerState, ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    may, denied = ctx.may_cluster(AclOperation.ALTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    outcomes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _begin(broker, topic.name, index, directory.path) if may else denied
                outcomes.setdefault(topic.name, {})[index] = code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in outcomes.items()
        ]
    )


def _begin(broker: BrokerState, topic: str, index: int, path: str) -> ErrorCode:
    try:
        if broker.partition(topic, index) is None:
            broker.logs.check_directory(Path(path))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.mover.begin(topic, index, Path(path))
    except LogError as e:
        log.warning("%s-%d is not moved to %s: %s", topic, index, path, e)
        return e.code
    except OSError as e:
        log.error("%s-%d is not moved to %s: %s", topic, index, path, e)  # noqa: TRY400 - the sentence says it
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
