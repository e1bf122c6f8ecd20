"""ExpireDelegationToken, key 40: versions 1 to 2.

Behaviour: refuses with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as a broker of Kafka does on a listener without
authentication: a token belongs to a user, and no user is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2))
def expire_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
