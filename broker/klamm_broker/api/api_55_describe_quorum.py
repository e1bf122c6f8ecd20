"""DescribeQuorum, key 55: versions 0 to 2.

Behaviour: describes the quorum of a cluster of one: this node leads and is the only voter. Files that are replaced as a
whole take the place of Kafka's metadata log; its offsets are the count of changes to the cluster's configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.log.log_dir import uuid_to_bytes
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

METADATA_TOPIC: Final = "__cluster_metadata"


@handles(
    ApiKey.DESCRIBE_QUORUM,
    versions=(0, 2),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    ],
)
def describe_quorum(
    broker: BrokerState, ctx: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    if not ctx.may_cluster(AclOperation.DESCRIBE):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=denied.message)
    topics = [
        DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[_one(broker, ctx, topic.topic_name, p.partition_index) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    found = ctx.api_version >= 2 and any(
        p.error_code == ErrorCode.NONE for topic in topics for p in topic.partitions
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=topics,
        nodes=[Node(node_id=broker.node_id, listeners=_listeners(broker))] if found else [],
    )


def _one(
    broker: BrokerState, ctx: RequestContext, topic: str, index: int
) -> DescribeQuorumResponsePartitionData:
    if (topic, index) != (METADATA_TOPIC, 0):
        return DescribeQuorumResponsePartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
        )
    now_ms, end = broker.now_ms(), broker.cluster_config.epoch
    me = ReplicaState(
        replica_id=broker.node_id,
        replica_directory_id=uuid_to_bytes(broker.logs.meta.directory_id)
        if ctx.api_version >= 2
        else bytes(16),
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=broker.logs.starts,
        high_watermark=end,
        current_voters=[me],
        observers=[],
    )


def _listeners(broker: BrokerState) -> list[Listener]:
    return [
        Listener(name=listener.name, host=listener.host, port=listener.port)
        for listener in broker.listeners.values()
    ]
