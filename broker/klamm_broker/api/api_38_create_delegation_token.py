"""CreateDelegationToken, key 38: versions 1 to 3.

Behaviour: refuses with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as a broker of Kafka does on a listener without
authentication: a token belongs to a user, and no user is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3))
def create_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    named = bool(request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=(request.owner_principal_type or "") if named else "User",
        principal_name=(request.owner_principal_name or "") if named else "ANONYMOUS",
        token_requester_principal_type="User" if ctx.api_version >= 3 else "",
        token_requester_principal_name="ANONYMOUS" if ctx.api_version >= 3 else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
