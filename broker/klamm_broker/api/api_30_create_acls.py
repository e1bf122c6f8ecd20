"""CreateAcls, key 30: versions 1 to 3.

Behaviour: answers SECURITY_DISABLED, as there is no authorizer; a broker of Kafka without one does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.CREATE_ACLS, versions=(1, 3))
def create_acls(broker: BrokerState, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refused] * len(request.creations))
