"""Asks a cluster for what a backup holds beside records: topics, configs, groups, ACLs, quotas and users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.acls import describe_acls
from klamm.admin.client import Admin
from klamm.admin.configs import Entry, Resource, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.groups import committed, list_groups
from klamm.admin.model import TopicPartition, by_topic
from klamm.admin.quotas import all_quotas, describe_credentials
from klamm.admin.topics import Topic, id_text
from klamm.backup.model import AclRule, Group, GroupOffset, Quota, User
from klamm_broker.security.acl import AclFilter
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

OF_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
SHARE: Final = "Share"
_NOT_TOLD: Final = (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
NO_ID: Final = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configs:
    """A topic's configs: those that were set for it, and all that are in effect."""

    own: dict[str, str]
    effective: dict[str, str]


async def topic_configs(admin: Admin, topics: Sequence[str]) -> dict[str, Configs]:
    """Return the configs of topics. Raises AdminError."""

    async def ask(name: str) -> list[Entry]:
        return await describe_config(admin, Resource.TOPIC, name)

    found: dict[str, Configs] = {}
    for name, entries in zip(topics, await admin.each(topics, ask), strict=True):
        if isinstance(entries, AdminError):
            raise entries
        known = {e.name: e.value for e in entries if e.value is not None}
        found[name] = Configs(
            own={e.name: e.value for e in entries if e.source == OF_TOPIC and e.value is not None},
            effective=known,
        )
    return found


def id_of(topic: Topic) -> str:
    """Return a topic's id as text; "" where brokers give none."""
    return "" if topic.id == NO_ID else id_text(topic.id)


async def epoch_ends(admin: Admin, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the ends of logs up to leader epochs, where a broker tells them."""

    async def call(node_id: int, mine: list[TopicPartition]) -> dict[TopicPartition, int | AdminError]:
        topics = [
            OffsetForLeaderTopic(
                topic=t,
                partitions=[
                    OffsetForLeaderPartition(partition=p, leader_epoch=epochs[TopicPartition(t, p)])
                    for p in ids
                ],
            )
            for t, ids in by_topic(mine).items()
        ]
        try:
            answer = await admin.ask_broker(node_id, OffsetForLeaderEpochRequest(topics=topics))
        except UnsupportedApi:
            return dict.fromkeys(mine, -1)
        return {
            tp: AdminError(p.error_code, str(tp)) if p.error_code else p.end_offset
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.topic, p.partition)]
        }

    found = await admin.by_leader(list(epochs), call)
    return {tp: end for tp, end in found.items() if isinstance(end, int) and end >= 0}


async def groups(admin: Admin, ends: Mapping[TopicPartition, int]) -> tuple[Group, ...]:
    """Return the groups that have offsets in these partitions; offsets behind an end are that end."""
    names = [g.group for g in await list_groups(admin, consumers_only=False) if g.type != SHARE]

    async def ask(name: str) -> dict[TopicPartition, tuple[int, str]]:
        return {tp: (c.offset, c.metadata) for tp, c in (await committed(admin, name)).items()}

    found = []
    for name, offsets in zip(names, await admin.each(names, ask), strict=True):
        if isinstance(offsets, AdminError):
            if offsets.code == ErrorCode.GROUP_ID_NOT_FOUND:
                continue
            raise offsets
        rows = tuple(
            GroupOffset(
                topic=tp.topic, partition=tp.partition, offset=min(offset, ends[tp]), metadata=metadata
            )
            for tp, (offset, metadata) in sorted(offsets.items())
            if tp in ends
        )
        if rows:
            found.append(Group(name=name, offsets=rows))
    return tuple(found)


async def acls(admin: Admin) -> tuple[AclRule, ...] | None:
    """Return the ACLs; None where the cluster has no authorizer, or does not let us see them."""
    try:
        found = await describe_acls(admin, AclFilter())
    except UnsupportedApi:
        return None
    except AdminError as e:
        if e.code in _NOT_TOLD:
            return None
        raise
    rules = (
        AclRule(
            resource_type=a.resource_type.name, resource_name=a.resource_name, pattern_type=a.pattern_type.name,
            principal=a.principal, host=a.host, operation=a.operation.name, permission=a.permission.name,
        )
        for a in found
    )  # fmt: skip
    return tuple(sorted(rules, key=lambda r: (r.resource_type, r.resource_name, r.principal, r.operation)))


async def quotas(admin: Admin) -> tuple[Quota, ...] | None:
    """Return the quotas; None where the cluster does not tell them."""
    try:
        return tuple(Quota(entity=q.entity, values=dict(q.values)) for q in await all_quotas(admin))
    except UnsupportedApi:
        return None
    except AdminError as e:
        if e.code in _NOT_TOLD:
            return None
        raise


async def users(admin: Admin) -> tuple[User, ...] | None:
    """Return SCRAM users, without anything to log in by; None where the cluster does not tell them."""
    try:
        found = await describe_credentials(admin, [])
    except UnsupportedApi:
        return None
    except AdminError as e:
        if e.code in _NOT_TOLD:
            return None
        raise
    return tuple(User(name=c.user, mechanisms=dict(c.iterations)) for c in found if c.error is None)
