"""UpdateFeatures, key 57: versions 0 to 2.

Behaviour: sets finalized feature levels, all or none, with Kafka's rules (`server/features.py`); the levels are on
the disk when it is answered, and ApiVersions tells them. `validate_only` (from version 1) checks without storing.
Levels of `metadata.version` and `kraft.version` matter to Kafka's controllers and have no effect here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server import audit
from klamm_broker.server.features import FeatureRefused, FeatureUpdate, UpgradeType, updated
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)


@handles(
    ApiKey.UPDATE_FEATURES,
    versions=(0, 2),
    needs=[
        Need(AclOperation.ALTER, ResourceType.CLUSTER),
    ],
)
def update_features(
    broker: BrokerState, ctx: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    if not ctx.may_cluster(AclOperation.ALTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=denied, error_message=denied.message)
    cluster = broker.cluster_config
    updates = _updates(request, ctx.api_version)
    try:
        levels = updated(cluster.features, updates, node_id=broker.node_id)
        if not request.validate_only and levels != cluster.features:
            cluster.update_features(levels)
            audit.changed(ctx, "features", levels=levels)
            log.info("feature levels are now %s", levels)
    except FeatureRefused as e:
        why = f"The update failed for all features since the following feature had an error: {e}"
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=why)
    except OSError as e:
        log.error("feature levels could not be stored: %s", e)  # noqa: TRY400
        return UpdateFeaturesResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(e))
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message="NONE")
            for name in dict.fromkeys(update.name for update in updates)
        ],
    )


def _updates(request: UpdateFeaturesRequest, version: int) -> list[FeatureUpdate]:
    """Returns the requested updates. Version 0 says only whether a downgrade is allowed."""
    result = []
    for asked in request.feature_updates:
        kind = asked.upgrade_type
        if version == 0:
            kind = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
        result.append(FeatureUpdate(asked.feature, asked.max_version_level, kind))
    return result
