"""Metadata, key 3: versions 0 to 13.

Behaviour: one broker leads every partition and is the controller. A topic that does not exist is created when both
`auto.create.topics.enable` and the request allow it; the first answer already has it. Of many topics only the first
are created (100 partitions, in slices), and none by a client over its `controller_mutation_rate`; clients ask again for the
others. Null topics (or none in version 0) mean all.
From version 12 a request may name topics by id; versions 10 and 11 have the field, and Kafka refuses its use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm_base.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm_broker.api import authorized
from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.server import audit, heavy
from klamm_broker.server.slices import when_done
from klamm_broker.server.topics import Topic, metric_name, why_invalid
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

NO_ID: Final = bytes(16)
BY_ID: Final = 12
"""The first version that may ask by id. The answers of earlier ones cannot express a topic without a name."""
AUTO_CREATE_PARTITIONS: Final = 100
"""Partitions that one request may create, as each costs directories and files: about a millisecond."""


@handles(
    ApiKey.METADATA,
    versions=(0, 13),
    needs=[
        Need(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "topics that may not be described are left out where all are asked for",
        ),
        Need(AclOperation.CREATE, ResourceType.CLUSTER, "to create a missing topic; or CREATE of the topic"),
        Need(AclOperation.CREATE, ResourceType.TOPIC),
        Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, "for the operations on the cluster"),
    ],
)
def metadata(
    broker: BrokerState, ctx: RequestContext, request: MetadataRequest
) -> MetadataResponse | asyncio.Future[MetadataResponse] | Steps[MetadataResponse]:
    asked = request.topics
    if asked is None or (ctx.api_version == 0 and not asked):
        return _all_in_steps(broker, ctx, request)
    distinct = {(item.name, item.topic_id): item for item in asked}.values()
    if ctx.api_version < BY_ID and any(item.name is None or item.topic_id != NO_ID for item in distinct):
        refusals = [_error(ErrorCode.INVALID_REQUEST, item, name=item.name or "") for item in distinct]
        return _response(broker, ctx, request, refusals)
    missing, denied = [], set()
    if request.allow_auto_topic_creation and broker.config["auto.create.topics.enable"]:
        named = [item.name for item in distinct if item.name and item.topic_id == NO_ID]
        denied = _not_to_create(broker, ctx, named)
        missing = _missing(
            broker, [name for name in named if name not in denied and _may_describe(ctx, name, tell=False)]
        )

    def answer(_: object) -> MetadataResponse:
        refused = _refused(broker, missing) | dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _response(broker, ctx, request, [_topic(broker, ctx, item, refused) for item in distinct])

    if missing:
        return when_done(broker.loop, _create(broker, ctx, _wanted(broker, missing)), answer)
    if len(distinct) <= STEP:
        return answer(None)
    return _in_steps(
        broker, ctx, request, list(distinct), dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )


def _all_in_steps(
    broker: BrokerState, ctx: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse]:
    told, left = [], STEP
    for topic in list(broker.topics):
        if left <= 0:
            left = STEP
            yield None
        if broker.topics.by_id.get(topic.id) is topic and _may_describe(ctx, topic.name, tell=False):
            told.append(_found(broker, topic))
            left -= len(topic.partitions)
        left -= 1
    return (yield from _responding(broker, ctx, request, told))


def _in_steps(
    broker: BrokerState,
    ctx: RequestContext,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    refused: Mapping[str, ErrorCode],
) -> Steps[MetadataResponse]:
    topics = []
    for number, item in enumerate(asked, 1):
        topics.append(_topic(broker, ctx, item, refused))
        if not number % STEP:
            yield None
    return (yield from _responding(broker, ctx, request, topics))


def _may_describe(ctx: RequestContext, name: str, *, tell: bool = True) -> bool:
    return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, tell=tell)


def _not_to_create(broker: BrokerState, ctx: RequestContext, names: list[str]) -> set[str]:
    """Returns the topics that do not exist and that the sender may not create."""
    missing = [name for name in names if name not in broker.topics.by_name]
    if not missing or ctx.may_cluster(AclOperation.CREATE, tell=False):
        return set()
    return {name for name in missing if not ctx.may(AclOperation.CREATE, ResourceType.TOPIC, name)}


def _create(broker: BrokerState, ctx: RequestContext, names: list[str]) -> asyncio.Future[None] | None:
    """Create topics with the broker's defaults, the internal ones with their own. A failure is logged.

    The client is charged for them as by CreateTopics; those beyond its quota are left for the next time that it asks.

    Many topics are created in slices: then a future is returned, which ends when they exist.
    """
    wanted: dict[str, tuple[int, Mapping[str, str]]] = {}
    partitions = broker.config["num.partitions"]
    for name in names:
        if name == OFFSETS_TOPIC:
            broker.groups.ensure_topic()
        elif name == TRANSACTIONS_TOPIC:
            broker.transactions.ensure_topic()
        elif name not in broker.logs.busy and ctx.may_mutate(partitions, strict_since=0):
            wanted[name] = partitions, {}

    def tell(failed: Mapping[str, Exception]) -> None:
        for name, error in failed.items():
            if not isinstance(error, KeyError):  # KeyError: another request has begun to create it
                log.error("topic %s could not be created: %s", name, error)
        made = [name for name in wanted if name not in failed]
        if made:
            audit.changed(ctx, "topics", created=made)

    return when_done(broker.loop, broker.topic_changes.create(wanted), tell) if wanted else None


def _response(
    broker: BrokerState, ctx: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    return heavy.finished(_responding(broker, ctx, request, topics))


def _responding(
    broker: BrokerState, ctx: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> Steps[MetadataResponse]:
    listener = broker.listeners[ctx.listener]
    me = MetadataResponseBroker(
        node_id=broker.node_id, host=listener.host, port=listener.port, rack=broker.config["broker.rack"]
    )
    if request.include_topic_authorized_operations:
        for number, topic in enumerate(topics, 1):
            if not number % STEP:
                yield None
            if topic.name and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = authorized.operations(ctx, ResourceType.TOPIC, topic.name)
    asked_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[me],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=authorized.cluster_operations(ctx)
        if asked_cluster
        else authorized.NOT_ASKED,
    )


def _topic(
    broker: BrokerState, ctx: RequestContext, asked: MetadataRequestTopic, refused: Mapping[str, ErrorCode]
) -> MetadataResponseTopic:
    if asked.topic_id != NO_ID:
        topic = broker.topics.by_id.get(asked.topic_id)
        if topic is None:
            return _error(ErrorCode.UNKNOWN_TOPIC_ID, asked)
        if not _may_describe(ctx, topic.name):
            return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
        return _found(broker, topic)
    if asked.name is None:
        return _error(ErrorCode.INVALID_REQUEST, asked)
    if not _may_describe(ctx, asked.name):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
    topic = broker.topics.by_name.get(asked.name)
    if topic is not None:
        return _found(broker, topic)
    if why_invalid(asked.name) is not None and asked.name not in refused:
        return _error(ErrorCode.INVALID_TOPIC_EXCEPTION, asked)
    return _error(refused.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), asked)


def _missing(broker: BrokerState, names: list[str]) -> list[str]:
    """Returns the names that have no topic and are valid."""
    return [name for name in names if name not in broker.topics.by_name and why_invalid(name) is None]


def _wanted(broker: BrokerState, missing: list[str]) -> list[str]:
    """Returns the missing topics that this request creates."""
    colliding = broker.topic_changes.colliding
    first = {metric_name(name): name for name in reversed(missing) if colliding(name) is None}
    wanted = [name for name in missing if first.get(metric_name(name)) == name]
    return wanted[: max(AUTO_CREATE_PARTITIONS // broker.config["num.partitions"], 1)]


def _refused(broker: BrokerState, missing: list[str]) -> dict[str, ErrorCode]:
    """Returns the errors of the missing topics that have not been created."""
    topics = broker.topics
    return {
        name: ErrorCode.LEADER_NOT_AVAILABLE  # clients ask again
        if topics.colliding(name) is None
        else ErrorCode.INVALID_TOPIC_EXCEPTION
        for name in missing
        if name not in topics.by_name
    }


def _found(broker: BrokerState, topic: Topic) -> MetadataResponseTopic:
    me = [broker.node_id]
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.log.offline else ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=-1 if partition.log.offline else broker.node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                offline_replicas=me if partition.log.offline else [],
            )
            for partition in topic.partitions
        ],
    )


def _error(code: ErrorCode, asked: MetadataRequestTopic, *, name: str | None = None) -> MetadataResponseTopic:
    named = asked.name if name is None else name
    return MetadataResponseTopic(error_code=code, name=named, topic_id=asked.topic_id, partitions=[])
