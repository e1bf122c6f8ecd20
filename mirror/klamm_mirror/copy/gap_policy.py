"""Decides how a stopped partition goes on: by the configuration, or as `klamm mirror resolve` wrote into the ledger. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.gaps.entries import Gap, State
from klamm_mirror.stops import ACTIONS, Action, Kind, Stop
from klamm_mirror.topic_ids import to_text

STOP: Final = "stop"
FAIL: Final = "fail"
RECORD: Final = "record"
_TO_THE_END: Final = frozenset({Kind.RECREATED, Kind.DELETED})
_SUFFIX: Final = 8
"""Characters of a topic's id in the name of its copy: enough that no two topics of one name share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapSettings:
    """The ledger's topic, and the policies. `recreated` is `stop` or an action; `gaps` is `fail` or `record`.

    `props` and `parsed` are the connector's configuration, for a remote topic that is made.
    """

    topic: str
    replication_factor: int = 3
    recreated: str = STOP
    gaps: str = FAIL
    props: Mapping[str, str]
    parsed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, and the gap as the ledger should have it before the action is carried out."""

    action: Action | None
    gap: Gap


def gap_of(partition: MirrorPartition, stop: Stop) -> Gap:
    """Returns the gap of a partition that is stopped and settled: by now, all that was read is at the target."""
    gap = Gap.of(stop, partition.topic, partition.topic_id, partition.partition)
    if stop.kind is Kind.COPY_LOST:
        return replace(gap, end=max(partition.done, 0))
    if stop.kind not in _TO_THE_END:
        return gap
    start = max(partition.done, 0)
    return replace(gap, start=start, end=None if gap.end is None else max(gap.end, start))


def decide(
    settings: GapSettings, stop: Stop, gap: Gap, known: Gap | None, tried: Collection[int | None] = ()
) -> Decision:
    """Returns what to do. `known` is the ledger's entry for the gap's key. `tried` says by their `asked_ms` which
    decisions did not help (None: that of the policy).
    """
    if known is not None and (known.kind, known.new_id) == (gap.kind, gap.new_id):
        action = known.action if known.action in ACTIONS[gap.kind] else None
        if known.state is State.RESOLVING and action is not None:
            return Decision(None, gap) if known.asked_ms in tried else Decision(action, known)
        if not known.waits and action is not None and action is not Action.RETRY:
            return Decision(
                action, replace(known, end=gap.end)
            )  # a kill came between the decision and the next commit
    action = None if None in tried else _by_policy(settings, stop, gap)
    if action is not None:
        return recorded(gap, action)
    if known is not None and known.state is State.OPEN and (known.kind, known.why) == (gap.kind, gap.why):
        return Decision(None, known)
    return Decision(None, gap)


def recorded(gap: Gap, action: Action) -> Decision:
    """Returns the decision to go on without asking anybody."""
    return Decision(action, replace(gap, state=State.RECORDED, action=action))


def _by_policy(settings: GapSettings, stop: Stop, gap: Gap) -> Action | None:
    match gap.kind:
        case Kind.RECREATED:
            return None if settings.recreated == STOP else Action(settings.recreated)
        case Kind.UNREADABLE:
            return None
        case Kind.DELETED if gap.end is not None and gap.records == 0:
            return Action.SKIP  # the end of a topic that was copied whole
        case Kind.REFUSED if stop.passing:
            return None
        case _:
            return Action.SKIP if settings.gaps == RECORD else None


def went_past(gap: Gap, partition: MirrorPartition) -> bool:
    """Returns True when a partition that runs has left a waiting gap behind."""
    if partition.stopped is not None or partition.topic_id is None:
        return False
    if partition.gone or partition.topic_id != gap.topic_id:
        return True
    return partition.records > 0 and partition.done > gap.start


def passed(gap: Gap, partition: MirrorPartition) -> Gap:
    """Returns a gap that was left behind, with the action by which: `retry` only where its records were copied after all.

    They were if the partition began before them. Another topic of the name has none of them, and somebody who sets
    offsets leaves out what lies before.
    """
    same = not partition.gone and partition.topic_id == gap.topic_id
    if same and (partition.begun <= gap.start or gap.action is Action.RETRY):
        return replace(gap, action=Action.RETRY)
    action = Action.SKIP if gap.action in {None, Action.RETRY} else gap.action
    if not same:
        return replace(gap, action=action)
    end = partition.begun if gap.end is None else min(gap.end, partition.begun)
    return replace(gap, action=action, end=end)


def new_name(named: str, topic_id: bytes) -> str:
    """Returns the name of the copy of a topic that was made anew, for the policy `new-topic`.

    It follows from the replication policy's name and the new topic's id, so all tasks and all later runs find the same.
    """
    return f"{named}.recreated-{to_text(topic_id)[:_SUFFIX]}"
