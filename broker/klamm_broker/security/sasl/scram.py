"""The server's side of SCRAM (RFC 5802, RFC 7677), with Kafka's extension `tokenauth=true` for delegation tokens.

An unknown user gets a decoy (`credentials.Decoys`) and fails where a wrong password fails, with the same work and the
same sentence. Kafka says at the first message that a user is unknown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm_broker.security.sasl.credentials import ITERATIONS, Credential, Mechanism
from klamm_broker.security.sasl.mechanism import Identity, LoginRefused, refused_aloud

_SASL_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<more>(?:,[A-Za-z]+=[^\x00,]+)*))"
)
_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\x00,]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The meaning of a user name: a credential, and the user who may log in with it (None for a decoy)."""

    credential: Credential
    identity: Identity | None


FindAccount = Callable[[str, bool], Account]
"""Finds the account of a user name or, if the second argument is true, of a delegation token's id."""


class ScramServer:
    """One login: the client's first message, then its proof."""

    def __init__(self, mechanism: Mechanism, find: FindAccount, *, nonce: str | None = None) -> None:
        self._hash = mechanism.hash
        self._find = find
        self._nonce = nonce if nonce is not None else secrets.token_urlsafe(24)
        self._account: Account | None = None
        self._name = self._binding = self._said = ""
        self.identity: Identity | None = None

    def step(self, data: bytes, now_ms: int) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise LoginRefused("the SCRAM message is not UTF-8") from None
        return self._first(text) if self._account is None else self._final(text, self._account, now_ms)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise LoginRefused("Invalid SCRAM client first message format")
        self._name = _plain_name(match["name"])
        tokens = ",tokenauth=true" in match["more"].lower()
        account = self._find(self._name, tokens)
        if match["authzid"] is not None and _plain_name(match["authzid"]) != self._name:
            raise refused_aloud(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if account.credential.iterations < ITERATIONS[0]:
            raise LoginRefused(
                f"the credential of user {self._name!r} has {account.credential.iterations} iterations, "
                f"at least {ITERATIONS[0]} are needed"
            )
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(account.credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={account.credential.iterations}"
        self._account = account
        self._binding = base64.b64encode(match["gs2"].encode()).decode()
        self._said = f"{match['bare']},{answer},"
        return answer.encode()

    def _final(self, text: str, account: Account, now_ms: int) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise LoginRefused("Invalid SCRAM client final message format")
        if match["nonce"] != self._nonce:
            raise LoginRefused("Invalid client nonce in the final client message")
        if match["binding"] != self._binding:
            raise LoginRefused("the channel binding of the final message is not that of the first one")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise LoginRefused("the client's proof is not base64") from None
        credential = account.credential
        message = (self._said + match["bare"]).encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        proved = len(proof) == len(signature) and hmac.compare_digest(stored_key, credential.stored_key)
        if not proved or account.identity is None:
            # the name of nobody is not logged: it may be a password in the wrong field
            named = f"user {self._name!r}"  # made for nobody as well: it takes time
            who = "no such user" if account.identity is None else named
            raise LoginRefused(f"Invalid client credentials ({who})")
        expires = account.identity.expires_ms
        if expires is not None and expires < now_ms:
            raise LoginRefused(f"the delegation token {self._name!r} has expired")
        self.identity = account.identity
        verifier = hmac.digest(credential.server_key, message, self._hash)
        return b"v=" + base64.b64encode(verifier)


def _plain_name(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")
