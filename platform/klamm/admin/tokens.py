"""Delegation tokens (KIP-48): made, renewed, ended and listed (38 to 41)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm_kafka.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from klamm_kafka.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from klamm_kafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

Principal = tuple[str, str]
"""The type (`User`) and the name of a principal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token. Times are ms since the epoch; `hmac` is the password of its logins."""

    id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


async def create_token(
    admin: Admin, *, owner: Principal | None, renewers: Sequence[Principal], max_lifetime_ms: int = -1
) -> Token:
    """Make a token, for the user of this connection unless an owner is named. Raises AdminError."""
    kind, name = owner or (None, None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[CreatableRenewers(principal_type=k, principal_name=n) for k, n in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = await admin.ask(request)
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot create a token")
    made = (answer.principal_type, answer.principal_name)
    return Token(
        id=answer.token_id,
        hmac=answer.hmac,
        owner=made,
        requester=(answer.token_requester_principal_type, answer.token_requester_principal_name),
        renewers=tuple(renewers),
        issued_ms=answer.issue_timestamp_ms,
        expires_ms=answer.expiry_timestamp_ms,
        max_ms=answer.max_timestamp_ms,
    )


async def renew_token(admin: Admin, hmac: bytes, period_ms: int = -1) -> int:
    """Let a token live for so long from now (-1: the broker's default). Returns when it expires. Raises AdminError."""
    answer = await admin.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot renew the token")
    return int(answer.expiry_timestamp_ms)


async def expire_token(admin: Admin, hmac: bytes, period_ms: int = -1) -> int:
    """Let a token end so long from now (-1: at once). Returns when it expires. Raises AdminError."""
    answer = await admin.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot expire the token")
    return int(answer.expiry_timestamp_ms)


async def describe_tokens(admin: Admin, owners: Sequence[Principal] = ()) -> list[Token]:
    """Return the tokens of these owners, or all that the user of this connection may see. Raises AdminError."""
    asked = [DescribeDelegationTokenOwner(principal_type=k, principal_name=n) for k, n in owners] or None
    answer = await admin.ask(DescribeDelegationTokenRequest(owners=asked))
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot describe tokens")
    return [
        Token(
            id=t.token_id,
            hmac=t.hmac,
            owner=(t.principal_type, t.principal_name),
            requester=(t.token_requester_principal_type, t.token_requester_principal_name),
            renewers=tuple((r.principal_type, r.principal_name) for r in t.renewers),
            issued_ms=t.issue_timestamp,
            expires_ms=t.expiry_timestamp,
            max_ms=t.max_timestamp,
        )
        for t in answer.tokens
    ]
