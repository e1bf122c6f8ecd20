"""SASL PLAIN (RFC 4616) with the users of a broker's JAAS entry, in Kafka's words."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from klamm_broker.security.sasl.mechanism import Identity, LoginRefused, refused_aloud

_WRONG: Final = "Authentication failed: Invalid username or password"
_PREFIX: Final = "user_"


class PlainUsers:
    """Users with passwords. Only digests under `secret` are kept, so that comparing takes the same time for each."""

    def __init__(self, passwords: Mapping[str, str], secret: bytes) -> None:
        self._secret = secret
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._nobody = self._digest("")[::-1]  # the digest of no password

    @classmethod
    def of_options(cls, options: Mapping[str, str], secret: bytes) -> PlainUsers:
        """Returns the users of a PlainLoginModule: options `user_NAME="password"`."""
        named = {name[len(_PREFIX) :]: value for name, value in options.items() if name.startswith(_PREFIX)}
        return cls(named, secret)

    def accepts(self, name: str, password: str) -> bool:
        """Returns whether this is the user's password. An unknown user takes the same work."""
        return hmac.compare_digest(self._digest(password), self._digests.get(name, self._nobody))

    def named(self, name: str) -> str:
        """Returns a user's name for a log. One that does not exist is not named: it may be a password in the wrong field."""
        named = f"user {name!r}"  # made for nobody as well: it takes time
        return named if name in self._digests else "no such user"

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(errors="surrogatepass"), "sha256")


class PlainServer:
    """One login."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.identity: Identity | None = None

    def step(self, data: bytes, now_ms: int) -> bytes:
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("the PLAIN message is not UTF-8") from None
        if len(parts) != 3:
            raise refused_aloud(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise refused_aloud("Authentication failed: username not specified")
        if not password:
            raise refused_aloud("Authentication failed: password not specified")
        if not self._users.accepts(name, password):
            raise LoginRefused(f"{_WRONG} ({self._users.named(name)})", told=_WRONG)
        if authorization_id and authorization_id != name:
            raise refused_aloud(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = Identity(name=name)
        return b""
