"""Asks a cluster for what a backup holds beside records: topics, configs, groups, ACLs, quotas and users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from klamm.admin.acls import describe_acls
from klamm.admin.client import Admin
from klamm.admin.configs import Entry, Resource, describe_config
from klamm.admin.errors import AdminError, message_of
from klamm.admin.groups import committed, list_groups
from klamm.admin.model import TopicPartition, by_topic
from klamm.admin.quotas import all_quotas, describe_credentials
from klamm.admin.records import describe_log_dirs
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

T = TypeVar("T")

OF_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
SHARE: Final = "Share"
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


async def sizes(admin: Admin, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the bytes of logs, as the largest replica has them; nothing where the cluster does not tell. Raises AdminError."""
    found: dict[TopicPartition, int] = {}
    try:
        for folder in await describe_log_dirs(admin, await admin.brokers(), places):
            for replica in folder.replicas:
                found[replica.partition] = max(replica.size, found.get(replica.partition, 0))
    except UnsupportedApi:
        return {}
    except AdminError as e:
        if e.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}
    return found


async def groups(admin: Admin, places: Collection[TopicPartition]) -> tuple[Group, ...]:
    """Return the groups that have offsets in these partitions."""
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
            GroupOffset(topic=tp.topic, partition=tp.partition, offset=offset, metadata=metadata)
            for tp, (offset, metadata) in sorted(offsets.items())
            if tp in places
        )
        if rows:
            found.append(Group(name=name, offsets=rows))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A cluster's ACLs, quotas and users; None where it has no such thing, or does not let us see it."""

    acls: tuple[AclRule, ...] | None
    quotas: tuple[Quota, ...] | None
    users: tuple[User, ...] | None


async def rules(admin: Admin, say: Callable[[str], None]) -> Rules:
    """Return the rules, and say which of them we may not see. Raises AdminError.

    Who may not see ACLs may not see SCRAM users either, and is not to ask: Apache Kafka 4.3 leaves that request without an answer.
    """
    found, may = await _told("ACLs and SCRAM users", acls(admin), say)
    limits, _ = await _told("quotas", quotas(admin), say)
    logins = (await _told("SCRAM users", users(admin), say))[0] if may else None
    return Rules(acls=found, quotas=limits, users=logins)


async def _told(what: str, ask: Coroutine[Any, Any, T], say: Callable[[str], None]) -> tuple[T | None, bool]:
    """Return an answer, and whether we may have it."""
    try:
        return await ask, True
    except UnsupportedApi:
        return None, True
    except AdminError as e:
        if e.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            say(f"{what} are not in the backup: {message_of(e.code)}")
            return None, False
        if e.code != ErrorCode.SECURITY_DISABLED:
            raise
        return None, True


async def acls(admin: Admin) -> tuple[AclRule, ...]:
    """Return the ACLs. Raises AdminError, with SECURITY_DISABLED where the cluster has no authorizer."""
    found = (
        AclRule(
            resource_type=a.resource_type.name, resource_name=a.resource_name, pattern_type=a.pattern_type.name,
            principal=a.principal, host=a.host, operation=a.operation.name, permission=a.permission.name,
        )
        for a in await describe_acls(admin, AclFilter())
    )  # fmt: skip
    return tuple(sorted(found, key=lambda r: (r.resource_type, r.resource_name, r.principal, r.operation)))


async def quotas(admin: Admin) -> tuple[Quota, ...]:
    """Return the quotas. Raises AdminError."""
    return tuple(Quota(entity=q.entity, values=dict(q.values)) for q in await all_quotas(admin))


async def users(admin: Admin) -> tuple[User, ...]:
    """Return SCRAM users, without anything to log in by. Raises AdminError."""
    found = await describe_credentials(admin, [])
    return tuple(User(name=c.user, mechanisms=dict(c.iterations)) for c in found if c.error is None)
