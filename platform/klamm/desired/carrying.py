"""A plan is carried out: one change after the other, until one is refused."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from klamm.admin.acls import create_acls, delete_acls
from klamm.admin.client import Admin
from klamm.admin.configs import Resource, alter_config
from klamm.admin.quotas import alter_credentials, alter_quotas
from klamm.admin.topics import create_partitions, create_topic, delete_topics
from klamm.desired.plan import Action, Change
from klamm.desired.reading import Api, schema_body
from klamm.desired.state import User
from klamm_base.errors import ConfigError, KlammError
from klamm_broker.security.acl import AclFilter


async def carry_out(admin: Admin, change: Change) -> None:
    """Carry out a change of a thing that brokers keep. Raises KlammError."""
    await _CLUSTER[change.kind](admin, change)


def carry_out_by_rest(api: Api, change: Change) -> None:
    """Carry out a change of a schema or a connector. Raises KlammError."""
    _REST[change.kind](api, change)


async def _topic(admin: Admin, change: Change) -> None:
    wanted = change.wanted
    match change.action:
        case Action.CREATE:
            await create_topic(
                admin,
                change.name,
                partitions=wanted.partitions or -1,
                replication_factor=wanted.replication_factor or -1,
                configs=wanted.configs,
            )
        case Action.CHANGE:
            if change.partitions is not None:
                if (
                    change.put or change.delete
                ):  # a setting that is refused must not leave new partitions behind
                    await alter_config(
                        admin,
                        Resource.TOPIC,
                        change.name,
                        put=change.put,
                        delete=change.delete,
                        validate_only=True,
                    )
                await create_partitions(admin, {change.name: change.partitions})
            if change.put or change.delete:
                await alter_config(admin, Resource.TOPIC, change.name, put=change.put, delete=change.delete)
        case Action.DELETE:
            await delete_topics(admin, [change.name])


async def _acl(admin: Admin, change: Change) -> None:
    acl = change.wanted
    if change.action is Action.CREATE:
        await create_acls(admin, [acl])
        return
    exactly = AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )
    await delete_acls(admin, [exactly])


async def _quota(admin: Admin, change: Change) -> None:
    delete = tuple(change.wanted) if change.action is Action.DELETE else change.delete
    await alter_quotas(admin, change.name, put=change.put, delete=delete)


async def _user(admin: Admin, change: Change) -> None:
    wanted: User = change.wanted
    if change.action is Action.DELETE:
        await alter_credentials(admin, change.name, put={}, delete=list(wanted.mechanisms))
        return
    secret = password(change.name, wanted) if change.put else ""
    put = {mechanism: (iterations, secret) for mechanism, iterations in change.put.items()}
    await alter_credentials(admin, change.name, put=put, delete=change.delete)


def password(name: str, user: User) -> str:
    """Return the password that a user's entry refers to. Raises ConfigError."""
    if user.password_env is not None:
        given = os.environ.get(user.password_env, "")
        where = f"the environment variable {user.password_env}"
    else:
        where = str(user.password_file)
        try:
            given = Path(where).read_text(encoding="utf-8").partition("\n")[0]
        except OSError as e:
            raise ConfigError(f"users: {name}: password_file {where}: {e.strerror or e}") from None
    if not given:
        raise ConfigError(f"users: {name}: {where} holds no password")
    return given


def _schema(registry: Api, change: Change) -> None:
    subject = quote(change.name, safe="")
    if change.action is Action.DELETE:
        registry.call("DELETE", f"/subjects/{subject}")
        return
    if "compatibility" in change.put:  # before the version that it may permit
        registry.call("PUT", f"/config/{subject}", {"compatibility": change.put["compatibility"]})
    if "schema" in change.put:
        path = f"/subjects/{subject}/versions"
        if registry.call("POST", path, schema_body(change.put["schema"])) is None:
            raise KlammError(f"schema {change.name}: the registry does not know POST {path}")


def _connector(worker: Api, change: Change) -> None:
    path = f"/connectors/{quote(change.name, safe='')}"
    if change.action is Action.DELETE:
        worker.call("DELETE", path)
        return
    if worker.call("PUT", f"{path}/config", dict(change.wanted)) is None:
        raise KlammError(f"connector {change.name}: the worker does not know PUT {path}/config")


_CLUSTER: Final[dict[str, Callable[[Admin, Change], Awaitable[None]]]] = {
    "topics": _topic,
    "acls": _acl,
    "quotas": _quota,
    "users": _user,
}
_REST: Final[dict[str, Callable[[Api, Change], None]]] = {"schemas": _schema, "connectors": _connector}
