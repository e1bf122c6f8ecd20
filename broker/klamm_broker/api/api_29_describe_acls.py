"""DescribeAcls, key 29: versions 1 to 3.

Behaviour: tells the ACLs that a filter selects, by resource. Without an authorizer it answers SECURITY_DISABLED. A filter with
code 0 (unknown) closes the connection, as in Kafka; one with a code of the future selects nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.acls import check_codes, selected
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, PatternType, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.security.acl import Acl
    from klamm_broker.server.state import BrokerState

_Pattern = tuple[ResourceType, str, PatternType]


@handles(ApiKey.DESCRIBE_ACLS, versions=(1, 3), needs=[Need(AclOperation.DESCRIBE, ResourceType.CLUSTER)])
def describe_acls(
    broker: BrokerState, ctx: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    check_codes(
        "DescribeAclsRequest",
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    wanted = selected(request)
    if not ctx.may_cluster(AclOperation.DESCRIBE):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    by_pattern: dict[_Pattern, list[Acl]] = {}
    for acl in broker.authorizer.select(wanted):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_pattern.setdefault(pattern, []).append(acl)
    resources = [_resource(pattern, acls) for pattern, acls in by_pattern.items()]
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=resources)


def _resource(pattern: _Pattern, acls: list[Acl]) -> DescribeAclsResource:
    kind, name, pattern_type = pattern
    return DescribeAclsResource(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        acls=[
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ],
    )
