"""Plans a reset with a cluster's numbers, and carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import EMPTY, Group, commit, committed, describe_group
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import NONE, known_offsets
from klamm.admin.reset import How, LogState, Plan, Reset, ResetError, from_file, parse_topic, plan
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

Describe = Callable[[Admin, str], Awaitable[Group]]
"""Describes a group of some kind."""


async def state_of(admin: Admin, group: str, describe: Describe = describe_group) -> str:
    """Return the group's state; "Dead" for a group that does not exist, whose offsets may be set all the same."""
    try:
        return (await describe(admin, group)).state
    except AdminError as e:
        if e.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


def may_reset(state: str) -> bool:
    """Return whether offsets may be set in this state: only while nobody reads, because a member would overwrite them."""
    return state in EMPTY


async def chosen_partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `topic` and `topic:0,1` words. Raises AdminError for a topic that is not there."""
    parsed = [parse_topic(t) for t in topics]
    whole = [name for name, numbers in parsed if numbers is None]
    result = {TopicPartition(name, p) for name, numbers in parsed for p in numbers or ()}
    if whole:
        answer = await admin.metadata(whole)
        for t in answer.topics:
            if t.error_code:
                raise AdminError(t.error_code, f"topic {t.name!r}")
            result |= {TopicPartition(t.name or "", p.partition_index) for p in t.partitions}
    return sorted(result)


async def check_partitions(admin: Admin, partitions: Collection[TopicPartition]) -> None:
    """Raise ResetError unless all exist and have a leader."""
    answer = await admin.metadata(sorted({tp.topic for tp in partitions})) if partitions else None
    leaders = {
        TopicPartition(t.name or "", p.partition_index): p.leader_id
        for t in (answer.topics if answer else ())
        for p in t.partitions
    }
    absent = [str(tp) for tp in sorted(partitions) if tp not in leaders]
    if absent:
        raise ResetError(f'The partitions "{",".join(absent)}" do not exist')
    headless = [str(tp) for tp in sorted(partitions) if leaders[tp] < 0]
    if headless:
        raise ResetError(f'The partitions "{",".join(headless)}" have no leader')


async def plan_group(
    admin: Admin, group: str, reset: Reset, topics: Sequence[str] | None, *, all_topics: bool
) -> Plan:
    """Return the plan of a reset of this group, for `topics` or for everything that the group has committed."""
    offsets = await committed(admin, group)
    if reset.how is How.FILE:
        partitions: Collection[TopicPartition] = from_file(reset, group)
    elif all_topics:
        partitions = list(offsets)
    else:
        partitions = await chosen_partitions(admin, topics or ())
    return await plan_partitions(admin, group, reset, partitions, {tp: c.offset for tp, c in offsets.items()})


async def plan_partitions(
    admin: Admin,
    name: str,
    reset: Reset,
    partitions: Collection[TopicPartition],
    current: Mapping[TopicPartition, int],
) -> Plan:
    """Return the plan of a reset for a reader that keeps its offsets elsewhere; a file of offsets may call the reader
    `name`.
    """
    await check_partitions(admin, partitions)
    return plan(reset, name, partitions, await _numbers(admin, reset, partitions, current))


async def _numbers(
    admin: Admin, reset: Reset, partitions: Collection[TopicPartition], current: Mapping[TopicPartition, int]
) -> LogState:
    needs_starts = reset.how in (How.EARLIEST, How.OFFSET, How.SHIFT, How.FILE)
    at_time: Mapping[TopicPartition, int] = {}
    if reset.how is How.TIME and reset.value >= 0:
        at_time = await known_offsets(admin, partitions, reset.value)
    elif reset.how is How.TIME:  # before 1970: ListOffsets would take it for one of its special times
        at_time = await known_offsets(admin, partitions, 0)
    return LogState(
        starts=await known_offsets(admin, partitions, EARLIEST) if needs_starts else {},
        ends=await known_offsets(admin, partitions, LATEST),
        committed=current,
        at_time={tp: at_time.get(tp, NONE) for tp in partitions},
    )


async def carry_out(admin: Admin, group: str, planned: Plan) -> None:
    """Commit the plan's offsets."""
    await commit(admin, group, planned.offsets)
