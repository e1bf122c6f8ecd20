"""The users of a server: `rest.auth.file`, read and checked. Pure except for reading the file.

    [users.ann]
    password = "scrypt:…"            # klamm connect password
    role = "admin"                   # viewer, operator or admin

    [users.ops]
    password = "scrypt:…"
    grants = [{ role = "operator", connectors = ["orders-*"] }, { role = "viewer" }]

    [tokens.prometheus]
    sha256 = "…"                     # klamm connect token
    role = "viewer"

    [anonymous]                      # requests without credentials; leave it out to refuse them
    role = "viewer"
    connectors = ["public-*"]

`connectors` are patterns of names (all, where it is not given); those behind `!` are exceptions: ["*", "!secret-*"]. Another server has another kind of thing (`Realm`): servers may share a
file, and a grant on things of another server gives nothing at this one. The console, a server of connectors, shows records of `topics` only,
where a grant has them beside its connectors. `groups` are patterns of the consumer groups that a grant lets
its user be a member of, at a server that has them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm.web.passwords import check_form
from klamm.web.roles import EVERY, EXCEPT, Caller, Grant, Realm, Role
from klamm_base.errors import ConfigError

KEY: Final = "rest.auth.file"
THINGS: Final = frozenset({"connectors", "subjects", "topics", "clusters"})
"""The things of Klamm's servers; a realm's own are known besides."""
GROUPS: Final = "groups"
TOPICS: Final = "topics"
_ROLES: Final = {role.name.lower(): role for role in Role}
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user with a password; `stored` checks it."""

    caller: Caller
    stored: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Users by name, callers by the digest of their token, and the caller of requests without credentials."""

    by_name: Mapping[str, User]
    by_token: Mapping[str, Caller]
    anonymous: Caller | None = None


def read_users(path: Path, realm: Realm) -> Users:
    """Reads the users file. Raises ConfigError with the file, the entry and the correct form."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as e:
        raise ConfigError(f"{KEY}={path}: cannot be read: {e.strerror}", key=KEY) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{KEY}={path}: not TOML: {e}", key=KEY) from None
    try:
        return parse_users(data, realm)
    except ValueError as e:
        raise ConfigError(f"{KEY}={path}: {e}", key=KEY) from None


def parse_users(data: Mapping[str, Any], realm: Realm) -> Users:
    """Reads the users file's content. Raises ValueError with the entry."""
    if unknown := data.keys() - {"users", "tokens", "anonymous"}:
        raise ValueError(f"{min(unknown)} is unknown; there are [users.NAME], [tokens.NAME] and [anonymous]")
    users: dict[str, User] = {}
    for name, entry in _tables(data, "users"):
        where = f"users.{name}"
        if ":" in name:
            raise ValueError(f"{where}: a user's name cannot hold a colon")
        stored = _text(entry, where, "password")
        try:
            check_form(stored)
        except ValueError as e:
            raise ValueError(f"{where}.password: {e}") from None
        users[name] = User(caller=_caller(name, where, entry, "password", realm.things), stored=stored)
    tokens: dict[str, Caller] = {}
    for name, entry in _tables(data, "tokens"):
        where = f"tokens.{name}"
        digest = _text(entry, where, "sha256")
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{where}.sha256 is not a SHA-256 in hex; make one with `klamm connect token`")
        tokens[digest.lower()] = _caller(name, where, entry, "sha256", realm.things)
    anonymous = data.get("anonymous")
    if anonymous is not None:
        anonymous = _caller("anonymous", "anonymous", _table(anonymous, "anonymous"), "", realm.things)
    if not users and not tokens and anonymous is None:
        raise ValueError("it has no users, no tokens and no anonymous access: nobody could do anything")
    return Users(by_name=users, by_token=tokens, anonymous=anonymous)


def _tables(data: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = _table(data.get(name, {}), name)
    return [(key, _table(value, f"{name}.{key}")) for key, value in found.items()]


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table: [{where}]")  # noqa: TRY004 - the file is wrong, not the code
    return value


def _text(entry: Mapping[str, Any], where: str, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}.{key} is missing" if value is None else f"{where}.{key} must be text")
    return value


def _caller(name: str, where: str, entry: Mapping[str, Any], secret: str, things: str) -> Caller:
    if unknown := entry.keys() - {secret, "role", "grants", things, GROUPS} - THINGS:
        raise ValueError(f"{where}.{min(unknown)} is unknown; there are role, {things} and grants")
    grants = entry.get("grants", [])
    if not isinstance(grants, list):
        raise ValueError(f"{where}.grants must be a list of {{ role = …, {things} = […] }}")  # noqa: TRY004
    found = [_grant(_table(grant, f"{where}.grants"), f"{where}.grants", things) for grant in grants]
    if "role" in entry:
        own = {key: entry[key] for key in {"role", things, GROUPS, *THINGS} if key in entry}
        found.append(_grant(own, where, things))
    if not found:
        raise ValueError(f'{where} has no role; give it role = "viewer", "operator" or "admin"')
    return Caller(name=name, grants=tuple(grant for grant in found if grant is not None))


def _grant(entry: Mapping[str, Any], where: str, things: str) -> Grant | None:
    """Returns a grant; None for one on things of other servers."""
    if unknown := entry.keys() - {"role", things, GROUPS} - THINGS:
        raise ValueError(f"{where}.{min(unknown)} is unknown; there are role and {things}")
    role = entry.get("role")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        raise ValueError(f"{where}.role must be one of {', '.join(_ROLES)}, not {role!r}")
    named = entry.keys() & {things, *THINGS}
    for each in sorted(named):
        _patterns(entry[each], f"{where}.{each}")
    groups = _patterns(entry[GROUPS], f"{where}.{GROUPS}") if GROUPS in entry else None
    if named and things not in named:
        return None
    topics = _patterns(entry[TOPICS], f"{where}.{TOPICS}") if TOPICS in entry else None
    names = _patterns(entry.get(things, EVERY), f"{where}.{things}")
    return Grant(role=_ROLES[role.lower()], names=names, groups=groups, topics=topics)


def _patterns(patterns: Any, where: str) -> tuple[str, ...]:
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) and p for p in patterns):
        raise ValueError(f'{where} must be a list of patterns such as "orders-*"')
    if all(p.startswith(EXCEPT) for p in patterns):
        raise ValueError(f'{where} has exceptions only: add what they are exceptions from, such as "*"')
    return tuple(patterns)
