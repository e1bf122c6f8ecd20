"""DescribeCluster, key 60: versions 0 to 2.

Behaviour: answers one broker, which is its own controller. Endpoint type 1 (brokers) is answered; 2 (controllers) is
refused with MISMATCHED_ENDPOINT_TYPE, as by every broker's listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api import authorized
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(
    ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, "for the operations on the cluster"),
    ],
)
def describe_cluster(
    broker: BrokerState, ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        mismatched = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if mismatched
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is not served here, {BROKERS} (brokers) is",
        )
    listener = broker.listeners[ctx.listener]
    me = DescribeClusterBroker(
        broker_id=broker.node_id, host=listener.host, port=listener.port, rack=broker.config["broker.rack"]
    )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[me],
        cluster_authorized_operations=authorized.cluster_operations(ctx) if asked else authorized.NOT_ASKED,
    )
