"""Roles: who may do what to which things of a server (connectors, subjects). Pure.

A grant gives a role (viewer, operator, admin; each may also do what the earlier ones may) on the things
whose names match one of its patterns (`orders-*`; `*`, `?` and `[...]` as in a shell) and none that begins with `!`, an exception. Requests
that concern the server instead of one thing need the role on everything: a grant with the pattern `*` and no exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final

from klamm.web.endpoint import Access


class Role(IntEnum):
    """The roles in ascending order of their rights."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Realm:
    """The words of a server: its title in the challenge for credentials, itself, and the kind of thing that grants name.

    Requests have the thing's name in the path parameter that is called like its kind; the users file lists patterns in
    the plural.
    """

    title: str
    server: str
    thing: str

    @property
    def things(self) -> str:
        return f"{self.thing}s"


NEEDED: Final = {Access.VIEW: Role.VIEWER, Access.OPERATE: Role.OPERATOR, Access.ADMINISTER: Role.ADMIN}
EVERY: Final = "*"
EXCEPT: Final = "!"


def _match(patterns: Sequence[str], name: str) -> bool:
    wanted = not _is_in(name, [each[1:] for each in patterns if each.startswith(EXCEPT)])
    return wanted and _is_in(name, [each for each in patterns if not each.startswith(EXCEPT)])


def _is_in(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, each) for each in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role on the things whose names match."""

    role: Role
    names: Sequence[str] = (EVERY,)
    groups: Sequence[str] | None = None
    """Consumer groups that may be used; None: all of them for an operator of everything, and none for others."""
    topics: Sequence[str] | None = None
    """Topics that the grant names, for a server of other things that shows records; None: all."""

    def covers(self, name: str | None) -> bool:
        if name is None:
            return EVERY in self.names and not any(each.startswith(EXCEPT) for each in self.names)
        return _match(self.names, name)

    def covers_group(self, group: str) -> bool:
        if self.groups is None:
            return self.role >= Role.OPERATOR and self.covers(None)
        return _match(self.groups, group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller's name and grants."""

    name: str
    grants: Sequence[Grant]

    def may(self, access: Access, name: str | None) -> bool:
        """Tells whether the caller may do this to a thing, or (None) to the server."""
        needed = NEEDED[access]
        return any(grant.role >= needed and grant.covers(name) for grant in self.grants)

    def may_with_topic(self, access: Access, topic: str) -> bool:
        """Tells whether the caller may do this to the server, and with a topic where the grant names topics."""
        return any(
            grant.role >= NEEDED[access]
            and grant.covers(None)
            and (grant.topics is None or _match(grant.topics, topic))
            for grant in self.grants
        )

    def may_use_group(self, group: str) -> bool:
        """Tells whether the caller may be a member of a consumer group, and commit its offsets."""
        return any(grant.covers_group(group) for grant in self.grants)


def admin(name: str) -> Caller:
    """Returns a caller who may do everything."""
    return Caller(name=name, grants=(Grant(role=Role.ADMIN),))
