"""Gives a cluster what a backup holds beside records: groups' offsets, ACLs and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klamm.admin.acls import create_acls
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.group_reset import may_reset, state_of
from klamm.admin.groups import commit
from klamm.admin.model import TopicPartition
from klamm.admin.quotas import alter_quotas
from klamm.backup.errors import BackupError
from klamm.backup.mapping import Mapping as Offsets
from klamm.backup.model import AclRule, Group, Quota
from klamm_broker.security.acl import Acl
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

ACLS_AT_ONCE: Final = 200


async def check_groups(admin: Admin, groups: Sequence[Group]) -> None:
    """Raise BackupError for a group that has members: its offsets cannot be set."""

    async def ask(group: Group) -> str:
        return await state_of(admin, group.name)

    busy = []
    for group, state in zip(groups, await admin.each(groups, ask), strict=True):
        if isinstance(state, AdminError):
            raise state
        if not may_reset(state):
            busy.append(f"{group.name} ({state})")
    if busy:
        raise BackupError(
            f"groups with members are there: {', '.join(busy[:10])}. Stop them, or restore without groups (--parts topics)"
        )


async def restore_groups(
    admin: Admin, groups: Sequence[Group], names: Mapping[str, str], offsets: Mapping[TopicPartition, Offsets]
) -> int:
    """Set the offsets of groups, translated; `names` and `offsets` are by the source's topics. Returns how many were set."""
    done = 0
    for group in groups:
        rows = {
            TopicPartition(names[o.topic], o.partition): (found.translate(o.offset), o.metadata)
            for o in group.offsets
            if (found := offsets.get(TopicPartition(o.topic, o.partition))) is not None
        }
        await commit(
            admin, group.name, {tp: offset for tp, (offset, _) in rows.items()},
            metadata={tp: text for tp, (_, text) in rows.items()},
        )  # fmt: skip
        done += len(rows)
    return done


async def restore_acls(admin: Admin, rules: Sequence[AclRule]) -> str | None:
    """Make ACLs; those that are there stay. Returns the cluster's reason for refusing them."""
    acls = [
        Acl(
            resource_type=ResourceType[r.resource_type], resource_name=r.resource_name,
            pattern_type=PatternType[r.pattern_type], principal=r.principal, host=r.host,
            operation=AclOperation[r.operation], permission=AclPermissionType[r.permission],
        )
        for r in rules
    ]  # fmt: skip
    try:
        for at in range(0, len(acls), ACLS_AT_ONCE):
            await create_acls(admin, acls[at : at + ACLS_AT_ONCE])
    except AdminError as e:
        return str(e)
    return None


async def restore_quotas(admin: Admin, quotas: Sequence[Quota]) -> str | None:
    """Set quotas. Returns the cluster's reason for refusing them."""
    try:
        for quota in quotas:
            await alter_quotas(admin, quota.entity, put=quota.values, delete=[])
    except AdminError as e:
        return str(e)
    return None
