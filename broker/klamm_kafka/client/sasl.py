"""Authenticates a connection: SaslHandshake, then SaslAuthenticate as often as the mechanism needs.

PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. `Authenticator.run` may be called again on the same connection
before the session that the broker granted ends (KIP-368).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from klamm_base.oauth import TokenRefused, TokenSource, initial_response
from klamm_base.refused_logins import CHECK
from klamm_base.security import SaslSettings
from klamm_kafka.client.errors import AuthenticationFailed, ConnectionLost
from klamm_kafka.client.scram import ScramClient, ScramError
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm_kafka.wire.struct import Message

Ask = Callable[[Message], Awaitable[Any]]


class Authenticator:
    """The SASL side of a cluster's connections, which share tokens."""

    def __init__(self, settings: SaslSettings) -> None:
        self._settings = settings
        self._tokens = TokenSource(settings.oauth) if settings.oauth else None

    async def run(self, ask: Ask, where: str) -> int:
        """Authenticate through `ask`. Returns the session's lifetime in ms, 0 for no end.

        Raises AuthenticationFailed, and what `ask` raises.
        """
        mechanism = self._settings.mechanism
        shaken: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=mechanism))
        if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            has = ", ".join(shaken.mechanisms) or "none"
            raise AuthenticationFailed(
                f"{where}: the broker does not take sasl.mechanism={mechanism}; it has {has}"
            )
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(f"{where}: the listener does no SASL; look at security.protocol")
        if shaken.error_code:
            raise AuthenticationFailed(f"{where}: SaslHandshake: {_name(shaken.error_code)}")
        try:
            if self._tokens is not None:
                return await self._oauth(ask, where, self._tokens)
            if mechanism == "PLAIN":
                who = f"\0{self._settings.username}\0{self._settings.password}"
                return (await self._say(ask, where, who.encode())).session_lifetime_ms
            return await self._scram(ask, where)
        except ScramError as e:
            raise AuthenticationFailed(f"{where}: {mechanism}: {e}") from None

    async def _scram(self, ask: Ask, where: str) -> int:
        settings = self._settings
        client = ScramClient(
            settings.mechanism, settings.username, settings.password, token_auth=settings.token_auth
        )
        answer = await self._say(ask, where, client.first())
        answer = await self._say(ask, where, client.final(answer.auth_bytes))
        client.verify(answer.auth_bytes)
        return answer.session_lifetime_ms

    async def _oauth(self, ask: Ask, where: str, tokens: TokenSource) -> int:
        assert self._settings.oauth is not None
        try:
            token = await asyncio.to_thread(tokens.token)
        except TokenRefused as e:
            raise ConnectionLost(f"{where}: {e}") from None  # the endpoint may be back in a moment
        answer = await self._say(ask, where, initial_response(token, self._settings.oauth.extensions))
        if answer.auth_bytes:  # the server's reasons; it waits for one byte and refuses then
            await self._say(ask, where, b"\x01")
            raise AuthenticationFailed(f"{where}: the broker refuses the token: {answer.auth_bytes!r}")
        return answer.session_lifetime_ms

    async def _say(self, ask: Ask, where: str, data: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=data))
        if answer.error_code:
            said = answer.error_message or _name(answer.error_code)
            check = "" if self._settings.oauth else f"; {CHECK}"
            raise AuthenticationFailed(f"{where}: {self._settings.mechanism} as {self._who}: {said}{check}")
        return answer

    @property
    def _who(self) -> str:
        oauth = self._settings.oauth
        if oauth is None:
            return repr(self._settings.username)
        return repr(oauth.client_id or oauth.subject) if oauth.client_id or oauth.subject else oauth.endpoint


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
