"""DescribeClientQuotas, key 48: versions 0 to 1.

Behaviour: the quotas of the entities that a filter selects, sorted by entity; an entity without quotas is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.client_quotas import QuotaRefused, check_filter, selected
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    needs=[
        Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
    ],
)
def describe_client_quotas(
    broker: BrokerState, ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    if not ctx.may_cluster(AclOperation.DESCRIBE_CONFIGS):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClientQuotasResponse(error_code=denied, error_message=denied.message, entries=None)
    components = [(c.entity_type, c.match_type, c.match) for c in request.components]
    try:
        check_filter(components)
    except QuotaRefused as e:
        return DescribeClientQuotasResponse(error_code=e.code, error_message=str(e), entries=None)
    quotas = broker.quotas.all
    entities = sorted(
        selected(quotas, components, strict=request.strict),
        key=lambda e: [(kind, name or "") for kind, name in e],
    )
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in sorted(quotas[entity].items())],
        )
        for entity in entities
    ]
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=entries)
