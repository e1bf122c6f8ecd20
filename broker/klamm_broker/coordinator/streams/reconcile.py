"""The state machine of one member: from the tasks that it owns to those that the target assignment gives it.

A member keeps its epoch until it has given up what it must (UNREVOKED_TASKS). Then it moves to the target's epoch and
gets the free tasks, and waits for those that are held (UNRELEASED_TASKS). An active task is owned once in the group;
a task is in one process once, in whatever role, because the members of a process share its local state. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Protocol

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.streams.member import MemberState, StreamsMember
from klamm_broker.coordinator.streams.tasks import (
    NOTHING_OWNED,
    EpochTasks,
    OwnedTasks,
    TaskId,
    Tasks,
    TaskSet,
)
from klamm_kafka.wire.errors import ErrorCode


class Holders(Protocol):
    """The processes that hold tasks at present."""

    def active_in(self, task: TaskId) -> str | None:
        """Returns the process with the active task."""

    def standby_in(self, task: TaskId) -> AbstractSet[str]:
        """Returns the processes with a standby of the task, or a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The surroundings of a member that is being reconciled."""

    target_epoch: int
    target: TaskSet
    holders: Holders
    owned: TaskSet | None
    """The tasks that the member claims to own; None when it named none."""


def reconcile(member: StreamsMember, at: Situation) -> StreamsMember:
    """Returns the member after this step; the same object when nothing changes. Raises GroupError (FENCED_MEMBER_EPOCH)."""
    match member.state:
        case MemberState.STABLE:
            return _next(member, at, member.epoch) if member.epoch != at.target_epoch else member
        case MemberState.UNREVOKED_TASKS:
            if at.owned is None or member.revoking.overlaps(at.owned):
                return member
            return _next(member, at, member.epoch + 1)
        case MemberState.UNRELEASED_TASKS:
            return _next(member, at, member.epoch)
        case MemberState.UNKNOWN:
            if at.owned is None or at.owned:
                raise GroupError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. "
                    "The member must abandon all its tasks and rejoin.",
                )
            return _next(member, at, at.target_epoch)


def _next(member: StreamsMember, at: Situation, epoch: int) -> StreamsMember:
    """Returns the member after the next step towards the target."""
    process, holders = member.process_id, at.holders

    def active_is_held(task: TaskId) -> bool:
        return holders.active_in(task) is not None or process in holders.standby_in(task)

    def standby_is_held(task: TaskId) -> bool:
        return holders.active_in(task) == process or process in holders.standby_in(task)

    had, wanted = member.assigned, at.target
    active = _active(had.active, wanted.active, at.target_epoch, active_is_held)
    standby = _difference(had.standby, wanted.standby, standby_is_held)
    warmup = _difference(had.warmup, wanted.warmup, standby_is_held)
    kept = OwnedTasks(active=active.kept, standby=standby.kept, warmup=warmup.kept)
    revoked = OwnedTasks(active=active.revoked, standby=standby.revoked, warmup=warmup.revoked)
    if revoked and (at.owned is None or revoked.overlaps(at.owned)):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoked,
        )
    waits = active.waits or standby.waits or warmup.waits
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
        epoch=at.target_epoch,
        previous_epoch=member.epoch,
        assigned=kept.merged(OwnedTasks(active=active.new, standby=standby.new, warmup=warmup.new)),
        revoking=NOTHING_OWNED,
    )


@dataclass(slots=True)
class _Active:
    kept: dict[str, dict[int, int]]
    revoked: dict[str, dict[int, int]]
    new: dict[str, dict[int, int]]
    waits: bool


@dataclass(slots=True)
class _Others:
    kept: dict[str, frozenset[int]]
    revoked: dict[str, frozenset[int]]
    new: dict[str, frozenset[int]]
    waits: bool


def _active(had: EpochTasks, wanted: Tasks, epoch: int, is_held: Callable[[TaskId], bool]) -> _Active:
    plain = _difference({s: frozenset(t) for s, t in had.items()}, wanted, is_held)
    return _Active(
        kept=_with_epochs(plain.kept, had),
        revoked=_with_epochs(plain.revoked, had),
        new={s: dict.fromkeys(sorted(p), epoch) for s, p in plain.new.items()},
        waits=plain.waits,
    )


def _with_epochs(tasks: Mapping[str, Iterable[int]], had: EpochTasks) -> dict[str, dict[int, int]]:
    return {s: {p: had[s][p] for p in sorted(partitions)} for s, partitions in tasks.items()}


def _difference(had: Tasks, wanted: Tasks, is_held: Callable[[TaskId], bool]) -> _Others:
    """Returns the tasks that stay, those that go, and those that come and are free."""
    result = _Others({}, {}, {}, waits=False)
    for subtopology in had.keys() | wanted.keys():
        present = frozenset(had.get(subtopology, ()))
        target = frozenset(wanted.get(subtopology, ()))
        missing = target - present
        free = frozenset(p for p in missing if not is_held(TaskId(subtopology, p)))
        result.waits |= len(free) < len(missing)
        for side, partitions in (
            (result.kept, present & target),
            (result.revoked, present - target),
            (result.new, free),
        ):
            if partitions:
                side[subtopology] = partitions
    return result
