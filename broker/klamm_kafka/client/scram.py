"""The client's side of SCRAM (RFC 5802, RFC 7677) as Kafka's clients speak it. Pure.

There is no channel binding and no SASLprep: Kafka takes names and passwords as UTF-8, unchanged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096  # Kafka's; fewer would let a false server guess the password faster
ITERATIONS_MAX: Final = (
    200_000  # Kafka's brokers allow 16,384; a false server must not keep us busy for minutes
)
_GS2: Final = "n,,"


class ScramError(ValueError):
    """The server's message is wrong, or the server does not know our password."""


class ScramClient:
    """One authentication: call `first`, then `final` with the server's answer, then `verify` with its last message."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        token_auth: bool = False,
        nonce: str | None = None,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce if nonce is not None else secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}" + (",tokenauth=true" if token_auth else "")
        self._server_signature = b""

    def first(self) -> bytes:
        return (_GS2 + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Returns the proof that we know the password. Raises ScramError."""
        said = _attributes(server_first)
        nonce, salt, count = said.get("r", ""), said.get("s", ""), said.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not go on from ours")
        if not count.isdigit() or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
            raise ScramError(
                f"the server asks for {count} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        try:
            salted = hashlib.pbkdf2_hmac(
                self._hash, self._password, base64.b64decode(salt, validate=True), int(count)
            )
        except binascii.Error:
            raise ScramError("the server's salt is not base64") from None
        bare = f"c={base64.b64encode(_GS2.encode()).decode()},r={nonce}"
        message = b",".join([self._bare.encode(), server_first, bare.encode()])
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password as well. Raises ScramError."""
        said = _attributes(server_final)
        if "e" in said:
            raise ScramError(f"the server refuses: {said['e']}")
        try:
            signature = base64.b64decode(said.get("v", ""), validate=True)
        except binascii.Error:
            signature = b""
        if not signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server does not prove that it knows the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("the server's message is not UTF-8") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
