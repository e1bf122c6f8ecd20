"""Finds out who sends a request: basic auth and bearer tokens, against `rest.auth.file` or Kafka's properties
file.

A request makes the worker check the file, at most once a second, and read it again when it has changed. An
unusable file changes nothing, and the log says so. The result of a password's slow check is remembered (by a
keyed digest, in memory), right or wrong: a client that sends a wrong password every second costs no CPU.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from klamm.web.errors import RequestError
from klamm.web.passwords import hash_password, token_digest, verify
from klamm.web.roles import Caller, Realm, admin
from klamm.web.users import Users, read_users
from klamm_base.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
CHECKS_MAX: Final = 2
"""The most password checks at a time. Each takes a thread and CPU, and guessing must not take them all."""
WAITING_MAX: Final = 100
"""The most checks that wait for their turn. More are refused, since their clients would not wait so long."""
REMEMBERED_MAX: Final = 1_000


class TooMany(RequestError):
    """Too many password checks are waiting for this one to be done in time."""

    status = 503


class Authenticator(Protocol):
    """Finds the caller of an Authorization header; None: an unknown caller."""

    async def authenticate(self, authorization: str | None) -> Caller | None: ...


class UsersFile:
    """The users of `rest.auth.file`. Raises ConfigError when the file cannot be used at the start."""

    def __init__(self, path: Path, realm: Realm) -> None:
        self._path = path
        self._realm = realm
        self._looked = time.monotonic()
        self._stamp = _stamp(path)
        self._users = read_users(path, realm)
        self._key = secrets.token_bytes(32)
        # Maps a digest of name and password to the stored form that it was checked against, and the result.
        self._checked: dict[bytes, tuple[str, bool]] = {}
        self._checks = asyncio.Semaphore(CHECKS_MAX)
        self._under_way: dict[tuple[bytes, str], asyncio.Task[bool]] = {}
        # An unknown user's check takes as long as a known one's.
        self._nobody = hash_password(secrets.token_hex(8))

    async def authenticate(self, authorization: str | None) -> Caller | None:
        users = self._current()
        if authorization is None:
            return users.anonymous
        scheme, _, value = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            return users.by_token.get(token_digest(value.strip()))
        if scheme.lower() == "basic" and (found := basic(value)) is not None:
            return await self._by_password(users, *found)
        return None

    async def _by_password(self, users: Users, name: str, password: str) -> Caller | None:
        user = users.by_name.get(name)
        stored = user.stored if user else self._nobody
        digest = hmac.digest(self._key, f"{name}:{password}".encode(), hashlib.sha256)
        known = self._checked.get(digest)
        if known is not None and known[0] == stored:
            right = known[1]
        else:
            right = await self._check(digest, password, stored)
        if digest not in self._checked and len(self._checked) >= REMEMBERED_MAX:
            # Drops the oldest; the wrong passwords of a guesser push out no right ones.
            wrong = (d for d, (_, was_right) in self._checked.items() if not was_right)
            del self._checked[next(wrong, next(iter(self._checked)))]
        self._checked[digest] = (stored, right)
        return user.caller if right and user is not None else None

    async def _check(self, digest: bytes, password: str, stored: str) -> bool:
        """Checks a password, once for all requests that come with it meanwhile: a client may have many connections."""
        check = self._under_way.get((digest, stored))
        if check is None:
            if len(self._under_way) >= WAITING_MAX:
                raise TooMany("Too many passwords are being checked; try again")
            check = asyncio.create_task(self._verify(password, stored))
            self._under_way[digest, stored] = check
            check.add_done_callback(lambda _: self._under_way.pop((digest, stored)))
        return await asyncio.shield(check)

    async def _verify(self, password: str, stored: str) -> bool:
        async with self._checks:
            return await asyncio.to_thread(verify, password, stored)

    def reload(self) -> None:
        """Reads the file. Raises ConfigError, and goes on with the users that it has, for one that cannot be used."""
        self._stamp = _stamp(self._path)
        self._users = read_users(self._path, self._realm)

    def _current(self) -> Users:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return self._users
        self._looked = now
        if _stamp(self._path) != self._stamp:
            try:
                self.reload()
            except ConfigError as e:
                log.error("%s; users stay as they were", e)  # noqa: TRY400 - a sentence for the operator
            else:
                log.info("%s was read again", self._path)
        return self._users


class PasswordProperties:
    """The users of Kafka's PropertyFileLoginModule: `name=password` lines; each user may do everything."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    async def authenticate(self, authorization: str | None) -> Caller | None:
        scheme, _, value = (authorization or "").strip().partition(" ")
        found = basic(value) if scheme.lower() == "basic" else None
        if found is None:
            return None
        name, password = found
        expected = self._passwords.get(name)
        right = hmac.compare_digest(password.encode(), expected if expected is not None else b"\0")
        return admin(name) if right and expected is not None else None


def basic(value: str) -> tuple[str, str] | None:
    """Returns user and password of a Basic header's value."""
    try:
        text = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon else None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
