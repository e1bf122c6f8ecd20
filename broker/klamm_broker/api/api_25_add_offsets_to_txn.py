"""AddOffsetsToTxn, key 25: versions 0 to 4.

Behaviour: adds the partition of `__consumer_offsets` that holds the group to the producer's transaction, as
AddPartitionsToTxn does. Clients of transaction version 2 leave it out: TxnOffsetCommit adds the partition itself.
Versions: 2 knows PRODUCER_FENCED.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final

from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions.model import AddRequest
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

FENCED_FROM: Final = 2


@handles(
    ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    needs=[
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(AclOperation.READ, ResourceType.GROUP),
    ],
)
def add_offsets_to_txn(
    broker: BrokerState, ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Future[AddOffsetsToTxnResponse]:
    if not ctx.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not broker.groups.ensure_topic():
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = broker.groups.coordinator.partition_for(request.group_id)
    add = AddRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=frozenset({TopicPartition(OFFSETS_TOPIC, index)}),
        client_version=0,
    )

    def response(error: ErrorCode) -> AddOffsetsToTxnResponse:
        if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=error)

    shell = broker.transactions
    answer: Any = shell.ask(lambda token, now: shell.coordinator.add_partitions(add, token, now), response)
    return answer  # type: ignore[no-any-return]
