"""ACLs: made, told and deleted (29 to 31)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klamm.admin.client import Admin
from klamm.admin.configs import Resource, describe_config
from klamm.admin.errors import AdminError
from klamm_broker.security.acl import Acl, AclFilter
from klamm_broker.security.authorizer import super_users
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_kafka.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm_kafka.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm_kafka.wire.messages.describe_acls import DescribeAclsRequest


async def describe_acls(admin: Admin, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter selects. Raises AdminError."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer = await admin.ask(request)
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot list ACLs", answer.error_message)
    return [
        Acl(
            resource_type=ResourceType(resource.resource_type),
            resource_name=resource.resource_name,
            pattern_type=PatternType(resource.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=AclOperation(acl.operation),
            permission=AclPermissionType(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


async def create_acls(admin: Admin, acls: Sequence[Acl]) -> None:
    """Make ACLs. Raises AdminError for the first that is refused; others may have been made."""
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    answer = await admin.ask(CreateAclsRequest(creations=creations))
    for acl, result in zip(acls, answer.results, strict=True):
        if result.error_code:
            raise AdminError(result.error_code, f"cannot make the ACL ({acl})", result.error_message)


async def delete_acls(admin: Admin, filters: Sequence[AclFilter]) -> list[Acl]:
    """Delete the ACLs that filters select, and return them. Raises AdminError for the first filter that is refused."""
    asked = [
        DeleteAclsFilter(
            resource_type_filter=f.resource_type,
            resource_name_filter=f.resource_name,
            pattern_type_filter=f.pattern_type,
            principal_filter=f.principal,
            host_filter=f.host,
            operation=f.operation,
            permission_type=f.permission,
        )
        for f in filters
    ]
    answer = await admin.ask(DeleteAclsRequest(filters=asked))
    gone: dict[Acl, None] = {}
    for result in answer.filter_results:
        if result.error_code:
            raise AdminError(result.error_code, "cannot delete ACLs", result.error_message)
        for acl in result.matching_acls:
            gone[
                Acl(
                    resource_type=ResourceType(acl.resource_type),
                    resource_name=acl.resource_name,
                    pattern_type=PatternType(acl.pattern_type),
                    principal=acl.principal,
                    host=acl.host,
                    operation=AclOperation(acl.operation),
                    permission=AclPermissionType(acl.permission_type),
                )
            ] = None
    return list(gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a cluster beside its ACLs. `super_users` is None where the broker does not tell them."""

    super_users: frozenset[str] | None
    allow_without_acls: bool


async def describe_rules(admin: Admin) -> Rules:
    """Return the rules by which the cluster decides. Raises AdminError."""
    node = min(await admin.brokers())
    keys = ["super.users", "allow.everyone.if.no.acl.found"]
    entries = {e.name: e.value for e in await describe_config(admin, Resource.BROKER, str(node), keys=keys)}
    told = entries.get("super.users")
    unknown = "super.users" in entries and told is None
    return Rules(
        super_users=None if unknown else super_users(told or ""),
        allow_without_acls=entries.get("allow.everyone.if.no.acl.found") == "true",
    )
