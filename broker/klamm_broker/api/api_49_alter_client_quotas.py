"""AlterClientQuotas, key 49: versions 0 to 1.

Behaviour: checks entity, key and value as Kafka does. Quotas are not enforced, so a change that sets a quota is refused
(INVALID_REQUEST, with a sentence that says so); a change that only removes quotas has nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.client_quotas import QuotaRefused, check_change
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    needs=[
        Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
    ],
)
def alter_client_quotas(
    broker: BrokerState, ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    may = ctx.may_cluster(AclOperation.ALTER_CONFIGS)
    return AlterClientQuotasResponse(entries=[_one(entry, may=may) for entry in request.entries])


def _one(asked: AlterClientQuotasRequestEntryData, *, may: bool) -> AlterClientQuotasResponseEntryData:
    entity = {part.entity_type: part.entity_name for part in asked.entity}
    answer = AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE,
        error_message=None,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
    )
    if not may:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer.error_code, answer.error_message = code, code.message
        return answer
    try:
        check_change(entity, [(op.key, None if op.remove else op.value) for op in asked.ops])
    except QuotaRefused as e:
        answer.error_code, answer.error_message = e.code, str(e)
    return answer
