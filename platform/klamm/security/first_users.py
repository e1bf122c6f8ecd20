"""The first SCRAM users of a broker that does not run, put where the broker will look for them."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm_broker.security.sasl.credentials import ITERATIONS, Credential, Mechanism, of_password
from klamm_broker.server import file_names
from klamm_broker.server.scram_users import ScramUsers

_SALT: Final = string.digits + string.ascii_lowercase
_SALT_BYTES: Final = 26


def new_credential(mechanism: Mechanism, password: str, iterations: int = ITERATIONS[0]) -> Credential:
    """Returns the credential of a password, with a salt as Java's clients make it."""
    salt = "".join(secrets.choice(_SALT) for _ in range(_SALT_BYTES)).encode()
    return of_password(mechanism, password, salt=salt, iterations=iterations)


def has_users(log_directory: Path) -> bool:
    """Tells whether a broker has had users in this log directory."""
    return (log_directory / file_names.USERS).exists()


def store(log_directory: Path, users: Mapping[str, Mapping[Mechanism, Credential]]) -> None:
    """Adds credentials to those of a broker's first log directory. Raises DirectoryError and OSError."""
    file = ScramUsers.load(log_directory / file_names.USERS)
    stored = {name: dict(credentials) for name, credentials in file.users.items()}
    for name, credentials in users.items():
        stored[name] = {**stored.get(name, {}), **credentials}
    file.replace(stored)
