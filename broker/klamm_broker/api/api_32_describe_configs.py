"""DescribeConfigs, key 32: versions 1 to 4.

Behaviour: topics and this broker, with source, synonyms (on request), type and documentation (on request). Secrets
come without value. A key that is asked for and does not exist is left out, as in Kafka.
Not supported: resources other than topic and broker (INVALID_REQUEST).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.api.topic_configs import TYPE_CODES, Entry, ResourceType, broker_entries, topic_entries
from klamm_broker.server.topics import why_invalid
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4))
def describe_configs(
    broker: Broker, ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    distinct = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    return DescribeConfigsResponse(
        results=[_one(broker, request, resource) for resource in distinct.values()]
    )


def _one(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    found = _entries(broker, resource)
    if isinstance(found, tuple):
        return DescribeConfigsResult(
            error_code=found[0],
            error_message=found[1],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = resource.configuration_keys
    wanted = set(keys) if keys else None
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(entry, request) for entry in found if wanted is None or entry.key.name in wanted],
    )


def _entries(broker: Broker, resource: DescribeConfigsResource) -> list[Entry] | tuple[ErrorCode, str]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        topic = broker.topics.by_name.get(name)
        if topic is not None:
            return topic_entries(broker.config, topic.overrides)
        why = why_invalid(name)
        if why is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, why
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"
    if resource.resource_type == ResourceType.BROKER:
        if not name:  # the cluster-wide dynamic defaults: there are none
            return []
        if name != str(broker.node_id):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received {name}",
            )
        return broker_entries(broker.config)
    return (
        ErrorCode.INVALID_REQUEST,
        f"resource type {resource.resource_type} is not supported: 2 (topic) and 4 (broker) are",
    )


def _config(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=None if entry.sensitive else s.value, source=s.source)
            for s in synonyms
        ],
        config_type=TYPE_CODES[entry.key.type],
        documentation=entry.key.documentation if request.include_documentation else None,
    )
