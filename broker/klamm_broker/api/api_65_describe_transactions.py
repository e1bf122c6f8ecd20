"""DescribeTransactions, key 65: version 0.

Behaviour: tells state, producer, time-out, start and partitions of transactional ids; TRANSACTIONAL_ID_NOT_FOUND for
ids that nobody uses. An id that is named twice is told once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.transactions.model import TransactionDescription
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "topics that may not be described are left out"),
    ],
)
def describe_transactions(
    broker: BrokerState, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    coordinator = broker.transactions.coordinator
    return DescribeTransactionsResponse(
        transaction_states=[
            _state(ctx, coordinator.describe(name))
            if ctx.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
            else TransactionState(
                transactional_id=name, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            for name in dict.fromkeys(request.transactional_ids)
        ]
    )


def _state(ctx: RequestContext, found: TransactionDescription) -> TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        if topic in topics or ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(index)
    return TransactionState(
        error_code=found.error,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
