"""Delegation tokens (KIP-48): their life, as Kafka's DelegationTokenControlManager has it. Pure: times are passed in, in ms.

A token is an id with a password, the HMAC of the id under the broker's secret key. Its owner and its renewers may renew
it up to its maximum; whoever has the password may log in as the owner.
"""

from __future__ import annotations

import base64
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klamm_base.errors import KlammError
from klamm_broker.security.principal import KafkaPrincipal
from klamm_broker.security.sasl.credentials import ITERATIONS, Credential, Decoys, Mechanism, of_password
from klamm_broker.security.sasl.mechanism import Identity
from klamm_broker.security.sasl.scram import Account
from klamm_kafka.wire.errors import ErrorCode

RENEWERS_MAX: Final = 100
RENEWERS_CHARS_MAX: Final = 16_384
"""So many renewers a token can have, and so long are their names together."""


class TokenRefused(KlammError):
    """A request about a token that is not granted, with the code of the answer; `why` where the code does not say it."""

    def __init__(self, code: ErrorCode, why: str = "") -> None:
        super().__init__(why or code.name)
        self.code = code
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token. `requester` asked for it on behalf of `owner`; they are mostly the same."""

    id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def may_be_renewed_by(self, principal: KafkaPrincipal) -> bool:
        """Decides whether a principal may see, renew and end the token. Who asked for it may, too."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms or self.max_ms < now_ms


class TokenRules(NamedTuple):
    """Lifetimes in ms: at most `max_ms`, and `renew_ms` at a time. How many tokens there can be, of one owner and of all."""

    max_ms: int
    renew_ms: int
    per_owner: int = 1_000
    all: int = 10_000


class Tokens:
    """All tokens. Every change returns what is to be stored, and takes effect with `put` and `drop`.

    `secret_key` is `delegation.token.secret.key`: None switches tokens off.
    """

    def __init__(self, secret_key: str | None, rules: TokenRules, tokens: Iterable[Token] = ()) -> None:
        self._key = None if secret_key is None else secret_key.encode()
        self._rules = rules
        self._by_id: dict[str, Token] = {}
        self._by_password: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, Mechanism], Credential] = {}
        self._owned: Counter[KafkaPrincipal] = Counter()
        for token in tokens:
            self.put(token)

    @property
    def enabled(self) -> bool:
        return self._key is not None

    @property
    def known(self) -> Mapping[str, Token]:
        """The tokens by id."""
        return self._by_id

    def password(self, token_id: str) -> bytes:
        """Returns the HMAC, whose base64 is the password. Raises TokenRefused while tokens are switched off."""
        return hmac.digest(self._secret(), token_id.encode(), "sha512")

    def put(self, token: Token) -> None:
        """Add a token that was stored, or replace the one of its id."""
        if token.id not in self._by_id:
            self._owned[token.owner] += 1
            if self._key is not None:
                self._by_password[self.password(token.id)] = token.id
        self._by_id[token.id] = token

    def drop(self, token_id: str) -> None:
        """Forget a token whose removal was stored."""
        token = self._by_id.pop(token_id, None)
        if token is None:
            return
        self._owned[token.owner] -= 1
        if not self._owned[token.owner]:
            del self._owned[token.owner]
        if self._key is not None:
            self._by_password.pop(self.password(token_id), None)
        for mechanism in Mechanism:
            self._credentials.pop((token_id, mechanism), None)

    def create(
        self, token_id: str, owner: KafkaPrincipal, *, requester: KafkaPrincipal,
        renewers: tuple[KafkaPrincipal, ...], lifetime_ms: int, now_ms: int,
    ) -> Token:  # fmt: skip
        """Returns a new token; a lifetime of 0 or less is the longest. Raises TokenRefused."""
        self._secret()
        renewers = tuple(dict.fromkeys(renewers))
        if any(renewer.type != "User" for renewer in renewers):
            raise TokenRefused(ErrorCode.INVALID_PRINCIPAL_TYPE)
        self._check_room(owner, renewers)
        longest = now_ms + (min(lifetime_ms, self._rules.max_ms) if lifetime_ms > 0 else self._rules.max_ms)
        return Token(
            id=token_id, owner=owner, requester=requester, renewers=renewers, issued_ms=now_ms,
            expires_ms=min(longest, now_ms + self._rules.renew_ms), max_ms=longest,
        )  # fmt: skip

    def renew(self, password: bytes, asker: KafkaPrincipal, period_ms: int, now_ms: int) -> Token:
        """Returns the token with its new end; a period of 0 or less is the longest. Raises TokenRefused."""
        token = self._find(password)
        if token.is_over(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.may_be_renewed_by(asker):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        period_ms = min(period_ms, self._rules.renew_ms) if period_ms > 0 else self._rules.renew_ms
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

    def expire(self, password: bytes, asker: KafkaPrincipal, period_ms: int, now_ms: int) -> tuple[Token, bool]:  # fmt: skip
        """Returns the token with its new end, and whether it is to be removed: a negative period ends it now. Raises TokenRefused."""
        token = self._find(password)
        if not token.may_be_renewed_by(asker):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        if period_ms < 0:
            return replace(token, expires_ms=now_ms), True
        if token.is_over(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms)), False

    def over(self, now_ms: int) -> list[str]:
        """Returns the ids of the tokens that have ended."""
        return [token.id for token in self._by_id.values() if token.is_over(now_ms)]

    def account(self, mechanism: Mechanism, token_id: str, decoys: Decoys) -> Account:
        """Returns the account behind a token's id. Deriving its credential takes a millisecond, once."""
        token = self._by_id.get(token_id)
        if token is None or self._key is None:
            return Account(credential=decoys.make(token_id), identity=None)
        key = token_id, mechanism
        credential = self._credentials.get(key)
        if credential is None:
            password = base64.b64encode(self.password(token_id)).decode()
            salt = hmac.digest(self._key, b"salt " + token_id.encode(), "sha256")
            credential = of_password(mechanism, password, salt=salt, iterations=ITERATIONS[0])
            self._credentials[key] = credential
        name = token.owner.name
        identity = Identity(name=name, token_authenticated=True, expires_ms=token.expires_ms)
        return Account(credential=credential, identity=identity)

    def _check_room(self, owner: KafkaPrincipal, renewers: tuple[KafkaPrincipal, ...]) -> None:
        """Raises TokenRefused when a token with these renewers would be too large, or one too many."""
        if len(renewers) > RENEWERS_MAX:
            raise TokenRefused(
                ErrorCode.INVALID_REQUEST, f"{len(renewers)} renewers, at most {RENEWERS_MAX} can be"
            )
        chars = sum(len(renewer.name) for renewer in renewers)
        if chars > RENEWERS_CHARS_MAX:
            why = f"the names of the renewers have {chars} characters, at most {RENEWERS_CHARS_MAX} can be"
            raise TokenRefused(ErrorCode.INVALID_REQUEST, why)
        if self._owned[owner] >= self._rules.per_owner:
            why = f"{str(owner)[:200]} has {self._rules.per_owner} tokens, and no more can be"
            raise TokenRefused(ErrorCode.POLICY_VIOLATION, why)
        if len(self._by_id) >= self._rules.all:
            raise TokenRefused(
                ErrorCode.POLICY_VIOLATION, f"there are {self._rules.all} tokens, and no more can be"
            )

    def _find(self, password: bytes) -> Token:
        self._secret()
        if password not in self._by_password:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._by_id[self._by_password[password]]

    def _secret(self) -> bytes:
        if self._key is None:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._key
