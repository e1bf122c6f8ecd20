"""FindCoordinator, key 10: versions 0 to 6.

Behaviour: answers this broker, for every group and every transactional id. The first question of each kind creates
`__consumer_offsets` or `__transaction_state`.
Versions: 4 asks for several keys.
Not supported: share groups (INVALID_REQUEST, as Kafka without them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

BATCHED_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_NO_NODE: Final = -1


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
def find_coordinator(
    broker: BrokerState, ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    error, why = _problem(broker, request.key_type)
    listener = broker.listeners[ctx.listener]
    ok = error is ErrorCode.NONE
    node_id, host, port = (broker.node_id, listener.host, listener.port) if ok else (_NO_NODE, "", -1)
    if ctx.api_version < BATCHED_FROM:
        return FindCoordinatorResponse(
            error_code=error, error_message=why or "NONE", node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=why)
            for key in request.coordinator_keys
        ]
    )


def _problem(broker: BrokerState, key_type: int) -> tuple[ErrorCode, str | None]:
    if key_type not in (_GROUP, _TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
    if (broker.groups if key_type == _GROUP else broker.transactions).ensure_topic():
        return ErrorCode.NONE, None
    what = "offsets" if key_type == _GROUP else "transaction"
    return (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"The {what} topic could not be created; see the broker's log.",
    )
