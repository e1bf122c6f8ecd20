"""DeleteAcls, key 31: versions 1 to 3.

Behaviour: deletes the ACLs that each filter selects and tells them; an ACL that several filters select is told by each. They are gone from
the disk when it is answered. Without an authorizer it answers SECURITY_DISABLED. Code 0 (unknown)
closes the connection, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm_broker.api.acls import NO_AUTHORIZER, AclRefused, check_codes, check_filter, selected
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.security.acl import Acl, AclFilter
    from klamm_broker.server.acl_file import StoredAuthorizer
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)


@handles(ApiKey.DELETE_ACLS, versions=(1, 3), needs=[Need(AclOperation.ALTER, ResourceType.CLUSTER)])
def delete_acls(broker: BrokerState, ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for asked in request.filters:
        check_codes(
            "DeleteAclsRequest",
            asked.resource_type_filter,
            asked.pattern_type_filter,
            asked.operation,
            asked.permission_type,
        )
    filters = [selected(asked) for asked in request.filters]
    authorizer = broker.authorizer
    if not ctx.may_cluster(AclOperation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = DeleteAclsFilterResult(error_code=code, error_message=code.message)
        return DeleteAclsResponse(filter_results=[refused] * len(filters))
    if authorizer is None:
        refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(filters))
    return DeleteAclsResponse(filter_results=_delete(authorizer, ctx, filters))


def _delete(
    authorizer: StoredAuthorizer, ctx: RequestContext, filters: list[AclFilter]
) -> list[DeleteAclsFilterResult]:
    found = [_select(authorizer, wanted) for wanted in filters]
    gone = dict.fromkeys(acl for acls in found if not isinstance(acls, str) for acl in acls)
    try:
        authorizer.store(remove=gone)
    except OSError as e:
        log.error("ACLs could not be deleted: %s", e)  # noqa: TRY400
        failed = DeleteAclsFilterResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(e))
        return [failed] * len(filters)
    if gone:
        audit.changed(ctx, "ACLs", removed=[str(acl) for acl in gone])
    return [
        DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=acls)
        if isinstance(acls, str)
        else DeleteAclsFilterResult(
            error_code=ErrorCode.NONE, error_message=None, matching_acls=[_told(acl) for acl in acls]
        )
        for acls in found
    ]


def _select(authorizer: StoredAuthorizer, wanted: AclFilter) -> list[Acl] | str:
    """Returns the ACLs that a filter selects, or why it cannot be used."""
    try:
        check_filter(wanted)
    except AclRefused as e:
        return str(e)
    return authorizer.select(wanted)


def _told(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
