"""IncrementalAlterConfigs, key 44: versions 0 to 1.

Behaviour: SET, DELETE, APPEND and SUBTRACT of single keys of topics, brokers, groups, client metrics subscriptions
and loggers. A resource is changed as a whole or not at all; the change is on the disk when it is answered
(`config_changes.py`). `validate_only` checks without changing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm_broker.api import config_changes
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), needs=config_changes.rights(AclOperation.ALTER_CONFIGS)
)
def incremental_alter_configs(
    broker: BrokerState, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | asyncio.Future[IncrementalAlterConfigsResponse]:
    return broker.topic_changes.change(
        _alteration(broker, ctx, request), topics=config_changes.topics_of(broker, ctx, request.resources)
    )


def _alteration(
    broker: BrokerState, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse]:
    results = yield from config_changes.each_resource(
        broker,
        request.resources,
        lambda resource: _alter(broker, ctx, resource, validate_only=request.validate_only),
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=why,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, why in results
        ]
    )


def _alter(
    broker: BrokerState, ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> Steps[config_changes.TopicChange | None]:
    kind, name = resource.resource_type, resource.resource_name
    config_changes.check_rights(ctx, AclOperation.ALTER_CONFIGS, kind, name)
    keys = [config.name for config in resource.configs]
    if kind == ResourceType.BROKER_LOGGER:
        config_changes.check_loggers(broker, name, resource.configs)
        if not validate_only:
            # The change may switch the audit log itself off, or on
            told_before = audit.is_on()
            if told_before:
                config_changes.report(ctx, kind, name, keys)
            config_changes.alter_loggers(resource.configs)
            if not told_before:
                config_changes.report(ctx, kind, name, keys)
        return None
    target = config_changes.resource(broker, kind, name)
    return (
        yield from config_changes.altering(
            target,
            lambda: config_changes.incremental(target, resource.configs),
            lambda: config_changes.report(ctx, kind, name, keys),
            validate_only=validate_only,
        )
    )
