"""CreateAcls, key 30: versions 1 to 3.

Behaviour: makes ACLs; one that is there already is made again without a trace. They are on the disk when it is answered
(`server/acl_file.py`), and hold for every later request. Without an authorizer it answers SECURITY_DISABLED. Code 0
(unknown) closes the connection, as in Kafka. ANY is refused for the one ACL; there the whole request is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm_base.files import NotSynced
from klamm_broker.api.acls import NO_AUTHORIZER, AclRefused, check_codes, check_new, created
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from klamm_broker.security.acl import Acl
    from klamm_broker.server.acl_file import StoredAuthorizer
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)


@handles(ApiKey.CREATE_ACLS, versions=(1, 3), needs=[Need(AclOperation.ALTER, ResourceType.CLUSTER)])
def create_acls(broker: BrokerState, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for asked in request.creations:
        check_codes(
            "CreateAclsRequest",
            asked.resource_type,
            asked.resource_pattern_type,
            asked.operation,
            asked.permission_type,
        )
    acls = [created(asked) for asked in request.creations]
    authorizer = broker.authorizer
    if not ctx.may_cluster(AclOperation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = AclCreationResult(error_code=code, error_message=code.message)
        return CreateAclsResponse(results=[refused] * len(acls))
    if authorizer is None:
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(acls))
    return CreateAclsResponse(results=_create(authorizer, ctx, acls))


def _create(authorizer: StoredAuthorizer, ctx: RequestContext, acls: list[Acl]) -> list[AclCreationResult]:
    results, new = [], []
    for acl in acls:
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
        try:
            check_new(acl)
        except AclRefused as e:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(e)
        else:
            new.append(acl)
        results.append(result)
    try:
        authorizer.store(add=new)
    except OSError as e:
        log.error("ACLs could not be stored: %s", e)  # noqa: TRY400
        for result in results:
            if result.error_code == ErrorCode.NONE:
                result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(e)
        if not isinstance(e, NotSynced):
            return results
    if new:
        audit.changed(ctx, "ACLs", added=[str(acl) for acl in new])
    return results
