"""Topics, ACLs, quotas, users, schemas and connectors, as a file wants them or as a cluster has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm_broker.security.acl import Acl

KINDS: Final = ("topics", "acls", "quotas", "users", "schemas", "connectors")
"""Kinds of things, by the names of a file's sections."""
CLUSTER_KINDS: Final = ("topics", "acls", "quotas", "users")
"""Kinds that brokers keep."""
Entity = tuple[tuple[str, str | None], ...]
"""(`user` | `client-id` | `ip`, name) pairs in this order; None is the default of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic. None: a file does not say, and the cluster's default is taken."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user's SCRAM mechanisms with their iterations, and where a new password stands."""

    mechanisms: Mapping[str, int]
    password_env: str | None = None
    password_file: str | None = None


class Reference(NamedTuple):
    """A schema that another schema uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The newest schema of a subject; None for a compatibility that is the registry's."""

    type: str
    schema: str
    references: tuple[Reference, ...] = ()
    compatibility: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All things of a file or of a cluster. `given` are the kinds that a file speaks of or that were asked for."""

    given: frozenset[str] = frozenset()
    topics: Mapping[str, Topic] = field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    users: Mapping[str, User] = field(default_factory=dict)
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    connectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
