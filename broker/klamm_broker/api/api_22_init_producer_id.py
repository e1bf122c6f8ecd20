"""InitProducerId, key 22: versions 0 to 5.

Behaviour: a new producer id with epoch 0, never handed out before, restarts included. A request that brings its
producer id and epoch gets a new id as well, as from Kafka (only transactions bump an epoch here).
Not supported: transactional ids. They get UNSUPPORTED_VERSION: Java's producer fails at once, librdkafka's when the
time of `init_transactions` is over, and both say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5))
def init_producer_id(
    broker: Broker, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    result = broker.groups.producer_ids.init(
        request.transactional_id, request.producer_id, request.producer_epoch
    )
    return InitProducerIdResponse(
        error_code=result.error, producer_id=result.producer_id, producer_epoch=result.producer_epoch
    )
