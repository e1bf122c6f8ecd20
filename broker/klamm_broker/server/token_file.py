"""Delegation tokens on the disk: `klamm-tokens.json` in the first log directory, readable by its owner only.

The file has no password: a password follows from the token's id and `delegation.token.secret.key`. A change is on the disk when
the method returns; a method that raises has changed nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.files import write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.security import principal
from klamm_broker.security.tokens import Token, TokenRules, Tokens

VERSION: Final = 1


class TokenFile(Tokens):
    """The tokens of the file."""

    def __init__(self, path: Path, secret_key: str | None, rules: TokenRules) -> None:
        """Read the file; without a file there are no tokens. Raises DirectoryError."""
        self._path = path
        super().__init__(secret_key, rules, _read(path))

    def store(self, token: Token) -> None:
        """Add a token or replace the one of its id. Raises OSError."""
        self._write({t.id: t for t in self.all()} | {token.id: token})

    def remove(self, token: Token) -> None:
        """Raises OSError."""
        self._write({t.id: t for t in self.all() if t.id != token.id})

    def sweep(self, now_ms: int) -> None:
        """Forget tokens that have ended. Raises OSError."""
        left = self.over(now_ms)
        if left is not None:
            self._write(left)

    def _write(self, tokens: Mapping[str, Token]) -> None:
        document = {"version": VERSION, "tokens": [_entry(token) for token in tokens.values()]}
        content = (json.dumps(document, indent=1) + "\n").encode()
        write_and_take(self._path, content, lambda: self.put(tokens))


def _read(path: Path) -> list[Token]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as e:
        raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise DirectoryError(f"{path}: no document of version {VERSION}")
    try:
        return [_token(entry) for entry in document["tokens"]]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e


def _token(entry: Mapping[str, Any]) -> Token:
    return Token(
        id=str(entry["id"]),
        owner=principal.parse(entry["owner"]),
        requester=principal.parse(entry["requester"]),
        renewers=tuple(principal.parse(text) for text in entry["renewers"]),
        issued_ms=int(entry["issuedMs"]),
        expires_ms=int(entry["expiresMs"]),
        max_ms=int(entry["maxMs"]),
    )


def _entry(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issuedMs": token.issued_ms,
        "expiresMs": token.expires_ms,
        "maxMs": token.max_ms,
    }
