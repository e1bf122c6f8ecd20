"""The administrators' view of groups: DescribeGroups and ListGroups. It never changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.model import GroupDescription, ListedGroup, MemberDescription
from klamm_kafka.wire.errors import ErrorCode


def describe(group_id: str, group: Group | None) -> GroupDescription:
    """Describe a group for DescribeGroups: subscriptions and assignments of members only while it is Stable.

    A group of another kind counts as missing.
    """
    if not isinstance(group, ClassicGroup):
        what = "not found" if group is None else "is not a classic group"
        return GroupDescription(
            group_id=group_id,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
            state=GroupState.DEAD.value,
        )
    stable = group.state is GroupState.STABLE
    return GroupDescription(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            MemberDescription(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                metadata=m.metadata(group.protocol_name) if stable else b"",
                assignment=m.assignment if stable else b"",
            )
            for m in group.members.values()
        ],
    )


def list_groups(
    groups: Iterable[Group], states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Returns the groups that pass both filters."""
    wanted_states = {state.lower().strip() for state in states}
    wanted_types = {type_.lower() for type_ in types}
    listed = [ListedGroup(g.group_id, g.protocol_type or "", g.state_name, g.kind) for g in groups]
    return [
        item
        for item in listed
        if (not wanted_states or item.state.lower() in wanted_states)
        and (not wanted_types or item.type in wanted_types)
    ]
