"""CreatePartitions, key 37: versions 0 to 3.

Behaviour: grows a topic to a number of partitions; fewer, or as many as there are, is INVALID_PARTITIONS.
Not supported: assignments to other brokers (INVALID_REPLICA_ASSIGNMENT).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from klamm_base.errors import KlammError
from klamm_broker.api.api_19_create_topics import PARTITIONS_MAX
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker

log = logging.getLogger(__name__)


@handles(ApiKey.CREATE_PARTITIONS, versions=(0, 3))
def create_partitions(
    broker: Broker, ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        if named[asked.name] > 1:
            code, why = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        else:
            code, why = _grow(broker, asked, validate_only=request.validate_only)
        results.append(
            CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=why or None)
        )
    return CreatePartitionsResponse(results=results)


def _grow(broker: Broker, asked: CreatePartitionsTopic, *, validate_only: bool) -> tuple[ErrorCode, str]:
    topic = broker.topics.by_name.get(asked.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist."
    have = len(topic.partitions)
    if asked.count == have:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
    if asked.count < have:
        why = f"The topic {asked.name} currently has {have} partition(s); {asked.count} would not be an increase."
        return ErrorCode.INVALID_PARTITIONS, why
    if asked.count > PARTITIONS_MAX:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"{asked.count} partitions, but at most {PARTITIONS_MAX} are possible.",
        )
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - have:
            why = f"{asked.count - have} additional partition(s) were asked for, but {len(asked.assignments)} assignment(s) were given."
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
        if any(a.broker_ids != [broker.node_id] for a in asked.assignments):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is only broker {broker.node_id}"
    try:
        if not validate_only:
            broker.add_partitions(topic, asked.count)
    except (KlammError, OSError) as e:
        log.exception("topic %s could not get %d partitions", asked.name, asked.count)
        return ErrorCode.KAFKA_STORAGE_ERROR, str(e)
    return ErrorCode.NONE, ""
