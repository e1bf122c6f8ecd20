"""CreateTopics, key 19: versions 2 to 7.

Behaviour: checks name, counts, replica assignment and configuration of each topic; an error is per topic and says
what would be right. `validate_only` checks without creating. From version 5 the answer has the topic's effective
configuration, from 7 its id. A topic is on the disk when it is answered, so `timeout_ms` is not needed. Many partitions
are made in slices, so that nobody else waits for them.
Not supported: more than one replica; create policies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm_base.errors import ConfigError, KlammError
from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.api.assignments import why_not_assignable
from klamm_broker.api.registry import OVER_QUOTA, Need, RequestContext, handles
from klamm_broker.api.topic_configs import topic_entries
from klamm_broker.log import mirror_topic
from klamm_broker.log.steps import Steps, finish
from klamm_broker.server import audit
from klamm_broker.server.topics import metric_name, why_invalid
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic: each takes a directory and open files, and a typing error must not fill a disk.
All topics of one request may have as many together, as in Kafka.
"""
New = tuple[int, Mapping[str, str]]
_TOO_MANY: Final = (
    f"Excessively large number of partitions per request: at most {PARTITIONS_MAX} in all are possible."
)


class Refused(KlammError):
    """A topic that cannot be created, with the reason and the code for the answer."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


@handles(
    ApiKey.CREATE_TOPICS,
    versions=(2, 7),
    needs=[
        Need(AclOperation.CREATE, ResourceType.CLUSTER, "or CREATE of the topic"),
        Need(AclOperation.CREATE, ResourceType.TOPIC),
        Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "for the configuration in the answer"),
    ],
)
def create_topics(
    broker: BrokerState, ctx: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | asyncio.Future[CreateTopicsResponse]:
    names = [topic.name for topic in request.topics]
    return broker.topic_changes.run(creation(broker, ctx, request), creates=names)


def creation(
    broker: BrokerState, ctx: RequestContext, request: CreateTopicsRequest
) -> Steps[CreateTopicsResponse]:
    """Create topics in steps, with the rights of a sender; also for other requests than CreateTopics."""
    named = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    new: dict[str, New] = {}
    failed: dict[str, Exception] = {}
    by_metric: dict[str, str] = {}  # the new ones, which may collide with each other
    all_of_them = ctx.may_cluster(AclOperation.CREATE, tell=False)
    denied = {
        name
        for name in asked
        if not all_of_them and named[name] == 1 and not ctx.may(AclOperation.CREATE, ResourceType.TOPIC, name)
    }
    total = sum(
        max(topic.num_partitions, len(topic.assignments), 1)
        for topic in request.topics
        if topic.name not in denied
    )
    for name, topic in asked.items():
        try:
            if name in denied:
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            if total > PARTITIONS_MAX and len(asked) > 1:
                raise Refused(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
            if named[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            partitions, overrides = _checked(broker, topic, by_metric)
            if not ctx.may_mutate(partitions, strict_since=6):
                raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, OVER_QUOTA)
            new[name] = partitions, overrides
        except (KlammError, OSError) as e:
            failed[name] = e.with_traceback(None)  # which holds this frame, and so the connection
        yield None
    if not request.validate_only:
        for name in list(new):  # other requests may have run between the steps
            try:
                _check_name(broker, name, {})
            except Refused as e:
                failed[name] = e.with_traceback(None)
                del new[name]
        if INTERNAL_TOPICS.isdisjoint(new):
            failed |= yield from broker.topic_changes.creating(new)
        else:  # coordinators create internal topics too, and cannot wait
            failed |= finish(broker.topic_changes.creating(new))
    made = [name for name in new if name not in failed]
    if made and not request.validate_only:
        audit.changed(ctx, "topics", created=made)
    results = []
    for name in asked:
        results.append(
            _failed(name, failed[name]) if name in failed else _created(broker, ctx, name, new[name])
        )
        yield None
    return CreateTopicsResponse(topics=results)


def _failed(name: str, error: Exception) -> CreatableTopicResult:
    if isinstance(error, Refused):
        code = error.code
    elif isinstance(error, ConfigError):
        code = ErrorCode.INVALID_CONFIG
    elif isinstance(error, KeyError):  # by another request, since it was checked
        return CreatableTopicResult(
            name=name,
            error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
            error_message=f"Topic '{name}' already exists.",
        )
    else:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        unexpected = None if isinstance(error, OSError | KlammError) else error
        log.error("topic %s could not be created: %s", name, error, exc_info=unexpected)
    return CreatableTopicResult(name=name, error_code=code, error_message=str(error))


def _checked(broker: BrokerState, asked: CreatableTopic, by_metric: dict[str, str]) -> New:
    """Returns partitions and properties of a topic that can be created, and notes it in `by_metric`. Raises KlammError."""
    _check_name(broker, asked.name, by_metric)
    partitions = _partitions(broker, asked)
    overrides = _overrides(asked)
    if asked.name in INTERNAL_TOPICS and "cleanup.policy" not in overrides:
        overrides["cleanup.policy"] = "compact"
    broker.log_config(overrides)  # checks them
    why = mirror_topic.why_not(None, overrides)
    if asked.name in INTERNAL_TOPICS and mirror_topic.STATE in overrides:
        why = f"{mirror_topic.STATE}: {asked.name} is the broker's own topic and no mirror of another"
    if why is not None:
        raise Refused(ErrorCode.INVALID_CONFIG, why)
    by_metric[metric_name(asked.name)] = asked.name
    return partitions, overrides


def _created(broker: BrokerState, ctx: RequestContext, name: str, new: New) -> CreatableTopicResult:
    partitions, overrides = new
    topic = broker.topics.by_name.get(name)  # None when it was only validated
    if not ctx.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, tell=False):
        return CreatableTopicResult(
            name=name,
            topic_id=bytes(16) if topic is None else topic.id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=None,
        )
    return CreatableTopicResult(
        name=name,
        topic_id=bytes(16) if topic is None else topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(broker.config, overrides)
        ],
    )


def _check_name(broker: BrokerState, name: str, by_metric: Mapping[str, str]) -> None:
    why = why_invalid(name)
    if why is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if name in broker.topics.by_name or name in broker.logs.busy:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = broker.topic_changes.colliding(name) or by_metric.get(metric_name(name))
    if other is not None:
        why = (
            f"Topic '{name}' collides with existing topic: {other} ('.' and '_' are the same in metric names)"
        )
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def _partitions(broker: BrokerState, asked: CreatableTopic) -> int:
    if asked.assignments:
        return _assigned_partitions(broker, asked)
    if asked.replication_factor not in {-1, 1}:
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        if asked.replication_factor < 1:
            raise Refused(code, "Replication factor must be larger than 0, or -1 to use the default value.")
        why = f"The target replication factor of {asked.replication_factor} cannot be reached because only 1 broker(s) are registered."
        raise Refused(code, f"Unable to replicate the partition {asked.replication_factor} time(s): {why}")
    count: int = broker.config["num.partitions"] if asked.num_partitions == -1 else asked.num_partitions
    if count < 1:
        why = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, why)
    if count > PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"{count} partitions, but at most {PARTITIONS_MAX} are possible."
        )
    return count


def _assigned_partitions(broker: BrokerState, asked: CreatableTopic) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        why = "A manual partition assignment was specified, but numPartitions and replicationFactor are not both -1."
        raise Refused(ErrorCode.INVALID_REQUEST, why)
    indexes = sorted(a.partition_index for a in asked.assignments)
    if indexes != list(range(len(indexes))):
        why = f"partitions should be a consecutive 0-based integer sequence, not {indexes}"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    for assignment in asked.assignments:
        why_not = why_not_assignable(assignment.broker_ids, broker.node_id)
        if why_not is not None:
            why = f"partition {assignment.partition_index}: {why_not}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return len(indexes)


def _overrides(asked: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}"
            )
        overrides[config.name] = config.value
    return overrides
