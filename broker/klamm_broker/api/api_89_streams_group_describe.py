"""StreamsGroupDescribe, key 89: version 0 (KIP-1071).

Behaviour: tells epochs, the topology with its topics, and members with their present and their target tasks. A group that
does not exist or is of another kind is GROUP_ID_NOT_FOUND; the message says which of both.
A group with a topic that the sender may not describe is not told (TOPIC_AUTHORIZATION_FAILED).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klamm_broker.api.group_descriptions import described
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages import streams_group_describe as wire

if TYPE_CHECKING:
    from klamm_broker.coordinator.streams.member import StreamsMember
    from klamm_broker.coordinator.streams.model import (
        StreamsGroupDescription,
        SubtopologyDescription,
        TopicDescription,
    )
    from klamm_broker.coordinator.streams.tasks import EpochTasks, OwnedTasks, Tasks, TaskSet
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    versions=(0, 0),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "all topics of the topology"),
    ],
)
def streams_group_describe(
    broker: BrokerState, ctx: RequestContext, request: wire.StreamsGroupDescribeRequest
) -> wire.StreamsGroupDescribeResponse:
    if not broker.groups.serves_streams():
        error = ErrorCode.UNSUPPORTED_VERSION
        return wire.StreamsGroupDescribeResponse(
            groups=[
                wire.DescribedGroup(group_id=g, error_code=error) for g in dict.fromkeys(request.group_ids)
            ]
        )
    describe = broker.groups.coordinator.streams.describe
    groups = described(
        ctx,
        request.group_ids,
        make=wire.DescribedGroup,
        describe=lambda group_id: _described(describe(group_id)),
        topics=_topics,
        hidden="The described group uses topics that the client is not authorized to describe.",
        with_operations=request.include_authorized_operations,
    )
    return wire.StreamsGroupDescribeResponse(groups=groups)


def _topics(group: wire.DescribedGroup) -> Iterator[str]:
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    for s in subtopologies:
        yield from s.source_topics
        yield from s.repartition_sink_topics
        yield from (t.name for t in s.repartition_source_topics)
        yield from (t.name for t in s.state_changelog_topics)


def _described(group: StreamsGroupDescription) -> wire.DescribedGroup:
    topology = None
    if group.topology_epoch >= 0:
        topology = wire.Topology(
            epoch=group.topology_epoch, subtopologies=[_subtopology(s) for s in group.subtopologies]
        )
    return wire.DescribedGroup(
        error_code=group.error,
        error_message=group.error_message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=topology,
        members=[_member(member, target) for member, target in group.members],
    )


def _subtopology(it: SubtopologyDescription) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=it.subtopology_id,
        source_topics=list(it.source_topics),
        repartition_sink_topics=list(it.repartition_sink_topics),
        state_changelog_topics=[_topic(t) for t in it.changelog_topics],
        repartition_source_topics=[_topic(t) for t in it.repartition_source_topics],
    )


def _topic(it: TopicDescription) -> wire.TopicInfo:
    return wire.TopicInfo(
        name=it.name,
        partitions=it.partitions,
        replication_factor=it.replication_factor,
        topic_configs=[wire.KeyValue(key=key, value=value) for key, value in it.configs],
    )


def _member(it: StreamsMember, target: TaskSet) -> wire.Member:
    endpoint = it.endpoint
    return wire.Member(
        member_id=it.member_id,
        member_epoch=it.epoch,
        instance_id=it.instance_id,
        rack_id=it.rack_id,
        client_id=it.client_id,
        client_host=it.client_host,
        topology_epoch=it.topology_epoch,
        process_id=it.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in it.tags.items()],
        assignment=_assignment(it.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: OwnedTasks | TaskSet) -> wire.Assignment:
    return wire.Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: EpochTasks | Tasks) -> list[wire.TaskIds]:
    return [
        wire.TaskIds(subtopology_id=subtopology, partitions=sorted(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]
