"""ExpireDelegationToken, key 40: versions 1 to 2.

Behaviour: its owner and its renewers set the end of a token; a negative period removes it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.delegation_tokens import refusal
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.server import audit
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), needs=())
def expire_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    answer = ExpireDelegationTokenResponse()

    def expire() -> None:
        tokens, now_ms = broker.tokens, broker.now_ms()
        token, ends_now = tokens.expire(request.hmac, ctx.principal, request.expiry_time_period_ms, now_ms)
        if ends_now:
            tokens.remove(token)
        else:
            tokens.store(token)
        audit.changed(ctx, "tokens", ended=token.id, owner=token.owner)
        answer.expiry_timestamp_ms = token.expires_ms

    answer.error_code = refusal(broker, ctx, expire)
    if answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        answer.expiry_timestamp_ms = -1
    return answer
