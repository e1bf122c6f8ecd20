"""WriteTxnMarkers, key 27: versions 1 and 2.

Behaviour: writes the end of a producer's transaction into partitions, whatever a coordinator knows of it. Brokers send
it to each other; here it ends a hanging transaction (`kafka-transactions.sh abort`). A partition refuses a marker whose
epoch or coordinator epoch is older than one that it has seen.
Versions: 2 brings the transaction version, by which late markers are recognized (KIP-1228).
"""

from __future__ import annotations

from asyncio import Future, gather
from functools import partial
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.effects import Marker
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER, "or CLUSTER_ACTION"),
        Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ],
)
def write_txn_markers(
    broker: BrokerState, ctx: RequestContext, request: WriteTxnMarkersRequest
) -> Future[WriteTxnMarkersResponse]:
    may = ctx.may_cluster(AclOperation.ALTER, tell=False) or ctx.may_cluster(AclOperation.CLUSTER_ACTION)

    async def answer() -> WriteTxnMarkersResponse:
        results = [await _write(broker, asked, may=may) for asked in request.markers]
        return WriteTxnMarkersResponse(markers=results)

    return broker.loop.create_task(answer())


async def _write(broker: BrokerState, asked: WritableTxnMarker, *, may: bool) -> WritableTxnMarkerResult:
    marker = Marker(
        producer_id=asked.producer_id,
        epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        committed=asked.transaction_result,
        transaction_version=asked.transaction_version,
    )
    outcomes: list[Future[ErrorCode]] = []
    for topic in asked.topics:
        for index in topic.partition_indexes:
            outcome: Future[ErrorCode] = broker.loop.create_future()
            outcomes.append(outcome)
            if not may:
                outcome.set_result(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                continue
            broker.transactions.write_marker(topic.name, index, marker, partial(_tell, outcome))
    errors = iter(await gather(*outcomes))
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(errors))
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _tell(outcome: Future[ErrorCode], error: ErrorCode) -> None:
    if not outcome.done():
        outcome.set_result(error)
