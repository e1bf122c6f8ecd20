"""AlterConfigs, key 33: versions 0 to 2.

Behaviour: replaces all configurations of a topic, broker, group or client metrics subscription; a key that is not named
goes back to its default. Clients older than 2.3 use it (newer ones change single keys with IncrementalAlterConfigs).
A resource is changed as a whole or not at all; the change is on the disk when it is answered (`config_changes.py`).
`validate_only` checks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm_broker.api import config_changes
from klamm_broker.api.registry import RequestContext, handles
from klamm_kafka.wire.acls import AclOperation
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2), needs=config_changes.rights(AclOperation.ALTER_CONFIGS))
def alter_configs(
    broker: BrokerState, ctx: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse | asyncio.Future[AlterConfigsResponse]:
    return broker.topic_changes.change(
        _alteration(broker, ctx, request), topics=config_changes.topics_of(broker, ctx, request.resources)
    )


def _alteration(
    broker: BrokerState, ctx: RequestContext, request: AlterConfigsRequest
) -> Steps[AlterConfigsResponse]:
    results = yield from config_changes.each_resource(
        broker,
        request.resources,
        lambda resource: _alter(broker, ctx, resource, validate_only=request.validate_only),
    )
    return AlterConfigsResponse(
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
    config_changes.check_plain(
        [config.name for config in resource.configs],
        (config.name for config in resource.configs if config.value is None),
    )
    target = config_changes.resource(broker, kind, name)
    configs = {config.name: config.value or "" for config in resource.configs}
    return (
        yield from config_changes.altering(
            target,
            lambda: configs,
            lambda: config_changes.report(ctx, kind, name, configs),
            validate_only=validate_only,
        )
    )
