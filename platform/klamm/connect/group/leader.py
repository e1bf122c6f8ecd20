"""The leader's part of a rebalance: turns the members' metadata into their assignments. Pure; time is passed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from klamm.connect.group.assignor import Claim, Plan, Share, Sharing, Work, share_eagerly
from klamm.connect.group.listener import ConfigView
from klamm.connect.group.protocol import (
    AssignmentError,
    ExtendedAssignment,
    ProtocolName,
    WorkerState,
    decode_metadata,
    encode_assignment,
)
from klamm.connect.model import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The leader's result of a round.

    `assignments`: bytes for SyncGroup by member. `sharing`: the memory for the next round, to be kept if the
    group takes this one. `urls`: of the members. `offset`: the config topic's offset to which all members
    must have read. `plan` is None when the leader has not read that far.
    """

    assignments: Mapping[str, bytes]
    sharing: Sharing
    urls: Mapping[str, str]
    offset: int
    plan: Plan | None

    def owner_url(self, item: str | TaskId) -> str | None:
        """Returns the url of the worker that runs a connector or task after this round; None when nobody does."""
        for member, share in self.plan.shares.items() if self.plan is not None else ():
            having = share.all.tasks if isinstance(item, TaskId) else share.all.connectors
            if item in having:
                return self.urls[member]
        return None

    def has_tasks_of(self, connector: str) -> bool:
        """Tells whether any member may run a task of it, or is about to stop one; True when that is unknown."""
        return self.plan is None or any(
            task.connector == connector
            for share in self.plan.shares.values()
            for task in (*share.all.tasks, *share.revoked.tasks)
        )


def make_round(
    *,
    metadata: Mapping[str, bytes],
    leader: str,
    protocol: ProtocolName,
    view: ConfigView | None,
    sharing: Sharing,
    now_ms: int,
) -> Round:
    """Assigns by the leader's `view` of the config topic. Raises MalformedGroupData.

    A leader that has read less than some member, or has no view at all, cannot assign: it tells all members
    so (CONFIG_MISMATCH), and they join again.
    """
    states = {member: decode_metadata(data) for member, data in metadata.items()}
    urls = {member: state.url for member, state in states.items()}
    offset = max(state.offset for state in states.values())
    if view is None or view.offset < offset:
        told = ExtendedAssignment(
            version=protocol.version,
            error=AssignmentError.CONFIG_MISMATCH,
            leader=leader,
            leader_url=urls[leader],
            offset=offset,
        )
        encoded = encode_assignment(told, protocol)
        return Round(
            assignments=dict.fromkeys(states, encoded), sharing=sharing, urls=urls, offset=offset, plan=None
        )
    if protocol is ProtocolName.EAGER:
        plan, memory = share_eagerly(view.tasks, states), Sharing(max_delay_ms=sharing.max_delay_ms)
    else:
        plan, memory = sharing.share(view.tasks, {m: _claim(s) for m, s in states.items()}, now_ms)
    common = ExtendedAssignment(
        version=protocol.version,
        leader=leader,
        leader_url=urls[leader],
        offset=view.offset,
        delay_ms=plan.delay_ms,
    )
    assignments = {m: encode_assignment(_told(share, common), protocol) for m, share in plan.shares.items()}
    return Round(assignments=assignments, sharing=memory, urls=urls, offset=offset, plan=plan)


def _claim(state: WorkerState) -> Claim:
    running = state.assignment
    if running is None:
        return Claim(url=state.url, loads=state.loads)
    work = Work(connectors=frozenset(running.connectors), tasks=frozenset(running.tasks))
    return Claim(url=state.url, work=work, loads=state.loads)


def _told(share: Share, common: ExtendedAssignment) -> ExtendedAssignment:
    return replace(
        common,
        connectors=tuple(sorted(share.new.connectors)),
        tasks=tuple(sorted(share.new.tasks)),
        revoked_connectors=tuple(sorted(share.revoked.connectors)),
        revoked_tasks=tuple(sorted(share.revoked.tasks)),
    )
