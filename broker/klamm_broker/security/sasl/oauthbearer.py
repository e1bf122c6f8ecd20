"""SASL OAUTHBEARER (RFC 7628) as Kafka's servers speak it: the messages, and tokens without a signature.

A token that is not valid gets a JSON answer that says so; the login fails at the byte that the client sends then.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from klamm_base.errors import KlammError
from klamm_broker.security.sasl.mechanism import Identity, LoginRefused, refused_aloud

TOKEN_MAX: Final = 64 * 1024
"""Characters of a token. Those of large identity providers have a few thousand."""
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.A-Za-z0-9]+)")
_KEY: Final = re.compile(r"[A-Za-z]+")


class TokenInvalid(KlammError):
    """A token that is not accepted, with the reason for the log. `scope` is the one that was missing."""

    def __init__(self, why: str, *, scope: str | None = None) -> None:
        super().__init__(why)
        self.scope = scope


class Validator(Protocol):
    """Checks tokens."""

    def check(self, token: str, now_ms: int) -> Identity:
        """Returns whose token it is and when it ends. Raises TokenInvalid."""


class OAuthServer:
    """One login."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._error: tuple[str, str] | None = None  # what the client was told, and the reason
        self.identity: Identity | None = None

    def step(self, data: bytes, now_ms: int) -> bytes:
        if self._error is not None and data == b"\x01":
            told, why = self._error
            raise LoginRefused(why, told=told)
        self._error = None
        token, authorization_id = parse_initial(data)
        try:
            identity = self._validator.check(token, now_ms)
        except TokenInvalid as e:
            told = '{"status":"invalid_token"}'
            if e.scope is not None:
                told = f'{{"status":"insufficient_scope", "scope":"{e.scope}"}}'
            self._error = told, str(e)
            return told.encode()
        if authorization_id and authorization_id != identity.name:
            raise refused_aloud(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is "
                f"different from the token's principal name ({identity.name})"
            )
        self.identity = identity
        return b""


def parse_initial(data: bytes) -> tuple[str, str]:
    """Returns (token, authorization id) of a client's first message. Raises LoginRefused."""
    invalid = LoginRefused("Invalid OAUTHBEARER client first message")
    try:
        header, *pairs = data.decode().split("\x01")
    except UnicodeDecodeError:
        raise invalid from None
    gs2 = header.split(",")
    if len(gs2) != 3 or gs2[0] != "n" or gs2[2] or (gs2[1] and not gs2[1].startswith("a=")):
        raise invalid
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise invalid
    properties: dict[str, str] = {}
    for pair in pairs[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not value or key in properties:
            raise invalid
        properties[key] = value
    auth = _AUTH.fullmatch(properties.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginRefused("Invalid OAUTHBEARER client first message: 'auth' is not a bearer token")
    if len(auth["token"]) > TOKEN_MAX:
        raise LoginRefused(f"the token has {len(auth['token'])} characters, at most {TOKEN_MAX} are taken")
    return auth["token"], gs2[1][2:].replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Demands on the claims of a token. Times are in seconds."""

    sub: str = "sub"
    scope: str = "scope"
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    required_scopes: tuple[str, ...] = ()
    skew_s: float = 0
    issued_at_needed: bool = False

    def check(self, claims: Mapping[str, Any], now_ms: int) -> Identity:
        """Returns whose token it is. Raises TokenInvalid, which names the claim."""
        expires = _seconds(claims, "exp")
        if expires is None:
            raise TokenInvalid("the token has no claim exp")
        now, skew = now_ms / 1000, self.skew_s
        if now - skew >= expires:
            raise TokenInvalid(f"the token has expired at {expires:.0f} (it is {now:.0f})")
        issued = _seconds(claims, "iat")
        if issued is None and self.issued_at_needed:
            raise TokenInvalid("the token has no claim iat")
        for name in ("iat", "nbf"):
            if (since := _seconds(claims, name)) is not None and since > now + skew:
                raise TokenInvalid(f"the token's {name} {since:.0f} is in the future (it is {now:.0f})")
        if issued is not None and expires < issued:
            raise TokenInvalid("the token's exp is before its iat")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenInvalid(f"the token's iss is not the expected {self.issuer!r}")
        if self.audience and not set(_words(claims, "aud", split=False)) & set(self.audience):
            raise TokenInvalid(f"the token's aud has none of {', '.join(self.audience)}")
        who = claims.get(self.sub)
        if not isinstance(who, str) or not who.strip():
            raise TokenInvalid(f"the token has no text in its claim {self.sub}")
        scopes = set(_words(claims, self.scope, split=True))
        if not set(self.required_scopes) <= scopes:
            raise TokenInvalid("the token lacks a scope", scope=" ".join(self.required_scopes))
        return Identity(name=who.strip(), expires_ms=int(expires * 1000))


class UnsecuredValidator:
    """Takes tokens without a signature, from anybody: Kafka's validator for development."""

    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules

    def check(self, token: str, now_ms: int) -> Identity:
        parts = token.split(".")
        if len(parts) != 3:
            raise TokenInvalid("the token does not have three parts")
        if _decoded(parts[0]).get("alg") != "none" or parts[2]:
            raise TokenInvalid("the token is signed: unsecured tokens have alg none and no signature")
        return self._rules.check(_decoded(parts[1]), now_ms)


def _decoded(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise TokenInvalid("a part of the token is not JSON in base64url") from None
    if not isinstance(found, dict):
        raise TokenInvalid("a part of the token is not a JSON object")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise TokenInvalid(f"the token's claim {name} is not a time")
    return float(value)


def _words(claims: Mapping[str, Any], name: str, *, split: bool) -> list[str]:
    value = claims.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        return value.split() if split else [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise TokenInvalid(f"the token's claim {name} is neither a text nor a list of texts")
