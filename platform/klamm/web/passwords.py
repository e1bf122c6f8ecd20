"""Passwords and tokens in the form of the users file, which can check them but does not contain them.

A password is `scrypt:N:R:P:SALT:HASH` (base64); a token, which is long and random, is its SHA-256 in hex.
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
    """Returns the users file's form of this password."""
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    key = _scrypt(password, salt, N, R, P)
    return f"scrypt:{N}:{R}:{P}:{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"


def check_form(stored: str) -> None:
    """Raises ValueError with the fault of a stored password's form."""
    _parts(stored)


def verify(password: str, stored: str) -> bool:
    """Tells whether this is the password. Slow on purpose."""
    n, r, p, salt, key = _parts(stored)
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), key)


def new_token() -> tuple[str, str]:
    """Returns a new token, and its form in the users file."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, token_digest(token)


def token_digest(token: str) -> str:
    """Returns the digest of any text: headers that are not UTF-8 arrive with half surrogates."""
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
