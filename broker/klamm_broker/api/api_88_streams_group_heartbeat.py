"""StreamsGroupHeartbeat, key 88: version 0 (KIP-1071).

Behaviour: a member joins with epoch 0 and its topology, reports its tasks with its epoch, and leaves with -1. Answers at
once, or once its changes are in `__consumer_offsets`. Internal topics that are missing are made (`streams_topics`);
statuses tell what keeps the application from running. As in Kafka 4.3 there are no static members, no warm-up tasks, no
regular expressions for sources, and no change of a topology while it has members.
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.api import streams_topics
from klamm_broker.api.registry import LARGE_REQUEST_MAX, Need, RequestContext, handles
from klamm_broker.server.topics import why_invalid
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages import streams_group_heartbeat as wire
from klamm_kafka.wire.messages import streams_group_records as stored

if TYPE_CHECKING:
    from klamm_broker.coordinator.streams.model import (
        EndpointPartitions,
        NamedPartitions,
        StatusDetail,
        StreamsHeartbeat,
        StreamsResult,
    )
    from klamm_broker.coordinator.streams.tasks import EpochTasks, Tasks
    from klamm_broker.server.state import BrokerState

_Answer = wire.StreamsGroupHeartbeatResponse


@handles(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    versions=(0, 0),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "all topics of the topology"),
        Need(AclOperation.CREATE, ResourceType.CLUSTER, "or CREATE of the internal topics that are missing"),
        Need(AclOperation.CREATE, ResourceType.TOPIC, "without it a status says so"),
    ],
)
def streams_group_heartbeat(
    broker: BrokerState, ctx: RequestContext, request: wire.StreamsGroupHeartbeatRequest
) -> _Answer | Future[_Answer]:
    shell = broker.groups
    refused = _refused(broker, ctx, request)
    if refused is not None:
        return refused
    heartbeat = _heartbeat(ctx, request)

    def converted(result: StreamsResult) -> _Answer:
        return _response(_with_topics(broker, ctx, result))

    response: Any = shell.ask(
        lambda token, now: shell.coordinator.streams.heartbeat(heartbeat, token, now), converted
    )
    return response  # type: ignore[no-any-return]


def _refused(
    broker: BrokerState, ctx: RequestContext, request: wire.StreamsGroupHeartbeatRequest
) -> _Answer | None:
    """Returns the answer to a request that is not for the coordinator."""
    if not broker.groups.serves_streams():
        return _Answer(error_code=ErrorCode.UNSUPPORTED_VERSION, status=[])
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _Answer(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, status=[])
    if request.topology is None:
        return None
    names = _topics(request.topology)
    why = _why_not(names)
    if why is not None:
        return _Answer(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=why, status=[])
    if not all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return _Answer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, status=[])
    return None


def _topics(topology: wire.Topology) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for s in topology.subtopologies
            for name in (
                *s.source_topics,
                *s.repartition_sink_topics,
                *(t.name for t in s.repartition_source_topics),
                *(t.name for t in s.state_changelog_topics),
            )
        )
    )


def _why_not(names: list[str]) -> str | None:
    """Returns what is wrong with the names of a topology's topics, in Kafka's words."""
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        return f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
    invalid = [name for name in names if why_invalid(name) is not None]
    return f"Topic names {','.join(invalid)} are not valid topic names." if invalid else None


def _with_topics(broker: BrokerState, ctx: RequestContext, result: StreamsResult) -> StreamsResult:
    """Have the missing internal topics made. Returns the answer with the reason why that is not possible, or failed before."""
    wanted = result.missing_topics
    if not wanted:
        return result
    denied = streams_topics.unauthorized(ctx, wanted)
    if denied:
        why = f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    else:
        failed = streams_topics.make(broker, ctx, wanted, 2 * result.heartbeat_interval_ms)
        why = f"; Creation failed: {failed}." if failed else ""
    from klamm_broker.coordinator.streams.model import Status, StatusDetail

    statuses = [
        StatusDetail(s.status, s.detail + why) if s.status is Status.MISSING_INTERNAL_TOPICS else s
        for s in result.statuses
    ]
    return replace(result, statuses=statuses)


# Request


def _heartbeat(ctx: RequestContext, request: wire.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    from klamm_broker.coordinator.streams.member import Endpoint
    from klamm_broker.coordinator.streams.model import StreamsHeartbeat

    endpoint, tags, topology = request.user_endpoint, request.client_tags, request.topology
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if topology is None else _topology(topology),
        active=_tasks(request.active_tasks),
        standby=_tasks(request.standby_tasks),
        warmup=_tasks(request.warmup_tasks),
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else {tag.key: tag.value for tag in tags},
        has_task_offsets=request.task_offsets is not None,
        has_task_end_offsets=request.task_end_offsets is not None,
        shutdown=request.shutdown_application,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.host}",  # Java's form of an address, which all tools that list members show
    )


def _tasks(tasks: list[wire.StreamsGroupHeartbeatRequestTaskIds] | None) -> Tasks | None:
    if tasks is None:
        return None
    return {t.subtopology_id: frozenset(t.partitions) for t in tasks if t.partitions}


def _topology(topology: wire.Topology) -> stored.StreamsGroupTopologyValue:
    return stored.StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=[_subtopology(s) for s in topology.subtopologies]
    )


def _subtopology(it: wire.Subtopology) -> stored.Subtopology:
    return stored.Subtopology(
        subtopology_id=it.subtopology_id,
        source_topics=it.source_topics,
        source_topic_regex=it.source_topic_regex,
        state_changelog_topics=[_topic(t) for t in it.state_changelog_topics],
        repartition_sink_topics=it.repartition_sink_topics,
        repartition_source_topics=[_topic(t) for t in it.repartition_source_topics],
        copartition_groups=[
            stored.CopartitionGroup(
                source_topics=g.source_topics,
                source_topic_regex=g.source_topic_regex,
                repartition_source_topics=g.repartition_source_topics,
            )
            for g in it.copartition_groups
        ],
    )


def _topic(it: wire.TopicInfo) -> stored.TopicInfo:
    return stored.TopicInfo(
        name=it.name,
        partitions=it.partitions,
        replication_factor=it.replication_factor,
        topic_configs=[stored.TopicConfig(key=c.key, value=c.value) for c in it.topic_configs],
    )


# Response


def _response(result: StreamsResult) -> _Answer:
    owned, statuses, endpoints = result.assigned, result.statuses, result.endpoints
    return _Answer(
        error_code=result.error,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        status=[_status(s) for s in statuses],
        active_tasks=None if owned is None else _task_ids(owned.active),
        standby_tasks=None if owned is None else _task_ids(owned.standby),
        warmup_tasks=None if owned is None else _task_ids(owned.warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(e) for e in endpoints],
    )


def _status(it: StatusDetail) -> wire.Status:
    return wire.Status(status_code=it.status, status_detail=it.detail)


def _task_ids(tasks: EpochTasks | Tasks) -> list[wire.StreamsGroupHeartbeatResponseTaskIds]:
    return [
        wire.StreamsGroupHeartbeatResponseTaskIds(subtopology_id=s, partitions=sorted(partitions))
        for s, partitions in tasks.items()
    ]


def _endpoint(it: EndpointPartitions) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.StreamsGroupHeartbeatResponseEndpoint(
            host=it.endpoint.host, port=it.endpoint.port
        ),
        active_partitions=[_partitions(p) for p in it.active],
        standby_partitions=[_partitions(p) for p in it.standby],
    )


def _partitions(it: NamedPartitions) -> wire.TopicPartition:
    return wire.TopicPartition(topic=it.topic, partitions=list(it.partitions))
