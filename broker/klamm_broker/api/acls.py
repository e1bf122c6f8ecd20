"""ACLs of requests and answers: what is checked before one is made or a filter is used, in Kafka's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.server.connection import BadRequest
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from klamm_broker.security.acl import Acl, AclFilter
    from klamm_kafka.wire.messages.create_acls import AclCreation
    from klamm_kafka.wire.messages.delete_acls import DeleteAclsFilter
    from klamm_kafka.wire.messages.describe_acls import DescribeAclsRequest

_NO_TYPE: Final = (ResourceType.UNKNOWN, ResourceType.ANY)
NO_AUTHORIZER: Final = "No Authorizer is configured."


class AclRefused(Exception):
    """An ACL that cannot be (INVALID_REQUEST), with the reason."""


def created(asked: AclCreation) -> Acl:
    """Returns the ACL that a request describes."""
    from klamm_broker.security.acl import Acl

    return Acl(
        resource_type=ResourceType(asked.resource_type),
        resource_name=asked.resource_name,
        pattern_type=PatternType(asked.resource_pattern_type),
        principal=asked.principal,
        host=asked.host,
        operation=AclOperation(asked.operation),
        permission=AclPermissionType(asked.permission_type),
    )


def check_new(acl: Acl) -> None:
    """Raise AclRefused for an ACL that must not be made."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise AclRefused(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise AclRefused("Invalid empty resource name")
    if acl.resource_type in _NO_TYPE:
        raise AclRefused(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise AclRefused(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise AclRefused(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermissionType.ALLOW, AclPermissionType.DENY):
        raise AclRefused(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise AclRefused(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from the name)"
        )


def selected(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the filter that a request describes."""
    from klamm_broker.security.acl import AclFilter

    return AclFilter(
        resource_type=ResourceType(asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=PatternType(asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=AclOperation(asked.operation),
        permission=AclPermissionType(asked.permission_type),
    )


def check_filter(wanted: AclFilter) -> None:
    """Raise AclRefused for a filter with which nothing may be deleted."""
    if wanted.resource_type is ResourceType.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        raise AclRefused("Unknown patternFilter.")
    if wanted.operation is AclOperation.UNKNOWN or wanted.permission is AclPermissionType.UNKNOWN:
        raise AclRefused("Unknown entryFilter.")


def check_codes(message: str, *codes: int) -> None:
    """Raise BadRequest for code 0, UNKNOWN: the connection closes, as Kafka's does. Other codes that are unknown have answers."""
    if 0 in codes:
        raise BadRequest(f"{message} contains UNKNOWN elements: codes {codes}")
