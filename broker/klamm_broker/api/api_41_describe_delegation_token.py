"""DescribeDelegationToken, key 41: versions 1 to 3.

Behaviour: refuses with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as a broker of Kafka does on a listener without
authentication: a token belongs to a user, and no user is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3))
def describe_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[]
    )
