"""DeleteAcls, key 31: versions 1 to 3.

Behaviour: deletes the ACLs that each filter selects and tells them; an ACL that several filters select is told by each,
up to `REPEATED_MAX` in all. They are gone from the disk when it is answered. Many filters are used in slices. Without an authorizer it answers SECURITY_DISABLED. Code 0 (unknown)
closes the connection, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from klamm_base.files import NotSynced
from klamm_broker.api.acls import NO_AUTHORIZER, AclRefused, check_codes, check_filter, selected
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.server import audit
from klamm_broker.server.slices import drive
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

REPEATED_MAX: Final = 100_000
"""ACLs that are told again, because another filter of the request selects them too: some 10 MB of the answer."""
_TOO_MANY: Final = (
    f"The filters select the same ACLs more than {REPEATED_MAX} times: send fewer filters at once."
)


@handles(ApiKey.DELETE_ACLS, versions=(1, 3), needs=[Need(AclOperation.ALTER, ResourceType.CLUSTER)])
def delete_acls(
    broker: BrokerState, ctx: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | asyncio.Future[DeleteAclsResponse]:
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
    return drive(broker.loop, deletion(authorizer, ctx, filters))


def deletion(
    authorizer: StoredAuthorizer, ctx: audit.Sender, filters: list[AclFilter]
) -> Steps[DeleteAclsResponse]:
    """Delete what the filters select, in steps. Nothing is deleted where they select the same ACLs again and again."""
    found: dict[AclFilter, list[Acl] | str] = {}
    gone: dict[Acl, None] = {}
    told = 0
    for wanted in filters:
        if wanted not in found:
            found[wanted] = _select(authorizer, wanted)
        acls = found[wanted]
        if not isinstance(acls, str):
            told += len(acls)
            gone.update(dict.fromkeys(acls))
        if told - len(gone) > REPEATED_MAX:
            refused = DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=_TOO_MANY)
            return DeleteAclsResponse(filter_results=[refused] * len(filters))
        yield None
    failed = _remove(authorizer, ctx, gone)
    results = []
    for wanted in filters:
        results.append(_result(found[wanted], failed))
        yield None
    return DeleteAclsResponse(filter_results=results)


def _remove(authorizer: StoredAuthorizer, ctx: audit.Sender, gone: Collection[Acl]) -> str | None:
    """Delete ACLs. Returns why that failed."""
    failed = None
    try:
        authorizer.store(remove=gone)
    except OSError as e:
        log.error("ACLs could not be deleted: %s", e)  # noqa: TRY400
        failed = str(e)
        if not isinstance(e, NotSynced):
            return failed
    if gone:
        audit.changed(ctx, "ACLs", removed=[str(acl) for acl in gone])
    return failed


def _result(acls: list[Acl] | str, failed: str | None) -> DeleteAclsFilterResult:
    if failed is not None:
        return DeleteAclsFilterResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=failed)
    if isinstance(acls, str):
        return DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=acls)
    told = [_told(acl) for acl in acls]
    return DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=told)


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
