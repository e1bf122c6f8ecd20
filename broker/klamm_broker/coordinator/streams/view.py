"""The view of a Streams group that StreamsGroupDescribe shows."""

from __future__ import annotations

from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.model import StreamsGroupDescription
from klamm_broker.coordinator.streams.topology import describe as describe_topology


def describe(group: StreamsGroup) -> StreamsGroupDescription:
    """Describe a group with its topology and members."""
    topology = group.topology
    return StreamsGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        topology_epoch=-1 if topology is None else topology.epoch,
        subtopologies=[] if topology is None else describe_topology(topology, group.configured),
        members=[(m, group.target_of(m.member_id)) for m in group.members.values()],
    )
