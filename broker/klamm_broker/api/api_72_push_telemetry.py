"""PushTelemetry, key 72: version 0 (KIP-714).

Behaviour: takes in a client's metrics and shows their latest values at /metrics (`telemetry.series`). A client may push once
per interval of its subscription; a last push (`terminating`) may come early. Only what the subscription asks for is kept,
and large pushes are read in slices. What cannot be read is INVALID_RECORD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

_REQUEST_MAX: Final = 4 * 1024 * 1024
"""Above `telemetry.max.bytes` (1 MiB), so that a client learns what is wrong."""


@handles(ApiKey.PUSH_TELEMETRY, versions=(0, 0), request_max=_REQUEST_MAX, needs=())
def push_telemetry(
    broker: BrokerState, ctx: RequestContext, request: PushTelemetryRequest
) -> Steps[PushTelemetryResponse]:
    error = yield from broker.telemetry.push(ctx, request, broker.mono_ms())
    return PushTelemetryResponse(error_code=error)
