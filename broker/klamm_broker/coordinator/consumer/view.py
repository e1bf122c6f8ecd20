"""The view of a group that ConsumerGroupDescribe shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm_broker.coordinator.consumer.assignment import Assignment
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.member import ConsumerMember
from klamm_broker.coordinator.consumer.model import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    NamedPartitions,
)
from klamm_broker.coordinator.consumer.topics import Topics


def describe(group: ConsumerGroup, topics: Topics, assignor: str) -> ConsumerGroupDescription:
    """Describe a group with its members; partitions of topics that are gone are left out."""
    return ConsumerGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=assignor,
        members=[_member(m, group.target.get(m.member_id, {}), topics) for m in group.members.values()],
    )


def _member(member: ConsumerMember, target: Assignment, topics: Topics) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=sorted(member.topics),
        regex=member.regex,
        assignment=_named(member.all_owned, topics),
        target_assignment=_named(target, topics),
        is_classic=member.classic is not None,
    )


def _named(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> list[NamedPartitions]:
    found = ((topics.by_id(topic_id), owned) for topic_id, owned in partitions.items())
    return [NamedPartitions(t.id, t.name, sorted(owned)) for t, owned in found if t is not None]
