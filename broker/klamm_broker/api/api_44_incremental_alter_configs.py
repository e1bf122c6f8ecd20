"""IncrementalAlterConfigs, key 44: versions 0 to 1.

Behaviour: SET, DELETE, APPEND and SUBTRACT of single keys of topics, brokers, groups, client metrics subscriptions
and loggers; a resource is changed as a whole or not at all, and on the disk when it is answered (`config_changes.py`).
`validate_only` checks without changing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from klamm_broker.api import config_changes
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.server.config_refused import ConfigRefused
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.broker import Broker

log = logging.getLogger(__name__)


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
def incremental_alter_configs(
    broker: Broker, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | asyncio.Future[IncrementalAlterConfigsResponse]:
    return broker.topic_changes.run(_alteration(broker, request))


def _alteration(
    broker: Broker, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse]:
    """In steps of a resource each, as each is a write to the disk."""
    named = Counter((r.resource_type, r.resource_name) for r in request.resources)
    responses = []
    for resource in request.resources:
        if named[resource.resource_type, resource.resource_name] > 1:
            code, why = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            code, why = _alter(broker, resource, validate_only=request.validate_only)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=why or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield None
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> tuple[ErrorCode, str]:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind == ResourceType.BROKER_LOGGER:
            config_changes.alter_loggers(broker, name, resource.configs, validate_only=validate_only)
        else:
            target = config_changes.resource(broker, kind, name)
            configs = config_changes.incremental(target, resource.configs)
            config_changes.alter(target, configs, validate_only=validate_only)
    except ConfigRefused as e:
        return e.code, str(e)
    except OSError as e:
        log.error("the configuration of %s could not be stored: %s", name, e)  # noqa: TRY400
        return ErrorCode.KAFKA_STORAGE_ERROR, str(e)
    return ErrorCode.NONE, ""
