"""ACLs and the filters that select them, with Kafka's rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

WILDCARD: Final = "*"
"""Every resource (as the name of a literal pattern), every host."""
EVERYONE: Final = "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule: a principal may or may not do an operation with resources, from a host."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        verb = "allowed" if self.permission is AclPermissionType.ALLOW else "denied"
        where = f"{self.resource_type.name} {self.pattern_type.name} {self.resource_name}"
        return f"{self.principal} is {verb} {self.operation.name} on {where} from host {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects ACLs; None and ANY select all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermissionType.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        kind, name = self.pattern_type, self.resource_name
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if kind is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
