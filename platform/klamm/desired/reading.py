"""The state of a cluster, of a schema registry and of a Connect worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from klamm.admin.acls import describe_acls
from klamm.admin.client import Admin
from klamm.admin.configs import topic_overrides
from klamm.admin.errors import AdminError
from klamm.admin.quotas import all_quotas, describe_credentials
from klamm.admin.topics import list_topics
from klamm.desired.plan import same_schema
from klamm.desired.state import Entity, Reference, Schema, Topic, User
from klamm_base.errors import KlammError
from klamm_broker.security.acl import Acl, AclFilter
from klamm_kafka.wire.errors import ErrorCode

_ORDER = ("user", "client-id", "ip")


class Api(Protocol):
    """A REST API: `call` returns the decoded answer, None for 404. Raises KlammError."""

    def call(self, method: str, path: str, body: Any = None) -> Any: ...


async def read_topics(admin: Admin, names: Collection[str] = (), *, others: bool = False) -> dict[str, Topic]:
    """Return these topics (those that are there) with their own settings, and if `others` all but internal ones."""
    found = [
        t
        for t in await list_topics(admin)
        if t.name in names or (others and not (t.internal or t.name.startswith("_")))
    ]
    configs = await topic_overrides(admin, [t.name for t in found])
    topics = {}
    for topic in found:
        own = configs[topic.name]
        if isinstance(own, AdminError):
            if own.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # it went meanwhile
            raise own
        topics[topic.name] = Topic(
            partitions=len(topic.partitions),
            replication_factor=max((p.replication_factor for p in topic.partitions), default=1),
            configs=own,
        )
    return topics


async def read_acls(admin: Admin, *, optional: bool = False) -> frozenset[Acl]:
    """Return all ACLs; none where `optional` and the cluster has no authorizer. Raises AdminError."""
    try:
        return frozenset(await describe_acls(admin, AclFilter()))
    except AdminError as e:
        if optional and e.code == ErrorCode.SECURITY_DISABLED:
            return frozenset()
        raise


async def read_quotas(admin: Admin) -> dict[Entity, Mapping[str, float]]:
    """Return the quotas of all entities."""
    return {in_order(q.entity): dict(q.values) for q in await all_quotas(admin)}


def in_order(entity: Iterable[tuple[str, str | None]]) -> Entity:
    """Return an entity's parts in the order of a file."""
    return tuple(sorted(entity, key=lambda part: _ORDER.index(part[0])))


async def read_users(admin: Admin) -> dict[str, User]:
    """Return users with their SCRAM mechanisms. Raises AdminError."""
    users = {}
    for found in await describe_credentials(admin, []):
        if found.error is not None:
            raise found.error
        users[found.user] = User(mechanisms=dict(found.iterations))
    return users


def read_schemas(registry: Api, wanted: Mapping[str, Schema] | None = None) -> dict[str, Schema]:
    """Return the newest schemas of all subjects. One that the registry holds as the same as a wanted one is this."""
    schemas = {}
    for subject in _listed(registry, "/subjects", "schema registry"):
        path = f"/subjects/{quote(subject, safe='')}"
        newest = registry.call("GET", f"{path}/versions/latest")
        if newest is None:
            continue
        level = registry.call("GET", f"/config/{quote(subject, safe='')}")
        schema = Schema(
            type=newest.get("schemaType", "AVRO"),
            schema=newest["schema"],
            references=tuple(
                Reference(r["name"], r["subject"], r["version"]) for r in newest.get("references") or ()
            ),
            compatibility=level and level.get("compatibilityLevel"),
        )
        like = (wanted or {}).get(subject)
        if like is not None and not same_schema(like, schema):
            found = registry.call("POST", path, schema_body(like))
            if found is not None and found.get("version") == newest.get("version"):
                schema = Schema(
                    type=like.type,
                    schema=like.schema,
                    references=like.references,
                    compatibility=schema.compatibility,
                )
        schemas[subject] = schema
    return schemas


def _listed(api: Api, path: str, what: str) -> list[str]:
    """Return the names that a server has at a path. Raises KlammError for another kind of server."""
    names = api.call("GET", path)
    if not isinstance(names, list):
        raise KlammError(f"GET {path}: no list of names; is that a {what}?")
    return names


def schema_body(schema: Schema) -> dict[str, Any]:
    """Return a schema as the registry takes it."""
    body: dict[str, Any] = {"schema": schema.schema, "schemaType": schema.type}
    if schema.references:
        body["references"] = [r._asdict() for r in schema.references]
    return body


def read_connectors(worker: Api) -> dict[str, dict[str, str]]:
    """Return the configurations of all connectors."""
    configs = {}
    for name in _listed(worker, "/connectors", "Connect worker"):
        config = worker.call("GET", f"/connectors/{quote(name, safe='')}/config")
        if config is None:
            continue  # it went meanwhile
        configs[name] = {k: v for k, v in config.items() if k != "name"}
    return configs
