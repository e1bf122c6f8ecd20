"""ApiVersions, key 18: versions 0 to 4.

Behaviour: lists what the registry has. Produce is advertised from version 0, because librdkafka turns compression
off when 0 is missing (KAFKA-18659); versions 0 to 2 are refused when sent. A version that we do not have is
answered in version 0 with error 35 (`server.dispatch`), from which the client learns our versions. From version 3 the
client names its software; a name that Kafka refuses gets INVALID_REQUEST. The answer then has the features and their
finalized levels (`server/features.py`). Features that begin at level 0 are shown from version 4 on: older clients cannot
read a lowest level of 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from klamm_broker.api.registry import RequestContext, handles, table
from klamm_broker.server.features import OWN, SUPPORTED
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS, versions=(0, 4), needs=())
def api_versions(
    broker: BrokerState, ctx: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    names = (request.client_software_name, request.client_software_version)
    if ctx.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    keys = [
        ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
        for api in table().values()
    ]
    cluster = broker.cluster_config
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in {**SUPPORTED, **OWN}.items()
            if lowest > 0 or ctx.api_version >= 4
        ],
        finalized_features_epoch=cluster.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in cluster.features.items()
            if level > 0
        ],
    )
