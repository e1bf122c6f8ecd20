"""CreateDelegationToken, key 38: versions 1 to 3.

Behaviour: makes a token for the sender, or for the owner that it names (version 3). It is on the disk when it is answered
(`server/token_file.py`). Refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on listeners without logins and for those who have logged in
with a token, with DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from klamm_broker.api.delegation_tokens import refusal
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.security.principal import KafkaPrincipal
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    needs=[
        Need(AclOperation.CREATE_TOKENS, ResourceType.USER, "the owner, where it is not the sender"),
    ],
)
def create_delegation_token(
    broker: BrokerState, ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    asker = owner = ctx.principal
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    answer = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=asker.type if ctx.api_version >= 3 else "",
        token_requester_principal_name=asker.name if ctx.api_version >= 3 else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )

    def create() -> None:
        if owner != asker and not ctx.may(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            from klamm_broker.security.tokens import TokenRefused

            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = tuple(KafkaPrincipal(r.principal_type, r.principal_name) for r in request.renewers)
        token = broker.tokens.create(
            _new_id(), owner, requester=asker, renewers=renewers,
            lifetime_ms=request.max_lifetime_ms, now_ms=broker.now_ms(),
        )  # fmt: skip
        broker.tokens.store(token)
        audit.changed(ctx, "tokens", created=token.id, owner=token.owner)
        answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expires_ms
        answer.max_timestamp_ms, answer.token_id = token.max_ms, token.id
        answer.hmac = broker.tokens.password(token.id)

    answer.error_code = refusal(broker, ctx, create)
    return answer


def _new_id() -> str:
    """Returns a random id as Kafka writes them. None begins with a dash, which commands would take for an option."""
    while True:
        token_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if token_id[0] != "-":
            return token_id
