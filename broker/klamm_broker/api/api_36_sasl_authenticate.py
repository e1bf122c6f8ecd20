"""SaslAuthenticate, key 36: versions 0 to 2.

Behaviour: refuses with ILLEGAL_SASL_STATE. On a listener with logins, `server/login.py` answers this request before it gets here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), needs=())
def sasl_authenticate(
    broker: BrokerState, ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
