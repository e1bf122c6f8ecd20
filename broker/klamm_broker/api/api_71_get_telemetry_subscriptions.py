"""GetTelemetrySubscriptions, key 71: version 0 (KIP-714).

Behaviour: tells a client which metrics to push and how often: the union of the CLIENT_METRICS resources that match it.
Without any it is to push nothing, and to ask again after five minutes. A client may ask once per interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), needs=())
def get_telemetry_subscriptions(
    broker: BrokerState, ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    from klamm_broker.server.client_telemetry import COMPRESSIONS

    telemetry = broker.telemetry
    error, instance_id, instance = telemetry.get(ctx, request.client_instance_id, broker.mono_ms())
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.subscriptions.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )
