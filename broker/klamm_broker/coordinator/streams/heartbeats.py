"""StreamsGroupHeartbeat: members join with their topology, report their tasks, reconcile and leave.

A heartbeat that changes something is answered once the change is durable, any other one at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.effects import Token
from klamm_broker.coordinator.streams import endpoints
from klamm_broker.coordinator.streams.change import Change
from klamm_broker.coordinator.streams.config import StreamsSettings
from klamm_broker.coordinator.streams.core import StreamsCore
from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.member import StreamsMember
from klamm_broker.coordinator.streams.model import (
    Status,
    StatusDetail,
    StreamsHeartbeat,
    StreamsResult,
    Topology,
)
from klamm_broker.coordinator.streams.tasks import NO_TASKS, Tasks, TaskSet, each, within
from klamm_broker.coordinator.streams.topology import Configured
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
_STATIC_LEAVE_EPOCH: Final = -2


class StreamsHeartbeats:
    """Handles heartbeats of members of Streams groups."""

    def __init__(self, core: StreamsCore) -> None:
        self._core = core

    def heartbeat(self, request: StreamsHeartbeat, token: Token) -> None:
        """Handle a heartbeat. The reply is a StreamsResult."""
        try:
            self._check_available(request.group_id)
            check(request)
        except GroupError as e:
            self._refuse(token, e)
            return
        self._core.journal.when_free(
            request.group_id,
            lambda: self._handle(request, token),
            lambda: self._failed(token, ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    def _check_available(self, group_id: str) -> None:
        error = self._core.table.unavailable(group_id)
        if not self._core.config.enabled():
            error = ErrorCode.UNSUPPORTED_VERSION
        if error is not ErrorCode.NONE:
            raise GroupError(error, error.message)

    def _handle(self, request: StreamsHeartbeat, token: Token) -> None:
        try:
            if request.member_epoch == LEAVE_EPOCH:
                self._leave(request, token)
            else:
                self._heartbeat(request, token)
        except GroupError as e:
            self._refuse(token, e)

    def _refuse(self, token: Token, error: GroupError) -> None:
        self._core.turn.reply(token, StreamsResult(error=error.code, error_message=str(error)))

    def _failed(self, token: Token, error: ErrorCode) -> None:
        self._core.turn.reply(token, StreamsResult(error=error, error_message=error.message))

    # Heartbeat

    def _heartbeat(self, request: StreamsHeartbeat, token: Token) -> None:
        core, steps = self._core, self._core.steps
        joins = request.member_epoch == JOIN_EPOCH
        change = core.open(request.group_id, create=joins)
        group = change.group
        if joins and len(group.members) >= core.config.max_size:
            raise GroupError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {core.config.max_size} members.",
            )
        member = _member(group, request)
        updated = _updated(member, request)
        settings = core.config.settings(group.group_id)
        bump = steps.describe_member(change, member, updated)
        topology = steps.update_topology(change, request.topology)
        configured, hashed = steps.configure(change, topology)
        _check_tasks(configured, request)
        epoch = steps.update_epoch(change, configured, hashed, settings, bump=bump)
        if group.is_empty:
            core.delay_assignment(group, settings.initial_rebalance_delay_ms)
        target, delayed = self._target(change, epoch, configured, settings, updated)
        result = steps.reconcile(change, updated, target, request.owned)
        statuses = [*_stale(group, updated), *delayed]
        if configured.problem is not None:
            statuses.append(configured.problem)

        def done() -> None:
            core.restart_session(group, result)
            if result != updated:
                core.watch_revocation(group, result)
            answer = self._answer(request, member, result, group, configured)
            told = [*statuses, *_shutdown(group, request)]
            core.turn.reply(token, replace(answer, statuses=told, missing_topics=configured.missing))

        core.write(change, done, lambda error: self._failed(token, error))

    def _target(
        self,
        change: Change,
        epoch: int,
        configured: Configured,
        settings: StreamsSettings,
        updated: StreamsMember,
    ) -> tuple[tuple[int, TaskSet], list[StatusDetail]]:
        """Returns epoch and tasks of the member's target, computed anew if it is behind, and why it was not."""
        core, group = self._core, change.group
        if core.is_delayed(group):
            text = "Assignment delayed due to the configured initial rebalance delay."
            return (group.target_epoch, NO_TASKS), [StatusDetail(Status.ASSIGNMENT_DELAYED, text)]
        last = group.target_epoch, group.target_of(updated.member_id)
        if group.target_epoch >= epoch:
            return last, []
        if not core.steps.may_assign(change, settings.assignment_interval_ms):
            text = "Assignment delayed due to the configured assignment interval."
            return last, [StatusDetail(Status.ASSIGNMENT_DELAYED, text)]
        standbys = settings.num_standby_replicas
        return (epoch, core.steps.assign(change, epoch, configured, standbys, updated)), []

    def _answer(
        self,
        request: StreamsHeartbeat,
        before: StreamsMember,
        member: StreamsMember,
        group: StreamsGroup,
        configured: Configured,
    ) -> StreamsResult:
        is_news = request.member_epoch == JOIN_EPOCH or before.assigned != member.assigned
        tell = is_news or _lost_an_answer(request, before, member)
        if is_news and member.endpoint is not None and group.configured is not None:
            group.endpoint_epoch += 1
        found = None
        if group.endpoint_epoch != request.endpoint_epoch:
            others = (m for m in group.members.values() if m.member_id != member.member_id)
            found = endpoints.partitions_of([*others, member], configured, self._core.steps.partitions_of)
        return StreamsResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._core.config.settings(group.group_id).heartbeat_interval_ms,
            assigned=member.assigned if tell else None,
            endpoint_epoch=group.endpoint_epoch,
            endpoints=found,
        )

    # Leave

    def _leave(self, request: StreamsHeartbeat, token: Token) -> None:
        core = self._core
        group = core.table.groups.get(request.group_id)
        if not isinstance(group, StreamsGroup):
            what = "not found" if group is None else "is not a streams group"
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
        if request.shutdown:
            group.shutdown_by = group.shutdown_by or request.member_id
        member = _known(group, request.member_id)
        log.info("group %s: member %s leaves", group.group_id, member.member_id)
        answer = StreamsResult(member_id=member.member_id, member_epoch=request.member_epoch)
        core.fence(
            group, member, lambda: core.turn.reply(token, answer), lambda error: self._failed(token, error)
        )


def _lost_an_answer(request: StreamsHeartbeat, before: StreamsMember, member: StreamsMember) -> bool:
    """Decides whether the member did not hear of its epoch or of all of its tasks. A Java client that has lost an answer tells its own tasks."""
    owned, assigned = request.owned, member.assigned
    if request.member_epoch != before.epoch:
        return True
    if owned is None or member.revoking.overlaps(owned):
        return owned is not None
    roles = (
        (assigned.active, owned.active),
        (assigned.standby, owned.standby),
        (assigned.warmup, owned.warmup),
    )
    return any(not set(each(has)) <= set(each(named)) for has, named in roles)


def _known(group: StreamsGroup, member_id: str) -> StreamsMember:
    member = group.members.get(member_id)
    if member is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def _member(group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
    """Returns the member that sends this: an existing one or, when it joins, a new one."""
    if request.member_epoch == JOIN_EPOCH:
        log.info("group %s: member %s joins", group.group_id, request.member_id)
        return group.members.get(request.member_id) or StreamsMember(member_id=request.member_id)
    member = _known(group, request.member_id)
    _check_epoch(member, request)
    return member


def _updated(member: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    """Returns the member as the request describes it; omitted fields have not changed."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=request.endpoint or member.endpoint,
        tags=member.tags if request.tags is None else request.tags,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _stale(group: StreamsGroup, member: StreamsMember) -> list[StatusDetail]:
    if group.topology is None or member.topology_epoch >= group.topology.epoch:
        return []
    return [
        StatusDetail(
            Status.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}.",
        )
    ]


def _shutdown(group: StreamsGroup, request: StreamsHeartbeat) -> list[StatusDetail]:
    if request.shutdown and group.shutdown_by is None:
        log.info("group %s: member %s asks all to shut down", group.group_id, request.member_id)
        group.shutdown_by = request.member_id
    if group.shutdown_by is None:
        return []
    return [
        StatusDetail(
            Status.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the "
            "entire application.",
        )
    ]


# Checks


def check(request: StreamsHeartbeat) -> None:
    """Raises GroupError (INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY) for a request that no group can take."""
    _check_supported(request)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == _STATIC_LEAVE_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < _STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    roles = (request.active, request.standby, request.warmup)
    if any(r is not None for r in roles) and any(r is None for r in roles):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsHeartbeat) -> None:
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.has_task_offsets:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.has_task_end_offsets:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(s.source_topic_regex for s in request.topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active),
        ("StandbyTasks", request.standby),
        ("WarmupTasks", request.warmup),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    _check_changelogs(request.topology)


def _check_changelogs(topology: Topology) -> None:
    for topic in (t for s in topology.subtopologies for t in s.state_changelog_topics if t.partitions):
        raise GroupError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}.",
        )


def _check_epoch(member: StreamsMember, request: StreamsHeartbeat) -> None:
    """Raises GroupError (FENCED_MEMBER_EPOCH) unless the epoch is the member's, or the previous one after a lost answer."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    what = "greater"
    if epoch < member.epoch:
        what, owned, has = "smaller", request.owned, member.assigned
        if (
            epoch == member.previous_epoch
            and owned is not None
            and within(owned.active, has.active)
            and within(owned.standby, has.standby)
            and within(owned.warmup, has.warmup)
        ):
            return  # the answer with the new epoch was lost
    raise GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {what} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_tasks(configured: Configured, request: StreamsHeartbeat) -> None:
    """Raises GroupError (INVALID_REQUEST) for tasks that the topology does not have."""
    if not configured.is_ready or configured.subtopologies is None:
        return
    claimed: tuple[Tasks | None, ...] = (request.active, request.standby, request.warmup)
    tasks: list[Mapping[str, object]] = [t for t in claimed if t]
    for subtopology_id in (s for t in tasks for s in t):
        if subtopology_id not in configured.subtopologies:
            raise _invalid(f"Subtopology {subtopology_id} does not exist in the topology.")
    for role in (t for t in claimed if t):
        for subtopology_id, partitions in role.items():
            count = configured.subtopologies[subtopology_id].tasks
            for partition in partitions:
                if not 0 <= partition < count:
                    raise _invalid(
                        f"Task {partition} for subtopology {subtopology_id} is invalid. "
                        f"Number of tasks for this subtopology: {count}"
                    )


def _invalid(text: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_REQUEST, text)
