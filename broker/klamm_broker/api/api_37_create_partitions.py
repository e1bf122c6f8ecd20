"""CreatePartitions, key 37: versions 0 to 3.

Behaviour: grows a topic to a number of partitions; a number that is not above the present one is INVALID_PARTITIONS.
Many are added in slices, so that nobody else waits for them. All topics of a request are written together.
Not supported: assignments to other brokers (INVALID_REPLICA_ASSIGNMENT).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from klamm_broker.api.api_19_create_topics import PARTITIONS_MAX
from klamm_broker.api.assignments import why_not_assignable
from klamm_broker.api.registry import OVER_QUOTA, Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.server import audit
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)


@handles(
    ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    needs=[
        Need(AclOperation.ALTER, ResourceType.TOPIC),
    ],
)
def create_partitions(
    broker: BrokerState, ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | asyncio.Future[CreatePartitionsResponse]:
    there = {topic.name for topic in request.topics} & broker.topics.by_name.keys()
    turns = {name for name in there if ctx.may(AclOperation.ALTER, ResourceType.TOPIC, name, tell=False)}
    results = broker.topic_changes.change(_grow_all(broker, ctx, request, turns), topics=turns)
    return when_done(broker.loop, results, lambda found: CreatePartitionsResponse(results=found))


def _grow_all(
    broker: BrokerState, ctx: RequestContext, request: CreatePartitionsRequest, turns: Collection[str]
) -> Steps[list[CreatePartitionsTopicResult]]:
    """Grow the topics of a request that has its turn with some: those that were there when it came."""
    named = Counter(topic.name for topic in request.topics)
    outcomes: dict[str, tuple[ErrorCode, str]] = {}
    good: list[CreatePartitionsTopic] = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        if named[asked.name] > 1:
            outcome = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        else:
            outcome = _checked(broker, ctx, asked)
            if outcome[0] == ErrorCode.NONE and asked.name not in turns:
                outcome = _missing(asked.name)
        outcomes[asked.name] = outcome
        if outcome[0] == ErrorCode.NONE:
            good.append(asked)
        yield None
    if not request.validate_only:
        outcomes |= yield from _growing(broker, ctx, good)
    return [
        CreatePartitionsTopicResult(name=name, error_code=code, error_message=why or None)
        for name, (code, why) in outcomes.items()
    ]


def _growing(
    broker: BrokerState, ctx: RequestContext, asked: Sequence[CreatePartitionsTopic]
) -> Steps[dict[str, tuple[ErrorCode, str]]]:
    """Grow topics that were found good. Returns the outcomes by name."""
    # Others may have changed a topic since it was looked at; from here to the first step nobody can
    outcomes = {topic.name: _why_not(broker, topic) for topic in asked}
    wanted = {topic.name: topic.count for topic in asked if outcomes[topic.name][0] == ErrorCode.NONE}
    if not wanted:
        return outcomes
    failed = yield from broker.topic_changes.growing(wanted)
    for error in {id(error): error for error in failed.values()}.values():  # many topics may have the same
        names = [name for name in failed if failed[name] is error]
        some = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        log.error("topic %s could not get more partitions: %s", some, error)
    for name, count in wanted.items():
        if name in failed:
            outcomes[name] = ErrorCode.KAFKA_STORAGE_ERROR, str(failed[name])
        else:
            audit.changed(ctx, "topics", grown=name, partitions=count)
        yield None
    return outcomes


def _checked(broker: BrokerState, ctx: RequestContext, asked: CreatePartitionsTopic) -> tuple[ErrorCode, str]:
    """Returns the refusal of one line of the request, or NONE."""
    if not ctx.may(AclOperation.ALTER, ResourceType.TOPIC, asked.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""
    code, why = _why_not(broker, asked)
    if code == ErrorCode.NONE:
        more = asked.count - len(broker.topics.by_name[asked.name].partitions)
        if not ctx.may_mutate(more, strict_since=3):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, OVER_QUOTA
    return code, why


def _missing(name: str) -> tuple[ErrorCode, str]:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."


def _why_not(broker: BrokerState, asked: CreatePartitionsTopic) -> tuple[ErrorCode, str]:
    topic = broker.topics.by_name.get(asked.name)
    if topic is None:
        return _missing(asked.name)
    have = len(topic.partitions)
    if asked.count == have:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
    if asked.count < have:
        why = f"The topic {asked.name} currently has {have} partition(s); {asked.count} would not be an increase."
        return ErrorCode.INVALID_PARTITIONS, why
    if asked.count > PARTITIONS_MAX:
        why = f"{asked.count} partitions, but at most {PARTITIONS_MAX} are possible."
        return ErrorCode.INVALID_PARTITIONS, why
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - have:
            why = f"{asked.count - have} additional partition(s) were asked for, but {len(asked.assignments)} assignment(s) were given."
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, why
        for assignment in asked.assignments:
            wrong = why_not_assignable(assignment.broker_ids, broker.node_id)
            if wrong is not None:
                return ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong
    return ErrorCode.NONE, ""
