"""DescribeConfigs, key 32: versions 1 to 4.

Behaviour: tells the configurations of topics, of this broker, of all brokers (the broker without a name), of this
broker's loggers, of groups and of client metrics subscriptions, with source, synonyms (on request), type and
documentation (on request). Secrets come without value. A requested key that does not exist is left out, as in Kafka.
Each resource is looked up when the answer to it is encoded: thousands of topics have a hundred thousand keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klamm_broker.api.config_changes import check_rights, rights
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.api.topic_configs import (
    TYPE_CODES,
    Entry,
    ResourceType,
    Source,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from klamm_broker.log.steps import Steps
from klamm_broker.server import cluster_config, loggers
from klamm_broker.server.config_refused import ConfigRefused
from klamm_broker.server.topics import why_invalid
from klamm_kafka.wire.acls import AclOperation
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), needs=rights(AclOperation.DESCRIBE_CONFIGS))
def describe_configs(
    broker: BrokerState, ctx: RequestContext, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    yield None  # makes it a generator, whose answer is encoded in steps
    return DescribeConfigsResponse(results=_Results(broker, ctx, request))  # type: ignore[arg-type]


class _Results:
    """The results of a request, made one after the other while they are encoded."""

    def __init__(self, broker: BrokerState, ctx: RequestContext, request: DescribeConfigsRequest) -> None:
        self._broker, self._ctx, self._request = broker, ctx, request
        self._asked = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[DescribeConfigsResult]:
        for resource in self._asked.values():
            yield _one(self._broker, self._ctx, self._request, resource)


def _one(
    broker: BrokerState,
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    keys = resource.configuration_keys
    wanted = set(keys) if keys else None
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        check_rights(ctx, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            configs = _loggers(broker, resource.resource_name)
        else:
            configs = [_config(entry, request) for entry in _entries(broker, resource)]
    except ConfigRefused as e:
        result.error_code, result.error_message = e.code, str(e)
        return result
    result.configs = [config for config in configs if wanted is None or config.name in wanted]
    return result


def _entries(broker: BrokerState, resource: DescribeConfigsResource) -> list[Entry]:
    """Returns every key of a resource. Raises ConfigRefused when the resource does not exist."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic_entries(broker, name)
        case ResourceType.BROKER:
            if not name:
                return default_broker_entries(broker.config)
            _check_broker_id(broker, name, " or empty string")
            return broker_entries(broker.config)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise ConfigRefused(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            own = broker.cluster_config.get(cluster_config.ResourceType.CLIENT_METRICS, name)
            return client_metrics_entries(own)
        case ResourceType.GROUP:
            if not name:
                raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            own = broker.cluster_config.get(cluster_config.ResourceType.GROUP, name)
            return group_entries(broker.config, own)
    raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _topic_entries(broker: BrokerState, name: str) -> list[Entry]:
    topic = broker.topics.by_name.get(name)
    if topic is not None:
        return topic_entries(broker.config, topic.overrides)
    why = why_invalid(name)
    if why is not None:
        raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    raise ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _check_broker_id(broker: BrokerState, name: str, more: str = "") -> None:
    try:
        broker_id = int(name)
    except ValueError:
        why = f"Broker id must be an integer, but it is: {name}"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, why) from None
    if broker_id != broker.node_id:
        why = f"Unexpected broker id, expected {broker.node_id}{more}, but received {name}"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, why)


def _loggers(broker: BrokerState, name: str) -> list[DescribeConfigsResourceResult]:
    """Returns the level of every logger. Raises ConfigRefused."""
    if not name:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker_id(broker, name)
    return [
        DescribeConfigsResourceResult(
            name=logger, value=loggers.level(logger), config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG
        )
        for logger in loggers.names()
    ]


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
