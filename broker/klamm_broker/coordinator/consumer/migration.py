"""Conversions between the classic and the consumer protocol with members in the group (KIP-848's online migration).

Up: a classic group of consumers becomes a consumer group when the first member of the new protocol joins; its members
stay, with their assignments, and go on with the classic requests. Down: a consumer group becomes a classic one when the
last member of the new protocol leaves and members of the old one are left. Nothing here changes a group: it makes
another group, and the records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from klamm_broker.coordinator import records as classic_records
from klamm_broker.coordinator.consumer import consumer_protocol, records
from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.member import ClassicSide, ConsumerMember
from klamm_broker.coordinator.consumer.model import ConsumerConfig
from klamm_broker.coordinator.consumer.records import ConsumerRecord
from klamm_broker.coordinator.consumer.topics import MetadataHashes, Topics
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.group import ClassicGroup, Member
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.model import CONSUMER_PROTOCOL_TYPE
from klamm_broker.coordinator.subscription import MalformedSubscription
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)


def check_upgrade(group: ClassicGroup, config: ConsumerConfig) -> None:
    """Raises GroupError (GROUP_ID_NOT_FOUND) when this group may not become a consumer group."""
    why = None
    if not config.migration.may_upgrade:
        why = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        _refuse_upgrade(group, why)


def _refuse_upgrade(group: ClassicGroup, why: str) -> None:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    log.info(text)
    raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def upgraded(
    group: ClassicGroup, topics: Topics, hashes: MetadataHashes
) -> tuple[ConsumerGroup, list[KeyValue]]:
    """Returns the consumer group that this classic one becomes, and its records. Raises GroupError."""
    result = ConsumerGroup(group.group_id, partition=group.partition)
    made: list[ConsumerRecord] = []
    try:
        members = [_as_consumer(group, member, topics) for member in group.members.values()]
    except MalformedSubscription:
        _refuse_upgrade(group, "the embedded consumer protocol is malformed")
    group_id, epoch = group.group_id, group.generation_id
    made += [records.member(group_id, m) for m in members]
    for record in made:
        result.apply(record)
    made.append(records.group_epoch(group_id, epoch, hashes.of(result.subscribed_topics)))
    taken: set[tuple[bytes, int]] = set()
    for m in members:
        # A client's assignor may have given a partition to several members: the first one keeps it.
        target = {t: frozenset(p for p in given if (t, p) not in taken) for t, given in m.assigned.items()}
        taken |= {(t, p) for t, given in target.items() for p in given}
        made.append(records.target(group_id, m.member_id, target))
    made.append(records.target_epoch(group_id, epoch, 0))
    made += [records.current(group_id, m) for m in members]
    for record in made[len(members) :]:
        result.apply(record)
    result.take_offsets(group)
    return result, [classic_records.group_tombstone(group_id), *(r.encode() for r in made)]


def _as_consumer(group: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    assigned, has_user_data = consumer_protocol.read_assignment(member.assignment, topics)
    if has_user_data:
        _refuse_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    protocol = group.protocol_name or group.select_protocol()
    subscription = consumer_protocol.read_subscription(member.metadata(protocol), topics)
    epoch = group.generation_id
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic_id: dict.fromkeys(sorted(p), epoch) for topic_id, p in assigned.items()},
    )


def may_downgrade(
    group: ConsumerGroup, without: Collection[ConsumerMember], config: ConsumerConfig, classic_max_size: int
) -> bool:
    """Decides whether the group becomes a classic one once these members have gone."""
    gone = {m.member_id for m in without}
    left = [m for m in group.members.values() if m.member_id not in gone]
    if not left or any(m.classic is None for m in left):
        return False
    return _downgrade_allowed(group, len(left), config, classic_max_size)


def may_downgrade_with(
    group: ConsumerGroup, replaced: ConsumerMember, config: ConsumerConfig, classic_max_size: int
) -> bool:
    """Decides whether it becomes a classic one when a classic member takes this static member's place."""
    others = [m for m in group.members.values() if m is not replaced]
    if replaced.classic is not None or any(m.classic is None for m in others):
        return False
    return _downgrade_allowed(group, len(group.members), config, classic_max_size)


def _downgrade_allowed(group: ConsumerGroup, size: int, config: ConsumerConfig, max_size: int) -> bool:
    why = None
    if not config.migration.may_downgrade:
        why = "the online downgrade is disabled"
    elif size > max_size:
        why = "its group size is greater than classic group max size"
    if why is not None:
        log.info("Cannot downgrade consumer group %s to classic group because %s.", group.group_id, why)
    return why is None


def downgraded(
    group: ConsumerGroup,
    without: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    topics: Topics,
    wall_ms: int,
) -> tuple[ClassicGroup, list[KeyValue]]:
    """Returns the classic group that this consumer group becomes, Stable with the target assignment, and its records.

    `joining` takes the place of the static member of its instance id. Raises GroupError (GROUP_ID_NOT_FOUND).
    """
    classic = ClassicGroup(group.group_id, partition=group.partition, wall_ms=wall_ms)
    classic.generation_id = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.state = GroupState.STABLE
    classic.has_metadata_record = True
    gone = {m.member_id for m in without}
    targets = {}
    for member in group.members.values():
        if member.member_id in gone:
            continue
        takes_over = joining is not None and joining.instance_id == member.instance_id
        new = joining if takes_over and joining is not None else member
        classic.add(_as_classic(new))
        targets[new.member_id] = group.target.get(member.member_id, {})
    classic.protocol_name = classic.select_protocol()
    classic.refresh_subscribed_topics()
    try:
        for it in classic.members.values():
            metadata = it.metadata(classic.protocol_name)
            it.assignment = consumer_protocol.write_assignment(targets[it.member_id], metadata, topics)
    except MalformedSubscription as e:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {e}."
        ) from e
    classic.take_offsets(group)
    assigned = {it.member_id: it.assignment for it in classic.members.values()}
    return classic, [*tombstones(group), classic_records.group_metadata(classic, assigned)]


def _as_classic(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.classic.protocols,
    )


def tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """Returns the tombstones of all records of a consumer group, except its offsets."""
    made = [t for member_id in group.members for t in records.member_tombstones(group.group_id, member_id)]
    made += [records.regex_tombstone(group.group_id, expression) for expression in group.regexes]
    made += records.group_tombstones(group.group_id)
    return [t.encode() for t in made]
