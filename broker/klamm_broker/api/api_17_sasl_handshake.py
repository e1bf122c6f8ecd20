"""SaslHandshake, key 17: versions 0 to 1.

Behaviour: refuses with ILLEGAL_SASL_STATE. On a listener with logins, `server/login.py` answers this request before it gets here;
what gets here is sent on a listener without, or after a login that needs no renewal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.SASL_HANDSHAKE, versions=(0, 1), needs=())
def sasl_handshake(
    broker: BrokerState, ctx: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
