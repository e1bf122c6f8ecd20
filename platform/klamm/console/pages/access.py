"""Access: ACLs, users with passwords, quotas; each where the cluster has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiohttp import web

from klamm.admin.acls import create_acls, delete_acls, describe_acls
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.quotas import (
    MECHANISMS,
    SCRAM_ITERATIONS,
    Entity,
    all_quotas,
    alter_credentials,
    alter_quotas,
    describe_credentials,
)
from klamm.console.errors import ConsoleError
from klamm.console.visit import Visit
from klamm_broker.security.acl import Acl, AclFilter
from klamm_kafka.client import ClientError
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
KINDS: Final = ("user", "client-id", "ip")
T = TypeVar("T")


async def page(visit: Visit) -> web.StreamResponse:
    """Shows what there is."""
    async with visit.cluster.admin() as admin:
        acls, no_acls = await _if_there(admin, lambda a: describe_acls(a, AclFilter()))
        users, no_users = await _if_there(admin, lambda a: describe_credentials(a, []))
        quotas, no_quotas = await _if_there(admin, all_quotas)
    return visit.page(
        "access.html",
        acls=sorted(acls or [], key=lambda a: (a.principal, a.resource_type, a.resource_name, a.operation)),
        users=users or [], quotas=quotas or [], no_acls=no_acls, no_users=no_users, no_quotas=no_quotas,
        kinds=[r.name for r in ResourceType if r > ResourceType.ANY], patterns=("LITERAL", "PREFIXED"),
        operations=[o.name for o in AclOperation if o > AclOperation.ANY], mechanisms=tuple(MECHANISMS), keys=QUOTAS,
        entities=KINDS,
    )  # fmt: skip


async def _if_there(admin: Admin, ask: Callable[[Admin], Awaitable[T]]) -> tuple[T | None, str | None]:
    """Returns an answer, or why the cluster has none."""
    try:
        return await ask(admin), None
    except (AdminError, ClientError) as e:
        return None, str(e)


def _acl(visit: Visit) -> Acl:
    principal = visit.field("principal")
    if not principal:
        raise ConsoleError("principal: write User:NAME")
    try:
        return Acl(
            resource_type=ResourceType[visit.field("kind")],
            resource_name=visit.field("name")
            or ("kafka-cluster" if visit.field("kind") == "CLUSTER" else "*"),
            pattern_type=PatternType[visit.field("pattern") or "LITERAL"],
            principal=principal if ":" in principal else f"User:{principal}",
            host=visit.field("host") or "*",
            operation=AclOperation[visit.field("operation")],
            permission=AclPermissionType[visit.field("permission") or "ALLOW"],
        )
    except KeyError as e:
        raise ConsoleError(f"{e.args[0]!r} is no kind, pattern, operation or permission of an ACL") from None


async def change_acl(visit: Visit) -> web.StreamResponse:
    """Makes or deletes an ACL."""
    acl = _acl(visit)
    async with visit.cluster.admin() as admin:
        if visit.field("what") == "delete":
            wanted = AclFilter(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type,
                principal=acl.principal, host=acl.host, operation=acl.operation, permission=acl.permission,
            )  # fmt: skip
            await delete_acls(admin, [wanted])
            said = f"Deleted: {acl}."
        else:
            await create_acls(admin, [acl])
            said = f"{acl}."
    visit.audit("acl deleted" if visit.field("what") == "delete" else "acl created", acl=str(acl))
    return visit.go(f"/c/{visit.cluster_name}/access", said)


async def change_quota(visit: Visit) -> web.StreamResponse:
    """Sets limits of a user, a client id or an address; an empty field removes one."""
    names: dict[str, str | None] = {}
    for kind in KINDS:
        name = visit.field(kind)
        if name:
            names[kind] = None if name == "<default>" else name
    if not names:
        raise ConsoleError("write a user, a client id or an address; <default> is for all others")
    put: dict[str, float] = {}
    for key in QUOTAS:
        if text := visit.field(key):
            try:
                put[key] = float(text)
            except ValueError:
                raise ConsoleError(f"{key}: {text!r} is no number") from None
    entity: Entity = tuple(names.items())
    async with visit.cluster.admin() as admin:
        there: dict[str, float] = next(
            (dict(q.values) for q in await all_quotas(admin) if dict(q.entity) == names), {}
        )
        await alter_quotas(admin, entity, put=put, delete=[k for k in QUOTAS if k not in put and k in there])
    visit.audit("quotas changed", entity=names, quotas=put)
    return visit.go(f"/c/{visit.cluster_name}/access", "The quotas were changed.")


async def change_user(visit: Visit) -> web.StreamResponse:
    """Makes a user, changes a password, or removes a user's credentials."""
    user, mechanism = visit.field("user"), visit.field("mechanism")
    if not user or mechanism not in MECHANISMS:
        raise ConsoleError(f"write a user, and one of {', '.join(MECHANISMS)}")
    put: dict[str, Any] = {}
    if visit.field("what") != "delete":
        password = visit.form.get("password", "")
        if not password:
            raise ConsoleError("password: it is empty")
        put = {mechanism: (SCRAM_ITERATIONS, password)}
    async with visit.cluster.admin() as admin:
        await alter_credentials(admin, user, put=put, delete=[] if put else [mechanism])
    visit.audit("user changed" if put else "user removed", name=user, mechanism=mechanism)
    said = f"{user} has a password for {mechanism}." if put else f"{user} has no {mechanism} any more."
    return visit.go(f"/c/{visit.cluster_name}/access", said)
