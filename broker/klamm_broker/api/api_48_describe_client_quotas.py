"""DescribeClientQuotas, key 48: versions 0 to 1.

Behaviour: checks the filter and answers no quotas (`server/client_quotas.py` says why there are none).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.client_quotas import QuotaRefused, check_filter
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
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
    try:
        check_filter([(c.entity_type, c.match_type, c.match) for c in request.components])
    except QuotaRefused as e:
        return DescribeClientQuotasResponse(error_code=e.code, error_message=str(e), entries=None)
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=[])
