"""FindCoordinator, key 10: versions 0 to 6.

Behaviour: answers this broker, for every group, transactional id and share partition. The first question of each kind
creates `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
Versions: 4 asks for several keys, 6 for share partitions (`group:topic id:partition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api.authorized import DENIED
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.share_states import ShareStateShell
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.transactions import TransactionShell

BATCHED_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_SHARE_FROM: Final = 6
_TOPIC_ID_CHARACTERS: Final = 22
_NO_NODE: Final = -1
_KINDS: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}


@handles(
    ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP, "for groups"),
        Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "for transactions"),
        Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "for share partitions"),
    ],
)
def find_coordinator(
    broker: BrokerState, ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCHED_FROM:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_one(broker, ctx, request.key_type, key) for key in keys]
        )
    found = _one(broker, ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _one(broker: BrokerState, ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    kind = _KINDS.get(key_type)
    error: ErrorCode
    why: str | None
    if kind is not None and not ctx.may(AclOperation.DESCRIBE, kind, key):
        error, why = DENIED[kind], DENIED[kind].message
    elif key_type == _SHARE and not ctx.may_cluster(AclOperation.CLUSTER_ACTION):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        why = error.message
    else:
        error, why = _problem(broker, key_type, key, ctx.api_version)
    if error is not ErrorCode.NONE:
        return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error, error_message=why)
    listener = broker.listeners[ctx.listener]
    return Coordinator(
        key=key,
        node_id=broker.node_id,
        host=listener.host,
        port=listener.port,
        error_code=error,
        error_message=why,
    )


def _problem(broker: BrokerState, key_type: int, key: str, version: int) -> tuple[ErrorCode, str | None]:
    if key_type == _SHARE and version >= _SHARE_FROM and broker.serves_share_groups:
        if not _is_share_key(key):
            return ErrorCode.INVALID_REQUEST, "The key of a share partition is group:topic id:partition."
    elif key_type not in (_GROUP, _TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
    part: GroupShell | TransactionShell | ShareStateShell
    if key_type == _SHARE:
        part, what = broker.share_states, "share-group state"
    elif key_type == _TRANSACTION:
        part, what = broker.transactions, "transaction"
    else:
        part, what = broker.groups, "offsets"
    if part.ensure_topic():
        return ErrorCode.NONE, None
    return (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"The {what} topic could not be created; see the broker's log.",
    )


def _is_share_key(key: str) -> bool:
    group_id, _, rest = key.partition(":") if key.count(":") == 2 else ("", "", "")
    topic_id, _, partition = rest.partition(":")
    return bool(group_id) and len(topic_id) == _TOPIC_ID_CHARACTERS and partition.isdecimal()
