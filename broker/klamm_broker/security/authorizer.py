"""Kafka's StandardAuthorizer: may a principal, from a host, do an operation with a resource, and by which rule? Pure.

Super users may everything. Else an ACL that denies decides, then one that allows, for the resource's own name, a prefix of it, or
all names. Without any ACL for the resource `allow.everyone.if.no.acl.found` decides; with some, but none that fits, it is no.

`Access` remembers the decisions for one principal on one host, so that a produce or fetch costs one look into a set. A change of
ACLs makes every `Access` forget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from klamm_broker.security.acl import WILDCARD, Acl, AclFilter
from klamm_broker.security.acl_index import AclIndex
from klamm_broker.security.principal import KafkaPrincipal, parse
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

_O = AclOperation
_IMPLIED: Final = {
    _O.DESCRIBE: frozenset({_O.ALL, _O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALL, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
}
"""The operations of which each, once allowed, allows this one. To deny one of them denies no other."""
REMEMBERED_MAX: Final = 10_000
"""Decisions that an `Access` remembers before it begins anew: a client may ask for any number of names."""
NAME_MAX: Final = 249
"""Characters of a name whose decision is remembered: the longest name of a topic. A client may ask for names of 32 KB."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer and its reason: an ACL, or a sentence."""

    allowed: bool
    rule: Acl | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """One refusal that somebody should know of."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    api: str
    rule: str


SUPER_USER: Final = Decision(True, "super.users")
NO_ACL_FITS: Final = Decision(False, "the resource has ACLs, and none allows it")
_WITHOUT_ACLS: Final = {
    allowed: Decision(allowed, f"the resource has no ACL, and allow.everyone.if.no.acl.found={str(allowed).lower()}")
    for allowed in (False, True)
}  # fmt: skip


def super_users(text: str) -> frozenset[str]:
    """Returns the principals of `User:a;User:b`. Raises ValueError."""
    names = [part.strip() for part in text.split(";")]
    return frozenset(str(parse(name)) for name in names if name)


class Authorizer:
    """The rules of one cluster. `on_denied` is told of denials."""

    def __init__(
        self, *, super_users: frozenset[str], allow_without_acls: bool, on_denied: Callable[[Denial], None]
    ) -> None:
        self.index = AclIndex()
        self.version = 0
        self.super_users = super_users
        self.on_denied = on_denied
        self._without_acls = _WITHOUT_ACLS[allow_without_acls]
        self._accesses: WeakValueDictionary[tuple[KafkaPrincipal, str], Access] = WeakValueDictionary()

    def access(self, principal: KafkaPrincipal, host: str) -> Access:
        """Returns the rights of a principal on a host. All that act for it share one as long as somebody keeps it."""
        found = self._accesses.get((principal, host))
        if found is None:
            found = self._accesses[principal, host] = Access(self, str(principal), host)
        return found

    def change(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs; decisions from now on follow them."""
        for acl in remove:
            self.index.remove(acl)
        for acl in add:
            self.index.add(acl)
        self.version += 1
        for access in list(self._accesses.values()):
            access.forget()

    def select(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self.index.candidates(wanted) if wanted.matches(acl)]

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> Decision:
        if principal in self.super_users:
            return SUPER_USER
        some, acls = self.index.find(kind, name, principal)
        if not some:
            return self._without_acls
        sufficient = _IMPLIED.get(operation, (operation, _O.ALL))
        allowing = None
        for acl in acls:
            if acl.host not in (host, WILDCARD):
                continue
            if acl.permission is AclPermissionType.DENY:
                if acl.operation in (operation, _O.ALL):
                    return Decision(False, acl)
            elif acl.operation in sufficient:
                allowing = acl
        return NO_ACL_FITS if allowing is None else Decision(True, allowing)

    def decide_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Decides whether a principal may do this with some resource of a type, existing or not."""
        if self.decide(
            principal, host, operation, kind, "hardcode"
        ).allowed:  # a name that Kafka asks for, too
            return True
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self.index.of_type(kind, principal):
            if acl.host in (host, WILDCARD) and acl.operation in (operation, _O.ALL):
                if acl.permission is AclPermissionType.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.resource_name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _dominated(acl, denied) for acl in allowed)


def _dominated(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Decides whether whatever an ACL allows is denied by another."""
    kind, name = acl.pattern_type, acl.resource_name
    if kind is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (kind, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:size]) in denied for size in range(1, len(name) + 1))


class Access:
    """The decisions for one principal on one host, as far as it was asked; `readable` and `writable` are topics."""

    __slots__ = ("__weakref__", "_authorizer", "_known", "host", "principal", "readable", "writable")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._known: dict[tuple[AclOperation, ResourceType, str], Decision] = {}
        self.principal = principal
        self.host = host
        self.readable: set[str] = set()
        self.writable: set[str] = set()

    @property
    def version(self) -> int:
        """The number of changes of ACLs until now."""
        return self._authorizer.version

    def forget(self) -> None:
        self._known.clear()
        self.readable.clear()
        self.writable.clear()

    def may(
        self, operation: AclOperation, kind: ResourceType, name: str, api: str, *, tell: bool = True
    ) -> bool:
        """Decides; `tell` of a denial unless the question only filters or describes."""
        asked = (operation, kind, name)
        decision = self._known.get(asked)
        if decision is None:
            decision = self._authorizer.decide(self.principal, self.host, *asked)
            if len(name) <= NAME_MAX:
                self._remember(asked, decision)
        if tell and not decision.allowed:
            self._authorizer.on_denied(Denial(
                principal=self.principal, host=self.host, operation=operation, resource_type=kind,
                resource_name=name, api=api, rule=str(decision.rule),
            ))  # fmt: skip
        return decision.allowed

    def _remember(self, asked: tuple[AclOperation, ResourceType, str], decision: Decision) -> None:
        if len(self._known) >= REMEMBERED_MAX:
            self.forget()
        self._known[asked] = decision
        operation, kind, name = asked
        if decision.allowed and kind is ResourceType.TOPIC:
            if operation is _O.READ:
                self.readable.add(name)
            elif operation is _O.WRITE:
                self.writable.add(name)

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Decides whether there can be a resource of this type with which the operation is allowed."""
        return self._authorizer.decide_any(self.principal, self.host, operation, kind)
