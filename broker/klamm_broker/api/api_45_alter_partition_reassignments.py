"""AlterPartitionReassignments, key 45: versions 0 to 1.

Behaviour: a partition may be assigned to this node, where it is already; any other broker is
INVALID_REPLICA_ASSIGNMENT. There is never a reassignment to cancel (NO_REASSIGNMENT_IN_PROGRESS).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.assignments import why_not_assignable
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def alter_partition_reassignments(
    broker: BrokerState, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    may, denied = ctx.may_cluster(AclOperation.ALTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE if may else denied,
        error_message=None if may else denied.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _one(broker, topic.name, asked)
                    if may
                    else ReassignablePartitionResponse(
                        partition_index=asked.partition_index, error_code=denied, error_message=denied.message
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _one(broker: BrokerState, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    index = asked.partition_index
    code, why = ErrorCode.NONE, None
    if topic not in broker.topics.by_name:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    elif broker.partition(topic, index) is None:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    elif asked.replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    else:
        why = why_not_assignable(asked.replicas, broker.node_id)
        code = ErrorCode.NONE if why is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=why)
