"""Delegation tokens on the disk: `klamm-tokens.json` in the first log directory, readable by its owner only.

A line with the version, then a line for each change: a token as it is from then on, or the id of one that was removed. So a change costs
the same however many tokens there are. Once most lines say nothing any more, the tokens are copied to a new file, some of them
with each change, which then takes the file's place. Version 1 was one document with all tokens; it is read and replaced.

The file has no password: a password follows from the token's id and `delegation.token.secret.key`. A change is on the disk when
the method returns; a method that raises has changed nothing.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from klamm_base.files import sync_directory, write_all, write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.security.principal import KafkaPrincipal
from klamm_broker.security.tokens import Token, TokenRules, Tokens

log = logging.getLogger(__name__)

VERSION: Final = 2
SPARE_LINES: Final = 1_000
"""The file is copied when it has so many lines more than twice the tokens."""
COPIED: Final = 32
"""So many tokens are copied with each change: enough for a copy to end before the next is due."""
SWEPT: Final = 500
"""So many tokens that have ended are forgotten at once, which takes some 3 ms."""
_HEAD: Final = json.dumps({"version": VERSION}).encode() + b"\n"


class _Lines:
    """A file that grows by lines. Each is on the disk when the method returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.count = 0

    def write(self, lines: Sequence[bytes], take: Callable[[], None] = lambda: None) -> None:
        """Replace the file, and call `take` once readers see it, as `write_and_take` does. Raises OSError."""
        data = _HEAD + b"".join(lines)

        def written() -> None:
            self.size, self.count = len(data), len(lines)
            take()

        write_and_take(self.path, data, written)

    def append(self, lines: Sequence[bytes], take: Callable[[], None] = lambda: None) -> None:
        """Add lines at the end, in place of what a failed attempt has left there, and call `take`. Raises OSError."""
        if not self.size:
            self.write(lines, take)
            return
        data = b"".join(lines)
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, self.size)
            os.lseek(fd, self.size, os.SEEK_SET)
            try:
                write_all(fd, data)
                os.fsync(fd)
            except OSError:
                with suppress(
                    OSError
                ):  # the first error is the one to tell; the next change does it otherwise
                    os.ftruncate(fd, self.size)
                raise
        finally:
            os.close(fd)
        self.size += len(data)
        self.count += len(lines)
        take()


class TokenFile(Tokens):
    """The tokens of the file."""

    def __init__(self, path: Path, secret_key: str | None, rules: TokenRules) -> None:
        """Read the file; without a file there are no tokens. Raises DirectoryError."""
        self._file = _Lines(path)
        self._copy: _Lines | None = None
        self._to_copy: deque[str] = deque()
        tokens = _read(path)
        super().__init__(secret_key, rules, tokens or ())
        if tokens is not None:
            try:
                self._file.write([_line(token) for token in tokens])
            except OSError as e:
                raise DirectoryError(f"{path} could not be written: {e}") from e

    def store(self, token: Token) -> None:
        """Add a token or replace the one of its id. Raises OSError."""
        lines = [_line(token)]
        self._file.append(lines, lambda: self.put(token))
        self._copy_some(lines)

    def remove(self, token: Token) -> None:
        """Raises OSError."""
        self._remove([token.id])

    def sweep(self, now_ms: int) -> bool:
        """Forget tokens that have ended, some at once. Returns whether there are more of them. Raises OSError."""
        over = self.over(now_ms)
        if over:
            self._remove(over[:SWEPT])
        return len(over) > SWEPT

    def _remove(self, ids: Sequence[str]) -> None:
        lines = [_encoded({"removed": token_id}) for token_id in ids]

        def take() -> None:
            for token_id in ids:
                self.drop(token_id)

        self._file.append(lines, take)
        self._copy_some(lines)

    def _copy_some(self, lines: Sequence[bytes]) -> None:
        """Begin a copy if it is due, go on with one, or let it take the file's place. `lines` are those of the change just made."""
        copy, known = self._copy, self.known
        if copy is None:
            if self._file.count <= 2 * len(known) + SPARE_LINES:
                return
            copy, self._to_copy = (
                _Lines(self._file.path.with_name(f"{self._file.path.name}.copy.tmp")),
                deque(known),
            )
        ids = [self._to_copy.popleft() for _ in range(min(COPIED, len(self._to_copy)))]
        try:
            copy.append([*lines, *(_line(known[token_id]) for token_id in ids if token_id in known)])
            if not self._to_copy:
                copy.path.replace(self._file.path)
                self._file.size, self._file.count = copy.size, copy.count
                copy = None
                sync_directory(self._file.path.parent)
        except OSError as e:  # the change itself is on the disk
            log.warning("%s could not be made smaller, which is tried again: %s", self._file.path, e)
            copy = None
        self._copy = copy


def _read(path: Path) -> list[Token] | None:
    """Returns the tokens; None without a file. A last line without its end was never answered and does not count."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    head, _, rest = data.partition(b"\n")
    try:
        if head + b"\n" != _HEAD:
            return _first_version(path, data)
        tokens: dict[str, Token] = {}
        for line in rest.split(b"\n")[:-1]:
            entry = json.loads(line)
            if "removed" in entry:
                tokens.pop(entry["removed"], None)
            else:
                tokens[entry["id"]] = _token(entry)
        return list(tokens.values())
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
    except ValueError as e:
        raise DirectoryError(f"{path}: not JSON, or a bad value: {e}. Restore it from a backup") from e


def _first_version(path: Path, data: bytes) -> list[Token]:
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != 1:
        raise DirectoryError(f"{path}: no document of version 1 or {VERSION}")
    return [_token(entry) for entry in document["tokens"]]


def _encoded(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _line(token: Token) -> bytes:
    return _encoded(_entry(token))


def _token(entry: Mapping[str, Any]) -> Token:
    return Token(
        id=str(entry["id"]),
        owner=_principal(entry["owner"]),
        requester=_principal(entry["requester"]),
        renewers=tuple(_principal(text) for text in entry["renewers"]),
        issued_ms=int(entry["issuedMs"]),
        expires_ms=int(entry["expiresMs"]),
        max_ms=int(entry["maxMs"]),
    )


def _principal(text: str) -> KafkaPrincipal:
    """Returns a principal as it was stored: clients may name renewers whose type or name is empty, as at Kafka."""
    kind, _, name = text.partition(":")
    return KafkaPrincipal(kind, name)


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
