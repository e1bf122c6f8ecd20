"""The state machine of one member: from the partitions that it owns to those that the target assignment gives it.

A member keeps its epoch until it has given up what it must (UNREVOKED_PARTITIONS). Then it moves to the target's epoch
and gets the free partitions. It waits for partitions that others still hold (UNRELEASED_PARTITIONS), and gets them as
they become free. So a partition is never owned twice. Pure: member in, member out.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from klamm_broker.coordinator.consumer.assignment import Assignment
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.member import ConsumerMember, MemberState, Owned
from klamm_kafka.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The surroundings of a member that is being reconciled."""

    target_epoch: int
    target: Assignment
    subscribed: Callable[[], AbstractSet[bytes]]
    """Returns the ids of the topics that it subscribes to."""
    is_held: Callable[[bytes, int], bool]
    """Decides whether any member owns a partition, or has not given it up yet."""
    owned: Assignment | None
    """The partitions that the member claims to own; None when it named none."""
    subscription_changed: bool = False


def reconcile(member: ConsumerMember, at: Situation) -> ConsumerMember:
    """Returns the member after this step; the same object when nothing changes. Raises GroupError (FENCED_MEMBER_EPOCH)."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != at.target_epoch:
                return _next(member, at, member.epoch)
        case MemberState.UNREVOKED_PARTITIONS:
            if not _still_owns(at, member.revoking):
                return _next(member, at, member.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, at, member.epoch)
        case MemberState.UNKNOWN:
            if at.owned is None or at.owned:
                raise GroupError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next(member, at, at.target_epoch)
    return _without_unsubscribed(member, at) if at.subscription_changed else member


def _still_owns(at: Situation, revoking: Owned) -> bool:
    """Decides whether the member has any of these. A member that does not tell what it owns may have them all."""
    if at.owned is None:
        return True
    return any(p in revoking.get(topic_id, ()) for topic_id, owned in at.owned.items() for p in owned)


def _without_unsubscribed(member: ConsumerMember, at: Situation) -> ConsumerMember:
    """Take away topics that the member has just unsubscribed from, without waiting for a new target."""
    subscribed = at.subscribed()
    assigned = {t: p for t, p in member.assigned.items() if t in subscribed}
    if len(assigned) == len(member.assigned):
        return member
    revoking = {t: dict(p) for t, p in member.revoking.items()}
    for topic_id, partitions in member.assigned.items():
        if topic_id not in assigned:
            revoking.setdefault(topic_id, {}).update(partitions)
    if _still_owns(at, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _next(member: ConsumerMember, at: Situation, epoch: int) -> ConsumerMember:
    """Returns the member after the next step towards the target."""
    subscribed = at.subscribed()
    wanted = {t: p for t, p in at.target.items() if t in subscribed}
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        for partition, since in partitions.items():
            side = kept if partition in wanted.get(topic_id, ()) else revoking
            side.setdefault(topic_id, {})[partition] = since
    if revoking and _still_owns(at, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    waits = False
    for topic_id, target in wanted.items():
        for partition in target:
            if partition in kept.get(topic_id, ()):
                continue
            # A partition that the member has itself just given up is free for it: nobody else can own it.
            own = partition in member.revoking.get(topic_id, ())
            if at.is_held(topic_id, partition) and not own:
                waits = True
            else:
                kept.setdefault(topic_id, {})[partition] = at.target_epoch
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=at.target_epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking={},
    )
