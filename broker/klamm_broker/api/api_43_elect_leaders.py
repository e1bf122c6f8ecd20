"""ElectLeaders, key 43: versions 0 to 2.

Behaviour: one node leads every partition, so no election is ever needed. Each named partition gets ELECTION_NOT_NEEDED;
a request for all partitions gets no lines, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

_ELECTION_TYPES: Final = (0, 1)
"""Preferred and unclean."""


@handles(
    ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def elect_leaders(
    broker: BrokerState, ctx: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if not ctx.may_cluster(AclOperation.ALTER):
        return _denied(request, ctx.api_version)
    known_type = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None:
        results = [ReplicaElectionResult(topic=name, partition_result=[]) for name in broker.topics.by_name]
    else:
        results = [
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _one(broker, asked.topic, index, request.election_type) for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ]
    code = ErrorCode.NONE if known_type else ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _denied(request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=code.message)
                for index in asked.partitions
            ],
        )
        for asked in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(
        error_code=code if version else ErrorCode.NONE, replica_election_results=results
    )


def _one(broker: BrokerState, topic: str, index: int, election_type: int) -> PartitionResult:
    if election_type not in _ELECTION_TYPES:
        code, why = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    elif topic not in broker.topics.by_name:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    elif broker.partition(topic, index) is None:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
    else:
        code, why = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=why)
