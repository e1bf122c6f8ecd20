"""DescribeCluster, key 60: versions 0 to 2.

Behaviour: one broker, which is its own controller. Endpoint type 1 (brokers) is answered; 2 (controllers) is refused
with UNSUPPORTED_ENDPOINT_TYPE, because there is no controller listener.
Not supported: authorized operations (answered as "not asked").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker

BROKERS: Final = 1


@handles(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2))
def describe_cluster(
    broker: Broker, ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is not served here, {BROKERS} (brokers) is",
            endpoint_type=request.endpoint_type,
            cluster_id=broker.cluster_id,
        )
    listener = broker.listeners[ctx.listener]
    me = DescribeClusterBroker(
        broker_id=broker.node_id, host=listener.host, port=listener.port, rack=broker.config["broker.rack"]
    )
    return DescribeClusterResponse(cluster_id=broker.cluster_id, controller_id=broker.node_id, brokers=[me])
