"""The rights that each part of Klamm needs, and those with which a safe system begins.

The administrator is a super user and needs none. An application may use all topics but those
with the state of others. What the first start gives is given once: what
an administrator has taken away stays away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klamm.admin.errors import AdminError
from klamm.admin.settings import client_settings
from klamm.connect.topics.fenced_writer import leader_transactional_id
from klamm.security.folder import APP, CONNECT
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_kafka.wire.messages.create_acls import AclCreation, CreateAclsRequest

_A = AclOperation
_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_MARK: Final = "grants.done"
_ALL: Final = "*"
_WORK: Final = (_A.READ, _A.WRITE, _A.CREATE, _A.DESCRIBE_CONFIGS)


@dataclass(frozen=True, slots=True)
class Grant:
    """The right of a user to operations on the resource of a name, or, `prefixed`, on all whose names begin with it.

    One that is `denied` takes it away from whatever else gives it.
    """

    resource: ResourceType
    name: str
    operations: tuple[AclOperation, ...]
    prefixed: bool = False
    denied: bool = False


APPLICATION: Final = (
    Grant(_TOPIC, _ALL, _WORK),
    Grant(_GROUP, _ALL, (_A.READ, _A.DELETE)),
    Grant(_ID, _ALL, (_A.WRITE, _A.DESCRIBE)),
)


def worker(properties: Mapping[str, str], topics: str = _ALL) -> tuple[Grant, ...]:
    """Returns the rights of a Connect worker: its group and topics, and topics and groups of its connectors."""
    group = properties["group.id"]
    own = [properties[f"{which}.storage.topic"] for which in ("config", "offset", "status")]
    exact = () if topics == _ALL else tuple(Grant(_TOPIC, name, _WORK) for name in own)
    return (
        Grant(_GROUP, group, (_A.READ,)),
        Grant(_GROUP, "connect-", (_A.READ, _A.DELETE), prefixed=True),  # those of sinks
        Grant(_TOPIC, topics, _WORK, prefixed=topics != _ALL),
        *exact,
        Grant(_ID, f"{group}-", (_A.WRITE, _A.DESCRIBE), prefixed=True),  # of tasks, exactly once
        Grant(_ID, leader_transactional_id(group), (_A.WRITE, _A.DESCRIBE)),
    )


def withheld(properties: Mapping[str, str]) -> tuple[Grant, ...]:
    """Returns what an application with rights to all topics shall not touch: the state of worker, registry and broker.

    Whoever writes the worker's topics makes connectors, which read the machine's files; whoever reads them reads passwords.
    """
    group = properties["group.id"]
    own = [properties[f"{which}.storage.topic"] for which in ("config", "offset", "status")]
    of_registry = registry()
    return (
        *(Grant(_TOPIC, name, (_A.ALL,), denied=True) for name in own),
        Grant(_TOPIC, "__", (_A.ALL,), prefixed=True, denied=True),
        Grant(_GROUP, group, (_A.ALL,), denied=True),
        Grant(_ID, f"{group}-", (_A.ALL,), prefixed=True, denied=True),
        *(replace(grant, operations=(_A.ALL,), denied=True) for grant in of_registry),
    )


def agent(topics: str) -> tuple[Grant, ...]:
    """Returns the rights of a log agent that writes to topics of this prefix. READ lets it ask what was written before a kill."""
    return (Grant(_TOPIC, topics, (_A.WRITE, _A.CREATE, _A.READ), prefixed=True),)


def registry(topic: str = "_schemas", group: str = "schema-registry") -> tuple[Grant, ...]:
    """Returns the rights of a schema registry: its topic, the group in which the one that writes is chosen, and its transactions."""
    return (
        Grant(_TOPIC, topic, _WORK),
        Grant(_GROUP, group, (_A.READ,)),
        Grant(_ID, f"klamm-registry-{group}-{topic}", (_A.WRITE, _A.DESCRIBE)),
    )


def mirror_source(topics: str) -> tuple[Grant, ...]:
    """Returns the rights at its source of a flow of the mirror, for topics of this prefix."""
    return (
        Grant(_TOPIC, topics, (_A.READ, _A.DESCRIBE_CONFIGS), prefixed=True),
        Grant(_TOPIC, "mm2-", _WORK, prefixed=True),
        Grant(_TOPIC, "heartbeats", (_A.READ, _A.DESCRIBE_CONFIGS)),
        Grant(_GROUP, _ALL, (_A.DESCRIBE,)),
    )


def mirror_target(source: str) -> tuple[Grant, ...]:
    """Returns the rights at its target of a flow of the mirror from the alias `source`."""
    group = f"{source}-mm2"
    return (
        Grant(_TOPIC, f"{source}.", (*_WORK, _A.ALTER, _A.ALTER_CONFIGS), prefixed=True),
        Grant(_TOPIC, "mm2-", _WORK, prefixed=True),
        Grant(_TOPIC, "heartbeats", _WORK),
        Grant(_GROUP, _ALL, (_A.READ,)),  # the groups whose offsets are translated, and the flow's own
        Grant(_ID, f"{group}-", (_A.WRITE, _A.DESCRIBE), prefixed=True),
        Grant(_ID, leader_transactional_id(group), (_A.WRITE, _A.DESCRIBE)),
    )


def spark(topics: str, groups: str = "klamm-spark", ids: str = "") -> tuple[Grant, ...]:
    """Returns the rights of a Spark job that reads and writes topics of this prefix; `ids` with exactly once."""
    once = (
        (
            Grant(_ID, ids, (_A.WRITE, _A.DESCRIBE), prefixed=True),
            Grant(_GROUP, ids, (_A.READ,), prefixed=True),
        )
        if ids
        else ()
    )
    return (
        Grant(_TOPIC, topics, (_A.READ, _A.WRITE, _A.CREATE), prefixed=True),
        Grant(_GROUP, groups, (_A.READ,), prefixed=True),
        *once,
    )


def creations(user: str, grants: Sequence[Grant]) -> list[AclCreation]:
    """Returns the ACLs that allow or deny a user this, from everywhere."""
    return [
        AclCreation(
            resource_type=grant.resource,
            resource_name=grant.name,
            resource_pattern_type=PatternType.PREFIXED if grant.prefixed else PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=AclPermissionType.DENY if grant.denied else AclPermissionType.ALLOW,
        )
        for grant in grants
        for operation in grant.operations
    ]


async def give(bootstrap: str, admin_file: Path | None, wanted: Sequence[AclCreation]) -> None:
    """Creates ACLs; those that are there stay. Raises KlammError."""
    async with client_settings(bootstrap, admin_file, timeout_s=30).open() as admin:
        answer = await admin.ask(CreateAclsRequest(creations=list(wanted)))
    for result in answer.results:
        if result.error_code:
            raise AdminError(result.error_code, "cannot create ACLs", result.error_message)


async def grant_first(bootstrap: str, admin_file: Path, properties: Mapping[str, str]) -> None:
    """Gives application and worker their rights, unless an earlier start did. Raises KlammError."""
    mark = admin_file.with_name(_MARK)
    if not mark.exists():
        wanted = creations(APP, (*APPLICATION, *withheld(properties))) + creations(
            CONNECT, worker(properties)
        )
        await give(bootstrap, admin_file, wanted)
        mark.touch()
