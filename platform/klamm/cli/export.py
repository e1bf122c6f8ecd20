"""`klamm export`: topics, ACLs, quotas, users, schemas and connectors as the YAML that `klamm apply` takes."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import reported
from klamm.cli.registry_client import OptionalWorker, Registry
from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm.admin.client import Admin


def export(
    cluster: AdminCluster,
    registry: Registry,
    worker: OptionalWorker,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            metavar="KIND,...",
            help="topics, acls, quotas, users, schemas, connectors. Default: what brokers keep, schemas with"
            " --registry, connectors with --url.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only topics that match this pattern (*, ?).")
    ] = None,
) -> None:
    """Print a cluster as YAML for `klamm apply`.

    Users come without passwords, and connectors with what the worker tells: it hides passwords.
    """
    with reported():
        from klamm.cli.output import yaml
        from klamm.desired import reading
        from klamm.desired.document import as_document
        from klamm.desired.state import CLUSTER_KINDS, State

        given = _kinds(kinds, registry, worker)

        async def ask(admin: Admin) -> dict[str, Any]:
            topics = await reading.read_topics(admin, others=True) if "topics" in given else {}
            return {
                "topics": {n: t for n, t in topics.items() if topic is None or fnmatch.fnmatchcase(n, topic)},
                "acls": await reading.read_acls(admin, optional=True) if "acls" in given else frozenset(),
                "quotas": await reading.read_quotas(admin) if "quotas" in given else {},
                "users": await reading.read_users(admin) if "users" in given else {},
            }

        found = cluster.ask(ask) if given & set(CLUSTER_KINDS) else {}
        if "schemas" in given:
            found["schemas"] = reading.read_schemas(registry.api())
        if "connectors" in given:
            found["connectors"] = reading.read_connectors(worker.api())
        sys.stdout.write(yaml(as_document(State(given=frozenset(given), **found))))


def _kinds(text: str | None, registry: Registry, worker: OptionalWorker) -> set[str]:
    from klamm.desired.state import CLUSTER_KINDS, KINDS

    if text is None:
        more = {"schemas"} if registry.registry else set()
        return {*CLUSTER_KINDS, *more, *({"connectors"} if worker.url else ())}
    kinds = {k.strip() for k in text.split(",") if k.strip()}
    for kind in sorted(kinds):
        if kind not in KINDS:
            raise ConfigError(f"--kinds {kind}: use one of {', '.join(KINDS)}")
    return kinds
