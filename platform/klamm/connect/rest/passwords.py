"""Passwords and tokens as the users file holds them: never themselves, only what checks them.

A password is `scrypt:N:R:P:SALT:HASH` (base64); a token, which is long and random, is the SHA-256 of it in hex.
Checking a password takes some 50 ms of CPU on purpose: call it in a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

N: Final = 1 << 14
R: Final = 8
P: Final = 1
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_MEMORY_MAX: Final = 256 << 20
TOKEN_BYTES: Final = 32


def hash_password(password: str, salt: bytes | None = None) -> str:
    """What the users file holds for this password."""
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    key = _scrypt(password, salt, N, R, P)
    return f"scrypt:{N}:{R}:{P}:{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"


def check_form(stored: str) -> None:
    """Raise ValueError with what is wrong with a stored password."""
    _parts(stored)


def verify(password: str, stored: str) -> bool:
    """Whether this is the password. Takes its time."""
    n, r, p, salt, key = _parts(stored)
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), key)


def new_token() -> tuple[str, str]:
    """A token and what the users file holds for it."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, token_digest(token)


def token_digest(token: str) -> str:
    """Of any text: headers that are no UTF-8 come with half surrogates."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes]:
    parts = stored.split(":")
    if len(parts) != 6 or parts[0] != "scrypt":
        raise ValueError("it is not scrypt:N:R:P:SALT:HASH; make one with `klamm connect password`")
    try:
        n, r, p = (int(part) for part in parts[1:4])
        salt, key = (base64.b64decode(part, validate=True) for part in parts[4:])
    except (ValueError, binascii.Error):
        raise ValueError("its numbers or its base64 cannot be read") from None
    if n < 2 or n & (n - 1) or not 1 <= r <= 32 or not 1 <= p <= 16 or 128 * n * r > _MEMORY_MAX:
        raise ValueError("its scrypt parameters are out of range")
    if len(key) != _KEY_BYTES or not salt:
        raise ValueError(f"its hash must have {_KEY_BYTES} bytes and its salt at least one")
    return n, r, p, salt, key


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * _MEMORY_MAX, dklen=_KEY_BYTES
    )
