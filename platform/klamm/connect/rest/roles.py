"""Roles: who may do what to which connectors. Pure.

A grant gives a role (viewer, operator, admin; each may also do what the earlier ones may) on the connectors
whose names match one of its patterns (`orders-*`; `*`, `?` and `[...]` as in a shell). Requests that concern
the worker instead of one connector need the role on every connector: a grant with the pattern `*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final

from klamm.connect.rest.endpoint import Access


class Role(IntEnum):
    """The roles in ascending order of their rights."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


NEEDED: Final = {Access.VIEW: Role.VIEWER, Access.OPERATE: Role.OPERATOR, Access.ADMINISTER: Role.ADMIN}
EVERY: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role on the connectors that match."""

    role: Role
    connectors: Sequence[str] = (EVERY,)

    def covers(self, connector: str | None) -> bool:
        if connector is None:
            return EVERY in self.connectors
        return any(fnmatchcase(connector, pattern) for pattern in self.connectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller's name and grants."""

    name: str
    grants: Sequence[Grant]

    def may(self, access: Access, connector: str | None) -> bool:
        """Tells whether the caller may do this to a connector, or (None) to the worker."""
        needed = NEEDED[access]
        return any(grant.role >= needed and grant.covers(connector) for grant in self.grants)


def admin(name: str) -> Caller:
    """Returns a caller who may do everything."""
    return Caller(name=name, grants=(Grant(role=Role.ADMIN),))
