"""ListTransactions, key 66: versions 0 to 2.

Behaviour: lists transactional ids with producer id and state, filtered by both. The answer names states that do not
exist.
Versions: 1 filters by the time that a transaction is open; 2 by a regular expression for the whole transactional id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.transactions.model import ListFilter
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "others are left out"),
    ],
)
def list_transactions(
    broker: BrokerState, ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    shell = broker.transactions
    wanted = ListFilter(
        states=request.state_filters,
        producer_ids=set(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=request.transactional_id_pattern,
    )
    found = shell.coordinator.list_transactions(wanted, shell.now())
    return ListTransactionsResponse(
        error_code=found.error,
        unknown_state_filters=list(found.unknown_states),
        transaction_states=[
            TransactionState(transactional_id=name, producer_id=producer_id, transaction_state=state)
            for name, producer_id, state in found.transactions
            if ctx.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, tell=False)
        ],
    )
