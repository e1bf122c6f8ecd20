"""Users with SCRAM credentials (KIP-554): `klamm-users.json` in the first log directory, readable by its owner only.

The file keeps only the keys of a password that RFC 5802 lets a server keep, and a secret from which decoys for unknown
users are made (`security/sasl/credentials.py`). A method returns once its change is on the disk; a method that raises
has changed nothing.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.files import write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.security.sasl.credentials import Credential, Decoys, Mechanism
from klamm_broker.security.sasl.mechanism import Identity
from klamm_broker.security.sasl.scram import Account
from klamm_broker.server.encoded import EncodedEntries, document

VERSION: Final = 1


Users = Mapping[str, Mapping[Mechanism, Credential]]


class ScramUsers:
    """The content of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.users: Users = {}
        self.secret = secrets.token_bytes(32)
        self._kept = False  # whether the secret is in the file
        self._decoys: dict[Mechanism, Decoys] = {}
        self._encoded: EncodedEntries[str, Mapping[Mechanism, Credential]] = EncodedEntries(_line, dict)

    @classmethod
    def load(cls, path: Path) -> ScramUsers:
        """Read the file; without a file there are no users. Raises DirectoryError."""
        found = cls(path)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return found
        except (ValueError, RecursionError) as e:
            raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
        if not isinstance(told, dict) or told.get("version") != VERSION:
            raise DirectoryError(f"{path}: no document of version {VERSION}")
        try:
            found.users = {
                str(user): {Mechanism[name]: _credential(entry) for name, entry in credentials.items()}
                for user, credentials in told["users"].items()
            }
            if "secret" in told:
                found.secret, found._kept = base64.b64decode(told["secret"]), True
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
        return found

    def keep_secret(self) -> None:
        """Write the secret to the file if it is not there: the salts of unknown users must outlive restarts. Raises OSError."""
        if not self._kept:
            self.replace(self.users)

    def account(self, mechanism: Mechanism, name: str) -> Account:
        """Returns a user's account, or one that cannot be told from it and that nobody can log in to."""
        decoy = self.decoys(mechanism).make(name)  # also for those that exist: it takes time
        credential = self.users.get(name, {}).get(mechanism)
        identity = Identity(name=name)
        known = credential is not None
        return Account(credential=credential or decoy, identity=identity if known else None)

    def decoys(self, mechanism: Mechanism) -> Decoys:
        """Returns the maker of credentials for users who do not exist."""
        decoys = self._decoys.get(mechanism)
        if decoys is None:
            stored = [c[mechanism] for c in self.users.values() if mechanism in c]
            decoys = self._decoys[mechanism] = Decoys(self.secret, mechanism, stored)
        return decoys

    def replace(self, users: Users) -> None:
        """Replace all users. Raises OSError."""
        kept = {user: dict(credentials) for user, credentials in users.items() if credentials}
        lines = self._encoded.lines(kept)
        head = {"version": VERSION, "secret": base64.b64encode(self.secret).decode()}

        def take() -> None:
            self.users = kept
            self._kept = True
            self._decoys = {}

        write_and_take(self._path, document(head, "users", "{\n" + ",\n".join(lines) + "\n}"), take)


def _credential(entry: Mapping[str, Any]) -> Credential:
    return Credential(
        salt=base64.b64decode(entry["salt"]),
        stored_key=base64.b64decode(entry["storedKey"]),
        server_key=base64.b64decode(entry["serverKey"]),
        iterations=int(entry["iterations"]),
    )


def _line(user: str, credentials: Mapping[Mechanism, Credential]) -> str:
    entries = {mechanism.name: _entry(credential) for mechanism, credential in credentials.items()}
    return f"{json.dumps(user)}: {json.dumps(entries)}"


def _entry(credential: Credential) -> dict[str, Any]:
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "storedKey": base64.b64encode(credential.stored_key).decode(),
        "serverKey": base64.b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }
