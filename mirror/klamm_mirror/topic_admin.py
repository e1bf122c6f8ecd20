"""Requests about topics: create, extend, configure, describe. Raises ClientError.

A topic that the cluster refuses is logged, and the others continue, unless the refusal may pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from klamm_kafka.client import Cluster, Connection, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_mirror.topic_plan import ConfigChange, MorePartitions, NewTopic

log = logging.getLogger(__name__)

TOPIC: Final = 2
"""The resource type of a topic in requests about configs."""
_SET_BY_TOPIC: Final = 1
_SET, _DELETE = 0, 1


async def create(cluster: Cluster, topics: Sequence[NewTopic], timeout_ms: int) -> None:
    """Creates topics. One that exists already is as good."""
    if not topics:
        return
    wanted = [
        CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
        )
        for topic in topics
    ]
    answer: CreateTopicsResponse = await (await _controller(cluster)).request(
        CreateTopicsRequest(topics=wanted, timeout_ms=timeout_ms), timeout_s=timeout_ms / 1000
    )
    for result in answer.topics:
        if result.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            log.info("made %s", result.name)
            continue
        _refused(result.error_code, f"making {result.name}", result.error_message)


async def grow(cluster: Cluster, topics: Sequence[MorePartitions], timeout_ms: int) -> None:
    """Adds partitions to topics."""
    if not topics:
        return
    wanted = [CreatePartitionsTopic(name=t.name, count=t.wanted, assignments=None) for t in topics]
    answer: CreatePartitionsResponse = await (await _controller(cluster)).request(
        CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=False)
    )
    counts = {topic.name: topic.wanted for topic in topics}
    for result in answer.results:
        if result.error_code:
            _refused(result.error_code, f"adding partitions to {result.name}", result.error_message)
        else:
            log.info("%s has %d partitions now", result.name, counts[result.name])


async def configure(cluster: Cluster, changes: Sequence[ConfigChange]) -> None:
    """Changes settings of topics."""
    if not changes:
        return
    edits: dict[str, list[AlterableConfig]] = {}
    for change in changes:
        operation = _DELETE if change.new is None else _SET
        edits.setdefault(change.topic, []).append(
            AlterableConfig(name=change.name, config_operation=operation, value=change.new)
        )
    resources = [
        AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
        for topic, configs in edits.items()
    ]
    answer: IncrementalAlterConfigsResponse = await (await _controller(cluster)).request(
        IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    )
    for result in answer.responses:
        if result.error_code:
            _refused(result.error_code, f"settings of {result.resource_name}", result.error_message)


async def own_configs(
    cluster: Cluster, topics: Sequence[str], wants: Callable[[str], bool]
) -> dict[str, dict[str, str | None]]:
    """Returns the topics' own settings whose names are wanted. Leaves out a topic that may not be described."""
    if not topics:
        return {}
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=t, configuration_keys=None) for t in topics
    ]
    answer: DescribeConfigsResponse = await cluster.request(DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: {
            c.name: c.value
            for c in result.configs
            if c.config_source == _SET_BY_TOPIC and not c.is_sensitive and not c.read_only and wants(c.name)
        }
        for result in answer.results if not result.error_code
    }  # fmt: skip


async def _controller(cluster: Cluster) -> Connection:
    node = cluster.metadata.controller_id if cluster.metadata is not None else -1
    return await (cluster.broker(node) if node >= 0 else cluster.any_broker())


def _refused(code: int, what: str, said: str | None) -> None:
    error = broker_error(code, what)
    if error.retriable:
        raise error
    log.error("%s%s", error, f": {said}" if said else "")
