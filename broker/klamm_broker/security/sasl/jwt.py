"""Signed tokens (JWT, RFC 7519), checked with the public keys of a JWKS (RFC 7517).

joserfc does the cryptography. Only signatures of key pairs are taken: a shared secret in a published key set would be
everybody's. It is imported when there are keys to read, because it is an extra.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_broker.security.sasl.mechanism import Identity
from klamm_broker.security.sasl.oauthbearer import ClaimRules, TokenInvalid

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_KINDS: Final = frozenset({"RSA", "EC", "OKP"})


class KeysInvalid(ValueError):
    """A document that is no JWKS, with the reason."""


def read_keys(document: bytes) -> KeySet:
    """Returns the public signing keys of a JWKS document. Raises KeysInvalid, and ImportError without joserfc."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        parsed = json.loads(document)
        listed = parsed["keys"]
        wanted = [key for key in listed if key.get("kty") in _KINDS and key.get("use", "sig") == "sig"]
        keys = KeySet.import_key_set({"keys": wanted})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, JoseError) as e:
        raise KeysInvalid(f"no JSON Web Key Set ({type(e).__name__})") from e
    if not keys.keys:
        raise KeysInvalid("it has no public key for signatures (kty RSA, EC or OKP)")
    return keys


class JwtValidator:
    """Checks signature and claims. `keys` returns the newest keys or None; `unknown` hears of a key id that they lack."""

    def __init__(
        self, rules: ClaimRules, keys: Callable[[], KeySet | None], unknown: Callable[[str], None]
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._unknown = unknown

    def check(self, token: str, now_ms: int) -> Identity:
        from joserfc import jws
        from joserfc.errors import JoseError

        keys = self._keys()
        if keys is None:
            raise TokenInvalid("there are no keys yet to check the token with")
        try:
            signed = jws.extract_compact(token.encode())
            key_id = signed.headers().get("kid")
            if isinstance(key_id, str) and all(key.kid != key_id for key in keys.keys):
                self._unknown(key_id)
                raise TokenInvalid(f"the token's key {key_id[:64]!r} is not in the key set")
            claims = json.loads(
                jws.deserialize_compact(token.encode(), keys, algorithms=[*ALGORITHMS]).payload
            )
        except TokenInvalid:
            raise
        except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise TokenInvalid(f"the token is not signed by a key of the key set ({type(e).__name__})") from e
        if not isinstance(claims, dict):
            raise TokenInvalid("the token's payload is not a JSON object")
        return self._rules.check(claims, now_ms)
