"""IncrementalAlterConfigs, key 44: versions 0 and 1.

Behaviour: SET, DELETE, APPEND and SUBTRACT on topics. All changes of a resource are checked together and done
together, or not at all; `validate_only` only checks. They are on the disk, and in force, when they are answered.
Not supported: broker properties (they change with `server.properties` and a restart) and every other resource type.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from klamm_base.configdef import Type, parse_type, to_string
from klamm_base.errors import ConfigError
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server.topics import Topic, why_invalid
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker

log = logging.getLogger(__name__)


class UnclearChange(ConfigError):
    """Changes that contradict each other or say nothing: the request is wrong, not a value in it."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
def incremental_alter_configs(
    broker: Broker, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    seen: set[tuple[int, str]] = set()
    responses = []
    for resource in request.resources:
        where = (resource.resource_type, resource.resource_name)
        if where in seen:
            code, why = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            code, why = _alter(broker, resource, validate_only=request.validate_only)
        seen.add(where)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=why or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> tuple[ErrorCode, str]:
    if resource.resource_type == ResourceType.BROKER:
        return (
            ErrorCode.INVALID_REQUEST,
            "broker properties cannot be changed while it runs: change server.properties and restart",
        )
    if resource.resource_type != ResourceType.TOPIC:
        return (
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} is not supported, 2 (topic) is",
        )
    if not resource.resource_name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    topic = broker.topics.by_name.get(resource.resource_name)
    if topic is None:
        why = why_invalid(resource.resource_name)
        if why is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, why
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
    try:
        overrides = changed(broker, topic, resource.configs)
        broker.log_config(overrides)  # checks them
    except UnclearChange as e:
        return ErrorCode.INVALID_REQUEST, str(e)
    except ConfigError as e:
        return ErrorCode.INVALID_CONFIG, str(e)
    try:
        if not validate_only:
            broker.set_topic_overrides(topic, overrides)
    except OSError as e:
        log.exception("the configuration of topic %s could not be stored", topic.name)
        return ErrorCode.KAFKA_STORAGE_ERROR, str(e)
    return ErrorCode.NONE, ""


def changed(broker: Broker, topic: Topic, changes: Sequence[AlterableConfig]) -> dict[str, str]:
    """The topic's own properties after these changes. Raises ConfigError."""
    overrides = dict(topic.overrides)
    named: set[str] = set()
    for change in changes:
        if change.name in named:
            raise UnclearChange(f"Error due to duplicate config keys: {change.name}", key=change.name)
        if change.name not in TOPIC_CONFIGS and change.config_operation != Operation.DELETE:
            raise ConfigError(f"Unknown topic config name: {change.name}", key=change.name)
        named.add(change.name)
        _apply(overrides, change, broker.config.topic_defaults.get(change.name))
    return overrides


def _apply(overrides: dict[str, str], change: AlterableConfig, broker_default: str | None) -> None:
    name = change.name
    if change.config_operation == Operation.DELETE:
        overrides.pop(name, None)
        return
    if change.value is None:
        raise UnclearChange(f"Null value not supported for topic configs: {name}", key=name)
    if change.config_operation == Operation.SET:
        overrides[name] = change.value
        return
    if change.config_operation not in {Operation.APPEND, Operation.SUBTRACT}:
        raise ConfigError(f"operation {change.config_operation} of {name} is not one of 0 to 3", key=name)
    key = TOPIC_CONFIGS[name]
    if key.type is not Type.LIST:
        operation = Operation(change.config_operation).name
        raise ConfigError(f"Can't {operation} to key {name} because its type is not LIST.", key=name)
    before = overrides.get(name, broker_default)
    items: list[str] = list(key.default) if before is None else parse_type(name, before, Type.LIST)
    given: list[str] = parse_type(name, change.value, Type.LIST)
    if change.config_operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    overrides[name] = to_string(items, Type.LIST) or ""
