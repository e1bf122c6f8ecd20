"""SCRAM credentials (RFC 5802): how they are derived, and decoys for users that do not exist.

A decoy makes an unknown user look like a known one with a wrong password: the same user gets the same salt each time,
and the salt looks like those that are stored.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

ITERATIONS: Final = (4096, 16384)
"""Fewest and most iterations, as in Kafka."""
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_BYTES: Final = 26
"""The length of the salts that Java's clients make; all their bytes are in `_LETTERS`."""


class Mechanism(IntEnum):
    """Kafka's ScramMechanism, named by its hash."""

    SHA256 = 1
    SHA512 = 2

    @property
    def hash(self) -> str:
        return self.name.lower()

    @property
    def sasl_name(self) -> str:
        return f"SCRAM-SHA-{self.name[3:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The stored part of a user's password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def derive(mechanism: Mechanism, *, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """Returns the credential of a salted password (RFC 5802, section 3)."""
    name = mechanism.hash
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return Credential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


def of_password(mechanism: Mechanism, password: str, *, salt: bytes, iterations: int) -> Credential:
    """Returns the credential of a password. Takes about a millisecond for 4,096 iterations."""
    salted = hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)
    return derive(mechanism, salt=salt, salted_password=salted, iterations=iterations)


class Decoys:
    """Makes credentials that nobody has, in the likeness of `stored`. `secret` is the broker's, and outlives restarts."""

    def __init__(self, secret: bytes, mechanism: Mechanism, stored: Iterable[Credential] = ()) -> None:
        self._secret = secret
        self._mechanism = mechanism
        looks = Counter((len(c.salt), set(c.salt) <= set(_LETTERS), c.iterations) for c in stored)
        usual = looks.most_common(1)[0][0] if looks else (_SALT_BYTES, True, ITERATIONS[0])
        self._length, self._letters, self._iterations = usual

    def make(self, name: str) -> Credential:
        """Returns the decoy of a user name, always the same."""
        named = f"{self._mechanism.name} {name}".encode()
        salt = hashlib.shake_256(self._secret + b" salt " + named).digest(self._length)
        if self._letters:
            salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
        keys = [
            hmac.digest(self._secret, what + named, self._mechanism.hash) for what in (b"stored ", b"server ")
        ]
        return Credential(salt=salt, stored_key=keys[0], server_key=keys[1], iterations=self._iterations)
