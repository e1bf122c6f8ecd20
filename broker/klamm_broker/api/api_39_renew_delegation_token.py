"""RenewDelegationToken, key 39: versions 1 to 2.

Behaviour: refuses with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as a broker of Kafka does on a listener without
authentication: a token belongs to a user, and no user is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2))
def renew_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
