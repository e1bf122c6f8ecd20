"""Tells what a flow would create or change if it started now. Asks both clusters, and changes nothing.

Raises ClientError (a cluster is away), ConfigError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from klamm_kafka.client import Cluster
from klamm_mirror.checkpoint import config as checkpoint_config
from klamm_mirror.checkpoint import groups
from klamm_mirror.gaps.ledger import remotes_of
from klamm_mirror.heartbeat import config as heartbeat_config
from klamm_mirror.loop import ask_cluster
from klamm_mirror.principals import quotas, users
from klamm_mirror.principals.config import principal_settings
from klamm_mirror.schemas.config import schema_settings
from klamm_mirror.schemas.copier import ConflictError, SchemaCopier
from klamm_mirror.settings.keep_offsets import KEEP
from klamm_mirror.settings.mm2_config import CHECKPOINT, HEARTBEAT, SOURCE, Flow
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.source import config as source_config
from klamm_mirror.topics import acls
from klamm_mirror.topics.config_policy import POLICY, ConfigPolicy
from klamm_mirror.topics.target import Topics
from klamm_mirror.topics.topic_plan import TopicPlan
from klamm_plugins.mirror import AclBinding

Props = Mapping[str, str]


class Kind(StrEnum):
    """The kinds of changes."""

    TOPIC = "topic"
    PARTITIONS = "partitions"
    CONFIG = "config"
    INTERNAL_TOPIC = "internal topic"
    ACL = "acl"
    GROUP = "group"
    TAKEN_OVER = "taken over"
    SCHEMA = "schema"
    QUOTA = "quota"
    MISSING_USER = "missing user"
    """A user that the mirror cannot make."""
    CONFLICT = "conflict"
    """A thing that the mirror cannot bring to the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change at a cluster (its alias). `source` is the name at the source that it follows from."""

    cluster: str
    kind: Kind
    name: str
    source: str | None = None
    setting: str | None = None
    old: str | int | None = None
    new: str | int | None = None


class FlowPlan:
    """Plans one flow. `connectors` are the properties of those that run, with secrets resolved."""

    def __init__(self, flow: Flow, connectors: Mapping[str, Props]) -> None:
        self._flow = flow
        self._connectors = connectors

    async def changes(self) -> list[Change]:
        """Returns all changes, topics first."""
        async with AsyncExitStack() as stack:
            some = next(iter(self._connectors.values()))
            source = await stack.enter_async_context(ask_cluster(some, "source"))
            target = await stack.enter_async_context(ask_cluster(some, "target"))
            found: list[Change] = []
            if SOURCE in self._connectors:
                found += await self._topics(source, target)
                found += await self._principals(source, target)
                found += await asyncio.to_thread(self._schemas)
            found += await self._internal_topics(source, target)
            if CHECKPOINT in self._connectors:
                found += await self._groups(source)
            return found

    async def _topics(self, source: Cluster, target: Cluster) -> list[Change]:
        parsed = source_config.config_def().parse(self._connectors[SOURCE])
        if not parsed["enabled"]:
            return []
        with FlowPlugins(self._connectors[SOURCE], parsed) as plugins:
            remotes = await remotes_of(target, plugins.policy, parsed)
            return await self._planned(
                Topics(parsed, plugins, source, target, remotes), parsed, source, target
            )

    async def _planned(
        self, topics: Topics, parsed: Mapping[str, Any], source: Cluster, target: Cluster
    ) -> list[Change]:
        await topics.check_clusters()
        wanted = await topics.find()
        found = list(_of_plan(await topics.plan(wanted), self._flow.target))
        if parsed["sync.topic.configs.enabled"]:
            found += _of_plan(
                await topics.plan_configs(sorted(wanted), ConfigPolicy(parsed[POLICY])), self._flow.target
            )
        if parsed["sync.topic.acls.enabled"]:
            found += await self._acls(topics, source, target)
        return found

    async def _acls(self, topics: Topics, source: Cluster, target: Cluster) -> list[Change]:
        ours = await acls.list_bindings(source)
        theirs = await acls.list_bindings(target) if ours else None
        if not ours or theirs is None:
            return []
        missing = set(acls.mirrored(ours, topics.wants, topics.remote)) - set(theirs)
        return [
            Change(cluster=self._flow.target, kind=Kind.ACL, name=acl.topic, setting=acl.principal, new=_words(acl))
            for acl in sorted(missing, key=lambda a: (a.topic, a.principal, a.operation))
        ]  # fmt: skip

    async def _principals(self, source: Cluster, target: Cluster) -> list[Change]:
        """Returns the quotas that would be set, and the users whom the target lacks."""
        props, at = self._connectors[SOURCE], self._flow.target
        settings = principal_settings(props, source_config.config_def().parse(props))
        found: list[Change] = []
        if settings is None:
            return found
        try:
            wanted = await quotas.plan(settings, source, target) if settings.quotas_s is not None else []
        except quotas.QuotasUnsupported as e:
            return [Change(cluster=at, kind=Kind.CONFLICT, name="quotas", new=str(e))]
        found += [
            Change(
                cluster=at, kind=Kind.QUOTA, name=quotas.name_of(quota.entity), setting=quota.key,
                old=_number(quota.old), new=_number(quota.new),
            )
            for quota in wanted
        ]  # fmt: skip
        if settings.users_s is not None:
            there = await users.list_credentials(source), await users.list_credentials(target)
            found += [
                Change(cluster=at, kind=Kind.MISSING_USER, name=c.user, setting=c.mechanism, new=c.iterations)
                for c in users.missing(*there)
            ]
        return found

    def _schemas(self) -> list[Change]:
        """Returns the versions of schemas that would be registered. Raises RegistryError, RetriableError."""
        props, at = self._connectors[SOURCE], self._flow.target
        settings = schema_settings(props, source_config.config_def().parse(props))
        if settings is None:
            return []
        found: list[Change] = []
        with settings.plugins:
            copier = SchemaCopier(*settings.registries(), settings.names, settings.ids)
            for subject in copier.subjects():
                try:
                    missing = copier.missing(subject)
                except ConflictError as e:
                    found.append(Change(cluster=at, kind=Kind.CONFLICT, name=subject, new=str(e)))
                    continue
                found += [
                    Change(
                        cluster=at, kind=Kind.SCHEMA, name=m.remote, source=m.source.subject,
                        setting=f"version {m.source.version}", new=None if settings.translates else f"id {m.schema.id}",
                    )
                    for m in missing
                ]  # fmt: skip
        return list(dict.fromkeys(found))  # a schema that others refer to comes once

    async def _internal_topics(self, source: Cluster, target: Cluster) -> list[Change]:
        wanted = self._own_topics()
        there = {
            self._flow.source: {t.name for t in (await source.refresh(None)).topics},
            self._flow.target: {t.name for t in (await target.refresh(None)).topics},
        }
        return [
            Change(cluster=cluster, kind=Kind.INTERNAL_TOPIC, name=name)
            for cluster, name in wanted if name not in there[cluster]
        ]  # fmt: skip

    def _own_topics(self) -> list[tuple[str, str]]:
        """Returns the clusters and names of the topics that the flow keeps for itself."""
        flow, found = self._flow, list[tuple[str, str]]()
        if SOURCE in self._connectors:
            found += self._topics_of_source()
        if CHECKPOINT in self._connectors:
            with self._of_checkpoints() as plugins:
                found.append((flow.target, plugins.policy.checkpoints_topic(flow.source)))
        if HEARTBEAT in self._connectors:
            settings = heartbeat_config.parse(self._connectors[HEARTBEAT])
            with settings.plugins:
                found += [(flow.target, settings.topic)] if settings.enabled else []
        kinds = ("config", "offset", "status")
        return [*found, *((flow.target, flow.worker[f"{kind}.storage.topic"]) for kind in kinds)]

    def _topics_of_source(self) -> Iterator[tuple[str, str]]:
        flow, parsed = self._flow, source_config.config_def().parse(self._connectors[SOURCE])
        if not parsed["enabled"]:
            return
        at_target = parsed["offset-syncs.topic.location"] == "target"
        here, other = (flow.target, flow.source) if at_target else (flow.source, flow.target)
        with FlowPlugins(self._connectors[SOURCE], parsed) as plugins:
            if parsed["emit.offset-syncs.enabled"] and not parsed[KEEP]:
                yield here, plugins.policy.offset_syncs_topic(other)
            yield flow.target, plugins.policy.gaps_topic(flow.source)
            if parsed[source_config.SEGMENTS] and not parsed[KEEP]:
                yield flow.target, plugins.policy.offset_segments_topic(flow.source)

    async def _groups(self, source: Cluster) -> list[Change]:
        """Returns the groups that would be followed."""
        found = await groups.list_groups(source)
        with self._of_checkpoints() as plugins:
            wants = plugins.wants_group
            return [
                Change(cluster=self._flow.source, kind=Kind.GROUP, name=group)
                for group in found if wants(group)
            ]  # fmt: skip

    def _of_checkpoints(self) -> FlowPlugins:
        props = self._connectors[CHECKPOINT]
        return FlowPlugins(props, checkpoint_config.config_def().parse(props))


def _of_plan(plan: TopicPlan, cluster: str) -> Iterator[Change]:
    for topic in plan.create:
        yield Change(
            cluster=cluster, kind=Kind.TOPIC, name=topic.name, source=topic.source, new=topic.partitions
        )
        for name, value in topic.configs.items():
            yield Change(
                cluster=cluster,
                kind=Kind.CONFIG,
                name=topic.name,
                source=topic.source,
                setting=name,
                new=value,
            )
    for more in plan.grow:
        yield Change(
            cluster=cluster,
            kind=Kind.PARTITIONS,
            name=more.name,
            source=more.source,
            old=more.present,
            new=more.wanted,
        )
    for change in plan.configure:
        yield Change(
            cluster=cluster,
            kind=Kind.CONFIG,
            name=change.topic,
            setting=change.name,
            old=change.old,
            new=change.new,
        )


def _number(quota: float | None) -> str | None:
    return None if quota is None else f"{quota:.0f}" if quota.is_integer() else f"{quota:g}"


def _words(acl: AclBinding) -> str:
    return f"{acl.permission} {acl.operation} from {acl.host}"
