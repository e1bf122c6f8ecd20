"""InitProducerId, key 22: versions 0 to 5.

Behaviour: without a transactional id, answers a new producer id with epoch 0, which was never handed out before,
restarts included; that also holds for a request that brings its producer id and epoch. With a transactional id, answers
its producer id and the next epoch, which fences every producer with an earlier epoch. An open transaction is aborted
first, and the client comes again (CONCURRENT_TRANSACTIONS).
Versions: 3 brings the producer id and epoch that a producer believes to have (KIP-360); 4 knows PRODUCER_FENCED.
Not supported: two-phase commit (version 6, which Kafka 4.3 does not serve either).
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdResult
from klamm_broker.coordinator.transactions.model import InitRequest
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

FENCED_FROM: Final = 4


@handles(
    ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    needs=[
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "with a transactional id"),
        Need(
            AclOperation.IDEMPOTENT_WRITE,
            ResourceType.CLUSTER,
            "without one; WRITE of any topic is enough, too",
        ),
        Need(AclOperation.WRITE, ResourceType.TOPIC),
    ],
)
def init_producer_id(
    broker: BrokerState, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Future[InitProducerIdResponse]:
    shell = broker.transactions

    def response(result: ProducerIdResult) -> InitProducerIdResponse:
        error = result.error
        if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(
            error_code=error, producer_id=result.producer_id, producer_epoch=result.producer_epoch
        )

    no_id, no_epoch = request.producer_id == NO_PRODUCER_ID, request.producer_epoch == NO_PRODUCER_EPOCH
    if no_id != no_epoch:
        return response(ProducerIdResult(error=ErrorCode.INVALID_REQUEST))
    denied = _denial(ctx, request.transactional_id)
    if denied is not None:
        return response(ProducerIdResult(error=denied))
    if request.transactional_id is None:
        return response(shell.new_producer_id())
    init = InitRequest(
        transactional_id=request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        expected=None if no_id else (request.producer_id, request.producer_epoch),
    )
    answer: Any = shell.ask(lambda token, now: shell.coordinator.init(init, token, now), response)
    return answer  # type: ignore[no-any-return]


def _denial(ctx: RequestContext, transactional_id: str | None) -> ErrorCode | None:
    """Returns why the sender may not have a producer id."""
    if transactional_id is not None:
        may = ctx.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return None if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if ctx.may_cluster(AclOperation.IDEMPOTENT_WRITE, tell=False):
        return None
    if ctx.may_any(AclOperation.WRITE, ResourceType.TOPIC):
        return None
    ctx.may_cluster(AclOperation.IDEMPOTENT_WRITE)  # tells of the denial
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
