"""DescribeDelegationToken, key 41: versions 1 to 3.

Behaviour: tells the tokens of which the sender is owner or renewer, with their passwords; of these only those of the named owners, if
there are names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.delegation_tokens import may_ask
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.security.principal import KafkaPrincipal
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.security.tokens import Token
    from klamm_broker.server.state import BrokerState

_STEP: Final = 32
"""Tokens in one step: rights and a password are worked out for each."""


@handles(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "tokens of others"),
        Need(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "the owner, instead of DESCRIBE of the token"),
    ],
)
def describe_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    if not may_ask(broker, ctx):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not broker.tokens.enabled:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = request.owners
    named = {KafkaPrincipal(o.principal_type, o.principal_name) for o in owners or ()}
    told = []
    for number, token in enumerate(list(broker.tokens.known.values()), 1):
        if not number % _STEP:
            yield None
        if owners is not None and named.isdisjoint((token.owner, token.requester, *token.renewers)):
            continue
        if token.may_be_renewed_by(ctx.principal) or _may_describe(broker, ctx, token):
            told.append(_described(token, broker.tokens.password(token.id), ctx.api_version))
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=told)


def _may_describe(broker: BrokerState, ctx: RequestContext, token: Token) -> bool:
    """Decides whether the sender may see a token of others. Without an authorizer nobody may."""
    if broker.authorizer is None:
        return False
    return ctx.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id) or ctx.may(
        AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
    )


def _described(token: Token, password: bytes, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if version >= 3 else "",
        token_requester_principal_name=token.requester.name if version >= 3 else "",
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=password,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=r.type, principal_name=r.name)
            for r in token.renewers
        ],
    )
