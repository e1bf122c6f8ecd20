"""EndTxn, key 26: versions 0 to 5.

Behaviour: answers once the decision is in `__transaction_state`; the markers follow without the client. A repeated
request gets the same answer.
Versions: 2 knows PRODUCER_FENCED; 5 (transaction version 2) bumps the epoch at each end and answers the producer id and
epoch to go on with.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.transactions.model import EndRequest, EndResult
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

FENCED_FROM: Final = 2
BUMPS_FROM: Final = 5


@handles(
    ApiKey.END_TXN,
    versions=(0, 5),
    needs=[
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ],
)
def end_txn(
    broker: BrokerState, ctx: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Future[EndTxnResponse]:
    if not ctx.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    end = EndRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
        client_version=2 if ctx.api_version >= BUMPS_FROM else 0,
    )

    def response(result: EndResult) -> EndTxnResponse:
        error = result.error
        if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(
            error_code=error, producer_id=result.producer_id, producer_epoch=result.producer_epoch
        )

    shell = broker.transactions
    answer: Any = shell.ask(lambda token, now: shell.coordinator.end(end, token, now), response)
    return answer  # type: ignore[no-any-return]
