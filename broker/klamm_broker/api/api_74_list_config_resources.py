"""ListConfigResources, key 74: versions 0 to 1.

Behaviour: lists the resources that have configurations of their own. Version 0 asks for client metrics subscriptions;
version 1 for topics (all), brokers and loggers (this broker), groups and client metrics (those with a value set). No
type means all of these; another type is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.server import cluster_config
from klamm_kafka.wire.acls import AclOperation
from klamm_kafka.wire.acls import ResourceType as Kind
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    needs=[
        Need(AclOperation.DESCRIBE_CONFIGS, Kind.CLUSTER),
    ],
)
def list_config_resources(
    broker: BrokerState, ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not ctx.may_cluster(AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [ResourceType.CLIENT_METRICS] if ctx.api_version == 0 else request.resource_types
    names = {
        ResourceType.GROUP: broker.cluster_config.names(cluster_config.ResourceType.GROUP),
        ResourceType.CLIENT_METRICS: broker.cluster_config.names(cluster_config.ResourceType.CLIENT_METRICS),
        ResourceType.BROKER_LOGGER: [str(broker.node_id)],
        ResourceType.BROKER: [str(broker.node_id)],
        ResourceType.TOPIC: broker.topics.by_name,
    }
    if not set(asked) <= set(names):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind, resources in names.items()
        if not asked or kind in asked
        for name in resources
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=found)
