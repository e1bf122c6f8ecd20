"""The states of a classic group and the moves between them.

Rules for this file:

1. Every move of a group from one state to another is an event in `TRANSITIONS`. A pair that is not in the table cannot
   happen; to ask for it is our bug. Only `loading.py` sets a state without an event, as it restores a group that is not
   live yet.
2. The table does not know members, timers or records. Other modules decide whether an event happens
   (`rebalance.py`); this file decides what it leads to.

Theory of operation. A group without members is Empty. The first member to join starts the join phase
(PreparingRebalance): everybody sends JoinGroup and waits. It ends when all have joined or the rebalance
timeout has passed; those that came form the next generation. In CompletingRebalance the leader computes
the assignment and everybody waits in SyncGroup for it. Once the assignment is durable the group is Stable.
Any change of members starts over. Dead is a group that was removed: it is never seen again under its name.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final


class GroupState(StrEnum):
    """Kafka's ClassicGroupState; the value is what DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """The events that change a group's state."""

    REBALANCE = auto()
    """A member came, went, changed or failed: everybody has to join again."""
    JOIN_PHASE_COMPLETED = auto()
    """The members of the next generation are known; there is at least one."""
    ALL_MEMBERS_LEFT = auto()
    """The join phase ended and nobody had joined."""
    ASSIGNMENT_STORED = auto()
    """The leader's assignment is durable."""
    REMOVED = auto()
    """The group was deleted or expired."""


TRANSITIONS: Final[dict[tuple[GroupState, Event], GroupState]] = {
    (GroupState.EMPTY, Event.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, Event.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, Event.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Event.JOIN_PHASE_COMPLETED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Event.ALL_MEMBERS_LEFT): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Event.ASSIGNMENT_STORED): GroupState.STABLE,
    (GroupState.EMPTY, Event.REMOVED): GroupState.DEAD,
}


def after(state: GroupState, event: Event) -> GroupState:
    """Returns the state that `event` leads to. Raises AssertionError for a pair that cannot happen."""
    target = TRANSITIONS.get((state, event))
    assert target is not None, f"a group in state {state} cannot see {event.name}"
    return target


def can_rebalance(state: GroupState) -> bool:
    """Decides whether a rebalance may start in this state: not while the join phase is under way."""
    return (state, Event.REBALANCE) in TRANSITIONS
