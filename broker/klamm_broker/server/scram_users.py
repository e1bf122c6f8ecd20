"""Users with SCRAM credentials (KIP-554): `klamm-users.json` in the first log directory, readable by its owner only.

The file keeps only the keys of a password that RFC 5802 lets a server keep. Nobody can authenticate with them until
there are SASL listeners. A method returns once its change is on the disk; a method that raises has changed nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from klamm_base.files import write_atomically
from klamm_broker.log.errors import DirectoryError

FILE_NAME: Final = "klamm-users.json"
VERSION: Final = 1
ITERATIONS: Final = (4096, 16384)
"""Fewest and most iterations, as in Kafka."""


class Mechanism(IntEnum):
    """Kafka's ScramMechanism, named by its hash."""

    SHA256 = 1
    SHA512 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The stored part of a user's password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def derive(mechanism: Mechanism, *, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """Returns the credential of a salted password (RFC 5802, section 3)."""
    name = mechanism.name.lower()
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return Credential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


Users = Mapping[str, Mapping[Mechanism, Credential]]


class ScramUsers:
    """The content of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.users: Users = {}

    @classmethod
    def load(cls, path: Path) -> ScramUsers:
        """Read the file; without a file there are no users. Raises DirectoryError."""
        found = cls(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return found
        except (ValueError, RecursionError) as e:
            raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise DirectoryError(f"{path}: no document of version {VERSION}")
        try:
            found.users = {
                str(user): {Mechanism[name]: _credential(entry) for name, entry in credentials.items()}
                for user, credentials in document["users"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
        return found

    def replace(self, users: Users) -> None:
        """Replace all users. Raises OSError."""
        document = {
            "version": VERSION,
            "users": {
                user: {mechanism.name: _entry(credential) for mechanism, credential in credentials.items()}
                for user, credentials in sorted(users.items())
                if credentials
            },
        }
        write_atomically(self._path, (json.dumps(document, indent=1) + "\n").encode())
        self.users = {user: dict(credentials) for user, credentials in users.items() if credentials}


def _credential(entry: Mapping[str, Any]) -> Credential:
    return Credential(
        salt=base64.b64decode(entry["salt"]),
        stored_key=base64.b64decode(entry["storedKey"]),
        server_key=base64.b64decode(entry["serverKey"]),
        iterations=int(entry["iterations"]),
    )


def _entry(credential: Credential) -> dict[str, Any]:
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "storedKey": base64.b64encode(credential.stored_key).decode(),
        "serverKey": base64.b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }
