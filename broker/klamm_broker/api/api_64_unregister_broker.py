"""UnregisterBroker, key 64: version 0.

Behaviour: refuses this broker, the only one, as it is running (INVALID_REQUEST); any other id is
BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.UNREGISTER_BROKER,
    versions=(0, 0),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def unregister_broker(
    broker: BrokerState, ctx: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    if not ctx.may_cluster(AclOperation.ALTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return UnregisterBrokerResponse(error_code=denied, error_message=denied.message)
    if request.broker_id == broker.node_id:
        why = f"Broker ID {broker.node_id} is the only broker, and it is running"
        return UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
