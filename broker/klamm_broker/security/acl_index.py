"""The ACLs of a cluster, found by resource and principal without a look at the others.

A look-up costs one step for each length that a prefix of the resource's type has, whatever the number of ACLs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from klamm_broker.security.acl import EVERYONE, WILDCARD, Acl, AclFilter
from klamm_kafka.wire.acls import PatternType, ResourceType

_Pattern = tuple[ResourceType, PatternType, str]
_ByPrincipal = dict[str, dict[Acl, None]]
_Key = TypeVar("_Key")


class AclIndex:
    """A set of ACLs, in the order in which they came."""

    def __init__(self) -> None:
        self._all: dict[Acl, None] = {}
        self._patterns: dict[_Pattern, _ByPrincipal] = {}
        self._prefixes: dict[ResourceType, dict[int, int]] = {}  # number of patterns by length
        self._of: dict[tuple[ResourceType, str], dict[Acl, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def add(self, acl: Acl) -> None:
        if acl in self._all:
            return
        self._all[acl] = None
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        if pattern not in self._patterns:
            self._patterns[pattern] = {}
            self._count(acl, 1)
        self._patterns[pattern].setdefault(acl.principal, {})[acl] = None
        self._of.setdefault((acl.resource_type, acl.principal), {})[acl] = None

    def remove(self, acl: Acl) -> None:
        if acl not in self._all:
            return
        del self._all[acl]
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        _discard(self._patterns[pattern], acl.principal, acl)
        if not self._patterns[pattern]:
            del self._patterns[pattern]
            self._count(acl, -1)
        _discard(self._of, (acl.resource_type, acl.principal), acl)

    def _count(self, acl: Acl, change: int) -> None:
        if acl.pattern_type is PatternType.PREFIXED:
            lengths = self._prefixes.setdefault(acl.resource_type, {})
            length = len(acl.resource_name)
            lengths[length] = lengths.get(length, 0) + change
            if not lengths[length]:
                del lengths[length]

    def _of_resource(self, kind: ResourceType, name: str) -> Iterator[_ByPrincipal]:
        patterns = self._patterns
        for literal in dict.fromkeys((name, WILDCARD)):
            if (found := patterns.get((kind, PatternType.LITERAL, literal))) is not None:
                yield found
        for length in self._prefixes.get(kind, ()):
            if length <= len(name):
                found = patterns.get((kind, PatternType.PREFIXED, name[:length]))
                if found is not None:
                    yield found

    def find(self, kind: ResourceType, name: str, principal: str) -> tuple[bool, list[Acl]]:
        """Returns whether the resource has any ACL, and its ACLs for a principal, those for everyone included."""
        some = False
        acls: list[Acl] = []
        for found in self._of_resource(kind, name):
            some = True
            for who in {principal, EVERYONE}:
                acls += found.get(who, ())
        return some, acls

    def candidates(self, wanted: AclFilter) -> Iterable[Acl]:
        """Returns the ACLs among which are those that a filter selects: few, if it names a resource or a principal."""
        any_kind = wanted.resource_type is ResourceType.ANY
        kinds = ResourceType if any_kind else (wanted.resource_type,)
        if wanted.resource_name is not None:
            return [
                acl for kind in kinds for acl in self._named(kind, wanted.pattern_type, wanted.resource_name)
            ]
        if wanted.principal is not None:
            return [acl for kind in kinds for acl in self._of.get((kind, wanted.principal), ())]
        return self._all

    def _named(self, kind: ResourceType, pattern: PatternType, name: str) -> Iterator[Acl]:
        if pattern is PatternType.MATCH:
            found = list(self._of_resource(kind, name))
        else:
            stored = (PatternType.LITERAL, PatternType.PREFIXED)
            found = [self._patterns.get((kind, each, name), {}) for each in stored]
        for by_principal in found:
            for acls in by_principal.values():
                yield from acls

    def of_type(self, kind: ResourceType, principal: str) -> Iterable[Acl]:
        """Returns all ACLs of a type of resource for a principal, those for everyone included."""
        for who in {principal, EVERYONE}:
            yield from self._of.get((kind, who), ())


def _discard(table: dict[_Key, dict[Acl, None]], key: _Key, acl: Acl) -> None:
    del table[key][acl]
    if not table[key]:
        del table[key]
