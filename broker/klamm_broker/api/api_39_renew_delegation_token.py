"""RenewDelegationToken, key 39: versions 1 to 2.

Behaviour: its owner and its renewers lengthen the life of a token, up to its maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.delegation_tokens import refusal
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.server import audit
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), needs=())
def renew_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    answer = RenewDelegationTokenResponse()

    def renew() -> None:
        token = broker.tokens.renew(request.hmac, ctx.principal, request.renew_period_ms, broker.now_ms())
        broker.tokens.store(token)
        audit.changed(ctx, "tokens", renewed=token.id, owner=token.owner)
        answer.expiry_timestamp_ms = token.expires_ms

    answer.error_code = refusal(broker, ctx, renew)
    if answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        answer.expiry_timestamp_ms = -1
    return answer
